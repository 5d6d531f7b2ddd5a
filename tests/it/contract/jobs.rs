//! The job table: 17 jobs are taken and each is completed by a receipt, 25 ids are reserved.

use alloy::primitives::{Bytes, U256};
use anyhow::{Context, Result};
use sandbox_protocol::Job;
use sandbox_sdk::Refusal;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::IAgentSandboxBlueprintErrors as BlueprintRefusal;
use sandbox_sdk::contracts::ITangleCore::ITangleCoreErrors as CoreRefusal;
use sandbox_tests::stage::{Stage, receipt, submitted};

use super::{COIN, DONE, FIRST_SLOT, assignment, live, requests};

#[tokio::test(flavor = "multi_thread")]
async fn every_job_is_taken_and_completed_by_the_receipts_of_those_it_is_assigned_to() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (sandbox, _) = live(&stage, service).await?;
    let workflow = stage.submit(service, Job::WorkflowCreate, &requests::workflow(100)).await?;
    stage.answer(stage.assigned(workflow).await?, workflow, &receipt(DONE, 0)).await?;
    for job in Job::ALL {
        let mark = stage.mark().await?;
        let call = stage.submission(service, job.id(), requests::inputs(job, sandbox, workflow)).await?;
        let sent = stage.send(stage.customer(), &call).await.with_context(|| format!("{job:?}"))?;
        let key = submitted(&sent)?;
        for part in stage.chain().parts(key).await? {
            let slots = (u64::from(part.slots != 0) << part.slots).saturating_sub(1) << part.firstSlot;
            assert!(!stage.is_completed(key).await?, "{job:?}");
            stage.answer(part.operator, key, &receipt(DONE, slots)).await?;
        }
        if assignment(&stage, key).await?.parts == 0 {
            let slots = if job == Job::SandboxCreate { FIRST_SLOT } else { 0 };
            stage.answer(stage.assigned(key).await?, key, &receipt(DONE, slots)).await?;
        }
        let known = assignment(&stage, key).await?;
        assert_eq!((stage.is_completed(key).await?, known.answered, known.job), (true, true, job.id()), "{job:?}");
        assert_eq!((known.caller, known.outcome), (stage.customer(), DONE), "{job:?}");
        stage.back_to(mark).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reserved_id_is_refused_by_name_and_nothing_is_paid() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let mut refused = 0;
    for id in (0..Job::TABLE_LENGTH).filter(|id| Job::from_id(*id).is_none()) {
        let call = stage.submission(service, id, Bytes::new()).await?;
        let refusal = stage.refusal(stage.customer(), &call).await?;
        assert!(
            matches!(&refusal, Refusal::Blueprint(BlueprintRefusal::UnknownJob(error)) if error.job == id),
            "{id}: {refusal}"
        );
        assert_eq!(refusal.to_string(), format!("job {id} is not offered by this blueprint"));
        assert!(!stage.attempt(stage.customer(), &call, 3_000_000).await?.status());
        refused += 1;
    }
    assert_eq!((refused, stage.purses(COIN, 1).await?.core), (25, U256::ZERO));
    let beyond = stage.submission(service, Job::TABLE_LENGTH, Bytes::new()).await?;
    let refusal = stage.refusal(stage.customer(), &beyond).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::InvalidJobIndex(_))), "{refusal}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_are_not_canonical_are_refused_for_every_job() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (sandbox, _) = live(&stage, service).await?;
    let workflow = stage.submit(service, Job::WorkflowCreate, &requests::workflow(100)).await?;
    for job in Job::ALL {
        let good = requests::inputs(job, sandbox, workflow);
        let cut = good.slice(..good.len() - 1);
        let long: Bytes = [&good[..], &[0; 32]].concat().into();
        for (what, inputs) in [("empty", Bytes::new()), ("cut", cut), ("long", long)] {
            let call = stage.submission(service, job.id(), inputs).await?;
            let refusal = stage.refusal(stage.customer(), &call).await?;
            assert!(
                matches!(&refusal, Refusal::Blueprint(BlueprintRefusal::MalformedInputs(error)) if error.job == job.id()),
                "{job:?}, {what}: {refusal}"
            );
        }
    }
    Ok(())
}
