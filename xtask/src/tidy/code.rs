//! What a syntax tree shows: who reads the environment, holds a process-wide cell, passes JSON or string errors around,
//! sleeps in a test, names an outside library out of its folder.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::tidy::Finding;
use crate::tidy::figures::Figures;
use crate::tidy::source::{Source, for_tests, is_test_attribute};

/// The one reader of the environment, and the build script's stand-in, which runs where no configuration exists.
const ENVIRONMENT: [&str; 2] = ["process/src/source.rs", "build/protobuf-src/src/lib.rs"];
const ENVIRONMENT_CALLS: [&str; 4] = ["var", "var_os", "vars", "vars_os"];
/// Where JSON without a type may stand: the files that turn it into types, or types into it.
const JSON_RIMS: [&str; 22] = [
    "agent/src/detail.rs",
    "agent/src/memory/",
    "agent/src/model.rs",
    "agent/src/provider/",
    "agent/src/task/",
    "agent/src/tools/",
    "agentd/src/backend.rs",
    "agentd/src/backends/",
    "protocol/src/agent/",
    "tests/provider/",
    "protocol/src/fsp/wire.rs",
    "protocol/src/http.rs",
    "protocol/src/workflow/",
    "sdk/rust/src/bin/sandbox/commands/agents/context.rs",
    "sdk/rust/src/bin/sandbox/commands/workflows/held.rs",
    "sdk/rust/src/devchain.rs",
    "sdk/rust/src/requests/workflows.rs",
    "sdk/rust/src/reverts/mod.rs",
    "operator/src/api/",
    "operator/src/config/agents.rs",
    "process/src/logging/json.rs",
    "xtask/src/setup/runsc.rs",
];
/// Where tests wait for a state, which everything else calls; and a provider whose delays are what tests ask of it.
const WAITING: [&str; 2] = ["tests/src/wait.rs", "tests/provider/src/provider.rs"];
/// Types that make a static changeable.
const CELLS: [&str; 9] =
    ["OnceLock", "OnceCell", "LazyLock", "LazyCell", "Lazy", "Mutex", "RwLock", "RefCell", "UnsafeCell"];
/// Macros that declare changeable statics.
const CELL_MACROS: [&str; 2] = ["lazy_static", "thread_local"];
/// Each outside library and the folders that may name it.
const LIBRARIES: [(&str, &[&str]); 8] = [
    ("bollard", &["operator/src/docker"]),
    ("sled", &["operator/src/records"]),
    ("axum", &["agentd/src/http", "operator/src/admin", "operator/src/api", "sidecar/src/http", "tests/provider"]),
    ("genai", &["agent/src/provider"]),
    ("bpe_openai", &["agent/src/memory"]),
    ("russh", &["gateway"]),
    (
        "blueprint_sdk",
        // The last two measure it, and are not shipped.
        &["operator/src/jobs", "operator/src/chain", "operator/src/app", "operator/src/bench", "operator/examples"],
    ),
    ("blueprint_producers_extra", &["operator/src/jobs", "operator/src/chain", "operator/src/app"]),
];

pub(super) fn check(source: &Source, figures: &mut Figures) -> Vec<Finding> {
    let mut reader =
        Reader { path: source.path(), test: source.is_test(), figures, reads_environment: false, findings: Vec::new() };
    reader.visit_file(source.syntax());
    if reader.reads_environment && !source.path().starts_with("build/") {
        reader.figures.env_readers += 1;
    }
    reader.findings
}

struct Reader<'a> {
    path: &'a str,
    /// The current item is test code.
    test: bool,
    figures: &'a mut Figures,
    reads_environment: bool,
    findings: Vec<Finding>,
}

