//! Ends: of sandboxes, of an operator's part in a service, of services. Slots come back exactly once.

use alloy::primitives::{Address, U256};
use anyhow::{Context, Result};
use sandbox_protocol::abi::SandboxCreateRequest;
use sandbox_protocol::{CallKey, Job, SandboxId};
use sandbox_sdk::Refusal;
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{
    IAgentSandboxBlueprintErrors as BlueprintRefusal, Reaped, SandboxState, SandboxesLost, WorkflowStatus,
};
use sandbox_sdk::devchain::{CORE, STAKING};
use sandbox_tests::stage::{Stage, event, events, receipt};
use sandbox_tests::tangle::ICore::{
    self, Asset, Commitment, cancelExitCall, executeExitCall, forceExitCall, forceRemoveOperatorCall,
    joinServiceWithCommitmentsCall, scheduleExitCall, unregisterOperatorCall,
};
use sandbox_tests::tangle::IStakes;

use super::{DONE, FIRST_SLOT, assignment, created, live, requests};

const DAY_S: u64 = 86_400;
/// The core's kind of an ERC-20.
const ERC20: u8 = 1;

async fn used(stage: &Stage, operator: Address) -> Result<u32> {
    Ok(stage.chain().operator(operator).await?.used)
}

async fn state(stage: &Stage, sandbox: SandboxId) -> Result<SandboxState> {
    Ok(stage.chain().sandbox(sandbox).await?.state)
}

/// Deletes a sandbox as its operator confirms.
pub(super) async fn deleted(stage: &Stage, sandbox: SandboxId, holder: Address) -> Result<()> {
    let key = stage.submit(sandbox.origin.service, Job::SandboxDelete, &requests::delete(sandbox)).await?;
    stage.answer(holder, key, &receipt(DONE, 0)).await.map(drop)
}

/// An operator whose week in the queue is over.
pub(super) async fn exit_is_due(stage: &Stage, service: u64, operator: Address) -> Result<()> {
    stage.dev().pass_time(DAY_S).await?;
    stage.to_core(operator, &scheduleExitCall { serviceId: service }).await?;
    Ok(stage.dev().pass_time(7 * DAY_S).await?)
}

/// The commitment that the core asks of an operator that joins.
pub(super) fn join(service: u64) -> Invocation {
    let asset = Asset { kind: ERC20, token: STAKING.token };
    let commitments = vec![Commitment { asset, exposureBps: 1_000 }];
    let call = joinServiceWithCommitmentsCall { serviceId: service, exposureBps: 1_000, commitments };
    Invocation::new(CORE, &call)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_gives_the_slot_back_once_and_the_sandbox_takes_no_more_work() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let (sandbox, holder) = live(&stage, service).await?;
    assert_eq!((used(&stage, holder).await?, state(&stage, sandbox).await?), (1, SandboxState::Live));
    // Submitted while it lived, answered after it was gone.
    let twin = stage.submit(service, Job::SandboxDelete, &requests::delete(sandbox)).await?;
    deleted(&stage, sandbox, holder).await?;
    assert_eq!((used(&stage, holder).await?, state(&stage, sandbox).await?), (0, SandboxState::Deleted));
    let (_, _) = live(&stage, service).await?;
    stage.answer(holder, twin, &receipt(DONE, 0)).await?;
    assert_eq!(used(&stage, holder).await?, 1);
    let inputs = alloy::sol_types::SolValue::abi_encode(&requests::exec(sandbox)).into();
    let call = stage.submission(service, Job::Exec.id(), inputs).await?;
    let refused = stage.refusal(stage.customer(), &call).await?;
    assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::UnknownSandbox(_))), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_sandbox_is_given_up_by_anybody_once() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let request = SandboxCreateRequest { ttl_blocks: 50, ..requests::create() };
    let key = stage.submit(service, Job::SandboxCreate, &request).await?;
    let holder = stage.assigned(key).await?;
    stage.answer(holder, key, &receipt(DONE, FIRST_SLOT)).await?;
    let reap = calls::reap(stage.deployment(), key);
    let refused = stage.refusal(super::stranger(), &reap).await?;
    assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::NotReapable(_))), "{refused}");
    stage.dev().mine(50).await?;
    let sent = stage.send(super::stranger(), &reap).await?;
    assert_eq!((event::<Reaped>(&sent)?.slots, used(&stage, holder).await?), (1, 0));
    let refused = stage.refusal(super::stranger(), &reap).await?;
    assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::NotReapable(_))), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_holds_sandboxes_cannot_leave_and_one_that_holds_none_can() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (sandbox, holder) = live(&stage, service).await?;
    exit_is_due(&stage, service, holder).await?;
    let exit = Invocation::new(CORE, &executeExitCall { serviceId: service });
    assert!(stage.refusal(holder, &exit).await?.to_string().contains("may not do this"));
    deleted(&stage, sandbox, holder).await?;
    stage.send(holder, &exit).await?;
    assert!(!stage.chain().core().isServiceOperator(service, holder).call().await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_about_to_leave_is_given_nothing_new_until_it_stays() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (leaving, staying) = (stage.operators()[0], stage.operators()[1]);
    stage.dev().pass_time(DAY_S).await?;
    stage.to_core(leaving, &scheduleExitCall { serviceId: service }).await?;
    for _ in 0..4 {
        assert_eq!(created(&stage, service).await?.1, staying);
    }
    let call = stage.submission(service, 0, alloy::sol_types::SolValue::abi_encode(&requests::create()).into()).await?;
    let refused = stage.refusal(stage.customer(), &call).await?;
    assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::NoCapacity(_))), "{refused}");
    stage.to_core(leaving, &cancelExitCall { serviceId: service }).await?;
    assert_eq!(created(&stage, service).await?.1, leaving);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_of_the_cores_takes_an_operator_out_by_force() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (_, holder) = live(&stage, service).await?;
    let by_owner = Invocation::new(CORE, &forceExitCall { serviceId: service, operator: holder });
    assert!(stage.refusal(stage.customer(), &by_owner).await.is_ok());
    let by_manager = Invocation::new(CORE, &forceRemoveOperatorCall { serviceId: service, operator: holder });
    for anybody in [stage.customer(), holder, super::stranger(), sandbox_tests::purses::developer()] {
        assert!(stage.refusal(anybody, &by_manager).await?.to_string().contains("may not do this"));
    }
    let blueprint_id = stage.deployment().blueprint_id;
    let unregister = Invocation::new(CORE, &unregisterOperatorCall { blueprintId: blueprint_id });
    assert!(stage.refusal(holder, &unregister).await?.to_string().contains("still serves services"));
    let unstake = Invocation::new(STAKING.contract, &IStakes::startLeavingCall {});
    assert!(stage.refusal(holder, &unstake).await.is_ok(), "who serves stays staked");
    Ok(())
}

