//! How long functions are, counted from the signature to the closing brace.

use syn::visit::{self, Visit};

use crate::tidy::Finding;
use crate::tidy::figures::Figures;
use crate::tidy::source::{Source, for_tests, lines};

/// Lines of a function: a screen.
const FUNCTION_LINES: usize = 70;

pub(super) fn check(source: &Source, figures: &mut Figures) -> Vec<Finding> {
    let mut functions = Functions { inside_test: source.is_test(), found: Vec::new() };
    functions.visit_file(source.syntax());
    let production = functions.found.iter().filter(|function| !function.test).map(|function| function.lines);
    figures.functions.extend(production);
    figures.add_file(source.production_lines());
    let long = functions.found.iter().filter(|function| function.lines > FUNCTION_LINES);
    long.map(|function| Finding {
        path: source.path().to_string(),
        line: function.line,
        message: format!(
            "`{}` is {} lines long, at most {FUNCTION_LINES}: keep the branches here, move each one's work down",
            function.name, function.lines
        ),
    })
    .collect()
}

struct Functions {
    inside_test: bool,
    found: Vec<Function>,
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
    test: bool,
}

impl Functions {
    fn note(&mut self, signature: &syn::Signature, length: usize, attributes: &[syn::Attribute]) {
        let line = signature.ident.span().start().line;
        let test = self.inside_test || for_tests(attributes);
        self.found.push(Function { name: signature.ident.to_string(), line, lines: length, test });
    }

    fn within(&mut self, attributes: &[syn::Attribute], inside: impl FnOnce(&mut Self)) {
        let outside = self.inside_test;
        self.inside_test |= for_tests(attributes);
        inside(self);
        self.inside_test = outside;
    }
}

fn length(signature: &syn::Signature, block: &syn::Block) -> usize {
    lines(block) + block.brace_token.span.open().start().line - signature.fn_token.span.start().line
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.within(&module.attrs, |inside| visit::visit_item_mod(inside, module));
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        self.within(&block.attrs, |inside| visit::visit_item_impl(inside, block));
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig, length(&function.sig, &function.block), &function.attrs);
        self.within(&function.attrs, |inside| visit::visit_item_fn(inside, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note(&function.sig, length(&function.sig, &function.block), &function.attrs);
        self.within(&function.attrs, |inside| visit::visit_impl_item_fn(inside, function));
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.note(&function.sig, length(&function.sig, block), &function.attrs);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_longer_than_a_screen_is_found_and_one_that_fits_is_not() {
        let long = format!("fn long(\n    a: u8,\n) {{\n{}}}\n", "    b();\n".repeat(67));
        let fits = format!("fn fits() {{\n{}}}\n", "    b();\n".repeat(68));
        let source = Source::parse("fleet/src/lib.rs", format!("{long}{fits}")).unwrap();
        let mut figures = Figures::default();
        let findings = check(&source, &mut figures);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].message.contains("`long` is 71 lines"), "{findings:?}");
        assert_eq!(figures.functions, [71, 70]);
    }

    #[test]
    fn functions_of_tests_do_not_shape_the_figures() {
        let text = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n}\n".to_string();
        let mut figures = Figures::default();
        check(&Source::parse("fleet/src/lib.rs", text).unwrap(), &mut figures);
        assert!(figures.functions.is_empty());
    }
}
