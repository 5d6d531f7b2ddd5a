//! Prompts, tasks and negotiations: what the client makes of them, and the program.

pub(crate) mod command_line;

use alloy::primitives::Address;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{Decision, RunReply, RunState, TaskBody};
use sandbox_protocol::session::{Scope, TokenBody};
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::api::inside::{Inside, RunEvents};
use sandbox_sdk::api::{ApiError, Session};

use crate::fake_agent::{FakeAgent, Faults, Step, done};

const SANDBOX: SandboxId = SandboxId { origin: CallKey { service: 1, call: 9 }, slot: 0 };

pub(crate) fn token() -> TokenBody {
    TokenBody {
        token: "t".into(),
        id: "i".into(),
        address: Address::ZERO,
        scopes: Scope::ALL.to_vec(),
        expires_at: u64::MAX,
    }
}

async fn agent(script: Vec<Step>, faults: Faults) -> (FakeAgent, Inside) {
    let agent = FakeAgent::start(script, faults, None).await;
    let inside = Session::new(Address::ZERO, &agent.url, token()).unwrap().inside(SANDBOX);
    (agent, inside)
}

fn body(id: Option<&str>) -> TaskBody {
    TaskBody { id: id.map(str::to_owned), prompt: "do it".into(), ..TaskBody::default() }
}

fn words(words: &[&str]) -> Vec<Step> {
    let message = |text: &&str| Step::Say(Told::Message { text: (*text).to_owned() });
    words.iter().map(message).chain([Step::Say(Told::Done { reply: done("all") })]).collect()
}

/// The numbers of all events, up to the end or to what went wrong.
async fn heard(mut events: RunEvents) -> (Vec<u64>, Option<ApiError>) {
    let mut numbers = Vec::new();
    loop {
        match events.next().await {
            Ok(Some(event)) => numbers.push(event.seq),
            Ok(None) => return (numbers, None),
            Err(error) => return (numbers, Some(error)),
        }
    }
}

#[tokio::test]
async fn a_stream_that_breaks_again_and_again_misses_nothing_and_doubles_nothing() {
    let faults = Faults { carried: Some(2), repeated: 1, ..Faults::default() };
    let (agent, inside) = agent(words(&["a", "b", "c", "d", "e"]), faults).await;
    let (numbers, error) = heard(inside.follow_task(body(Some("r1")))).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(agent.requests(), ["POST task", "GET runs/r1/events after 2", "GET runs/r1/events after 4"]);
}

#[tokio::test]
async fn a_run_whose_beginning_nobody_answered_is_asked_for_again_by_the_same_id() {
    let (agent, inside) = agent(words(&["a"]), Faults { unanswered: 2, ..Faults::default() }).await;
    let reply: RunReply = inside.prompt(body(None)).await.unwrap();
    assert_eq!(reply, done("all"));
    let ids: Vec<_> = agent.seen().bodies.into_iter().map(|body| body.id.unwrap()).collect();
    assert_eq!((agent.requests(), ids.len()), (vec!["POST prompt".to_owned(); 3], 3));
    assert!(!ids[0].is_empty() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test]
async fn an_event_that_is_not_there_any_more_is_not_passed_over_in_silence() {
    let (_agent, inside) = agent(words(&["a", "b"]), Faults { lost: Some(2), ..Faults::default() }).await;
    let (numbers, error) = heard(inside.follow_task(body(Some("r1")))).await;
    assert_eq!(numbers, [1]);
    let Some(ApiError::Garbled { why, .. }) = error else { panic!("{error:?}") };
    assert_eq!(why, "event 3 of run r1 where 2 was awaited");
}

#[tokio::test]
async fn a_refusal_is_told_at_once() {
    let (agent, inside) = agent(Vec::new(), Faults::default()).await;
    let (_, error) = heard(inside.follow_run("unknown", 0)).await;
    assert!(matches!(error, Some(ApiError::Refused { status: 404, .. })), "{error:?}");
    assert_eq!(agent.requests(), ["GET runs/unknown/events after 0"]);
}

#[tokio::test]
async fn who_comes_later_hears_what_it_has_not_heard() {
    let (_agent, inside) = agent(words(&["a", "b"]), Faults::default()).await;
    inside.task(body(Some("r1"))).await.unwrap();
    assert_eq!(heard(inside.follow_run("r1", 0)).await.0, [1, 2, 3]);
    assert_eq!(heard(inside.follow_run("r1", 2)).await.0, [3]);
}

#[tokio::test]
async fn runs_and_sessions_are_listed_shown_ended_and_deleted() {
    let (agent, inside) = agent(Vec::new(), Faults::default()).await;
    assert_eq!(inside.runs().await.unwrap()[0].id, "r1");
    assert_eq!(inside.run("r1").await.unwrap().state, RunState::Running);
    assert_eq!(inside.cancel_run("r1").await.unwrap().state, RunState::Ended);
    inside.decide("r1", "call_1", Decision::Deny).await.unwrap();
    assert_eq!(agent.seen().decisions["call_1"], Decision::Deny);
    assert_eq!(inside.sessions().await.unwrap()[0].id, "s1");
    inside.delete_session("s1").await.unwrap();
    let expected = [
        "GET runs",
        "GET runs/r1",
        "POST runs/r1/cancel",
        "POST runs/r1/approvals/call_1",
        "GET sessions",
        "DELETE sessions/s1",
    ];
    assert_eq!(agent.requests(), expected);
}
