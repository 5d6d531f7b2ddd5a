//! Search in files: grep, in the sandbox.

use std::collections::BTreeMap;

use async_trait::async_trait;
use sandbox_protocol::fsp::{Language, Status};
use serde::Deserialize;

use super::{Context, Failure, Field, Program, Repeat, SandboxMode, Tool};
use crate::ToolError;
use crate::limits::{PATH_BYTES_MAX, SEARCH_LINE_BYTES_MAX, SEARCH_LINES_MAX, SEARCH_PATTERN_BYTES_MAX};

/// What is searched for never becomes part of the program: it comes in the environment. `grep` tells that it found nothing
/// by its exit code alone, which the pipe swallows; that it could not search, it also writes.
const SCRIPT: &str = r#"set -- -rnHIE --exclude-dir=.git --exclude-dir=node_modules
[ -n "$SEARCH_GLOB" ] && set -- "$@" --include="$SEARCH_GLOB"
grep "$@" -e "$SEARCH_PATTERN" -- "$SEARCH_PATH" | head -n "$SEARCH_LINES" | cut -b "1-$SEARCH_LINE_BYTES"
"#;

/// Searches in files.
pub(super) struct Search;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
}

#[async_trait]
impl Tool for Search {
    type Arguments = Arguments;

    fn name(&self) -> &'static str {
        "search"
    }

    fn about(&self) -> &'static str {
        "Searches text files for a POSIX extended regular expression, and tells path, line number and line of each match."
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: &[Field] = &[
            Field::text("pattern", "The expression.", SEARCH_PATTERN_BYTES_MAX).required(),
            Field::text("path", "File or directory to search in; the workspace without.", PATH_BYTES_MAX),
            Field::text("glob", "Only files whose name is like this, such as *.rs.", SEARCH_PATTERN_BYTES_MAX),
        ];
        FIELDS
    }

    fn sandbox_mode(&self) -> SandboxMode {
        SandboxMode::External
    }

    fn repeat(&self) -> Repeat {
        Repeat::Again
    }

    async fn execute(&self, arguments: Arguments, context: &Context) -> Result<String, Failure> {
        let Arguments { pattern, path, glob } = arguments;
        // One more than is told, to know whether there are more.
        let (lines, line_bytes) = ((SEARCH_LINES_MAX + 1).to_string(), SEARCH_LINE_BYTES_MAX.to_string());
        let env = BTreeMap::from(
            [
                ("SEARCH_PATTERN", pattern),
                ("SEARCH_PATH", path.unwrap_or_else(|| ".".to_owned())),
                ("SEARCH_GLOB", glob.unwrap_or_default()),
                ("SEARCH_LINES", lines),
                ("SEARCH_LINE_BYTES", line_bytes),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let (language, cwd) = (Language::Shell, Some(String::new()));
        let program = Program { language, code: SCRIPT.to_owned(), cwd, stdin: None, env, memory_mb: 0 };
        let ran = context.run(program).await?;
        match ran.ended {
            Status::Completed | Status::Failed => found(self.name(), &ran.stdout, &ran.stderr),
            Status::Timeout => Err(ToolError::timeout(self.name(), context.timeout_ms()).into()),
            Status::Running | Status::Cancelled | Status::Oom => {
                Err(ToolError::execution(self.name(), &format!("The search ended early: {}", ran.ended.name())).into())
            }
        }
    }
}

fn found(tool: &str, stdout: &str, stderr: &str) -> Result<String, Failure> {
    if stdout.is_empty() && !stderr.is_empty() {
        return Err(ToolError::execution(tool, stderr.trim_end()).retryable(true).into());
    }
    let lines: Vec<&str> = stdout.lines().collect();
    match lines.len() {
        0 => Ok("No matches.".to_owned()),
        1..=SEARCH_LINES_MAX => Ok(lines.join("\n")),
        _ => {
            let told = lines[..SEARCH_LINES_MAX].join("\n");
            Ok(format!("{told}\n[there are more; search for something narrower]"))
        }
    }
}
