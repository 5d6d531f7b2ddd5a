//! What the chain does for a customer, and what it refuses.

use std::time::Duration;

use alloy::primitives::{B256, Bytes, U256};
use sandbox_protocol::abi::JobReceipt;
use sandbox_protocol::{CallKey, Job, SandboxId};
use sandbox_sdk::calls::{self, ServiceTerms};
use sandbox_sdk::chain::{ConnectError, CustomerError, SendError, is_active};
use sandbox_sdk::deploy::price_wei;
use sandbox_sdk::requests::{self, CreateBuilder, ExecBuilder};
use sandbox_sdk::{Account, Chain, Deployment, devchain, operators};

use crate::world::{API_URL, CUSTOMER, World, profile};

fn sentence<T: std::fmt::Debug>(result: Result<T, SendError>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, SendError::Refused(_)), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_deployment_has_its_manager_and_a_price_for_every_job() {
    let world = World::start().await;
    let chain = Chain::connect(world.deployment.clone()).await.unwrap();
    for id in 0..Job::TABLE_LENGTH {
        assert_eq!(chain.price(id).await.unwrap(), price_wei(id), "job {id}");
    }
    let view = chain.operator(devchain::key(1).address()).await.unwrap();
    assert!(view.registered && view.eligible);
    assert_eq!(view.apiUrl, API_URL);
}

#[tokio::test]
async fn addresses_that_do_not_fit_the_chain_are_refused() {
    let world = World::start().await;
    let wrong_chain = Deployment { chain_id: 1, ..world.deployment.clone() };
    assert!(matches!(Chain::connect(wrong_chain).await, Err(ConnectError::WrongChain { expected: 1, .. })));
    let no_code = Deployment { manager: devchain::key(9).address(), ..world.deployment.clone() };
    assert!(matches!(Chain::connect(no_code).await, Err(ConnectError::NoCode { role: "blueprint", .. })));
    let foreign = Deployment { blueprint_id: 0, ..world.deployment.clone() };
    assert!(matches!(Chain::connect(foreign).await, Err(ConnectError::WrongManager { blueprint: 0, .. })));
    let unknown = Deployment { blueprint_id: 77, ..world.deployment.clone() };
    let error = Chain::connect(unknown).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoBlueprint { .. } | ConnectError::WrongManager { .. }), "{error:?}");
}

#[tokio::test]
async fn a_submitted_job_has_its_call_key_and_its_operator() {
    let world = World::start().await;
    let (customer, service) = world.customer().await;
    let request = CreateBuilder::new().cpu_cores(1).build().unwrap();
    let submitted = customer.submit_job(service, request.clone()).await.unwrap();
    assert_eq!(submitted.key, CallKey { service, call: 0 });
    assert_eq!(submitted.price, price_wei(0));

    let chain = customer.chain();
    let assignment = chain.assignment(submitted.key).await.unwrap().unwrap();
    assert_eq!((assignment.operator, assignment.caller), (devchain::key(1).address(), customer.address()));
    let found = chain.submission(submitted.key).await.unwrap().unwrap();
    assert_eq!((found.inputs, found.caller, found.job), (request.inputs, customer.address(), 0));
    assert_eq!((found.block, found.transaction), (submitted.block, submitted.transaction));
    assert!(chain.submission(CallKey { service, call: 1 }).await.unwrap().is_none());
}

#[tokio::test]
async fn what_the_chain_refuses_is_said_in_a_sentence_and_costs_nothing() {
    let world = World::start().await;
    let (customer, service) = world.customer().await;
    let deployment = &world.deployment;
    let create = CreateBuilder::new().build().unwrap().inputs;
    let before = balance(&world, &customer).await;

    let unpaid = calls::submit_job(deployment, service, 0, create.clone(), U256::from(7));
    assert_eq!(sentence(customer.send(&unpaid).await), "exactly 500000000000000 wei must be paid, 7 were given");
    let reserved = calls::submit_job(deployment, service, 5, create.clone(), price_wei(5));
    assert_eq!(sentence(customer.send(&reserved).await), "job 5 is not offered by this blueprint");
    let undeclared = calls::submit_job(deployment, service, 42, create.clone(), price_wei(42));
    assert_eq!(sentence(customer.send(&undeclared).await), "the blueprint declares no job 42");
    let malformed = calls::submit_job(deployment, service, 0, Bytes::from_static(b"nonsense"), price_wei(0));
    assert_eq!(
        sentence(customer.send(&malformed).await),
        "the inputs are not the ABI encoding that job 0 (sandbox_create) takes"
    );
    let sandbox: SandboxId = format!("sbx-{service}-9-0").parse().unwrap();
    for request in [ExecBuilder::new(sandbox, "true").build().unwrap(), requests::delete(sandbox)] {
        let error = customer.submit_job(service, request).await.unwrap_err();
        assert_eq!(error.to_string(), format!("no live sandbox {sandbox} in this service"));
    }
    let stranger = world.account(5).await;
    let uninvited = calls::submit_job(deployment, service, 0, create, price_wei(0));
    let expected = format!("{} may not submit jobs to service {service}", stranger.address());
    assert_eq!(sentence(stranger.send(&uninvited).await), expected);

    assert_eq!(balance(&world, &customer).await, before);
}

