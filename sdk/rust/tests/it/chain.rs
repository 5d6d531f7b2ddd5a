//! What the chain does for a customer, and what it refuses.

use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::providers::Provider as _;
use alloy::sol_types::SolValue as _;
use sandbox_protocol::abi::{JobReceipt, WorkflowCreateRequest};
use sandbox_protocol::{CallKey, Job, SandboxId};
use sandbox_sdk::calls::{self, ServiceTerms};
use sandbox_sdk::chain::{ConnectError, CustomerError, SendError, is_active};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{Firing, WorkflowStatus};
use sandbox_sdk::deploy::{self, Asset, Floor, Plan, Pricing, Terms, price_wei};
use sandbox_sdk::devchain::{DevChain, Tools};
use sandbox_sdk::limits::LOG_WINDOW_BLOCKS;
use sandbox_sdk::requests::{self, CreateBuilder, ExecBuilder, JobRequest};
use sandbox_sdk::{Account, Chain, Deployment, devchain, operators};

use crate::world::{API_URL, BOUND, CUSTOMER, World, profile};

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
async fn a_call_is_found_whatever_else_its_second_holds() {
    let world = World::start().await;
    let (customer, service) = world.customer().await;
    let stand_still = world.dev.provider().raw_request::<_, ()>("anvil_setBlockTimestampInterval".into(), [0]);
    stand_still.await.unwrap();
    let request = CreateBuilder::new().build().unwrap();
    world.dev.mine(2 * LOG_WINDOW_BLOCKS + 1).await.unwrap();
    let submitted = customer.submit_job(service, request).await.unwrap();
    world.dev.mine(1).await.unwrap();
    let found = customer.chain().submission(submitted.key).await.unwrap();
    assert_eq!(found.map(|found| found.block), Some(submitted.block));
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
    let ended = customer.chain().wait_for_service(&requested, BOUND).await;
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

#[tokio::test]
async fn a_service_that_is_paid_as_a_whole_is_paid_its_floor_and_takes_no_quotes() {
    let dev = DevChain::start(&Tools::find().unwrap(), None).await.unwrap();
    let floor = Floor { asset: Asset::coin(), per_operator_hour: U256::from(1_000_000) };
    let mut plan = Plan::new(dev.rpc_url().clone(), devchain::CORE, devchain::artifact(), devchain::BLOCK_TIME_MS);
    plan.terms = Terms { pricing: Some(Pricing::PayOnce), floor: Some(floor), ..Terms::default() };
    let deployment = deploy::deploy(&plan, devchain::key(0)).await.unwrap();
    let world = World { dev, deployment };
    let (operator, customer) = (world.account(1).await, world.account(CUSTOMER).await);
    operators::register(&operator, &profile(API_URL)).await.unwrap();

    let terms = ServiceTerms { ttl_s: 5_400, ..ServiceTerms::named(vec![operator.address()]) };
    let unpaid = customer.request_service(&terms).await.unwrap_err();
    assert_eq!(unpaid.to_string(), "the service pays 0, it costs at least 2000000");
    let endless = customer.chain().at_floor(ServiceTerms { ttl_s: 0, ..terms.clone() }).await.unwrap_err();
    assert_eq!(endless.to_string(), "a service that never ends has no price for its whole time; give it a ttl");
    let terms = customer.chain().at_floor(terms).await.unwrap();
    assert_eq!((terms.payment.asset, terms.payment.amount), (Address::ZERO, U256::from(2_000_000)));
    let requested = customer.request_service(&terms).await.unwrap();
    operators::approve(&operator, requested.request).await.unwrap();
    let service = customer.chain().wait_for_service(&requested, BOUND).await.unwrap();

    let request = CreateBuilder::new().build().unwrap();
    let quoted = customer.submit_quoted(service, request.clone(), Vec::new()).await;
    assert!(matches!(quoted, Err(CustomerError::NotQuotable(found)) if found == service), "{quoted:?}");
    let free = customer.submit_job(service, request).await.unwrap();
    assert_eq!((free.price, free.asset), (U256::ZERO, Address::ZERO), "it is paid for already");
}

#[tokio::test]
async fn what_the_blueprint_shows_of_operators_services_and_jobs_is_read_whole() {
    let world = World::start().await;
    let (customer, service) = world.customer().await;
    let (chain, operator) = (customer.chain(), devchain::key(1).address());
    let all = chain.all_operators().await.unwrap();
    assert_eq!(all.iter().map(|view| view.account).collect::<Vec<_>>(), [operator]);
    assert_eq!(chain.eligible_count().await.unwrap(), U256::from(1));
    let view = chain.service_view(service).await.unwrap().unwrap();
    assert_eq!((view.owner, view.active, view.operators), (customer.address(), true, vec![operator]));
    assert!(chain.service_view(99).await.unwrap().is_none());

    let jobs = chain.jobs().await.unwrap();
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), Job::ALL.map(Job::id));
    for job in jobs {
        let cost = chain.call_cost(service, job.id).await.unwrap();
        assert_eq!((cost.asset, cost.amount), (Address::ZERO, price_wei(job.id)), "{}", job.name);
        assert_eq!((job.name.as_str(), job.rate), (Job::from_id(job.id).unwrap().name(), cost.amount));
    }
    assert_eq!(chain.service_floor(1, 3_600).await.unwrap().amount, U256::ZERO, "calls are paid one by one");
    assert_eq!(chain.mean_block_time_ms().await.unwrap(), devchain::BLOCK_TIME_MS);
    let create = customer.submit_job(service, CreateBuilder::new().build().unwrap()).await.unwrap();
    assert_eq!(chain.service_view(service).await.unwrap().unwrap().held, [1]);
    assert_eq!(chain.parts(create.key).await.unwrap(), [], "it is no batch");
    assert!(chain.workflow(create.key).await.unwrap().is_none());
    assert_eq!(chain.active_workflows(operator).await.unwrap(), []);
}

