//! What is printed where: results on stdout, errors and progress on stderr, progress only for people.

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
            eprintln!("{step}");
        }
    }

    /// What people must know although it is no result, such as a price that is paid.
    pub(crate) fn notice(&self, text: &str) {
        if !self.json {
            eprintln!("{text}");
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
            eprintln!("sandbox: {message}");
        }
        ExitCode::from(*exit as u8)
    }
}

fn unprintable(error: impl std::fmt::Display) -> Failure {
    Failure::local(format!("cannot print the result: {error}"))
}
