//! A Rust file, parsed, with its test code told apart from what ships.

use syn::spanned::Spanned;

/// Folders and file names that hold nothing but test code.
const TEST_PLACES: [&str; 4] = ["tests/", "/tests/", "/benches/", "/tests.rs"];

/// One file of the workspace.
pub(super) struct Source {
    path: String,
    text: String,
    syntax: syn::File,
    test: bool,
}

impl Source {
    /// Parses `text` as the file at `path`, relative to the checkout.
    pub(super) fn parse(path: &str, text: String) -> syn::Result<Source> {
        let syntax = syn::parse_file(&text)?;
        let test = TEST_PLACES.iter().any(|place| match place.strip_prefix('/') {
            Some(_) => path.contains(place),
            None => path.starts_with(place),
        });
        Ok(Source { path: path.to_string(), text, syntax, test })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn syntax(&self) -> &syn::File {
        &self.syntax
    }

    /// The whole file is test code.
    pub(super) fn is_test(&self) -> bool {
        self.test
    }

    pub(super) fn mark_as_test(&mut self) {
        self.test = true;
    }

    /// Files that this one declares as `#[cfg(test)] mod name;`, and the folder of what they declare, which is test code as
    /// well.
    pub(super) fn test_modules(&self) -> Vec<String> {
        let folder = self.module_folder();
        let declared = self.syntax.items.iter().filter_map(|item| match item {
            syn::Item::Mod(module) if module.content.is_none() && for_tests(&module.attrs) => Some(&module.ident),
            _ => None,
        });
        declared.flat_map(|name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/")]).collect()
    }

    /// Where this file's own modules lie: beside `mod.rs`, `lib.rs` and `main.rs`, below the name of any other.
    fn module_folder(&self) -> &str {
        let stem = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        ["/mod", "/lib", "/main"].iter().find_map(|root| stem.strip_suffix(root)).unwrap_or(stem)
    }

    /// Lines that ship: all but those of items marked for tests.
    pub(super) fn production_lines(&self) -> usize {
        if self.test {
            return 0;
        }
        let test_lines: usize = self.syntax.items.iter().filter(|item| for_tests(attributes(item))).map(lines).sum();
        self.text.lines().count().saturating_sub(test_lines)
    }
}

/// Lines from an item's first token to its last.
pub(super) fn lines(item: &impl Spanned) -> usize {
    let span = item.span();
    span.end().line + 1 - span.start().line
}

/// Whether these attributes keep an item out of what ships: `#[cfg(test)]`, `#[test]`, `#[tokio::test]` and their like.
pub(super) fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| is_test_attribute(attribute) || is_cfg_test(attribute))
}

/// `#[test]`, `#[tokio::test(…)]`.
pub(super) fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "test")
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let words = list.tokens.to_string();
    let about_tests =
        words.split(|character: char| !character.is_alphanumeric() && character != '_').any(|word| word == "test");
    list.path.is_ident("cfg") && about_tests && !words.contains("not")
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::parse(path, text.to_string()).unwrap()
    }

    #[test]
    fn what_is_marked_for_tests_does_not_count_as_production() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        assert_eq!(source("a/src/lib.rs", text).production_lines(), 1);
        assert_eq!(source("tests/src/lib.rs", text).production_lines(), 0);
        assert_eq!(source("a/src/b.rs", "#[cfg(not(test))]\nfn a() {}\n").production_lines(), 2);
    }

    #[test]
    fn a_file_declared_for_tests_is_found_where_it_lies() {
        let text = "#[cfg(test)]\nmod fakes;\nmod real;\n";
        assert_eq!(source("a/src/b/mod.rs", text).test_modules()[0], "a/src/b/fakes.rs");
        assert_eq!(source("a/src/b.rs", text).test_modules(), ["a/src/b/fakes.rs", "a/src/b/fakes/"]);
    }
}