impl Reader<'_> {
    fn find(&mut self, place: &impl Spanned, message: impl Into<String>) {
        let line = place.span().start().line;
        self.findings.push(Finding { path: self.path.to_string(), line, message: message.into() });
    }

    fn within(&mut self, attributes: &[syn::Attribute], inside: impl FnOnce(&mut Self)) {
        let outside = self.test;
        self.test |= for_tests(attributes);
        inside(self);
        self.test = outside;
    }

    fn name(&mut self, attributes: &[syn::Attribute], name: &syn::Ident) {
        if attributes.iter().any(is_test_attribute) && name.to_string().starts_with("test_") {
            self.find(name, format!("`{name}`: a test's name is a sentence about behaviour; drop the prefix"));
        }
    }

    fn limit(&mut self, name: &syn::Ident) {
        let text = name.to_string();
        let is_limit = text.ends_with("_MAX") || text.ends_with("_MIN");
        if is_limit && !self.test && !self.path.ends_with("limits.rs") {
            self.find(name, format!("`{name}` is a limit: move it into the crate's limits.rs"));
        }
    }

    fn cell(&mut self, place: &impl Spanned, what: &str) {
        if !self.test {
            self.figures.cells += 1;
            let instead = "give the state one owner and hand it, or a handle to it, in as an argument";
            self.find(place, format!("{what} is shared by the whole process: {instead}"));
        }
    }

    /// A name with its path, from a path expression, a type or an import.
    fn named(&mut self, place: &impl Spanned, segments: &[String]) {
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments[..] {
            [.., "env", call] if ENVIRONMENT_CALLS.contains(&call) => self.environment(place),
            ["serde_json", "Value", ..] => self.json(place),
            [.., "sleep"] if self.test && !WAITING.contains(&self.path) => {
                self.find(place, "a test sleeps: wait for a state through the harness, or advance the paused clock");
            }
            _ => (),
        }
        self.library(place, segments[0]);
    }

    fn environment(&mut self, place: &impl Spanned) {
        self.reads_environment = true;
        if !ENVIRONMENT.contains(&self.path) {
            self.find(place, "reads the environment: take the value from a Config, which process::source filled");
        }
    }

    fn json(&mut self, place: &impl Spanned) {
        if self.test {
            return;
        }
        self.figures.json_in_fleet += usize::from(self.path.starts_with("fleet/"));
        if !JSON_RIMS.iter().any(|rim| self.path.starts_with(rim)) {
            self.find(place, "a JSON value without a type: parse it at the rim (or name this file in JSON_RIMS)");
        }
    }

    fn library(&mut self, place: &impl Spanned, root: &str) {
        let Some((_, folders)) = LIBRARIES.iter().find(|(library, _)| *library == root) else { return };
        if !self.test && !folders.iter().any(|folder| is_in(self.path, folder)) {
            self.find(place, format!("`{root}` is known only in {}: ask there through a port", folders.join(", ")));
        }
    }
}

/// The folder itself, or the file of the same name beside it.
fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

/// Every full name that an import brings in.
fn imported(tree: &syn::UseTree, before: &[String], names: &mut Vec<Vec<String>>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        syn::UseTree::Path(path) => imported(&path.tree, &with(&path.ident), names),
        syn::UseTree::Name(name) => names.push(with(&name.ident)),
        syn::UseTree::Rename(rename) => names.push(with(&rename.ident)),
        syn::UseTree::Glob(_) => names.push(before.to_vec()),
        syn::UseTree::Group(group) => group.items.iter().for_each(|item| imported(item, before, names)),
    }
}

/// `Result<_, String>`, `Result<_, &str>`.
fn has_string_error(path: &syn::Path) -> bool {
    let Some(last) = path.segments.last().filter(|last| last.ident == "Result") else { return false };
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    match arguments.args.iter().nth(1) {
        Some(syn::GenericArgument::Type(syn::Type::Path(error))) => error.path.is_ident("String"),
        Some(syn::GenericArgument::Type(syn::Type::Reference(error))) => {
            matches!(&*error.elem, syn::Type::Path(path) if path.path.is_ident("str"))
        }
        _ => false,
    }
}

