//! What is refused, and both sides of every limit.

use sandbox_protocol::agent::TaskBody;
use sandbox_protocol::limits::{
    PROMPT_BYTES_MAX, PROMPT_TIMEOUT_MS_MAX, RUN_ID_BYTES_MAX, RUNS_QUEUED_MAX, RUNS_RUNNING_MAX, TASK_TIMEOUT_MS_MAX,
    TASK_TURNS_MAX,
};

use crate::harness::{Process, answered, task};

/// The refusal of a body, by code and words.
async fn refused(process: &Process, body: &TaskBody) -> (u16, String, String) {
    let (status, error) = process.task(body).await.unwrap_err();
    (status, error.code, error.message)
}

#[tokio::test]
async fn a_field_that_is_wrong_is_named() {
    let process = Process::start();
    let ok = || task("r1", "hello");
    let bad = [
        (TaskBody { prompt: " \n".into(), ..ok() }, "prompt: "),
        (TaskBody { id: Some("../x".into()), ..ok() }, "id: "),
        (TaskBody { id: Some(".x".into()), ..ok() }, "id: "),
        (TaskBody { session_id: "a/b".into(), ..ok() }, "session_id: "),
        (TaskBody { context_json: "[]".into(), ..ok() }, "context_json: "),
        (TaskBody { context_json: r#"{"provider": {"kind": "x"}}"#.into(), ..ok() }, "context_json: provider"),
        (TaskBody { context_json: negotiation(), ..ok() }, "context_json: "),
    ];
    for (body, field) in bad {
        let (status, code, message) = refused(&process, &body).await;
        assert_eq!((status, code.as_str()), (400, "bad_request"));
        assert!(message.starts_with(field), "{message}");
    }
    let (status, _) = process.post("/task", &serde_json::json!({"prompt": "x", "promt": "y"})).await;
    assert_eq!(status, 400);
}

fn negotiation() -> String {
    r#"{"kind": "negotiation", "ticker": "A", "moves": [{"move_id": "m1", "content": "buy"}]}"#.to_owned()
}

#[tokio::test]
async fn backends_and_profiles_that_are_not_there_are_refused_as_that() {
    let process = Process::start();
    let backend = TaskBody { agent_backend: "none".into(), ..task("r1", "hello") };
    let profile = TaskBody { agent_identifier: "none".into(), ..task("r1", "hello") };
    assert_eq!(refused(&process, &backend).await.1, "unknown_backend");
    assert_eq!(refused(&process, &profile).await.1, "unknown_profile");
    let named = TaskBody { context_json: r#"{"agent_identifier": "none"}"#.into(), ..task("r1", "hello") };
    assert_eq!(refused(&process, &named).await.1, "unknown_profile");
    // What the task says goes before what the context says.
    let both = TaskBody { agent_identifier: "default".into(), ..named };
    process.task(&both).await.unwrap();
}

#[tokio::test]
async fn each_field_is_taken_up_to_its_limit() {
    let process = Process::start();
    let ids = |bytes: usize| TaskBody { id: Some("r".repeat(bytes)), ..task("", "hello") };
    process.task(&ids(RUN_ID_BYTES_MAX)).await.unwrap();
    assert_eq!(refused(&process, &ids(RUN_ID_BYTES_MAX + 1)).await.0, 400);
    let prompts = |id: &str, bytes: usize| task(id, &"p".repeat(bytes));
    process.task(&prompts("r1", PROMPT_BYTES_MAX)).await.unwrap();
    assert_eq!(refused(&process, &prompts("r2", PROMPT_BYTES_MAX + 1)).await.0, 400);
    let turns = |id: &str, max_turns: u64| TaskBody { max_turns, ..task(id, "hello") };
    process.task(&turns("r3", TASK_TURNS_MAX)).await.unwrap();
    assert_eq!(refused(&process, &turns("r4", TASK_TURNS_MAX + 1)).await.0, 400);
    let times = |id: &str, timeout_ms: u64| TaskBody { timeout_ms, ..task(id, "hello") };
    process.task(&times("r5", TASK_TIMEOUT_MS_MAX)).await.unwrap();
    assert_eq!(refused(&process, &times("r6", TASK_TIMEOUT_MS_MAX + 1)).await.0, 400);
    let prompt = async |body: TaskBody| process.post("/prompt", &body).await.0.as_u16();
    assert_eq!(prompt(times("r7", PROMPT_TIMEOUT_MS_MAX)).await, 200);
    assert_eq!(prompt(times("r8", PROMPT_TIMEOUT_MS_MAX + 1)).await, 400);
}

#[tokio::test]
async fn so_many_run_and_wait_and_the_next_is_told_to_come_back() {
    let process = Process::start();
    let bodies: Vec<TaskBody> =
        (0..RUNS_RUNNING_MAX + RUNS_QUEUED_MAX).map(|number| task(&format!("r{number}"), "wait")).collect();
    let all = futures::future::join_all(bodies.iter().map(|body| process.task(body)));
    let meanwhile = async {
        loop {
            let runs: sandbox_protocol::agent::RunsBody = answered(process.get("/runs").await).unwrap();
            if runs.runs.len() == bodies.len() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let (status, code, _) = refused(&process, &task("one-more", "hello")).await;
        assert_eq!((status, code.as_str()), (429, "busy"));
        process.puppet.release.cancel();
    };
    let (replies, ()) = tokio::join!(all, meanwhile);
    assert!(replies.iter().all(|reply| reply.as_ref().is_ok_and(|reply| reply.success)));
    let together = process.puppet.running_max.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(together, RUNS_RUNNING_MAX);
}
