//! Only the assigned operator's receipt completes a call and moves money, whatever else is sent and however.

use alloy::primitives::{B256, Bytes, U256};
use alloy::sol_types::SolValue as _;
use anyhow::Result;
use sandbox_protocol::Job;
use sandbox_protocol::abi::JobReceipt;
use sandbox_sdk::Refusal;
use sandbox_sdk::calls;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{ReceiptRecorded, ResultIgnored};
use sandbox_sdk::contracts::ITangleCore::{ITangleCoreErrors as CoreRefusal, JobCompleted, PaymentDistributed};
use sandbox_tests::stage::{Stage, events, receipt};

use super::{CALLER, COIN, DONE, FIRST_SLOT, OPERATOR, another, assignment, created, live, rate, requests};

#[tokio::test(flavor = "multi_thread")]
async fn another_operators_receipt_neither_completes_nor_pays_and_the_assigned_ones_does_both() -> Result<()> {
    let stage = Stage::new(3).await?;
    let service = stage.service_of(3).await?;
    let (key, assigned) = created(&stage, service).await?;
    let before = stage.purses(COIN, 3).await?;
    for other in stage.operators().iter().filter(|other| **other != assigned) {
        let sent = stage.answer(*other, key, &receipt(DONE, FIRST_SLOT)).await?;
        assert_eq!(events::<ResultIgnored>(&sent).len(), 1);
        assert!(events::<JobCompleted>(&sent).is_empty() && events::<ReceiptRecorded>(&sent).is_empty());
        assert!(!stage.is_completed(key).await? && !assignment(&stage, key).await?.answered);
        assert_eq!(stage.purses(COIN, 3).await?, before);
    }

    let sent = stage.answer(assigned, key, &receipt(DONE, FIRST_SLOT)).await?;
    assert_eq!((events::<JobCompleted>(&sent).len(), events::<ReceiptRecorded>(&sent).len()), (1, 1));
    assert!(stage.is_completed(key).await? && assignment(&stage, key).await?.answered);
    let price = rate(&stage, Job::SandboxCreate).await?;
    assert_eq!(events::<PaymentDistributed>(&sent)[0].grossAmount, price);
    assert_eq!(stage.purses(COIN, 3).await?, stage.after_payment(&before, service, price).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_another_service_is_refused_by_the_core() -> Result<()> {
    let stage = Stage::new(3).await?;
    let service = stage.service_of(2).await?;
    let (key, assigned) = created(&stage, service).await?;
    let foreign = stage.operators()[2];
    stage.service(&[foreign]).await?;
    let before = stage.purses(COIN, 3).await?;
    let answer = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, FIRST_SLOT));
    let refusal = stage.refusal(foreign, &answer).await?;
    // Core and blueprint have an error of this name and these arguments each.
    assert!(refusal.to_string().contains(&format!("{foreign} does not serve in service {service}")), "{refusal}");
    assert!(!stage.attempt(foreign, &answer, 1_000_000).await?.status());
    assert_eq!(stage.purses(COIN, 3).await?, before);
    stage.send(assigned, &answer).await?;
    assert!(stage.is_completed(key).await?);
    Ok(())
}

/// Calls of one service in one transaction of one operator: which are assigned to it, and in which order they are answered.
async fn check_batch(order: &[bool]) -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (mine, me) = live(&stage, service).await?;
    let other = another(&stage, me)?;
    let theirs = loop {
        let (sandbox, operator) = live(&stage, service).await?;
        if operator == other {
            break sandbox;
        }
    };
    let mut keys = Vec::new();
    for is_mine in order {
        let sandbox = if *is_mine { mine } else { theirs };
        keys.push(stage.submit(service, Job::Exec, &requests::exec(sandbox)).await?);
    }
    let before = stage.purses(COIN, 2).await?;
    let receipts: Vec<_> = keys.iter().map(|key| (key.call, receipt(DONE, 0))).collect();
    let sent = stage.send(me, &calls::submit_receipts(stage.deployment(), service, &receipts)).await?;

    let rights = order.iter().filter(|is_mine| **is_mine).count();
    assert_eq!(events::<JobCompleted>(&sent).len(), rights);
    let mut expected = before;
    for (key, is_mine) in keys.iter().zip(order) {
        assert_eq!(stage.is_completed(*key).await?, *is_mine, "{order:?} {key}");
        assert_eq!(assignment(&stage, *key).await?.answered, *is_mine, "{order:?} {key}");
        if *is_mine {
            expected = stage.after_payment(&expected, service, rate(&stage, Job::Exec).await?).await?;
        }
    }
    assert_eq!(stage.purses(COIN, 2).await?, expected, "{order:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn in_one_transaction_a_wrong_result_gains_nothing_from_a_right_one_before_it() -> Result<()> {
    check_batch(&[true, false]).await?;
    check_batch(&[true, true, false, true, false, false]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn in_one_transaction_a_wrong_result_takes_nothing_from_a_right_one_after_it() -> Result<()> {
    check_batch(&[false, true]).await?;
    check_batch(&[false, false, true]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_one_transaction_may_come_in_any_order_of_calls() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let (sandbox, operator) = live(&stage, service).await?;
    let mut keys = Vec::new();
    for _ in 0..4 {
        keys.push(stage.submit(service, Job::Exec, &requests::exec(sandbox)).await?);
    }
    let receipts: Vec<_> = [2, 0, 3, 1].iter().map(|place| (keys[*place].call, receipt(CALLER, 0))).collect();
    stage.send(operator, &calls::submit_receipts(stage.deployment(), service, &receipts)).await?;
    for key in keys {
        let answered = assignment(&stage, key).await?;
        assert!(stage.is_completed(key).await? && answered.answered && answered.outcome == CALLER);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_result_undoes_the_whole_transaction() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (key, assigned) = created(&stage, service).await?;
    let before = stage.purses(COIN, 2).await?;
    let twice = [(key.call, receipt(DONE, FIRST_SLOT)), (key.call, receipt(DONE, FIRST_SLOT))];
    let twice = calls::submit_receipts(stage.deployment(), service, &twice);
    let refusal = stage.refusal(assigned, &twice).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::JobAlreadyCompleted(_))), "{refusal}");
    assert!(!stage.attempt(assigned, &twice, 3_000_000).await?.status());
    assert!(!stage.is_completed(key).await? && !assignment(&stage, key).await?.answered);

    let other = another(&stage, assigned)?;
    let refusal = stage.refusal(other, &twice).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::ResultAlreadySubmitted(_))), "{refusal}");
    stage.answer(other, key, &receipt(DONE, FIRST_SLOT)).await?;
    let again = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, FIRST_SLOT));
    let refusal = stage.refusal(other, &again).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::ResultAlreadySubmitted(_))), "{refusal}");
    assert_eq!(stage.purses(COIN, 2).await?, before);
    Ok(())
}

