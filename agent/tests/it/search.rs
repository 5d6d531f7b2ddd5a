//! The search tool's program, run by a real shell over real files.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use sandbox_agent::ToolError;
use sandbox_agent::limits::{SEARCH_LINE_BYTES_MAX, SEARCH_LINES_MAX};
use sandbox_agent::tools::fakes::FakeFiles;
use sandbox_agent::tools::ports::{Execution, Ran, Sandbox, SandboxError};
use sandbox_agent::tools::{Call, Surroundings, Toolbox};
use sandbox_protocol::fsp::Status;
use serde_json::{Value, json};

/// Runs programs of `/bin/sh` in a directory.
struct Directory(PathBuf);

#[async_trait]
impl Sandbox for Directory {
    async fn run(&self, execution: Execution) -> Result<Ran, SandboxError> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(execution.code).envs(execution.env).current_dir(&self.0).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let ended = if output.status.success() { Status::Completed } else { Status::Failed };
        Ok(Ran { ended, exit_code: output.status.code(), stdout, stderr, truncated: false })
    }
}

struct Ground {
    directory: tempfile::TempDir,
    toolbox: Toolbox,
}

impl Ground {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::create_dir_all(directory.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        let sandbox = Arc::new(Directory(directory.path().to_owned()));
        let toolbox = Toolbox::new(sandbox, Arc::new(FakeFiles::default()), Surroundings::default());
        Self { directory, toolbox }
    }

    async fn search(&self, arguments: Value) -> Result<String, ToolError> {
        let (name, key, result_bytes_max) = ("search", "run-1-1", usize::MAX);
        self.toolbox.execute(Call { name, arguments: &arguments, key, begun: false, result_bytes_max }).await
    }
}

#[tokio::test]
async fn matches_are_told_with_path_and_line() {
    let ground = Ground::new(&[("a.rs", "one\ntwo\n"), ("src/b.md", "two\n"), (".git/c", "two\n")]);
    let mut found: Vec<String> = Vec::new();
    found.extend(ground.search(json!({ "pattern": "t[w]o" })).await.unwrap().lines().map(str::to_owned));
    found.sort();
    assert_eq!(found, ["./a.rs:2:two", "./src/b.md:1:two"]);
    assert_eq!(ground.search(json!({ "pattern": "two", "glob": "*.md" })).await.unwrap(), "./src/b.md:1:two");
    assert_eq!(ground.search(json!({ "pattern": "two", "path": "a.rs" })).await.unwrap(), "a.rs:2:two");
    assert_eq!(ground.search(json!({ "pattern": "three" })).await.unwrap(), "No matches.");
}

#[tokio::test]
async fn nothing_of_a_call_becomes_part_of_the_program() {
    let ground = Ground::new(&[("a", "$(touch pwned)\n-f\n")]);
    for pattern in ["'; touch pwned; '", "$(touch pwned)", "`touch pwned`", "-f", "--help"] {
        for glob in ["*", "$(touch pwned)", "\"; touch pwned; \""] {
            ground.search(json!({ "pattern": pattern, "glob": glob, "path": "." })).await.ok();
        }
    }
    ground.search(json!({ "pattern": "x", "path": "--version; touch pwned" })).await.unwrap_err();
    assert!(!ground.directory.path().join("pwned").exists());
    assert_eq!(ground.search(json!({ "pattern": "-f" })).await.unwrap(), "./a:2:-f");
}

#[tokio::test]
async fn what_cannot_be_searched_is_an_error_that_says_why() {
    let ground = Ground::new(&[("a", "x\n")]);
    for arguments in [json!({ "pattern": "x", "path": "none" }), json!({ "pattern": "(" })] {
        let refused = ground.search(arguments).await.unwrap_err();
        assert!(refused.message().starts_with("grep: ") && refused.is_retryable(), "{refused}");
    }
}

#[tokio::test]
async fn lines_are_bounded_in_number_and_length() {
    let lines = |count: usize| "x\n".repeat(count);
    let ground = Ground::new(&[("a", &lines(SEARCH_LINES_MAX))]);
    assert!(!ground.search(json!({ "pattern": "x" })).await.unwrap().contains("there are more"));
    let ground = Ground::new(&[("a", &lines(SEARCH_LINES_MAX + 1))]);
    let found = ground.search(json!({ "pattern": "x" })).await.unwrap();
    assert!(found.ends_with("[there are more; search for something narrower]"));
    assert_eq!(found.lines().count(), SEARCH_LINES_MAX + 1);
    let ground = Ground::new(&[("a", &"x".repeat(10 * SEARCH_LINE_BYTES_MAX))]);
    assert_eq!(ground.search(json!({ "pattern": "x" })).await.unwrap().len(), SEARCH_LINE_BYTES_MAX);
}
