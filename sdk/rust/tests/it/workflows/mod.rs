//! Workflows: what the client makes of them, and the program.

mod command_line;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alloy::primitives::{Address, B256, U256};
use sandbox_protocol::abi::JobReceipt;
use sandbox_protocol::limits::{HOOK_BODY_BYTES_MAX, HOOK_WINDOW_S_MAX};
use sandbox_protocol::workflow::{Policy, RunStatus, StepStatus};
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::api::{ApiError, Session};
use sandbox_sdk::requests::WorkflowBuilder;
use sandbox_sdk::workflows::{Answer, HookError, HookSender, Origin, Status, Told, WorkflowError};
use sandbox_sdk::{Account, calls};

use crate::agents::token;
use crate::fake_workflows::{FakeWorkflows, entry, step};
use crate::world::{BOUND, World};

const WORKFLOW: CallKey = CallKey { service: 1, call: 7 };
const SANDBOX: SandboxId = SandboxId { origin: WORKFLOW, slot: 0 };

async fn operator() -> (FakeWorkflows, Session) {
    let operator = FakeWorkflows::start(None).await;
    let session = Session::new(Address::ZERO, &operator.url, token()).unwrap();
    (operator, session)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test]
async fn a_run_is_followed_change_by_change_over_connections_that_break() {
    let (operator, session) = operator().await;
    operator.change(|seen| seen.unanswered = 2);
    operator.run(RunStatus::Running, vec![step("build", StepStatus::Running, &[])]);
    let mut changes = session.follow_workflow_run(WORKFLOW, 1);
    let first = changes.next().await.unwrap().unwrap();
    assert_eq!((first.version, first.steps[0].status), (1, StepStatus::Running));
    operator.change(|seen| seen.unanswered = 1);
    operator.run(RunStatus::Succeeded, vec![step("build", StepStatus::Succeeded, &[])]);
    let last = changes.next().await.unwrap().unwrap();
    assert_eq!((last.version, last.run.status), (2, RunStatus::Succeeded));
    assert!(changes.next().await.unwrap().is_none());
    let run = "GET /v1/services/1/workflows/7/runs/1";
    let (now, held) = (format!("{run}?wait=0&after=0"), format!("{run}?wait=60&after=1"));
    assert_eq!(operator.seen().requests, [&now, &now, &now, &held, &held].map(String::as_str));
}

#[tokio::test]
async fn a_run_that_is_not_there_is_told_at_once() {
    let (operator, session) = operator().await;
    let error = session.follow_workflow_run(WORKFLOW, 2).next().await.unwrap_err();
    assert!(matches!(error, ApiError::Refused { status: 404, .. }), "{error:?}");
    assert_eq!(operator.seen().requests.len(), 1);
}

#[tokio::test]
async fn workflows_are_asked_for_page_by_page() {
    let (operator, session) = operator().await;
    operator.change(|seen| seen.entries = [7, 8, 9].map(|call| entry((1, call), Address::ZERO, None)).to_vec());
    let told = session.workflows().await.unwrap();
    assert_eq!(told.iter().map(|entry| entry.workflow).collect::<Vec<_>>(), [7, 8, 9]);
    let pages =
        ["limit=100", "cursor=1&limit=100", "cursor=2&limit=100"].map(|page| format!("GET /v1/workflows?{page}"));
    assert_eq!(operator.seen().requests, pages);
}

#[tokio::test]
async fn a_webhook_is_signed_and_the_same_delivery_is_told_as_a_repeat() {
    let (operator, session) = operator().await;
    operator.change(|seen| seen.unknown = 2);
    let hook = session.hook_secret_within(WORKFLOW, BOUND).await.unwrap();
    let sender = HookSender::new(hook).unwrap();
    assert!(!sender.send("d1", b"{}".to_vec()).await.unwrap().is_repeat);
    assert!(sender.send("d1", b"{}".to_vec()).await.unwrap().is_repeat);
    assert_eq!(operator.seen().hooks, vec![("d1".to_owned(), b"{}".to_vec()); 2]);

    let old = sender.send_at(now_s() - HOOK_WINDOW_S_MAX - 5, "d2", Vec::new()).await.unwrap_err();
    assert!(old.to_string().contains("from the operator's clock"), "{old}");
    let replaced = session.replace_hook_secret(WORKFLOW).await.unwrap();
    let forged = sender.send("d3", Vec::new()).await.unwrap_err();
    assert!(matches!(&forged, HookError::Api(ApiError::Refused { status: 401, .. })), "{forged:?}");
    let sender = HookSender::new(replaced).unwrap();
    sender.send("d4", vec![b'a'; HOOK_BODY_BYTES_MAX]).await.unwrap();
    let long = sender.send("d5", vec![b'a'; HOOK_BODY_BYTES_MAX + 1]).await.unwrap_err();
    assert!(matches!(long, HookError::TooLong(_)), "{long:?}");
}

