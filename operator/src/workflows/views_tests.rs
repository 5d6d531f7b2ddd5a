//! Promises of what the API tells of workflows, and of the requests that fire them.

use sandbox_fleet::fakes::{FakeAgents, OWNER};
use sandbox_protocol::agent::RunReply;
use sandbox_protocol::workflow::{HookBody, HookHeaders, RunQuery, StepStatus, sign_hook};
use serde_json::json;

use super::tests::{BLOCK, KEY, Yard, steps};
use super::*;
use crate::limits::WORKFLOW_NAMES_HELD_MAX;
use crate::records::Names;

/// A workflow that requests fire, on a fresh sight of the chain, and its secret.
async fn hooked(dir: &tempfile::TempDir) -> (Yard, String) {
    let yard = Yard::new(dir).await;
    yard.have(&steps(&[("a", &[])]), "", ("webhook", r#"{"overlap":"queue"}"#)).await;
    yard.records.take_in(&[], BLOCK + 1).await.unwrap();
    let secret = yard.workflows.secret(KEY, OWNER, false).await.unwrap().secret;
    (yard, secret)
}

impl Yard {
    /// Sends a webhook to a workflow, signed for this second.
    async fn send(
        &self,
        (key, secret): (CallKey, &str),
        sent_s: i64,
        delivery: Option<&str>,
    ) -> Result<HookBody, WorkflowError> {
        let sent_s = u64::try_from(sent_s).unwrap();
        let (timestamp, signature) = (sent_s.to_string(), sign_hook(secret, sent_s, b"{}"));
        let headers = HookHeaders { timestamp: Some(&timestamp), signature: Some(&signature) };
        self.workflows.hook(key, Hook { headers, delivery, body: b"{}" }).await
    }
}

#[tokio::test]
async fn a_webhook_that_was_overheard_fires_nothing_though_it_was_a_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let (yard, secret) = hooked(&dir).await;
    let begun_s = now_s();
    let told = |later_s: i64, delivery| yard.send((KEY, &secret), begun_s + later_s, delivery);
    let repeat = HookBody { run: 1, is_repeat: true };
    assert_eq!(told(0, Some("d-1")).await.unwrap(), HookBody { run: 1, is_repeat: false });
    // Its sender tries again, with the signature of another second.
    assert_eq!(told(1, Some("d-1")).await.unwrap(), repeat);
    // Who overheard that calls it something else.
    assert_eq!(told(1, Some("d-2")).await.unwrap(), repeat);
    assert_eq!(told(1, None).await.unwrap(), repeat);
    assert_eq!(told(2, Some("d-2")).await.unwrap(), repeat);
    assert_eq!(told(3, Some("d-3")).await.unwrap(), HookBody { run: 2, is_repeat: false });
}

#[tokio::test]
async fn where_no_more_webhooks_can_be_told_from_repeats_the_next_is_to_come_back_and_a_repeat_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let (yard, secret) = hooked(&dir).await;
    let begun_s = now_s();
    yard.send((KEY, &secret), begun_s, Some("d-1")).await.unwrap();
    let texts = (2..WORKFLOW_NAMES_HELD_MAX).map(|number| format!("name {number}")).collect();
    yard.records.name_firing(RunKey { workflow: KEY, number: 1 }, &Names::of_request(texts)).await.unwrap();
    for delivery in ["d-2", "d-1"] {
        let refused = yard.send((KEY, &secret), begun_s + 1, Some(delivery)).await;
        assert!(matches!(refused, Err(WorkflowError::Crowded)), "{refused:?}");
    }
    assert!(yard.send((KEY, &secret), begun_s, Some("d-1")).await.unwrap().is_repeat);
}

#[tokio::test]
async fn whether_a_workflow_has_a_secret_is_told_to_nobody_who_does_not_know_it() {
    let dir = tempfile::tempdir().unwrap();
    let (yard, _) = hooked(&dir).await;
    let (unasked, by_hand) = (CallKey { call: 21, ..KEY }, CallKey { call: 22, ..KEY });
    let body = steps(&[("a", &[])]);
    yard.have_as(unasked, (&body, ""), ("webhook", "")).await;
    yard.have_as(by_hand, (&body, ""), ("manual", "")).await;
    let mut told = Vec::new();
    for key in [KEY, unasked, by_hand, CallKey { call: 99, ..KEY }] {
        told.push(yard.send((key, "whsec_guess"), now_s(), None).await.unwrap_err().to_string());
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    let unsigned = Hook { headers: HookHeaders::default(), delivery: None, body: b"{}" };
    let unsigned = yard.workflows.hook(CallKey { call: 99, ..KEY }, unsigned).await;
    assert!(matches!(unsigned, Err(WorkflowError::Hook(_))), "{unsigned:?}");
    // Before they are read none is known not to exist.
    yard.workflows.0.in_step.send_replace(false);
    let early = yard.send((KEY, "whsec_guess"), now_s(), None).await;
    assert!(matches!(early, Err(WorkflowError::Blind(_))), "{early:?}");
}

#[tokio::test]
async fn workflows_are_listed_page_by_page() {
    let dir = tempfile::tempdir().unwrap();
    let yard = Yard::new(&dir).await;
    let keys = [20, 21, 22].map(|call| CallKey { call, ..KEY });
    for key in keys {
        yard.have_as(key, (&steps(&[("a", &[])]), ""), ("manual", "")).await;
    }
    let page = async |after, count| {
        let (page, next) = yard.workflows.list(OWNER, (after, count)).await.unwrap();
        (page.iter().map(|entry| entry.workflow).collect::<Vec<_>>(), next)
    };
    assert_eq!(page(None, 2).await, (vec![20, 21], Some(keys[1])));
    assert_eq!(page(Some(keys[1]), 2).await, (vec![22], None));
    assert_eq!(page(None, 3).await, (vec![20, 21, 22], None));
}

#[tokio::test]
async fn a_run_tells_of_its_own_sandbox_while_it_goes_on_there_and_of_no_files_in_it_for_later() {
    let dir = tempfile::tempdir().unwrap();
    let agents = FakeAgents::default();
    agents.answer_next(Ok(RunReply { success: false, ..RunReply::default() }));
    let yard = Yard::with(&dir, agents).await;
    let body = json!({"steps": [
        {"id": "a", "kind": "exec", "with": {"command": "true"}, "artifacts": ["out.txt"]},
        {"id": "b", "kind": "prompt", "needs": ["a"], "with": {"prompt": "p"},
            "retry": {"max_attempts": 2, "backoff_ms": 3_600_000}},
    ]});
    yard.have(&body, r#"{"memory_mb":64}"#, ("manual", "")).await;
    yard.workflows.trigger(KEY, 31).await.unwrap();
    let key = RunKey { workflow: KEY, number: 1 };
    let mut after = 0;
    let running = loop {
        let body = yard.workflows.run_body(key, OWNER, RunQuery { wait: 60, after }).await.unwrap();
        if body.steps.iter().any(|step| step.status == StepStatus::Retrying) {
            break body;
        }
        assert!(!body.run.status.is_final(), "{body:?}");
        after = body.version;
    };
    assert!(running.sandbox.is_some_and(|own| yard.world.containers().contains(&own)), "{running:?}");
    let ended = yard.workflows.cancel_run(key, OWNER).await.unwrap();
    assert_eq!((ended.run.status, ended.sandbox), (RunStatus::Cancelled, None));
    assert!(ended.steps.iter().all(|step| step.artifacts.is_empty()), "{ended:?}");
}
