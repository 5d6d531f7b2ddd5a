//! A service of as many operators as there may be, from its request to its end.

use alloy::primitives::U256;
use anyhow::{Context, Result};
use sandbox_protocol::Job;
use sandbox_protocol::abi::JobReceipt;
use sandbox_sdk::Refusal;
use sandbox_sdk::calls::{self, ServiceTerms};
use sandbox_sdk::contracts::ITangleCore::ITangleCoreErrors as CoreRefusal;
use sandbox_sdk::limits::SERVICE_OPERATORS_MAX;
use sandbox_tests::stage::{PLENTY_OF_GAS, Stage, events, receipt};
use sandbox_tests::tangle::ICore::ManagerHookFailed;

use super::{COIN, DONE, FIRST_SLOT, assignment, created, ends, rate, requests};

const MOST: usize = SERVICE_OPERATORS_MAX as usize;

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_the_most_operators_works_from_its_request_to_its_end() -> Result<()> {
    let stage = Stage::new(MOST).await?;
    let everybody = stage.operators().to_vec();
    let service = stage.service(&everybody).await?;
    assert_eq!(stage.chain().operators(service).await?, everybody);

    let before = stage.purses(COIN, MOST).await?;
    let (key, assigned) = created(&stage, service).await?;
    let sent = stage.answer(assigned, key, &receipt(DONE, FIRST_SLOT)).await?;
    println!("a receipt of a create that pays {MOST} operators: {} gas", sent.gas_used);
    let mut charged = before;
    charged.core += rate(&stage, Job::SandboxCreate).await?;
    let price = rate(&stage, Job::SandboxCreate).await?;
    assert_eq!(stage.purses(COIN, MOST).await?, stage.after_payment(&charged, service, price).await?);

    let key = stage.submit(service, Job::BatchCreate, &requests::batch_create(64, Vec::new(), "round_robin")).await?;
    let parts = stage.chain().parts(key).await?;
    assert_eq!(parts.len(), MOST);
    for (place, part) in parts.iter().enumerate() {
        assert!(!stage.is_completed(key).await?, "{place} have answered");
        let made = U256::from(3) << usize::from(part.firstSlot);
        let sent = stage.answer(part.operator, key, &JobReceipt { detail: made, ..receipt(DONE, 0) }).await?;
        assert!(events::<ManagerHookFailed>(&sent).is_empty());
    }
    assert!(stage.is_completed(key).await? && assignment(&stage, key).await?.answered);
    let view = stage.chain().service_view(service).await?.context("no service")?;
    assert_eq!((view.sandboxes, view.held.len()), (65, MOST));

    let end = calls::terminate_service(stage.deployment(), service);
    let sent = stage.send(stage.customer(), &end).await?;
    println!("the end of a service of {MOST} operators: {} gas", sent.gas_used);
    assert!(events::<ManagerHookFailed>(&sent).is_empty());
    for operator in everybody {
        assert_eq!(stage.chain().operator(operator).await?.used, 0);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_operator_more_is_refused_and_cannot_join_later() -> Result<()> {
    let stage = Stage::new(MOST + 1).await?;
    let terms = ServiceTerms::named(stage.operators().to_vec());
    let request = calls::request_service(stage.deployment(), &terms);
    let refusal = stage.refusal(stage.customer(), &request).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::TooManyOperators(_))), "{refusal}");
    assert!(!stage.attempt(stage.customer(), &request, PLENTY_OF_GAS).await?.status());

    let service = stage.service_of(MOST).await?;
    let join = ends::join(service);
    let late = stage.operators()[MOST];
    assert!(stage.refusal(late, &join).await.is_ok());
    let smaller = stage.service_of(MOST - 1).await?;
    stage.send(late, &ends::join(smaller)).await?;
    assert_eq!(stage.chain().operators(smaller).await?.len(), MOST);
    Ok(())
}
