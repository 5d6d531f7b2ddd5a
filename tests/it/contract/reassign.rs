//! A call that its operator does not answer, or fails, goes to another one, as long as nothing is bound to the first.

use alloy::primitives::{Address, U256};
use anyhow::{Context, Result};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::Refusal;
use sandbox_sdk::calls;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{
    CallReassigned, IAgentSandboxBlueprintErrors as BlueprintRefusal, OperatorAssigned, ReceiptRecorded, ResultIgnored,
    WorkflowStatus,
};
use sandbox_sdk::contracts::ITangleCore::{ITangleCoreErrors as CoreRefusal, JobCompleted};
use sandbox_tests::stage::{Stage, event, events, receipt};

use super::{COIN, DONE, FIRST_SLOT, OPERATOR, assignment, created, live, rate, requests, stranger};

/// Asks for a call to be given to another operator, as anybody may.
async fn reassign(stage: &Stage, key: CallKey) -> Result<CallReassigned> {
    event(&stage.send(stranger(), &calls::reassign(stage.deployment(), key)).await?)
}

async fn is_refused(stage: &Stage, key: CallKey) -> Result<bool> {
    let refusal = stage.refusal(stranger(), &calls::reassign(stage.deployment(), key)).await?;
    Ok(matches!(refusal, Refusal::Blueprint(BlueprintRefusal::NotReassignable(_))))
}

/// Lets the operator's time pass: the block that comes next is the first one beyond it.
async fn pass_deadline(stage: &Stage, key: CallKey) -> Result<()> {
    let deadline = assignment(stage, key).await?.deadlineBlock;
    let head = stage.chain().head().await?;
    Ok(stage.dev().mine(deadline.saturating_sub(head)).await?)
}

