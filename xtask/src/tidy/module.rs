//! How a file opens, and how long it is.

use crate::tidy::Finding;
use crate::tidy::source::Source;

/// Production lines of a file.
const FILE_LINES: usize = 500;

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |message: String| findings.push(Finding { path: source.path().to_string(), line: 1, message });
    if !has_header(source.syntax()) {
        find("no module header: open the file with `//!`, saying what it is and what it is not".to_string());
    }
    let lines = source.production_lines();
    if lines > FILE_LINES {
        find(format!("{lines} production lines, at most {FILE_LINES}: split it where the subject changes"));
    }
    findings
}

fn has_header(file: &syn::File) -> bool {
    let is_inner = |attribute: &&syn::Attribute| matches!(attribute.style, syn::AttrStyle::Inner(_));
    file.attrs.iter().filter(is_inner).any(|attribute| attribute.path().is_ident("doc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let source = Source::parse("fleet/src/lib.rs", text.to_string()).unwrap();
        check(&source).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_file_opens_by_saying_what_it_is() {
        assert!(messages("//! Plans.\nfn a() {}\n").is_empty());
        assert!(messages("/// A function.\nfn a() {}\n")[0].contains("module header"));
    }

    #[test]
    fn a_file_ends_before_it_becomes_two() {
        let text = format!("//! Plans.\n{}", "const A: u8 = 1;\n".repeat(500));
        assert!(messages(&text)[0].contains("501 production lines"));
    }
}