#[tokio::test]
async fn a_workflow_is_read_paused_and_resumed_and_its_firings_are_recorded() {
    let world = World::start().await;
    let (customer, service) = world.customer().await;
    let (chain, operator) = (customer.chain(), world.account(1).await);
    let deployment = &world.deployment;
    let request = WorkflowCreateRequest {
        name: "nightly".into(),
        workflow_json: "{}".into(),
        trigger_type: "manual".into(),
        ..Default::default()
    };
    let request = JobRequest { job: Job::WorkflowCreate, inputs: request.abi_encode().into() };
    let key = customer.submit_job(service, request).await.unwrap().key;
    assert_eq!(chain.workflow(key).await.unwrap().unwrap().0.status, WorkflowStatus::Pending);
    let receipt = JobReceipt { outcome: 0, responseHash: B256::repeat_byte(5), detail: U256::ZERO };
    operator.send(&calls::submit_receipt(deployment, key, &receipt)).await.unwrap();

    let (row, body) = chain.workflow(key).await.unwrap().unwrap();
    assert_eq!((row.status, row.owner, row.operator), (WorkflowStatus::Active, customer.address(), operator.address()));
    assert_eq!((body.stored, body.name.as_str()), (true, "nightly"));
    let active = chain.active_workflows(operator.address()).await.unwrap();
    assert_eq!(active.iter().map(|row| row.workflowId).collect::<Vec<_>>(), [key.call]);

    let foreign = operator.send(&calls::pause_workflow(deployment, key)).await;
    assert_eq!(sentence(foreign), format!("workflow {key} does not belong to {}", operator.address()));
    customer.send(&calls::pause_workflow(deployment, key)).await.unwrap();
    assert_eq!(chain.active_workflows(operator.address()).await.unwrap(), []);
    let twice = customer.send(&calls::pause_workflow(deployment, key)).await;
    assert_eq!(sentence(twice), format!("workflow {key} is paused, which does not allow this"));
    customer.send(&calls::resume_workflow(deployment, key)).await.unwrap();

    let at = chain.time().await.unwrap();
    let firing = Firing { serviceId: key.service, workflowId: key.call, epoch: row.epoch, at };
    operator.send(&calls::record_firings(deployment, vec![firing])).await.unwrap();
    assert_eq!(chain.workflow(key).await.unwrap().unwrap().0.lastTriggered, at);
    let none = chain.workflow(CallKey { call: 99, ..key }).await.unwrap();
    assert!(none.is_none());
}

#[tokio::test]
async fn an_operator_pauses_and_a_late_call_moves_to_another() {
    let world = World::start().await;
    let (customer, first, second) = (world.account(CUSTOMER).await, world.account(1).await, world.account(2).await);
    operators::register(&second, &profile(API_URL)).await.unwrap();
    let deployment = &world.deployment;
    let requested =
        customer.request_service(&ServiceTerms::named(vec![first.address(), second.address()])).await.unwrap();
    for operator in [&first, &second] {
        operators::approve(operator, requested.request).await.unwrap();
    }
    let service = customer.chain().wait_for_service(&requested, BOUND).await.unwrap();
    second.send(&calls::set_paused(deployment, true)).await.unwrap();
    let view = customer.chain().operator(second.address()).await.unwrap();
    assert!(view.paused && !view.eligible);

    let key = customer.submit_job(service, CreateBuilder::new().build().unwrap()).await.unwrap().key;
    let assignment = customer.chain().assignment(key).await.unwrap().unwrap();
    assert_eq!(assignment.operator, first.address(), "the other is paused");
    let early = sentence(customer.send(&calls::reassign(deployment, key)).await);
    assert!(early.contains(&format!("has until block {}", assignment.deadlineBlock)), "{early}");
    second.send(&calls::set_paused(deployment, false)).await.unwrap();
    world.dev.mine(assignment.deadlineBlock - customer.chain().head().await.unwrap() + 1).await.unwrap();
    customer.send(&calls::reassign(deployment, key)).await.unwrap();
    let moved = customer.chain().assignment(key).await.unwrap().unwrap();
    assert_eq!((moved.operator, moved.epoch), (second.address(), 1));
}

#[tokio::test]
async fn a_floor_is_only_for_the_owner_of_a_blueprint_that_has_one() {
    let world = World::start().await;
    let call = calls::set_service_floor(&world.deployment, Address::ZERO, U256::from(1));
    let stranger = world.account(CUSTOMER).await;
    let expected = format!("{} does not own this blueprint", stranger.address());
    assert_eq!(sentence(stranger.send(&call).await), expected);
    let owner = world.account(0).await;
    let expected = "calls of this blueprint are paid one by one, so its services have no floor";
    assert_eq!(sentence(owner.send(&call).await), expected);
}
