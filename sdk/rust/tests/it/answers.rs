//! Which answers are handed on, and which are not.

use std::time::Duration;

use sandbox_protocol::http::CallBody;
use sandbox_protocol::{CallKey, Outcome};
use sandbox_sdk::answers::{AnswerError, Answers, Proof};
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::requests::CreateBuilder;
use sandbox_sdk::verify::{self, Unproven};

use crate::fake_operator::{FakeOperator, Manner};
use crate::world::{BOUND, CUSTOMER, World};

async fn asked(manner: Manner) -> (World, FakeOperator, Answers, SubmittedJob) {
    let world = World::start().await;
    let operator = FakeOperator::start(world.account(1).await, manner).await;
    let (customer, service) = world.customer().await;
    let submitted = customer.submit_job(service, CreateBuilder::new().build().unwrap()).await.unwrap();
    (world, operator, Answers::new(customer).unwrap(), submitted)
}

fn assert_done(body: &CallBody) {
    assert_eq!(body.answer.as_ref().unwrap().outcome, Outcome::Done);
}

#[tokio::test]
async fn an_honest_answer_is_handed_on_and_is_on_chain() {
    let (_world, _operator, answers, submitted) = asked(Manner::Honest).await;
    let body = answers.wait_for(&submitted, BOUND).await.unwrap();
    assert_done(&body);
    verify::on_chain(answers.account().chain(), body.answer.as_ref().unwrap()).await.unwrap();
    assert_eq!(answers.look(submitted.key).await.unwrap(), body);
}

#[tokio::test]
async fn an_operator_that_has_not_seen_the_call_yet_is_asked_again() {
    let (_world, _operator, answers, submitted) = asked(Manner::Slow).await;
    assert_done(&answers.wait_for_call(submitted.key, BOUND).await.unwrap());
}

#[tokio::test]
async fn a_forged_response_is_not_handed_on_unless_proof_is_waived() {
    let (_world, _operator, answers, submitted) = asked(Manner::Forging).await;
    let error = answers.wait_for(&submitted, BOUND).await.unwrap_err();
    assert!(matches!(error, AnswerError::Unproven { source: Unproven::Receipt(_), .. }), "{error:?}");
    let trusting = answers.proof(Proof::Waived);
    assert_done(&trusting.wait_for(&submitted, BOUND).await.unwrap());
}

#[tokio::test]
async fn a_response_that_is_withheld_is_told_from_one_that_is_late() {
    let bound = Duration::from_secs(2);
    let (_world, _operator, answers, submitted) = asked(Manner::Withholding).await;
    let error = answers.wait_for(&submitted, bound).await.unwrap_err();
    assert!(matches!(error, AnswerError::Withheld { outcome: 0, .. }), "{error:?}");

    let (_world, _operator, answers, submitted) = asked(Manner::Idle).await;
    let error = answers.wait_for(&submitted, bound).await.unwrap_err();
    assert!(matches!(error, AnswerError::TooLate { waited_s: 2, source: None, .. }), "{error:?}");
}

#[tokio::test]
async fn a_call_that_is_not_there_is_nobody_s_to_answer() {
    let world = World::start().await;
    let answers = Answers::new(world.account(CUSTOMER).await).unwrap();
    let key = CallKey { service: 1, call: 0 };
    let error = answers.wait_for_call(key, BOUND).await.unwrap_err();
    assert!(matches!(error, AnswerError::NoCall(found) if found == key), "{error:?}");
}

#[tokio::test]
async fn an_operator_that_nobody_reaches_is_named() {
    let world = World::start().await;
    let (customer, service) = world.customer().await;
    let submitted = customer.submit_job(service, CreateBuilder::new().build().unwrap()).await.unwrap();
    let answers = Answers::new(customer).unwrap();
    let error = answers.wait_for(&submitted, Duration::from_secs(5)).await.unwrap_err();
    let AnswerError::TooLate { source: Some(source), .. } = error else { panic!("{error:?}") };
    assert!(matches!(*source, AnswerError::Unreachable { .. }), "{source:?}");
}
