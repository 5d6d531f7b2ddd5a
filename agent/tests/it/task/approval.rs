//! What must be asked for, and what is refused.

use std::time::Duration;

use sandbox_agent::profile::Policy;
use sandbox_protocol::agent::{Decision, RunFailure};
use serde_json::json;
use tokio::time::Instant;

use super::ground::{Ground, call};

fn ground(policy: Policy, decision: Option<Decision>) -> Ground {
    let mut ground = Ground::new().calls([call("c", "shell", json!({ "command": "rm" }))]).says("Done.");
    ground.order.profile.approvals.tools.insert("shell".into(), policy);
    *ground.readers.decision.lock().unwrap() = decision;
    ground
}

#[tokio::test]
async fn what_is_allowed_is_done_and_nobody_asked() {
    let ground = ground(Policy::Allow, None);
    ground.run().await;
    assert_eq!((ground.effects().len(), ground.readers.asked.lock().unwrap().len()), (1, 0));
}

#[tokio::test]
async fn what_is_denied_is_not_done_and_the_model_told_so() {
    let ground = ground(Policy::Deny, None);
    assert_eq!(ground.run().await.result, "Done.");
    assert!(ground.effects().is_empty() && ground.readers.asked.lock().unwrap().is_empty());
    let told = "Tool `shell` failed.\nError type: execution\nMessage: This agent may not use the tool; find another way\nThis error is not retryable.";
    assert_eq!(ground.results(), [told]);
}

#[tokio::test]
async fn what_asks_is_done_if_the_customer_says_so() {
    let allowed = ground(Policy::Ask, Some(Decision::Allow));
    allowed.run().await;
    assert_eq!(allowed.effects().len(), 1);
    let asked = allowed.readers.asked.lock().unwrap().clone();
    assert_eq!((asked[0].id.as_str(), asked[0].name.as_str()), ("1-1", "shell"));
    let denied = ground(Policy::Ask, Some(Decision::Deny));
    denied.run().await;
    assert!(denied.effects().is_empty());
    assert!(denied.results()[0].contains("Message: The user did not approve this call; do not repeat it\n"));
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_customer_never_answers_ends_with_its_time() {
    let mut ground = ground(Policy::Ask, None);
    ground.order.deadline = Instant::now() + Duration::from_secs(9);
    assert_eq!(ground.failure().await, Some(RunFailure::Timeout));
    assert!(ground.effects().is_empty());
    assert_eq!(ground.results().len(), 1);
}

#[tokio::test]
async fn a_call_that_was_approved_and_began_is_not_asked_for_again() {
    let mut ground = ground(Policy::Ask, Some(Decision::Allow));
    ground.order.profile.approvals.default = Policy::Ask;
    let mut moment = 0;
    loop {
        ground.fate.die_at(Some(moment));
        if ground.effects().is_empty() && ground.live(ground.ports()).await.is_none() {
            moment += 1;
            continue;
        }
        break;
    }
    let asked = ground.readers.asked.lock().unwrap().len();
    *ground.readers.decision.lock().unwrap() = Some(Decision::Deny);
    ground.fate.die_at(None);
    assert_eq!(ground.run().await.result, "Done.");
    assert_eq!((ground.readers.asked.lock().unwrap().len(), ground.effects().len()), (asked, 1));
    assert_eq!(ground.results(), ["exit code: 0\nstdout:\nrm"]);
}