/// Whether a static of this type can change after the program began.
fn can_change(kind: &syn::Type) -> bool {
    struct Cells(bool);
    impl Visit<'_> for Cells {
        fn visit_ident(&mut self, name: &syn::Ident) {
            let name = name.to_string();
            self.0 |= CELLS.contains(&name.as_str()) || name.starts_with("Atomic");
        }
    }
    let mut cells = Cells(false);
    cells.visit_type(kind);
    cells.0
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.within(&module.attrs, |inside| visit::visit_item_mod(inside, module));
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        self.within(&block.attrs, |inside| visit::visit_item_impl(inside, block));
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.name(&function.attrs, &function.sig.ident);
        self.within(&function.attrs, |inside| visit::visit_item_fn(inside, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.within(&function.attrs, |inside| visit::visit_impl_item_fn(inside, function));
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        let mut names = Vec::new();
        imported(&import.tree, &[], &mut names);
        self.within(&import.attrs, |inside| {
            names.iter().filter(|name| !name.is_empty()).for_each(|name| inside.named(import, name));
        });
    }

    fn visit_item_const(&mut self, constant: &'ast syn::ItemConst) {
        self.limit(&constant.ident);
        visit::visit_item_const(self, constant);
    }

    fn visit_impl_item_const(&mut self, constant: &'ast syn::ImplItemConst) {
        self.limit(&constant.ident);
        visit::visit_impl_item_const(self, constant);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        if matches!(item.mutability, syn::StaticMutability::Mut(_)) || can_change(&item.ty) {
            self.cell(&item.ident, &format!("`{}`", item.ident));
        }
        visit::visit_item_static(self, item);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        if CELL_MACROS.contains(&name.as_str()) {
            self.cell(call, &format!("`{name}!`"));
        }
        visit::visit_macro(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if !self.test && (call.method == "unwrap" || call.method == "expect") {
            self.figures.unwraps += 1;
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.named(path, &segments);
        }
        if !self.test && has_string_error(path) {
            self.figures.string_errors += 1;
            self.find(path, "an error of words: make it an enum of this module, one variant an operation");
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let source = Source::parse(path, text.to_string()).unwrap();
        check(&source, &mut Figures::default()).into_iter().map(|finding| finding.message).collect()
    }

    #[track_caller]
    fn found(path: &str, text: &str, about: &str) {
        let messages = messages(path, text);
        assert!(messages.len() == 1 && messages[0].contains(about), "{messages:?}");
    }

    #[track_caller]
    fn fine(path: &str, text: &str) {
        assert_eq!(messages(path, text), Vec::<String>::new());
    }

    #[test]
    fn the_environment_has_one_reader() {
        let text = "fn a() { std::env::var(\"A\"); }";
        found("sdk/rust/src/lib.rs", text, "reads the environment");
        fine("process/src/source.rs", text);
        found("sdk/rust/src/lib.rs", "use std::env::{self, var_os};", "reads the environment");
        fine("sdk/rust/src/lib.rs", "fn a() { std::env::home_dir(); env!(\"A\"); }");
    }

    #[test]
    fn no_state_is_shared_by_the_whole_process() {
        found("fleet/src/lib.rs", "static mut A: u8 = 0;", "one owner");
        found("fleet/src/lib.rs", "static A: std::sync::OnceLock<u8> = OnceLock::new();", "one owner");
        found("fleet/src/lib.rs", "static A: AtomicU64 = AtomicU64::new(0);", "one owner");
        found("fleet/src/lib.rs", "lazy_static! { static ref A: u8 = 0; }", "one owner");
        fine("fleet/src/lib.rs", "static A: &str = \"constant\"; struct B(Mutex<u8>);");
    }

    #[test]
    fn json_stays_at_the_rim() {
        found("fleet/src/lib.rs", "use serde_json::Value;", "at the rim");
        found("fleet/src/lib.rs", "fn a(b: serde_json::Value) {}", "at the rim");
        fine("protocol/src/http.rs", "use serde_json::Value;");
        fine("fleet/src/lib.rs", "enum Value { A } fn a() -> Value { Value::A }");
    }

    #[test]
    fn errors_are_not_words() {
        found("fleet/src/lib.rs", "fn a() -> Result<u8, String> { Ok(1) }", "enum");
        found("fleet/src/lib.rs", "fn a() -> Result<u8, &'static str> { Ok(1) }", "enum");
        fine("fleet/src/lib.rs", "fn a() -> Result<String, Error> { Ok(String::new()) }");
    }

    #[test]
    fn tests_wait_for_states_and_are_named_as_sentences() {
        let sleep = "#[cfg(test)] mod tests { #[tokio::test] async fn a() { tokio::time::sleep(b).await; } }";
        found("fleet/src/lib.rs", sleep, "sleeps");
        fine("fleet/src/lib.rs", "async fn a() { tokio::time::sleep(b).await; }");
        fine(WAITING[0], "async fn a() { tokio::time::sleep(b).await; }");
        found("fleet/src/lib.rs", "#[test] fn test_a() {}", "sentence");
        fine("fleet/src/lib.rs", "fn test_bed() {}");
    }

    #[test]
    fn limits_have_a_file() {
        found("fleet/src/lib.rs", "const SANDBOXES_MAX: usize = 8;", "limits.rs");
        fine("fleet/src/limits.rs", "pub const SANDBOXES_MAX: usize = 8;");
    }

    #[test]
    fn a_library_is_known_in_its_folder_only() {
        found("operator/src/jobs/mod.rs", "use bollard::Docker;", "operator/src/docker");
        fine("operator/src/docker/mod.rs", "use bollard::Docker;");
        fine("operator/src/docker.rs", "type Engine = bollard::Docker;");
        fine("tests/src/provider.rs", "use axum::Router;");
    }

    #[test]
    fn unwraps_are_counted_outside_tests() {
        let text = "fn a() { b.unwrap(); } #[test] fn c() { d.unwrap(); }".to_string();
        let mut figures = Figures::default();
        check(&Source::parse("fleet/src/lib.rs", text).unwrap(), &mut figures);
        assert_eq!(figures.unwraps, 1);
    }
}