#[tokio::test]
async fn a_secret_that_never_comes_is_waited_for_no_longer_than_said() {
    let (operator, session) = operator().await;
    operator.change(|seen| seen.unknown = usize::MAX);
    let error = session.hook_secret_within(WORKFLOW, Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, ApiError::Refused { status: 404, .. }), "{error:?}");
}

/// A workflow that its operator has taken.
async fn created(customer: &Account, operator: &Account, service: u64, builder: WorkflowBuilder) -> CallKey {
    let key = customer.submit_job(service, builder.build().unwrap()).await.unwrap().key;
    let receipt = JobReceipt { outcome: 0, responseHash: B256::repeat_byte(5), detail: U256::ZERO };
    operator.send(&calls::submit_receipt(operator.deployment(), key, &receipt)).await.unwrap();
    key
}

#[tokio::test]
async fn what_was_created_is_found_word_by_word_in_the_row_or_in_the_log() {
    let world = World::start().await;
    let ((customer, service), operator) = (world.customer().await, world.account(1).await);
    let small = WorkflowBuilder::of_prompt("a").sandbox(SANDBOX).name("small").webhook(Policy::default());
    let large = WorkflowBuilder::of_prompt("b".repeat(400)).sandbox(SANDBOX).name("large");
    for (builder, origin, trigger) in [(small, Origin::Row, "webhook"), (large, Origin::Log, "manual")] {
        let key = created(&customer, &operator, service, builder.clone()).await;
        let found = customer.chain().workflow_definition(key).await.unwrap();
        let expected = sandbox_protocol::abi::decode(&builder.build().unwrap().inputs).unwrap();
        assert_eq!((found.request, found.origin), (expected, origin));
        assert_eq!((found.row.owner, found.row.operator), (customer.address(), operator.address()));
        assert_eq!(sandbox_sdk::workflows::trigger_name(found.row.trigger), trigger);
    }
    let error = customer.chain().workflow_definition(CallKey { service, call: 99 }).await.unwrap_err();
    assert!(matches!(error, WorkflowError::None(_)), "{error:?}");
}

#[tokio::test]
async fn ones_own_workflows_are_listed_by_the_chain_and_paused_ones_by_who_tells_of_them() {
    let world = World::start().await;
    let ((customer, service), operator) = (world.customer().await, world.account(1).await);
    let mut keys = Vec::new();
    for name in ["first", "second"] {
        let builder = WorkflowBuilder::of_prompt("a").sandbox(SANDBOX).name(name);
        keys.push(created(&customer, &operator, service, builder).await);
    }
    customer.send(&calls::pause_workflow(customer.deployment(), keys[1])).await.unwrap();
    let (chain, me) = (customer.chain(), customer.address());
    let paused = entry((service, keys[1].call), me, Some(86_400));
    let invented = entry((service, 77), me, None);
    let told = Told { operator: operator.address(), answer: Answer::Workflows(vec![paused, invented]) };
    let held = chain.workflows_of(me, std::slice::from_ref(&told)).await.unwrap();
    let said: Vec<_> = held.iter().map(|one| (one.key(), one.name.as_str(), one.status)).collect();
    assert_eq!(said, [(keys[0], "first", Status::Active), (keys[1], "nightly", Status::Paused)]);
    assert_eq!(held[0].problem.as_deref(), Some("its operator does not know of it yet"));
    assert_eq!((held[1].next_slot_s, &held[1].problem), (None, &None), "what is paused is not fired");
    assert_eq!(chain.workflows_of(operator.address(), &[told]).await.unwrap(), [], "they are somebody else's");
}
