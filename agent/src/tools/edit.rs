//! An edit: one text of a file in the place of another.

use async_trait::async_trait;
use serde::Deserialize;

use super::files::PATH;
use super::{Context, Failure, Field, Tool};
use crate::ToolError;
use crate::limits::FILE_BYTES_MAX;

/// Edits a file. A second time it may find `old` again, in what it wrote: it is never repeated.
pub(super) struct EditFile;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    path: String,
    old: String,
    new: String,
}

#[async_trait]
impl Tool for EditFile {
    type Arguments = Arguments;

    fn name(&self) -> &'static str {
        "edit_file"
    }

    fn about(&self) -> &'static str {
        "Replaces a text that occurs exactly once in a file."
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: &[Field] = &[
            PATH,
            Field::text("old", "The text, with as much around it as makes it the only one.", FILE_BYTES_MAX).required(),
            Field::content("new", "What is to stand there instead.", FILE_BYTES_MAX).required(),
        ];
        FIELDS
    }

    async fn execute(&self, arguments: Arguments, context: &Context) -> Result<String, Failure> {
        let Arguments { path, old, new } = arguments;
        let files = context.files()?;
        let content = files.read(&path, FILE_BYTES_MAX).await?;
        if content.length > content.bytes.len() as u64 {
            let message = format!("the file is longer than {FILE_BYTES_MAX} bytes");
            return Err(ToolError::execution(self.name(), &message).into());
        }
        let refused = |message: &str| ToolError::execution(self.name(), message).retryable(true);
        let text = String::from_utf8(content.bytes).map_err(|_| refused("the file is not UTF-8").retryable(false))?;
        let edited = edited(&text, &old, &new).map_err(|fault| refused(&fault.to_string()))?;
        if edited.len() > FILE_BYTES_MAX {
            return Err(refused(&format!("the file would be longer than {FILE_BYTES_MAX} bytes")).into());
        }
        files.write(&path, edited.as_bytes(), Some(&content.etag)).await?;
        Ok(format!("Edited {path}."))
    }
}

/// Why a text cannot be edited.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("old and new are the same")]
    Same,
    #[error("old does not occur in the file")]
    Missing,
    #[error("old occurs {times} times in the file: give more of what surrounds it")]
    Ambiguous { times: usize },
}

fn edited(text: &str, old: &str, new: &str) -> Result<String, Fault> {
    if old == new {
        return Err(Fault::Same);
    }
    let at = text.find(old).ok_or(Fault::Missing)?;
    match occurrences(text, old) {
        1 => Ok([&text[..at], new, &text[at + old.len()..]].concat()),
        times => Err(Fault::Ambiguous { times }),
    }
}

/// How often a text is there, also where it overlaps itself. The bound keeps a hostile file from taking time.
fn occurrences(text: &str, part: &str) -> usize {
    const ENOUGH: usize = 100;
    let step = part.chars().next().map_or(1, char::len_utf8);
    let (mut from, mut times) = (0, 0);
    while let Some(at) = text[from..].find(part) {
        times += 1;
        from += at + step;
        if times == ENOUGH {
            break;
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_replaced_where_it_is_the_only_one() {
        assert_eq!(edited("one two", "two", "three").unwrap(), "one three");
        assert_eq!(edited("one two", "one ", "").unwrap(), "two");
        assert_eq!(edited("ä ö", "ö", "ü").unwrap(), "ä ü");
    }

    #[test]
    fn none_and_several_are_refused_also_where_they_overlap() {
        assert_eq!(edited("one", "two", "three"), Err(Fault::Missing));
        assert_eq!(edited("aaa", "aa", "b"), Err(Fault::Ambiguous { times: 2 }));
        assert_eq!(edited("ää", "ä", "b"), Err(Fault::Ambiguous { times: 2 }));
        assert_eq!(edited("one", "one", "one"), Err(Fault::Same));
    }
}
