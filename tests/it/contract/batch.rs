//! Batches: everybody who has a part must answer it, and a batch create's sandboxes count as their operators make them.

use alloy::primitives::{Address, U256};
use anyhow::Result;
use sandbox_protocol::Job;
use sandbox_protocol::abi::JobReceipt;
use sandbox_sdk::Refusal;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{
    IAgentSandboxBlueprintErrors as BlueprintRefusal, ResultIgnored, SandboxState,
};
use sandbox_sdk::contracts::ITangleCore::JobCompleted;
use sandbox_tests::stage::{Stage, events, receipt};

use super::requests::{self, slot};
use super::{CALLER, COIN, DONE, OPERATOR, assignment, rate};

fn made(slots: impl IntoIterator<Item = u8>) -> JobReceipt {
    let bitmap = slots.into_iter().fold(U256::ZERO, |bits, slot| bits | U256::ONE << usize::from(slot));
    JobReceipt { detail: bitmap, ..receipt(DONE, 0) }
}

async fn used(stage: &Stage) -> Result<Vec<u32>> {
    let mut used = Vec::new();
    for operator in stage.operators() {
        used.push(stage.chain().operator(*operator).await?.used);
    }
    Ok(used)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_batch_is_completed_and_paid_with_the_last_of_its_operators() -> Result<()> {
    let stage = Stage::new(4).await?;
    let service = stage.service_of(4).await?;
    let key = stage.submit(service, Job::BatchCollect, &requests::collect()).await?;
    let before = stage.purses(COIN, 4).await?;
    let outcomes = [DONE, CALLER, OPERATOR, DONE];
    for (place, (operator, outcome)) in stage.operators().iter().zip(outcomes).enumerate() {
        assert!(!stage.is_completed(key).await? && !assignment(&stage, key).await?.answered, "{place} have answered");
        assert_eq!(stage.purses(COIN, 4).await?, before);
        stage.answer(*operator, key, &receipt(outcome, 0)).await?;
    }
    let known = assignment(&stage, key).await?;
    assert_eq!((known.parts, known.answers, known.answered, known.outcome), (4, 4, true, OPERATOR));
    assert!(stage.is_completed(key).await?);
    let outcomes_known: Vec<_> = stage.chain().parts(key).await?.iter().map(|part| part.outcome).collect();
    assert_eq!(outcomes_known, outcomes);
    let price = rate(&stage, Job::BatchCollect).await?;
    assert_eq!(stage.purses(COIN, 4).await?, stage.after_payment(&before, service, price).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandboxes_of_a_batch_are_shared_out_and_each_operator_makes_its_own_alone() -> Result<()> {
    let stage = Stage::new(3).await?;
    let service = stage.service_of(3).await?;
    let key = stage.submit(service, Job::BatchCreate, &requests::batch_create(8, Vec::new(), "round_robin")).await?;
    let shares: Vec<_> = stage.chain().parts(key).await?.iter().map(|part| (part.firstSlot, part.slots)).collect();
    assert_eq!(shares, [(0, 3), (3, 3), (6, 2)]);
    let [first, second, third] = [0, 1, 2].map(|index| stage.operators()[index]);

    // A slot of the neighbour's among its own: no part of it counts, and the core takes no second result.
    let mark = stage.mark().await?;
    let sent = stage.answer(first, key, &made([0, 3])).await?;
    assert_eq!(events::<ResultIgnored>(&sent).len(), 1);
    assert_eq!((assignment(&stage, key).await?.detail, used(&stage).await?), (U256::ZERO, vec![0, 0, 0]));
    stage.back_to(mark).await?;

    stage.answer(first, key, &made([0, 2])).await?;
    stage.answer(second, key, &receipt(OPERATOR, 0)).await?;
    assert!(!stage.is_completed(key).await?);
    let sent = stage.answer(third, key, &made([6, 7])).await?;
    assert_eq!(events::<JobCompleted>(&sent).len(), 1);
    let known = assignment(&stage, key).await?;
    assert_eq!((known.detail, known.outcome), (U256::from(0b1100_0101), OPERATOR));
    assert_eq!(used(&stage).await?, [2, 0, 2]);

    for place in 0..9 {
        let seen = stage.chain().sandbox(slot(key, place)).await?;
        let (state, operator) = match place {
            0 | 2 => (SandboxState::Live, first),
            1 => (SandboxState::Failed, first),
            3..=5 => (SandboxState::Failed, second),
            6 | 7 => (SandboxState::Live, third),
            _ => (SandboxState::Unknown, Address::ZERO),
        };
        assert_eq!((seen.state, seen.operator), (state, operator), "slot {place}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_create_is_planned_within_free_slots_and_refused_beyond_them() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let mut operators = stage.operators().to_vec();
    let refusal = async |count, named: &[Address]| {
        let inputs = alloy::sol_types::SolValue::abi_encode(&requests::batch_create(count, named.to_vec(), "cheapest"));
        let call = stage.submission(service, Job::BatchCreate.id(), inputs.into()).await?;
        stage.refusal(stage.customer(), &call).await
    };
    for (count, named) in [(9, &operators[..]), (5, &operators[..1]), (9, &[])] {
        let refused = refusal(count, named).await?;
        assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::NoCapacity(_))), "{count}: {refused}");
    }
    for count in [0, 201] {
        let refused = refusal(count, &[]).await?;
        assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::BatchSize(_))), "{count}: {refused}");
    }
    for named in [vec![stage.customer()], vec![operators[0], operators[0]]] {
        let refused = refusal(1, &named).await?;
        assert!(refused.to_string().contains("does not serve in service"), "{refused}");
    }
    let key =
        stage.submit(service, Job::BatchCreate, &requests::batch_create(8, operators.clone(), "cheapest")).await?;
    let first = operators.remove(0);
    stage.answer(first, key, &made(0..4)).await?;
    stage.answer(operators[0], key, &made(4..8)).await?;
    assert_eq!(used(&stage).await?, [4, 4]);
    assert_eq!(stage.chain().eligible_count().await?, U256::ZERO);
    assert!(stage.is_completed(key).await?);
    Ok(())
}
