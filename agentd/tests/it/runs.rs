//! What becomes of runs.

use std::fs;
use std::sync::atomic::Ordering;

use hyper::{Method, StatusCode};
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::{MoveReport, NegotiateBody};
use sandbox_protocol::agent::{
    Decision, RunFailure, RunKind, RunReply, RunState, RunSummary, RunsBody, SessionsBody, TaskBody,
};
use serde_json::json;

use crate::harness::{PATIENCE, Process, answered, task, word};

fn begun(process: &Process) -> usize {
    process.puppet.begun.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_run_is_carried_out_once_and_answers_everybody_who_asks_by_its_id() {
    let process = Process::start();
    let body = task("r1", "hello world");
    let (one, other) = tokio::join!(process.task(&body), process.task(&body));
    let reply = one.unwrap();
    assert_eq!(reply, other.unwrap());
    assert_eq!((begun(&process), reply.result.as_str(), reply.success), (1, "hello world", true));
    assert_eq!((reply.turns_used, reply.input_tokens, reply.output_tokens), (2, 7, 3));
    assert_eq!(reply.cost_micro_usd, Some(5));
    assert_eq!(process.task(&TaskBody { attach_only: true, ..body }).await.unwrap(), reply);
}

#[tokio::test]
async fn an_id_is_one_requests_and_one_that_nobody_knows_is_not_attached_to() {
    let process = Process::start();
    process.task(&task("r1", "one")).await.unwrap();
    let (status, error) = process.task(&task("r1", "another")).await.unwrap_err();
    assert_eq!((status, error.code.as_str()), (409, "conflict"));
    let unknown = TaskBody { attach_only: true, ..task("r2", "one") };
    let (status, error) = process.task(&unknown).await.unwrap_err();
    assert_eq!((status, error.code.as_str()), (404, "unknown_run"));
    assert_eq!(begun(&process), 1);
}

#[tokio::test]
async fn its_events_are_numbered_and_who_comes_back_misses_none() {
    let process = Process::start();
    process.task(&task("r1", "hello world")).await.unwrap();
    let events = process.events("r1", 0).await;
    let names: Vec<&str> = events.iter().map(|event| event.told.name()).collect();
    assert_eq!(names, ["started", "message", "message", "done"]);
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(process.events("r1", 2).await, events[2..]);
    let Told::Done { reply } = &events[3].told else { panic!("{events:?}") };
    assert_eq!(reply.result, "hello world");
}

#[tokio::test]
async fn a_request_that_accepts_events_is_answered_by_them() {
    let process = Process::start();
    let body = serde_json::to_vec(&task("r1", "hello")).unwrap();
    let answer = process.send(Method::POST, "/prompt", "text/event-stream", body).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let text = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let last = text.rfind("event: done").unwrap();
    assert!(text.find("event: started").unwrap() < last && text[..last].contains("id: 3"), "{text}");
}

#[tokio::test]
async fn one_that_is_cancelled_ends_as_cancelled_and_one_whose_time_is_over_as_that() {
    let process = Process::start();
    let ends = async |body: TaskBody| process.task(&body).await.unwrap().failure;
    let cancel = async {
        process.told("r1", 1).await;
        let (status, body) = process.post("/runs/r1/cancel", &json!({})).await;
        answered::<RunSummary>((status, body)).unwrap()
    };
    let (failure, _) = tokio::join!(ends(task("r1", "stay")), cancel);
    assert_eq!(failure, Some(RunFailure::Cancelled));
    let short = TaskBody { timeout_ms: 50, ..task("r2", "stay") };
    assert_eq!(ends(short).await, Some(RunFailure::Timeout));
}

#[tokio::test]
async fn a_panic_is_a_failure_whose_trace_is_told() {
    let process = Process::start();
    let reply = process.task(&task("r1", "panic")).await.unwrap();
    assert_eq!(reply.failure, Some(RunFailure::Internal));
    assert!(reply.error.contains(&reply.trace_id), "{reply:?}");
}

#[tokio::test]
async fn a_call_that_asks_waits_for_its_customers_word() {
    let process = Process::start();
    for (id, decision) in [("r1", Decision::Allow), ("r2", Decision::Deny)] {
        let body = TaskBody { agent_identifier: "patient".into(), ..task(id, "ask") };
        let say = async {
            let asked = process.told(id, 2).await;
            assert!(matches!(asked.told, Told::ApprovalRequired { default: Decision::Deny, .. }), "{asked:?}");
            let (status, _) = process.post(&format!("/runs/{id}/approvals/other"), &word(decision)).await;
            assert_eq!(status, StatusCode::CONFLICT);
            process.post(&format!("/runs/{id}/approvals/call-1"), &word(decision)).await.0
        };
        let (reply, status) = tokio::join!(process.task(&body), say);
        assert_eq!((reply.unwrap().result, status), (format!("{decision:?}"), StatusCode::NO_CONTENT));
        let decided = process.told(id, 3).await.told;
        assert_eq!(decided, Told::ApprovalDecided { id: "call-1".into(), decision, answered: true });
    }
}

#[tokio::test]
async fn what_nobody_answers_is_decided_by_the_profile() {
    let process = Process::start();
    let body = TaskBody { agent_identifier: "hasty".into(), ..task("r1", "ask") };
    assert_eq!(process.task(&body).await.unwrap().result, "Deny");
    let decided = process.told("r1", 3).await.told;
    assert_eq!(decided, Told::ApprovalDecided { id: "call-1".into(), decision: Decision::Deny, answered: false });
}

#[tokio::test]
async fn runs_of_one_session_take_turns() {
    let process = Process::start();
    let of = |id: &str| TaskBody { session_id: "s1".into(), ..task(id, "one after the other") };
    let bodies: Vec<TaskBody> = (0..6).map(|number| of(&format!("r{number}"))).collect();
    for reply in futures::future::join_all(bodies.iter().map(|body| process.task(body))).await {
        assert_eq!(reply.unwrap().session_id, "s1");
    }
    assert_eq!((begun(&process), process.puppet.running_max.load(Ordering::SeqCst)), (6, 1));
}

#[tokio::test]
async fn a_session_is_forgotten_when_nobody_uses_it() {
    let process = Process::start();
    let body = TaskBody { session_id: "s1".into(), ..task("r1", "wait") };
    let forget = || process.send(Method::DELETE, "/sessions/s1", "*/*", Vec::new());
    let meanwhile = async {
        process.told("r1", 1).await;
        assert_eq!(forget().await.status(), StatusCode::CONFLICT);
        process.puppet.release.cancel();
    };
    let (reply, ()) = tokio::join!(process.task(&body), meanwhile);
    reply.unwrap();
    let sessions: SessionsBody = answered(process.get("/sessions").await).unwrap();
    assert_eq!((sessions.sessions.len(), sessions.sessions[0].backend.as_str()), (1, "native"));
    // The run gives its session back a moment after its end was told.
    let forgotten = async {
        while forget().await.status() != StatusCode::NO_CONTENT {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, forgotten).await.unwrap();
    assert_eq!(forget().await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_had_ended_is_remembered_by_the_next_process_and_what_had_not_goes_on() {
    let process = Process::start();
    let ended = process.task(&task("r1", "hello world")).await.unwrap();
    let body = task("r2", "wait");
    {
        let unfinished = process.task(&body);
        tokio::select! {
            reply = unfinished => panic!("{reply:?}"),
            _ = process.told("r2", 1) => {}
        }
    }
    let process = process.again().await;
    process.puppet.release.cancel();
    assert_eq!(process.task(&task("r1", "hello world")).await.unwrap(), ended);
    let reply = process.task(&TaskBody { attach_only: true, ..body }).await.unwrap();
    assert!(reply.success, "{reply:?}");
    assert_eq!((begun(&process), process.puppet.resumed.load(Ordering::SeqCst)), (1, 1));
    let names: Vec<&str> = process.events("r2", 0).await.iter().map(|event| event.told.name()).collect();
    assert_eq!(names, ["started", "done"]);
    let RunsBody { runs } = answered(process.get("/runs").await).unwrap();
    let known: Vec<(&str, RunState)> = runs.iter().map(|run| (run.id.as_str(), run.state)).collect();
    assert_eq!(known, [("r1", RunState::Ended), ("r2", RunState::Ended)]);
}

#[tokio::test]
async fn a_key_is_forgotten_at_the_end_of_its_run() {
    let process = Process::start();
    let context_json = r#"{"provider": {"api_key": "s3cret-key"}}"#.to_owned();
    let body = TaskBody { context_json, ..task("r1", "hello") };
    process.task(&body).await.unwrap();
    let directory = process.storage().join("runs/r1");
    for entry in fs::read_dir(directory).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains("s3cret-key"), "{text}");
    }
}

#[tokio::test]
async fn a_move_is_a_run_too() {
    let process = Process::start();
    let body: NegotiateBody = serde_json::from_value(json!({
        "id": "m1", "ticker": "ACME", "move": {"move_id": "m1", "content": "buy"}, "max_rounds": 3
    }))
    .unwrap();
    let report: MoveReport = answered(process.post("/negotiate", &body).await).unwrap();
    assert_eq!((report.rounds, report.score.total_score), (3, 60));
    let again: MoveReport = answered(process.post("/negotiate", &body).await).unwrap();
    assert_eq!((again, begun(&process)), (report, 1));
    let run: RunSummary = answered(process.get("/runs/m1").await).unwrap();
    assert_eq!((run.kind, run.report.is_some(), run.reply), (RunKind::Negotiation, true, None::<RunReply>));
}
