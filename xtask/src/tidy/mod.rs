//! The rules of style that a machine can check. Each finding names what to write instead.
//!
//! It reads the files git knows or would take up, the syntax of the Rust ones, and the crate graph; it changes nothing.
//! What rustfmt, clippy and forge already check is not repeated here.

mod arrows;
mod code;
mod figures;
mod module;
mod shape;
mod source;
mod text;

use std::collections::BTreeSet;
use std::fmt;
use std::process::ExitCode;

use anyhow::Result;

use self::figures::Figures;
use self::source::Source;
use crate::limits::QUESTION_MAX;
use crate::place::Place;
use crate::run;

/// A rule that some line breaks.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// `cargo xtask tidy`.
pub(crate) fn command(place: &Place) -> Result<ExitCode> {
    Ok(if check(place)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints findings and figures; whether there was nothing to find.
pub(crate) fn check(place: &Place) -> Result<bool> {
    let paths = tracked(place)?;
    let mut findings = arrows::check(&place.workspace()?.packages);
    let mut sources = Vec::new();
    for path in &paths {
        // What is no text (or was just deleted) has no lines to judge.
        let Ok(content) = std::fs::read_to_string(place.at(path)) else { continue };
        findings.extend(text::check(path, &content));
        if path.ends_with(".rs") {
            match Source::parse(path, content) {
                Ok(source) => sources.push(source),
                Err(error) => findings.push(Finding { path: path.clone(), line: 1, message: error.to_string() }),
            }
        }
    }
    let test_files: BTreeSet<String> = sources.iter().flat_map(Source::test_modules).collect();
    let of_tests = |path: &str| {
        test_files.contains(path) || test_files.iter().any(|dir| dir.ends_with('/') && path.starts_with(dir.as_str()))
    };
    sources.iter_mut().filter(|source| of_tests(source.path())).for_each(Source::mark_as_test);
    let mut figures = Figures::default();
    for source in &sources {
        findings.extend(module::check(source));
        findings.extend(code::check(source, &mut figures));
        findings.extend(shape::check(source, &mut figures));
    }
    findings.sort();
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("{} findings in {} files\n\n{figures}", findings.len(), paths.len());
    Ok(findings.is_empty())
}

/// Every file that is in git or would be added to it.
fn tracked(place: &Place) -> Result<Vec<String>> {
    let mut list = place.program("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed: BTreeSet<String> = run::output(&mut list, QUESTION_MAX)?.lines().map(str::to_string).collect();
    Ok(listed.into_iter().collect())
}
