//! One line for people, or one JSON document for programs, on standard output.

use serde::Serialize;

use super::CommandError;

/// Where results go, and for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    for_programs: bool,
}

impl Output {
    /// For programs, or for people.
    pub(crate) const fn new(for_programs: bool) -> Self {
        Self { for_programs }
    }

    /// Says one thing.
    pub(super) fn say(&self, line: &str, value: &impl Serialize) -> Result<(), CommandError> {
        if self.for_programs {
            println!("{}", serde_json::to_string(value).map_err(CommandError::Print)?);
        } else {
            println!("{line}");
        }
        Ok(())
    }

    /// Lists several things: a line each, and one line where there is none.
    pub(super) fn list<T: Serialize>(
        &self,
        items: &[T],
        none: &str,
        line: impl Fn(&T) -> String,
    ) -> Result<(), CommandError> {
        let lines: Vec<String> = items.iter().map(line).collect();
        let text = if lines.is_empty() { none.to_owned() } else { lines.join("\n") };
        self.say(&text, &items)
    }
}