async fn balance(world: &World, account: &Account) -> U256 {
    use alloy::providers::Provider as _;
    world.dev.provider().get_balance(account.address()).await.unwrap()
}

#[tokio::test]
async fn a_sandbox_lives_from_its_receipt_and_its_operator_is_paid() {
    let world = World::start().await;
    let (customer, service) = world.customer().await;
    let operator = world.account(1).await;
    let key = customer.submit_job(service, CreateBuilder::new().build().unwrap()).await.unwrap().key;
    let before = customer.chain().pending_rewards(operator.address()).await.unwrap();

    let receipt = JobReceipt { outcome: 0, responseHash: B256::repeat_byte(5), detail: U256::from(1) };
    operator.send(&calls::submit_receipt(&world.deployment, key, &receipt)).await.unwrap();
    let assignment = customer.chain().assignment(key).await.unwrap().unwrap();
    assert!(assignment.answered);
    assert_eq!((assignment.responseHash, assignment.detail), (receipt.responseHash, receipt.detail));
    let again = operator.send(&calls::submit_receipt(&world.deployment, key, &receipt)).await;
    assert_eq!(sentence(again), format!("call {key} is already completed"));

    let id = SandboxId { origin: key, slot: 0 };
    assert_eq!(customer.chain().sandbox(id).await.unwrap().owner, customer.address());
    customer.submit_job(service, ExecBuilder::new(id, "true").build().unwrap()).await.unwrap();

    assert!(customer.chain().pending_rewards(operator.address()).await.unwrap() > before);
    operator.claim_rewards().await.unwrap();
    assert_eq!(customer.chain().pending_rewards(operator.address()).await.unwrap(), U256::ZERO);
}

#[tokio::test]
async fn operators_are_drawn_by_a_seed_that_the_blueprint_enforces() {
    let world = World::start().await;
    for index in [2, 4, 5] {
        let operator = world.account(index).await;
        if !devchain::STAKED.contains(&index) {
            operators::stake(&operator, devchain::STAKING, U256::from(10).pow(U256::from(18))).await.unwrap();
        }
        operators::register(&operator, &profile(&format!("{API_URL}/{index}"))).await.unwrap();
    }
    let customer = world.account(CUSTOMER).await;
    let terms = customer.chain().drawn_terms(2, B256::repeat_byte(1)).await.unwrap();
    assert_eq!(terms.operators.len(), 2);
    customer.request_service(&terms).await.unwrap();

    let mut swapped = terms;
    swapped.operators.reverse();
    let error = customer.request_service(&swapped).await.unwrap_err().to_string();
    assert!(error.starts_with("the seed does not draw the listed operators: number 0 must be"), "{error}");
    let error = customer.chain().drawn_terms(5, B256::ZERO).await.unwrap_err();
    assert_eq!(error.to_string(), "5 operators asked for, 4 are eligible");
}

#[tokio::test]
async fn a_request_that_one_operator_rejects_ends() {
    let world = World::start().await;
    let (customer, operator) = (world.account(CUSTOMER).await, world.account(1).await);
    let terms = ServiceTerms { ttl_s: 7_200, ..ServiceTerms::named(vec![operator.address()]) };
    let requested = customer.request_service(&terms).await.unwrap();
    let early = customer.chain().wait_for_service(&requested, Duration::ZERO).await;
    assert!(matches!(early, Err(CustomerError::NotActivated { approvals: 0, operators: 1, .. })), "{early:?}");

    operators::reject(&operator, requested.request).await.unwrap();
    let ended = customer.chain().wait_for_service(&requested, Duration::from_secs(5)).await;
    assert!(matches!(ended, Err(CustomerError::Rejected(_))), "{ended:?}");
}

#[tokio::test]
async fn jobs_are_kept_from_ended_and_foreign_services() {
    let world = World::start().await;
    let (customer, service) = world.customer().await;
    customer.terminate(service).await.unwrap();
    assert!(!is_active(&customer.chain().own_service(service).await.unwrap()));
    let request = CreateBuilder::new().build().unwrap();
    let ended = customer.submit_job(service, request.clone()).await.unwrap_err();
    assert_eq!(ended.to_string(), format!("service {service} is not active"));
    let foreign = customer.submit_job(0, request.clone()).await;
    assert!(matches!(foreign, Err(CustomerError::ForeignService { found: 0, .. })), "{foreign:?}");
    let absent = customer.submit_job(999, request).await;
    assert!(matches!(absent, Err(CustomerError::NoService(999))), "{absent:?}");
}

#[tokio::test]
async fn a_profile_is_replaced_by_registering_again() {
    let world = World::start().await;
    let operator = world.account(1).await;
    operators::register(&operator, &profile("https://moved.example")).await.unwrap();
    let view = operator.chain().operator(operator.address()).await.unwrap();
    assert_eq!(view.apiUrl, "https://moved.example");
}
