//! What a model is told, word for word.

use std::io;
use std::sync::Arc;

use sandbox_protocol::fsp::ErrorCode;

use super::*;

fn check(error: &ToolError, told: &str) {
    assert_eq!(error.format_for_llm(), told.trim());
}

#[test]
fn a_timeout_is_told_as_the_documents_show_it() {
    check(
        &ToolError::timeout("web_search", 30_000).with("host", "internal"),
        "
Tool `web_search` failed.
Error type: timeout
Message: Execution timed out after 30000ms
This error is not retryable.",
    );
}

#[test]
fn a_bad_call_is_told_as_the_documents_show_it() {
    let params = Detail::map([("path", Detail::Nil), ("content", 123_u64.into())]);
    check(
        &ToolError::validation("write_file", "path is required; content must be a string").with("params", params),
        "
Tool `write_file` failed.
Error type: validation
Message: path is required; content must be a string
This error may be resolved by trying again with different parameters.
Context: params: %{path: nil, content: 123}",
    );
}

#[test]
fn a_failure_with_circumstances_tells_them() {
    let limited = ToolError::execution("web_search", "Rate limited by search provider");
    check(
        &limited.retryable(true).with("retry_after_ms", 60_000_u64),
        "
Tool `web_search` failed.
Error type: execution
Message: Rate limited by search provider
This error may be resolved by trying again with different parameters.
Context: retry_after_ms: 60000",
    );
}

#[test]
fn an_answer_of_another_service_is_told_without_its_secrets() {
    check(
        &ToolError::from_api_error("web_search", 503, r#"{"error":"busy","api_key":"abc"}"#),
        r#"
Tool `web_search` failed.
Error type: execution
Message: API error: 503
This error may be resolved by trying again with different parameters.
Context: status: 503, body: "{\"error\":\"busy\",\"api_key\":\"[redacted]\"}""#,
    );
}

#[test]
fn statuses_are_retryable_as_the_documents_say() {
    let retryable = |status: &u16| ToolError::from_api_error("t", *status, "").is_retryable();
    let found: Vec<_> = (400..600_u16).filter(retryable).collect();
    assert_eq!(found, [429, 500, 502, 503, 504]);
}

#[tokio::test]
async fn a_crash_is_an_execution_that_is_not_retryable() {
    let crashed = tokio::spawn(async { panic!("no Bearer abcdef123456") }).await.unwrap_err();
    check(
        &ToolError::from_join("edit", crashed),
        "
Tool `edit` failed.
Error type: execution
Message: Tool crashed: no Bearer [redacted]
This error is not retryable.",
    );
    let task = tokio::spawn(std::future::pending::<()>());
    task.abort();
    let aborted = ToolError::from_join("edit", task.await.unwrap_err());
    assert_eq!((aborted.message(), aborted.is_retryable()), ("Tool crashed: it was aborted", false));
    assert_eq!(ToolError::from_panic("edit", &7).message(), "Tool crashed: panic without a message");
}

#[test]
fn any_other_error_is_told_with_its_causes() {
    let error = FspError::Unreachable { uri: "ws://a".into(), source: Arc::new(io::Error::other("cable cut")) };
    check(
        &ToolError::from_error("fetch", &error),
        r#"
Tool `fetch` failed.
Error type: execution
Message: cannot reach ws://a: cable cut
This error is not retryable.
Context: exception_type: "sandbox_fsp::error::FspError""#,
    );
}

#[test]
fn failures_of_a_sandbox_keep_their_kind() {
    let cases = [
        (
            FspError::Disconnected { source: None },
            ErrorType::Sandbox,
            true,
            "Sandbox error: the connection to the sandbox broke",
        ),
        (
            FspError::PoolExhausted { waited_ms: 9 },
            ErrorType::Sandbox,
            true,
            "Sandbox error: no connection became free within 9 ms",
        ),
        (
            FspError::Malformed { reason: "no id".into() },
            ErrorType::Sandbox,
            false,
            "Sandbox error: the sandbox sent a malformed message: no id",
        ),
        (FspError::TimedOut { limit_ms: 5 }, ErrorType::Timeout, false, "Execution timed out after 5ms"),
        (
            FspError::Server { code: ErrorCode::SandboxOverloaded, message: "full".into(), retryable: true },
            ErrorType::Execution,
            true,
            "full",
        ),
    ];
    for (error, error_type, retryable, message) in cases {
        let told = ToolError::from_fsp("code_execute", &error);
        assert_eq!((told.error_type(), told.is_retryable(), told.message()), (error_type, retryable, message));
    }
    let refused = FspError::Server { code: ErrorCode::Oom, message: "no memory".into(), retryable: false };
    check(
        &ToolError::from_fsp("code_execute", &refused),
        r#"
Tool `code_execute` failed.
Error type: execution
Message: no memory
This error is not retryable.
Context: code: "OOM""#,
    );
}

#[test]
fn words_are_bounded() {
    let long = "y".repeat(MESSAGE_BYTES_MAX + 1);
    assert_eq!(ToolError::execution("t", &long[1..]).message(), &long[1..]);
    assert!(ToolError::execution("t", &long).message().ends_with("... (1 more bytes)"));
    let many = (0..100).fold(ToolError::execution("t", "m"), |error, _| error.with("k", "z".repeat(500)));
    assert!(many.format_for_llm().len() < CONTEXT_BYTES_MAX + 200);
}
