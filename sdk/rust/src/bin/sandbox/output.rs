//! What is printed where: results on stdout, errors and progress on stderr, progress only for people.
//!
//! Operators have a word in many of the sentences on stderr, so none of these steers a terminal. A result is its command's matter.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use sandbox_protocol::http::ErrorBody;
use serde::Serialize;

use crate::failure::Failure;

/// How this run prints.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    watched: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, watched: std::io::stderr().is_terminal() }
    }

    /// Whether programs read stdout.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// A step that is under way.
    pub(crate) fn progress(&self, step: &str) {
        if self.watched && !self.json {
            eprintln!("{}", harmless(step));
        }
    }

    /// What people must know although it is no result, such as a price that is paid.
    pub(crate) fn notice(&self, text: &str) {
        if !self.json {
            eprintln!("{}", harmless(text));
        }
    }

    /// Whether a person reads stdout.
    pub(crate) fn is_live(&self) -> bool {
        !self.json && std::io::stdout().is_terminal()
    }

    /// Whether a person reads stderr.
    pub(crate) const fn is_watched(&self) -> bool {
        self.watched && !self.json
    }

    /// What is told beside the result while it comes about; paler where a person reads it.
    pub(crate) fn aside(&self, text: &str) {
        if self.is_watched() {
            eprint!("\x1b[2m{text}\x1b[0m");
        } else if !self.json {
            eprint!("{text}");
        }
    }

    /// The result: `text` for people, `value` for programs.
    pub(crate) fn result(&self, text: &str, value: &impl Serialize) -> Result<(), Failure> {
        let line = if self.json { serde_json::to_string(value).map_err(unprintable)? } else { text.to_owned() };
        writeln!(std::io::stdout(), "{line}").map_err(unprintable)
    }

    /// A command's own output, byte by byte.
    pub(crate) fn streams(&self, stdout: &[u8], stderr: &[u8]) -> Result<(), Failure> {
        let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
        let written = out.write_all(stdout).and_then(|()| out.flush());
        written.and_then(|()| err.write_all(stderr)).map_err(unprintable)
    }

    /// The failure that ends this run.
    pub(crate) fn failure(&self, failure: &Failure) -> ExitCode {
        let Failure { exit, code, message, retryable } = failure;
        if self.json {
            let body = ErrorBody { code: code.clone(), message: message.clone(), retryable: *retryable };
            eprintln!("{}", serde_json::json!(body));
        } else {
            eprintln!("sandbox: {}", harmless(message));
        }
        ExitCode::from(*exit as u8)
    }
}

fn unprintable(error: impl std::fmt::Display) -> Failure {
    Failure::local(format!("cannot print the result: {error}"))
}

/// A text without what terminals obey, but for lines and tabs.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|letter| matches!(letter, '\n' | '\t') || !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_lines_and_loses_what_terminals_obey() {
        assert_eq!(harmless("planned:\n\ta\x1b[2J\u{9b}1m\r\x07b\u{7f}\n"), "planned:\n\ta[2J1mb\n");
    }
}
