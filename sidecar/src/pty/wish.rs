//! A wish for a terminal, checked once: past this file nothing is too long or doubtful.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sandbox_protocol::limits::{EXEC_COMMAND_BYTES_MAX, PTY_TERM_BYTES_MAX};
use sandbox_protocol::pty::OpenQuery;

use super::error::PtyError;
use super::screen::Size;
use crate::exec::{checked_directory, checked_env, checked_text};

/// A checked wish.
#[derive(Debug)]
pub(super) struct Wish {
    /// For the shell, instead of asking.
    pub(super) command: Option<String>,
    /// Where it starts: absolute.
    pub(super) directory: PathBuf,
    /// Added to the clean environment.
    pub(super) env: BTreeMap<String, String>,
    /// `TERM`.
    pub(super) term: String,
    /// Size of the terminal.
    pub(super) size: Size,
}

impl Wish {
    /// Checks `query`; relative directories start at `workspace`.
    pub(super) fn parse(query: OpenQuery, workspace: &Path) -> Result<Self, PtyError> {
        let command = query.command.filter(|command| !command.trim().is_empty());
        let command = command.map(|command| checked_text("command", command, EXEC_COMMAND_BYTES_MAX)).transpose()?;
        Ok(Self {
            command,
            directory: checked_directory(query.cwd, workspace)?,
            env: checked_env(query.env.0)?,
            term: checked_term(query.term)?,
            size: Size::new(query.cols, query.rows).ok_or(PtyError::Size)?,
        })
    }
}

/// The name becomes a path in the data base of terminals.
pub(crate) fn checked_term(term: String) -> Result<String, PtyError> {
    let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
    let usable = (1..=PTY_TERM_BYTES_MAX).contains(&term.len()) && term.bytes().all(of_a_name);
    if usable { Ok(term) } else { Err(PtyError::Term) }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::limits::{PTY_COLS_MAX, PTY_ROWS_MAX};

    use super::*;

    fn parse(change: impl FnOnce(&mut OpenQuery)) -> Result<Wish, PtyError> {
        let mut query = OpenQuery::default();
        change(&mut query);
        Wish::parse(query, Path::new("/workspace"))
    }

    #[test]
    fn nothing_asked_is_a_shell_in_the_workspace() {
        let wish = parse(|_| {}).unwrap();
        assert_eq!((wish.command, wish.directory.as_path()), (None, Path::new("/workspace")));
        assert_eq!((wish.term.as_str(), wish.size), ("xterm-256color", Size { cols: 80, rows: 24 }));
        assert_eq!(parse(|query| query.command = Some(" ".to_owned())).unwrap().command, None);
    }

    #[test]
    fn every_bound_holds_on_both_sides() {
        for (cols, rows, fits) in [
            (1, 1, true),
            (PTY_COLS_MAX, PTY_ROWS_MAX, true),
            (0, 24, false),
            (80, 0, false),
            (PTY_COLS_MAX + 1, 24, false),
            (80, PTY_ROWS_MAX + 1, false),
        ] {
            assert_eq!(parse(|query| (query.cols, query.rows) = (cols, rows)).is_ok(), fits, "{cols} {rows}");
        }
        for (term, fits) in [
            ("x".repeat(PTY_TERM_BYTES_MAX), true),
            ("screen.xterm+256-color_1".to_owned(), true),
            ("x".repeat(PTY_TERM_BYTES_MAX + 1), false),
            (String::new(), false),
            ("../x".to_owned(), false),
            ("x\n".to_owned(), false),
        ] {
            assert_eq!(parse(|query| query.term.clone_from(&term)).is_ok(), fits, "{term:?}");
        }
        let command = |bytes| parse(|query| query.command = Some("c".repeat(bytes)));
        assert!(command(EXEC_COMMAND_BYTES_MAX).is_ok() && command(EXEC_COMMAND_BYTES_MAX + 1).is_err());
        for cwd in ["..", "/proc/1", "a\0"] {
            assert!(parse(|query| query.cwd = cwd.to_owned()).is_err(), "{cwd:?}");
        }
    }
}
