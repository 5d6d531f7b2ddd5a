//! Commands and code: programs that run in the sandbox.

use std::collections::BTreeMap;

use async_trait::async_trait;
use sandbox_protocol::fsp::{Language, Status};
use sandbox_protocol::limits::{
    EXEC_CWD_BYTES_MAX, EXEC_TIMEOUT_MS_DEFAULT, EXEC_TIMEOUT_MS_MAX, FSP_CODE_BYTES_MAX, FSP_STDIN_BYTES_MAX,
};
use serde::Deserialize;

use super::ports::Ran;
use super::{Context, Failure, Field, Program, Repeat, SandboxMode, Tool};
use crate::ToolError;

const STDIN: Field = Field::content("stdin", "What it reads from standard input.", FSP_STDIN_BYTES_MAX);
const TIMEOUT: Field = Field::whole("timeout_ms", "Its time in milliseconds; 30000 without.", 1, EXEC_TIMEOUT_MS_MAX);

/// Runs a command line.
pub(super) struct Shell;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShellArguments {
    command: String,
    cwd: Option<String>,
    timeout_ms: Option<u64>,
    stdin: Option<String>,
}

#[async_trait]
impl Tool for Shell {
    type Arguments = ShellArguments;

    fn name(&self) -> &'static str {
        "shell"
    }

    fn about(&self) -> &'static str {
        "Runs a command with /bin/sh in the workspace, and tells its exit code and what it wrote."
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: &[Field] = &[
            Field::text("command", "The command line.", FSP_CODE_BYTES_MAX).required(),
            Field::text("cwd", "Directory to run in, beneath the workspace or absolute.", EXEC_CWD_BYTES_MAX),
            TIMEOUT,
            STDIN,
        ];
        FIELDS
    }

    fn sandbox_mode(&self) -> SandboxMode {
        SandboxMode::External
    }

    fn repeat(&self) -> Repeat {
        Repeat::Attach
    }

    fn timeout_ms(&self, arguments: &ShellArguments) -> u64 {
        arguments.timeout_ms.unwrap_or(EXEC_TIMEOUT_MS_DEFAULT)
    }

    async fn execute(&self, arguments: ShellArguments, context: &Context) -> Result<String, Failure> {
        let ShellArguments { command, cwd, stdin, timeout_ms: _ } = arguments;
        let (language, cwd) = (Language::Shell, Some(cwd.unwrap_or_default()));
        let program = Program { language, code: command, cwd, stdin, env: BTreeMap::new(), memory_mb: 0 };
        told(self.name(), context.run(program).await?, context)
    }
}

/// Runs source code.
pub(super) struct Code;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CodeArguments {
    language: Language,
    code: String,
    stdin: Option<String>,
    timeout_ms: Option<u64>,
}

#[async_trait]
impl Tool for Code {
    type Arguments = CodeArguments;

    fn name(&self) -> &'static str {
        "code"
    }

    fn about(&self) -> &'static str {
        "Runs source code in the workspace, with bounded memory, and tells its exit code and what it wrote."
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: &[Field] = &[
            Field::one_of("language", "Of the code.", &["python", "javascript", "shell", "elixir"]).required(),
            Field::text("code", "The source code.", FSP_CODE_BYTES_MAX).required(),
            STDIN,
            TIMEOUT,
        ];
        FIELDS
    }

    fn sandbox_mode(&self) -> SandboxMode {
        SandboxMode::External
    }

    fn repeat(&self) -> Repeat {
        Repeat::Attach
    }

    fn timeout_ms(&self, arguments: &CodeArguments) -> u64 {
        arguments.timeout_ms.unwrap_or(EXEC_TIMEOUT_MS_DEFAULT)
    }

    async fn execute(&self, arguments: CodeArguments, context: &Context) -> Result<String, Failure> {
        let CodeArguments { language, code, stdin, timeout_ms: _ } = arguments;
        let memory_mb = context.surroundings().memory_mb;
        let program = Program { language, code, cwd: Some(String::new()), stdin, env: BTreeMap::new(), memory_mb };
        told(self.name(), context.run(program).await?, context)
    }
}

/// What a model is told of a program that came to its own end, whatever its exit code; another end is a failure.
fn told(tool: &str, ran: Ran, context: &Context) -> Result<String, Failure> {
    let error = match ran.ended {
        Status::Completed | Status::Failed => return Ok(report(&ran)),
        Status::Timeout => ToolError::timeout(tool, context.timeout_ms()),
        Status::Oom => ToolError::execution(tool, "Execution ran out of memory"),
        Status::Cancelled => ToolError::execution(tool, "Execution was cancelled"),
        Status::Running => ToolError::sandbox(tool, "Sandbox error: the program's end was not told"),
    };
    Err(error.with("stdout", ran.stdout).with("stderr", ran.stderr).into())
}

fn report(ran: &Ran) -> String {
    let code = ran.exit_code.map_or_else(|| "none, it was killed by a signal".to_owned(), |code| code.to_string());
    let mut report = format!("exit code: {code}");
    for (name, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        if !text.is_empty() {
            report.push_str(&format!("\n{name}:\n{}", text.trim_end_matches('\n')));
        }
    }
    if ran.truncated {
        report.push_str("\n[not all of the output was kept]");
    }
    report
}
