//! How calls are checked, routed, bounded and told.

use proptest::prelude::*;
use sandbox_fsp::FspError;
use sandbox_protocol::fsp::{Language, Status};
use serde_json::json;

use super::*;
use crate::ErrorType;
use crate::limits::{FILE_BYTES_MAX, TOOL_TIMEOUT_MS_DEFAULT};
use crate::tools::Field;
use crate::tools::fakes::{FakeFiles, FakeSandbox, wrote};
use crate::tools::ports::{Ran, SandboxError};

struct Ground {
    sandbox: Arc<FakeSandbox>,
    files: Arc<FakeFiles>,
    toolbox: Toolbox,
}

impl Ground {
    fn new(sandbox: FakeSandbox) -> Self {
        let (sandbox, files) = (Arc::new(sandbox), Arc::new(FakeFiles::default()));
        let env = BTreeMap::from([("STAGE".to_owned(), "test".to_owned())]);
        let toolbox = Toolbox::new(sandbox.clone(), files.clone(), Surroundings { env, memory_mb: 77 });
        Self { sandbox, files, toolbox }
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<String, ToolError> {
        self.toolbox.execute(call(name, &arguments)).await
    }

    async fn told(&self, name: &str, arguments: Value) -> String {
        self.call(name, arguments).await.unwrap_or_else(|error| error.format_for_llm())
    }
}

fn call<'a>(name: &'a str, arguments: &'a Value) -> Call<'a> {
    Call { name, arguments, key: "run-1-1", begun: false, result_bytes_max: 1_000 }
}

fn ended(ended: Status) -> impl Fn(&crate::tools::ports::Execution) -> Result<Ran, SandboxError> {
    move |_| Ok(Ran { ended, exit_code: None, ..wrote("half") })
}

#[tokio::test]
async fn every_tool_takes_what_its_schema_says_and_refuses_the_rest_naming_all_of_it() {
    let ground = Ground::new(FakeSandbox::echo());
    ground.files.put("a", "text");
    let cases = [
        (
            "shell",
            json!({ "command": "ls", "cwd": "src", "timeout_ms": 300_000, "stdin": "" }),
            json!({ "command": "", "timeout_ms": 300_001 }),
            "command must not be empty; timeout_ms must be an integer from 1 to 300000",
        ),
        (
            "code",
            json!({ "language": "elixir", "code": "1" }),
            json!({ "language": "cobol", "cwd": "/" }),
            "language must be one of python, javascript, shell, elixir; code is required; cwd is not a parameter",
        ),
        (
            "read_file",
            json!({ "path": "a", "offset": 1, "limit": 1 }),
            json!({ "path": 7, "offset": 0, "limit": "x" }),
            "path must be a string; offset must be an integer from 1 to 1000000; limit must be an integer from 1 to 1000000",
        ),
        (
            "write_file",
            json!({ "path": "b", "content": "" }),
            json!({ "path": null, "content": 123 }),
            "path is required; content must be a string",
        ),
        (
            "edit_file",
            json!({ "path": "a", "old": "text", "new": "" }),
            json!({ "path": "a", "old": "" }),
            "old must not be empty; new is required",
        ),
        ("list_files", json!({ "path": "." }), json!({}), "path is required"),
        (
            "search",
            json!({ "pattern": "x", "path": ".", "glob": "*.rs" }),
            json!({ "pattern": "a\u{0}", "path": "" }),
            "pattern must not contain NUL; path must not be empty",
        ),
    ];
    assert_eq!(ground.toolbox.specs(|_| true).len(), cases.len());
    for (name, right, wrong, faults) in cases {
        ground.call(name, right).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let refused = ground.call(name, wrong).await.unwrap_err();
        assert_eq!(
            (refused.error_type(), refused.message(), refused.is_retryable()),
            (ErrorType::Validation, faults, true)
        );
    }
}

#[tokio::test]
async fn a_refusal_is_told_with_what_was_given_as_the_documents_show_it() {
    let told = Ground::new(FakeSandbox::echo()).told("write_file", json!({ "path": null, "content": 123 })).await;
    let expected = "Tool `write_file` failed.
Error type: validation
Message: path is required; content must be a string
This error may be resolved by trying again with different parameters.
Context: params: %{path: nil, content: 123}";
    assert_eq!(told, expected);
    let told = Ground::new(FakeSandbox::echo()).told("shell", json!("{\"command\": \"l")).await;
    assert!(
        told.contains("Message: arguments must be a JSON object") && told.contains(r#"params: "{\"command\": \"l""#)
    );
}

#[tokio::test]
async fn a_tool_that_nobody_has_is_told_with_those_that_there_are() {
    let refused = Ground::new(FakeSandbox::echo()).call("fly", json!({})).await.unwrap_err();
    let expected = "there is no such tool; there are code, edit_file, list_files, read_file, search, shell, write_file";
    assert_eq!((refused.tool_name(), refused.message()), ("fly", expected));
    let refused = Ground::new(FakeSandbox::echo()).call(&"x".repeat(9_999), json!({})).await.unwrap_err();
    assert!(refused.tool_name().len() < 2 * TOOL_NAME_BYTES_MAX);
}

#[tokio::test]
async fn commands_and_code_run_in_the_sandbox_under_the_key_of_their_call() {
    let ground = Ground::new(FakeSandbox::echo());
    let arguments = json!({ "command": "make", "cwd": "src", "timeout_ms": 5, "stdin": "in" });
    assert_eq!(ground.told("shell", arguments).await, "exit code: 0\nstdout:\nmake");
    ground.told("code", json!({ "language": "python", "code": "1" })).await;
    let asked = ground.sandbox.asked();
    let shell = &asked[0];
    assert_eq!(
        (shell.id.as_str(), shell.language, shell.timeout_ms, shell.memory_mb),
        ("run-1-1", Language::Shell, 5, 0)
    );
    assert_eq!((shell.cwd.as_deref(), shell.stdin.as_deref(), shell.attach_only), (Some("src"), Some("in"), false));
    assert_eq!(shell.env["STAGE"], "test");
    let code = &asked[1];
    assert_eq!((code.language, code.timeout_ms, code.memory_mb), (Language::Python, 30_000, 77));
}

#[tokio::test]
async fn what_a_program_wrote_is_told_whatever_its_exit_code() {
    let failed = Ran {
        ended: Status::Failed,
        exit_code: Some(2),
        stdout: "out\n".into(),
        stderr: "err\n".into(),
        truncated: true,
    };
    let ground = Ground::new(FakeSandbox::new(move |_| Ok(failed.clone())));
    let expected = "exit code: 2\nstdout:\nout\nstderr:\nerr\n[not all of the output was kept]";
    assert_eq!(ground.told("shell", json!({ "command": "x" })).await, expected);
    let killed = Ground::new(FakeSandbox::new(ended(Status::Failed)));
    let told = killed.told("shell", json!({ "command": "x" })).await;
    assert_eq!(told, "exit code: none, it was killed by a signal\nstdout:\nhalf");
}

#[tokio::test]
async fn every_other_end_of_a_program_is_a_failure_of_its_kind() {
    let cases = [
        (Status::Timeout, ErrorType::Timeout, "Execution timed out after 9ms"),
        (Status::Oom, ErrorType::Execution, "Execution ran out of memory"),
        (Status::Cancelled, ErrorType::Execution, "Execution was cancelled"),
        (Status::Running, ErrorType::Sandbox, "Sandbox error: the program's end was not told"),
    ];
    for (status, error_type, message) in cases {
        let ground = Ground::new(FakeSandbox::new(ended(status)));
        let failed = ground.call("shell", json!({ "command": "x", "timeout_ms": 9 })).await.unwrap_err();
        assert_eq!((failed.error_type(), failed.message()), (error_type, message));
    }
    let away = Ground::new(FakeSandbox::new(|_| Err(FspError::Disconnected { source: None }.into())));
    let failed = away.call("shell", json!({ "command": "x" })).await.unwrap_err();
    assert_eq!((failed.error_type(), failed.is_retryable()), (ErrorType::Sandbox, true));
}

#[tokio::test]
async fn files_are_read_written_edited_and_listed() {
    let ground = Ground::new(FakeSandbox::echo());
    assert_eq!(
        ground.told("write_file", json!({ "path": "src/a", "content": "one\ntwo\n" })).await,
        "Wrote 8 bytes to src/a."
    );
    assert_eq!(ground.told("read_file", json!({ "path": "src/a", "offset": 2 })).await, "two\n");
    assert_eq!(ground.told("edit_file", json!({ "path": "src/a", "old": "two", "new": "2" })).await, "Edited src/a.");
    assert_eq!(ground.files.get("src/a").unwrap(), "one\n2\n");
    ground.files.put("b", "");
    assert_eq!(ground.told("read_file", json!({ "path": "b" })).await, "The file is empty.");
    assert_eq!(
        ground.told("read_file", json!({ "path": "src/a", "offset": 3 })).await.lines().last(),
        Some("Context: lines: 2")
    );
    assert_eq!(ground.told("list_files", json!({ "path": "." })).await, "b\t0\nsrc/");
    assert!(ground.sandbox.asked().is_empty());
}

#[tokio::test]
async fn what_files_refuse_is_told_with_its_code() {
    let ground = Ground::new(FakeSandbox::echo());
    let told = ground.told("read_file", json!({ "path": "none" })).await;
    assert!(told.ends_with("Message: there is no such file\nThis error may be resolved by trying again with different parameters.\nContext: code: \"no_such_file\""), "{told}");
    ground.files.put("binary", [1, 0, 2]);
    assert_eq!(ground.call("read_file", json!({ "path": "binary" })).await.unwrap_err().message(), "not a text file");
    ground.files.put("latin", [b'a', 0xe9]);
    let edit = json!({ "path": "latin", "old": "a", "new": "b" });
    assert_eq!(ground.call("edit_file", edit).await.unwrap_err().message(), "the file is not UTF-8");
    ground.files.put("twice", "a b a");
    let edit = json!({ "path": "twice", "old": "a", "new": "b" });
    let message = "old occurs 2 times in the file: give more of what surrounds it";
    assert_eq!(ground.call("edit_file", edit).await.unwrap_err().message(), message);
}

#[tokio::test]
async fn a_file_at_the_bound_is_edited_and_one_beyond_it_is_not() {
    let ground = Ground::new(FakeSandbox::echo());
    let edit = |new: &str| json!({ "path": "a", "old": "b", "new": new });
    ground.files.put("a", format!("b{}", "x".repeat(FILE_BYTES_MAX - 1)));
    let longer = ground.call("edit_file", edit("cc")).await.unwrap_err();
    assert!(longer.message().starts_with("the file would be longer than"));
    ground.call("edit_file", edit("c")).await.unwrap();
    ground.files.put("a", format!("b{}", "x".repeat(FILE_BYTES_MAX)));
    assert!(ground.call("edit_file", edit("c")).await.unwrap_err().message().starts_with("the file is longer than"));
}

#[tokio::test]
async fn a_result_is_cut_in_its_middle_and_no_character_with_it() {
    let ground = Ground::new(FakeSandbox::echo());
    ground.files.put("long", "ä".repeat(1_000));
    let told = ground.told("read_file", json!({ "path": "long" })).await;
    assert!(told.starts_with("ää") && told.ends_with("ää") && told.contains("[... 1000 bytes left out ...]"));
    ground.files.put("fits", "ä".repeat(500));
    assert_eq!(ground.told("read_file", json!({ "path": "fits" })).await, "ä".repeat(500));
}

#[tokio::test]
async fn a_call_whose_end_nobody_saw_is_repeated_attached_to_or_left_alone() {
    let ground = Ground::new(FakeSandbox::echo());
    let again =
        async |name, arguments: Value| ground.toolbox.execute(Call { begun: true, ..call(name, &arguments) }).await;
    let command = json!({ "command": "date" });
    assert!(again("shell", command.clone()).await.unwrap_err().message().starts_with("The agent was restarted"));
    assert!(ground.sandbox.ran().is_empty());
    ground.call("shell", command.clone()).await.unwrap();
    assert_eq!(again("shell", command).await.unwrap(), "exit code: 0\nstdout:\ndate");
    again("write_file", json!({ "path": "a", "content": "x" })).await.unwrap();
    let edit = again("edit_file", json!({ "path": "a", "old": "x", "new": "xx" })).await.unwrap_err();
    assert!(edit.message().starts_with("The agent was restarted") && ground.files.get("a").unwrap() == "x");
}

fn value() -> impl Strategy<Value = Value> {
    let texts = prop_oneof!["python", "a", "", "\u{0}"].prop_map(Value::from);
    let others = [json!(null), json!(1), json!(0), json!(-1), json!(1.5), json!(true), json!([]), json!({})];
    prop_oneof![texts, proptest::sample::select(others.to_vec())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// What the table of a tool's fields lets through, its arguments' type takes.
    #[test]
    fn a_tools_fields_and_its_arguments_agree(
        tool in 0..7_usize,
        optional in proptest::collection::vec(proptest::option::of(value()), 5),
    ) {
        let toolbox = Ground::new(FakeSandbox::echo()).toolbox;
        let (name, tool) = toolbox.tools.iter().nth(tool).unwrap();
        let schema = tool.spec().parameters;
        let names = schema["properties"].as_object().unwrap().keys().cloned().chain(["odd".to_owned()]);
        let given = names.zip(optional).filter_map(|(name, value)| Some((name, value?)));
        let arguments = Value::Object(given.collect());
        if let Err(refused) = Arc::clone(tool).prepare(&arguments) {
            let known = ["is required", "must be", "must not", "is not a parameter"];
            let faults = refused.message().split("; ").all(|fault| known.iter().any(|words| fault.contains(words)));
            prop_assert!(faults, "{name} {arguments}: {refused}");
        }
    }
}

/// Does what it is told.
struct Odd(SandboxMode);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Deed {
    deed: String,
}

#[async_trait::async_trait]
impl Tool for Odd {
    type Arguments = Deed;

    fn name(&self) -> &'static str {
        "odd"
    }

    fn about(&self) -> &'static str {
        "Does odd things."
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: &[Field] = &[Field::text("deed", "Which.", 99).required()];
        FIELDS
    }

    fn sandbox_mode(&self) -> SandboxMode {
        self.0
    }

    async fn execute(&self, arguments: Deed, context: &Context) -> Result<String, Failure> {
        match arguments.deed.as_str() {
            "panic" => panic!("odd indeed"),
            "hang" => std::future::pending().await,
            "raw" => Err(Failure::Other("a raw error".into())),
            "files" => context.files().map(|_| "files".to_owned()),
            other => Ok(other.to_owned()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_a_tool_does_comes_back_as_an_error_of_the_tool() {
    let mut ground = Ground::new(FakeSandbox::echo());
    ground.toolbox = ground.toolbox.with(Odd(SandboxMode::None));
    let deed = async |deed: &str| ground.call("odd", json!({ "deed": deed })).await.map_err(|error| error.to_string());
    assert_eq!(deed("panic").await, Err("odd: Tool crashed: odd indeed".to_owned()));
    assert_eq!(deed("raw").await, Err("odd: a raw error".to_owned()));
    let since = tokio::time::Instant::now();
    assert_eq!(deed("hang").await, Err("odd: Execution timed out after 30000ms".to_owned()));
    assert_eq!(since.elapsed().as_millis(), u128::from(TOOL_TIMEOUT_MS_DEFAULT));
    assert_eq!(deed("work").await, Ok("work".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_tool_reaches_what_its_mode_gives_it_and_nothing_else() {
    let mut ground = Ground::new(FakeSandbox::echo());
    ground.toolbox = ground.toolbox.with(Odd(SandboxMode::None));
    assert_eq!(ground.told("odd", json!({ "deed": "files" })).await, "files");
    ground.toolbox = ground.toolbox.with(Odd(SandboxMode::External));
    let refused = ground.call("odd", json!({ "deed": "files" })).await.unwrap_err();
    assert_eq!(refused.message(), "the tool's sandbox mode does not give it this");
    let since = tokio::time::Instant::now();
    ground.call("odd", json!({ "deed": "hang" })).await.unwrap_err();
    assert_eq!(since.elapsed().as_millis(), u128::from(TOOL_TIMEOUT_MS_DEFAULT + SANDBOX_GRACE_MS));
}