async fn used(stage: &Stage, operator: Address) -> Result<u32> {
    Ok(stage.chain().operator(operator).await?.used)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_moves_after_its_deadline_and_not_before() -> Result<()> {
    let stage = Stage::new(3).await?;
    let service = stage.service_of(3).await?;
    let (key, first) = created(&stage, service).await?;
    let deadline = assignment(&stage, key).await?.deadlineBlock;
    assert!(is_refused(&stage, key).await?);
    stage.dev().mine(deadline - stage.chain().head().await? - 1).await?;
    let early = stage.attempt(stranger(), &calls::reassign(stage.deployment(), key), 1_000_000).await?;
    assert_eq!((early.block_number, early.status()), (Some(deadline), false), "its last block is the operator's still");

    let moved = reassign(&stage, key).await?;
    let now = assignment(&stage, key).await?;
    assert_eq!((moved.from, moved.epoch, now.epoch), (first, 1, 1));
    assert!(now.operator != first && now.deadlineBlock > deadline);
    assert_eq!((used(&stage, first).await?, used(&stage, now.operator).await?), (0, 1), "what it holds went along");
    assert!(is_refused(&stage, key).await?, "the next one has its time too");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_failure_moves_a_create_at_once_and_pays_nobody() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (key, first) = created(&stage, service).await?;
    let before = stage.purses(COIN, 2).await?;
    let sent = stage.answer(first, key, &receipt(OPERATOR, 0)).await?;
    assert!(events::<JobCompleted>(&sent).is_empty() && events::<ReceiptRecorded>(&sent).is_empty());
    let (moved, assigned): (CallReassigned, OperatorAssigned) = (event(&sent)?, event(&sent)?);
    assert_eq!(moved.from, first);
    assert_ne!(assigned.operator, first);
    assert_eq!(stage.purses(COIN, 2).await?, before);

    stage.answer(assigned.operator, key, &receipt(DONE, FIRST_SLOT)).await?;
    let price = rate(&stage, Job::SandboxCreate).await?;
    assert!(stage.is_completed(key).await?);
    assert_eq!(stage.purses(COIN, 2).await?, stage.after_payment(&before, service, price).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_late_receipt_of_a_former_operator_changes_nothing() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (key, former) = created(&stage, service).await?;
    pass_deadline(&stage, key).await?;
    reassign(&stage, key).await?;
    let before = stage.purses(COIN, 2).await?;
    let sent = stage.answer(former, key, &receipt(DONE, FIRST_SLOT)).await?;
    assert_eq!((events::<ResultIgnored>(&sent).len(), events::<JobCompleted>(&sent).len()), (1, 0));
    assert!(!stage.is_completed(key).await? && !assignment(&stage, key).await?.answered);
    assert_eq!(stage.purses(COIN, 2).await?, before);
    let present = stage.assigned(key).await?;
    stage.answer(present, key, &receipt(DONE, FIRST_SLOT)).await?;
    assert!(stage.is_completed(key).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_after_the_deadline_counts_as_long_as_nobody_has_moved_the_call() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (key, assigned) = created(&stage, service).await?;
    pass_deadline(&stage, key).await?;
    stage.answer(assigned, key, &receipt(DONE, FIRST_SLOT)).await?;
    assert!(stage.is_completed(key).await?);
    assert!(is_refused(&stage, key).await?, "what is answered stays where it is");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operator_of_the_service_is_tried_once_and_the_last_ones_failure_is_the_calls() -> Result<()> {
    let stage = Stage::new(3).await?;
    let service = stage.service_of(3).await?;
    let (key, _) = created(&stage, service).await?;
    let before = stage.purses(COIN, 3).await?;
    let mut tried = Vec::new();
    for epoch in 0..3 {
        let known = assignment(&stage, key).await?;
        assert_eq!((known.epoch, known.answered), (epoch, false));
        stage.answer(known.operator, key, &receipt(OPERATOR, 0)).await?;
        tried.push(known.operator);
    }
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), 3);
    let known = assignment(&stage, key).await?;
    assert_eq!((known.answered, known.outcome), (true, OPERATOR));
    // The core has no refund: it pays for a failure as for a success.
    let price = rate(&stage, Job::SandboxCreate).await?;
    assert_eq!(stage.purses(COIN, 3).await?, stage.after_payment(&before, service, price).await?);
    for operator in tried {
        assert_eq!(used(&stage, operator).await?, 0);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_comes_to_an_operator_that_has_wasted_its_result_goes_on_after_its_deadline() -> Result<()> {
    let stage = Stage::new(3).await?;
    let service = stage.service_of(3).await?;
    let (key, first) = created(&stage, service).await?;
    // Both others answer what was not asked of them, which uses up the one result that the core takes of each.
    for other in stage.operators().iter().filter(|other| **other != first) {
        stage.answer(*other, key, &receipt(DONE, FIRST_SLOT)).await?;
    }
    pass_deadline(&stage, key).await?;
    let second = reassign(&stage, key).await?;
    let present = stage.assigned(key).await?;
    let answer = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, FIRST_SLOT));
    let refusal = stage.refusal(present, &answer).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::ResultAlreadySubmitted(_))), "{refusal}");
    pass_deadline(&stage, key).await?;
    assert_eq!((second.epoch, reassign(&stage, key).await?.epoch), (1, 2));
    pass_deadline(&stage, key).await?;
    assert!(is_refused(&stage, key).await?, "nobody is left, and nothing of the core's gives the price back");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_stays_where_it_is_when_the_others_are_full() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (key, first) = created(&stage, service).await?;
    let other = super::another(&stage, first)?;
    stage.send(other, &calls::set_paused(stage.deployment(), true)).await?;
    pass_deadline(&stage, key).await?;
    assert!(is_refused(&stage, key).await?);
    stage.send(other, &calls::set_paused(stage.deployment(), false)).await?;
    assert_eq!(reassign(&stage, key).await?.from, first);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_nobody_has_confirmed_moves_and_one_that_is_cancelled_does_not() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let moving = stage.submit(service, Job::WorkflowCreate, &requests::workflow(100)).await?;
    let cancelled = stage.submit(service, Job::WorkflowCreate, &requests::workflow(100)).await?;
    let first = stage.assigned(moving).await?;
    stage.submit(service, Job::WorkflowCancel, &requests::control(cancelled)).await?;
    pass_deadline(&stage, moving).await?;
    pass_deadline(&stage, cancelled).await?;
    assert!(is_refused(&stage, cancelled).await?);
    reassign(&stage, moving).await?;
    let present = stage.assigned(moving).await?;
    assert_ne!(present, first);
    stage.answer(present, moving, &receipt(DONE, 0)).await?;
    let (row, _) = stage.chain().workflow(moving).await?.context("no workflow")?;
    assert_eq!((row.status, row.operator, row.epoch), (WorkflowStatus::Active, present, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_in_a_sandbox_never_moves_and_an_operators_failure_of_it_completes_the_call() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (sandbox, holder) = live(&stage, service).await?;
    let key = stage.submit(service, Job::Exec, &requests::exec(sandbox)).await?;
    pass_deadline(&stage, key).await?;
    assert!(is_refused(&stage, key).await?);
    stage.answer(holder, key, &receipt(OPERATOR, 0)).await?;
    let known = assignment(&stage, key).await?;
    assert_eq!((stage.is_completed(key).await?, known.answered, known.outcome), (true, true, OPERATOR));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_service_that_has_ended_do_not_move() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (key, _) = created(&stage, service).await?;
    stage.send(stage.customer(), &calls::terminate_service(stage.deployment(), service)).await?;
    pass_deadline(&stage, key).await?;
    assert!(is_refused(&stage, key).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_nothing_to_move_of_a_call_that_there_is_not() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    assert!(is_refused(&stage, CallKey { service, call: 0 }).await?);
    let missing = calls::submit_receipt(stage.deployment(), CallKey { service, call: 0 }, &receipt(DONE, 0));
    let refusal = stage.refusal(stage.operators()[0], &missing).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::JobCallNotFound(_))), "{refusal}");
    assert_eq!(stage.purses(COIN, 1).await?.core, U256::ZERO);
    Ok(())
}