/// Takes an operator out as only the manager could, which never does: what a later core might do.
async fn force_out(stage: &Stage, service: u64, operator: Address) -> Result<Vec<SandboxesLost>> {
    let call = forceRemoveOperatorCall { serviceId: service, operator };
    let sent = stage.to_core(stage.deployment().manager, &call).await?;
    assert!(events::<ICore::ManagerHookFailed>(&sent).is_empty());
    Ok(events(&sent))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_held_that_was_forced_out_is_lost_and_said_to_be() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (sandbox, holder) = live(&stage, service).await?;
    let lost = force_out(&stage, service, holder).await?;
    assert_eq!(lost.iter().map(|lost| (lost.operator, lost.slots)).collect::<Vec<_>>(), [(holder, 1)]);
    assert_eq!((used(&stage, holder).await?, state(&stage, sandbox).await?), (0, SandboxState::Lost));
    let inputs = alloy::sol_types::SolValue::abi_encode(&requests::exec(sandbox)).into();
    let call = stage.submission(service, Job::Exec.id(), inputs).await?;
    let refused = stage.refusal(stage.customer(), &call).await?;
    assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::UnknownSandbox(_))), "{refused}");
    // It comes back, and what was lost stays lost.
    stage.send(holder, &join(service)).await?;
    assert_eq!((used(&stage, holder).await?, state(&stage, sandbox).await?), (0, SandboxState::Lost));
    assert!(stage.refusal(stage.customer(), &call).await.is_ok());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_batch_of_an_operator_that_was_forced_out_stays_open_and_a_create_of_its_moves() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (create, gone) = created(&stage, service).await?;
    let batch = stage.submit(service, Job::BatchCollect, &requests::collect()).await?;
    force_out(&stage, service, gone).await?;
    let stays = super::another(&stage, gone)?;
    stage.answer(stays, batch, &receipt(DONE, 0)).await?;
    let known = assignment(&stage, batch).await?;
    assert_eq!((stage.is_completed(batch).await?, known.answered, known.answers), (false, false, 1));

    let deadline = assignment(&stage, create).await?.deadlineBlock;
    stage.dev().mine(deadline - stage.chain().head().await?).await?;
    stage.send(super::stranger(), &calls::reassign(stage.deployment(), create)).await?;
    assert_eq!((stage.assigned(create).await?, used(&stage, gone).await?, used(&stage, stays).await?), (stays, 0, 1));
    stage.answer(stays, create, &receipt(DONE, FIRST_SLOT)).await?;
    assert!(stage.is_completed(create).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_whose_operator_has_left_goes_to_another_at_once_with_a_new_epoch() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let key = stage.submit(service, Job::WorkflowCreate, &requests::workflow(60)).await?;
    let former = stage.assigned(key).await?;
    stage.answer(former, key, &receipt(DONE, 0)).await?;
    let move_on = calls::reassign(stage.deployment(), key);
    assert!(stage.refusal(super::stranger(), &move_on).await.is_ok(), "its operator serves");
    exit_is_due(&stage, service, former).await?;
    stage.to_core(former, &executeExitCall { serviceId: service }).await?;
    stage.send(super::stranger(), &move_on).await?;
    let (row, _) = stage.chain().workflow(key).await?.context("no workflow")?;
    assert_eq!((row.status, row.epoch), (WorkflowStatus::Active, 1));
    assert_ne!(row.operator, former);
    assert!(stage.chain().active_workflows(former).await?.is_empty());
    assert_eq!(stage.chain().active_workflows(row.operator).await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_service_gives_back_every_slot_of_it_and_of_no_other() -> Result<()> {
    let stage = Stage::new(2).await?;
    let (ending, going_on) = (stage.service_of(2).await?, stage.service_of(2).await?);
    let (sandbox, _) = live(&stage, ending).await?;
    created(&stage, ending).await?;
    let (kept, keeper) = live(&stage, going_on).await?;
    stage.send(stage.customer(), &calls::terminate_service(stage.deployment(), ending)).await?;
    assert_eq!(
        (state(&stage, sandbox).await?, state(&stage, kept).await?),
        (SandboxState::Deleted, SandboxState::Live)
    );
    let other = super::another(&stage, keeper)?;
    assert_eq!((used(&stage, keeper).await?, used(&stage, other).await?), (1, 0));
    let reap = calls::reap(stage.deployment(), CallKey { service: ending, call: sandbox.origin.call });
    assert!(stage.refusal(super::stranger(), &reap).await.is_ok(), "nothing is given back twice");
    assert_eq!(stage.chain().eligible_count().await?, U256::from(2));
    Ok(())
}