/// Bytes that are not the receipt of a finished create.
fn malformed() -> Vec<(&'static str, Bytes)> {
    let good = receipt(DONE, FIRST_SLOT).abi_encode();
    let with = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        Bytes::from(bytes)
    };
    let of = |outcome, detail: U256| Bytes::from(JobReceipt { outcome, responseHash: B256::ZERO, detail }.abi_encode());
    vec![
        ("nothing", Bytes::new()),
        ("a byte too short", Bytes::copy_from_slice(&good[..95])),
        ("two words", Bytes::copy_from_slice(&good[..64])),
        ("a byte too long", [good.as_slice(), &[0]].concat().into()),
        ("a word too long", [good.as_slice(), &[0; 32]].concat().into()),
        ("an outcome with dirty bits", with(0, 0x80)),
        ("an outcome just too large for a byte", with(30, 1)),
        ("outcome 3", with(31, 3)),
        ("no slot", of(DONE, U256::ZERO)),
        ("a slot that was not asked for", of(DONE, U256::from(2))),
        ("one slot more", of(DONE, U256::from(3))),
        ("slots of a failure", of(CALLER, U256::ONE)),
        ("every slot of a failure", of(OPERATOR, U256::MAX)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_receipt_leave_the_call_open_and_unpaid_though_the_assigned_operator_sends_them() -> Result<()>
{
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (key, assigned) = created(&stage, service).await?;
    let before = stage.purses(COIN, 2).await?;
    for (what, bytes) in malformed() {
        let mark = stage.mark().await?;
        let sent = stage.answer_raw(assigned, key, bytes).await?;
        assert_eq!((events::<ResultIgnored>(&sent).len(), events::<JobCompleted>(&sent).len()), (1, 0), "{what}");
        assert!(!stage.is_completed(key).await? && !assignment(&stage, key).await?.answered, "{what}");
        assert_eq!(stage.purses(COIN, 2).await?, before, "{what}");
        // The core takes one result of an operator for a call, and that was it.
        let good = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, FIRST_SLOT));
        let refusal = stage.refusal(assigned, &good).await?;
        assert!(matches!(refusal, Refusal::Core(CoreRefusal::ResultAlreadySubmitted(_))), "{what}: {refusal}");
        stage.back_to(mark).await?;
    }
    stage.answer(assigned, key, &receipt(DONE, FIRST_SLOT)).await?;
    assert!(stage.is_completed(key).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_of_a_job_that_creates_nothing_says_nothing_of_slots() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let (sandbox, operator) = live(&stage, service).await?;
    let key = stage.submit(service, Job::Exec, &requests::exec(sandbox)).await?;
    let sent = stage.answer(operator, key, &receipt(DONE, FIRST_SLOT)).await?;
    assert!(events::<JobCompleted>(&sent).is_empty() && !stage.is_completed(key).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn results_for_a_service_that_has_ended_are_refused_by_the_core() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let (key, assigned) = created(&stage, service).await?;
    stage.send(stage.customer(), &calls::terminate_service(stage.deployment(), service)).await?;
    let answer = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, FIRST_SLOT));
    let refusal = stage.refusal(assigned, &answer).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::ServiceNotActive(_))), "{refusal}");
    Ok(())
}
