//! Files: read, write, list.

use async_trait::async_trait;
use sandbox_protocol::files::FileKind;
use serde::Deserialize;

use super::ports::{Content, Entry};
use super::{Context, Failure, Field, Repeat, Tool};
use crate::ToolError;
use crate::limits::{FILE_BYTES_MAX, LIST_ENTRIES_MAX, PATH_BYTES_MAX, READ_LINES_DEFAULT, READ_LINES_MAX};

pub(super) const PATH: Field =
    Field::text("path", "Of the file, beneath the workspace or absolute.", PATH_BYTES_MAX).required();

/// Reads a file.
pub(super) struct ReadFile;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

#[async_trait]
impl Tool for ReadFile {
    type Arguments = ReadArguments;

    fn name(&self) -> &'static str {
        "read_file"
    }

    fn about(&self) -> &'static str {
        "Reads lines of a text file."
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: &[Field] = &[
            PATH,
            Field::whole("offset", "Number of the first line, from 1 on; 1 without.", 1, READ_LINES_MAX),
            Field::whole("limit", "How many lines; 2000 without.", 1, READ_LINES_MAX),
        ];
        FIELDS
    }

    fn repeat(&self) -> Repeat {
        Repeat::Again
    }

    async fn execute(&self, arguments: ReadArguments, context: &Context) -> Result<String, Failure> {
        let ReadArguments { path, offset, limit } = arguments;
        let Content { bytes, length, etag: _ } = context.files()?.read(&path, FILE_BYTES_MAX).await?;
        if bytes.contains(&0) {
            return Err(ToolError::execution(self.name(), "not a text file").with("bytes", length).into());
        }
        if bytes.is_empty() {
            return Ok("The file is empty.".to_owned());
        }
        let text = String::from_utf8_lossy(&bytes);
        let more = length > bytes.len() as u64;
        lines(&text, more, offset.unwrap_or(1), limit.unwrap_or(READ_LINES_DEFAULT)).ok_or_else(|| {
            let lines = text.lines().count() as u64;
            let message = if more {
                "there is no such line in the part that can be read; use shell"
            } else {
                "there is no such line"
            };
            ToolError::execution(self.name(), message).retryable(true).with("lines", lines).into()
        })
    }
}

/// Lines of a text; `None` if it has none there.
fn lines(text: &str, more: bool, first: u64, count: u64) -> Option<String> {
    let (skipped, count) = (usize::try_from(first).ok()? - 1, usize::try_from(count).ok()?);
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    if skipped >= all.len() {
        return None;
    }
    let last = skipped.saturating_add(count).min(all.len());
    let mut told = all[skipped..last].concat();
    if last < all.len() || more {
        let plus = if more { " and more" } else { "" };
        told.push_str(&format!("\n[lines {first} to {last} of {}{plus}]", all.len()));
    }
    Some(told)
}

/// Writes a file.
pub(super) struct WriteFile;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    path: String,
    content: String,
}

#[async_trait]
impl Tool for WriteFile {
    type Arguments = WriteArguments;

    fn name(&self) -> &'static str {
        "write_file"
    }

    fn about(&self) -> &'static str {
        "Writes a text file whole, in place of one that is there; directories on the way are made."
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: &[Field] =
            &[PATH, Field::content("content", "All that the file is to hold.", FILE_BYTES_MAX).required()];
        FIELDS
    }

    fn repeat(&self) -> Repeat {
        Repeat::Again
    }

    async fn execute(&self, arguments: WriteArguments, context: &Context) -> Result<String, Failure> {
        let WriteArguments { path, content } = arguments;
        context.files()?.write(&path, content.as_bytes(), None).await?;
        Ok(format!("Wrote {} bytes to {path}.", content.len()))
    }
}

/// Lists a directory.
pub(super) struct ListFiles;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArguments {
    path: String,
}

#[async_trait]
impl Tool for ListFiles {
    type Arguments = ListArguments;

    fn name(&self) -> &'static str {
        "list_files"
    }

    fn about(&self) -> &'static str {
        "Lists a directory: names, directories with / behind them, files with their length in bytes."
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: &[Field] = &[Field::text(
            "path",
            "Of the directory, beneath the workspace or absolute; . is the workspace.",
            PATH_BYTES_MAX,
        )
        .required()];
        FIELDS
    }

    fn repeat(&self) -> Repeat {
        Repeat::Again
    }

    async fn execute(&self, arguments: ListArguments, context: &Context) -> Result<String, Failure> {
        let listing = context.files()?.list(&arguments.path, LIST_ENTRIES_MAX).await?;
        let mut lines: Vec<String> = listing.entries.iter().map(line).collect();
        if lines.is_empty() {
            lines.push("The directory is empty.".to_owned());
        }
        if listing.more {
            lines.push("[there are more]".to_owned());
        }
        Ok(lines.join("\n"))
    }
}

fn line(entry: &Entry) -> String {
    let Entry { name, kind, bytes } = entry;
    match kind {
        FileKind::Directory => format!("{name}/"),
        FileKind::File => format!("{name}\t{bytes}"),
        FileKind::Symlink => format!("{name}\tlink"),
        FileKind::Other => format!("{name}\tspecial"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one_and_tell_what_is_left() {
        let text = "a\nb\nc";
        assert_eq!(lines(text, false, 1, 3).unwrap(), "a\nb\nc");
        assert_eq!(lines(text, false, 1, 2).unwrap(), "a\nb\n\n[lines 1 to 2 of 3]");
        assert_eq!(lines(text, false, 3, 1).unwrap(), "c");
        assert_eq!(lines(text, true, 3, 1).unwrap(), "c\n[lines 3 to 3 of 3 and more]");
        assert_eq!(lines(text, false, 4, 1), None);
    }
}
