//! The route over a market without a chain.

use std::time::Duration;

use alloy::primitives::{Bytes, address};
use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use sandbox_fleet::Keeper;
use sandbox_fleet::fakes::FakeWorld;
use sandbox_fleet::request::Resources;
use sandbox_protocol::CallKey;
use sandbox_protocol::http::ErrorBody;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::limits::{QUOTE_ROUNDS_MAX, QUOTE_SPREAD_S_MAX, SERVICE_OPERATORS_MAX};
use sandbox_sdk::quotes::{Expectation, of_body, verify};
use sandbox_sdk::requests::{CreateBuilder, ExecBuilder, JobRequest, delete};
use tokio_util::sync::CancellationToken;

use super::market::Holding;
use super::*;
use crate::config::KeystoreConfig;
use crate::limits::API_BODY_READ_MAX;

const SERVICE: u64 = 3;
const CUSTOMER: Address = Address::repeat_byte(0xc1);
const CORE: Address = Address::repeat_byte(0xc0);
const TOKEN: Address = address!("0x00000000000000000000000000000000000000aa");
const CHAIN_ID: u64 = 31_337;
const SANDBOX: SandboxId = SandboxId { origin: CallKey { service: SERVICE, call: 9 }, slot: 0 };
const HOUR_WEI: u64 = 1_000_000_000;
const RATE_WEI: u64 = 1_000;
const LIFE_S: u64 = 300;

/// One service, one sandbox in it.
#[derive(Clone, Copy)]
struct OneService {
    terms: Terms,
    holding: Holding,
}

#[async_trait]
impl Market for OneService {
    async fn terms(&self, service: u64, _: u8) -> Result<Option<Terms>, ReadError> {
        Ok((service == SERVICE).then_some(self.terms))
    }

    async fn holding(&self, _: SandboxId) -> Result<Holding, ReadError> {
        Ok(self.holding)
    }
}

struct Desk {
    quoting: Arc<Quoting>,
    route: TowerToHyperService<Router>,
    operator: Address,
}

impl Desk {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut OneService)) -> Self {
        let key = PrivateKeySigner::random();
        let operator = key.address();
        let terms = Terms {
            asset: Address::ZERO,
            rate: U256::from(RATE_WEI),
            place: 2,
            owner: Address::repeat_byte(0xee),
            confidentiality: 0,
            ends_at: None,
            block_time_ms: 1_000,
            chain_time: 0,
        };
        let holding = Holding { operator, owner: CUSTOMER, state: SandboxState::Live };
        let mut market = OneService { terms, holding };
        change(&mut market);
        let resources = Resources { cpu_cores: 8, memory_mb: 8_192, disk_gb: 100 };
        let capacity = Capacity { sandboxes: 1, sandboxes_each_max: 1, resources, cpu_cores_each_max: 4 };
        let world = Arc::new(FakeWorld::default());
        let (keeper, fleet) = Keeper::new(capacity, world.ports());
        tokio::spawn(keeper.run(Vec::new(), CancellationToken::new()));
        let keystore = KeystoreConfig { uri: "/nonexistent".into(), password_file: None };
        let quoting = Arc::new(Quoting {
            market: Box::new(market),
            seal_keys: SealKeys::of(&keystore, &key),
            key,
            place: (CHAIN_ID, CORE),
            fleet,
            menu: Menu::of("sidecar:1"),
            capacity,
            core_hours: BTreeMap::from([(Address::ZERO, U256::from(HOUR_WEI))]),
            ledger: Mutex::new(Ledger::new(LIFE_S)),
            at_once: Semaphore::const_new(API_QUOTES_MAX),
        });
        Self { route: TowerToHyperService::new(Router::from(routes().with_state(quoting.clone()))), quoting, operator }
    }

    async fn ask(&self, request: &JobRequest) -> Result<QuoteBody, (u16, String)> {
        let (job, inputs) = (request.job.id(), request.inputs.clone());
        self.post(&QuoteRequest { requester: CUSTOMER, service: SERVICE, job, inputs }).await
    }

    async fn post(&self, request: &QuoteRequest) -> Result<QuoteBody, (u16, String)> {
        self.post_body(serde_json::to_vec(request).unwrap().into()).await
    }

    async fn post_body(&self, body: Body) -> Result<QuoteBody, (u16, String)> {
        let request = Request::post("/v1/quotes").body(body).unwrap();
        let response = self.route.call(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        if status.is_success() {
            return Ok(serde_json::from_slice(&body).unwrap());
        }
        let error: ErrorBody = serde_json::from_slice(&body).unwrap();
        Err((status.as_u16(), error.code))
    }
}

fn refusal(status: u16, code: &str) -> Result<QuoteBody, (u16, String)> {
    Err((status, code.to_owned()))
}

fn create() -> JobRequest {
    CreateBuilder::new().cpu_cores(1).memory_mb(8_192).ttl_blocks(3_600).build().unwrap()
}

#[tokio::test]
async fn a_quote_is_signed_for_the_customer_and_the_inputs_and_is_good_for_a_while() {
    let desk = Desk::new();
    let request = create();
    let body = desk.ask(&request).await.unwrap();
    let expected = Expectation {
        chain_id: CHAIN_ID,
        core: CORE,
        requester: CUSTOMER,
        service: SERVICE,
        job: 0,
        inputs_hash: keccak256(&request.inputs),
        confidentiality: 0,
    };
    let quote = of_body(&body);
    assert_eq!(quote.operator, desk.operator);
    assert_eq!(verify(&quote, &expected, body.timestamp), Ok(()));
    let life_s = body.expiry - body.timestamp;
    assert!((LIFE_S..LIFE_S + QUOTE_SPREAD_S_MAX).contains(&life_s), "{life_s}");
    assert_eq!(body.expiry % u64::from(SERVICE_OPERATORS_MAX), 2, "the operator's place tells its quotes from others'");
    // A core and its worth of memory for an hour, and a part of a core's worth of disk.
    let disk = HOUR_WEI * 10 / 256;
    assert_eq!((body.asset, body.price), (Address::ZERO, U256::from(2 * HOUR_WEI + disk)));
}

#[tokio::test]
async fn two_quotes_for_the_same_are_never_one() {
    let desk = Desk::new();
    let (first, second) = (desk.ask(&create()).await.unwrap(), desk.ask(&create()).await.unwrap());
    assert_eq!(first.price, second.price);
    assert_ne!((first.timestamp, first.expiry), (second.timestamp, second.expiry));
}

#[tokio::test]
async fn what_the_table_prices_costs_what_it_says() {
    let desk = Desk::new();
    let command = ExecBuilder::new(SANDBOX, "true").build().unwrap();
    assert_eq!(desk.ask(&command).await.unwrap().price, U256::from(RATE_WEI));
}

#[tokio::test]
async fn a_sandbox_without_an_end_costs_as_long_as_its_service_lasts() {
    let endless = CreateBuilder::new().cpu_cores(4).build().unwrap();
    let ends = u64::MAX / 2;
    let long = Desk::with(|market| (market.terms.chain_time, market.terms.ends_at) = (ends - 7_200, Some(ends)));
    let short = Desk::with(|market| (market.terms.chain_time, market.terms.ends_at) = (ends - 3_600, Some(ends)));
    let (long, short) = (long.ask(&endless).await.unwrap(), short.ask(&endless).await.unwrap());
    assert!(short.price > U256::from(4 * HOUR_WEI) && long.price > short.price, "{} {}", short.price, long.price);
    assert!(long.price <= short.price * U256::from(2));
}

#[tokio::test]
async fn a_sandbox_that_would_outlive_its_service_is_not_quoted() {
    let ends = u64::MAX / 2;
    let ending = |left_s| {
        Desk::with(move |market| (market.terms.chain_time, market.terms.ends_at) = (ends - left_s, Some(ends)))
    };
    assert!(ending(3_600).ask(&create()).await.is_ok(), "to the last second");
    assert_eq!(ending(3_599).ask(&create()).await, refusal(422, "bad_request"));
}

#[tokio::test]
async fn a_service_that_is_paid_in_a_token_is_quoted_in_it_only_where_there_is_a_price() {
    let desk = Desk::with(|market| market.terms.asset = TOKEN);
    assert_eq!(desk.ask(&create()).await, refusal(422, "no_price"));
    let command = ExecBuilder::new(SANDBOX, "true").build().unwrap();
    let quoted = desk.ask(&command).await.unwrap();
    assert_eq!((quoted.asset, quoted.price), (TOKEN, U256::from(RATE_WEI)), "the table is in the token already");
}

#[tokio::test]
async fn what_would_be_refused_once_it_is_paid_is_not_quoted() {
    let desk = Desk::new();
    let ask = async |service, job, inputs: Bytes| {
        desk.post(&QuoteRequest { requester: CUSTOMER, service, job, inputs }).await
    };
    assert_eq!(ask(SERVICE, 5, create().inputs).await, refusal(422, "unsupported"));
    assert_eq!(ask(SERVICE, 0, Bytes::from_static(b"x")).await, refusal(422, "bad_request"));
    assert_eq!(ask(SERVICE + 1, 0, create().inputs).await, refusal(404, "no_service"));
    let nobody = QuoteRequest { requester: Address::ZERO, service: SERVICE, job: 0, inputs: create().inputs };
    assert_eq!(desk.post(&nobody).await, refusal(400, "bad_request"));
    let wide = CreateBuilder::new().cpu_cores(5).build().unwrap();
    assert_eq!(desk.ask(&wide).await, refusal(422, "no_capacity"), "more cores than the host has");
    assert!(desk.ask(&CreateBuilder::new().cpu_cores(4).build().unwrap()).await.is_ok());
}

#[tokio::test]
async fn a_job_in_a_sandbox_is_quoted_by_its_holder_to_its_owner_and_the_services() {
    let command = ExecBuilder::new(SANDBOX, "true").build().unwrap();
    let lost = || refusal(422, "sandbox_lost");
    let elsewhere = Desk::with(|market| market.holding.operator = Address::repeat_byte(9));
    assert_eq!(elsewhere.ask(&command).await, lost());
    let foreign = Desk::with(|market| market.holding.owner = Address::repeat_byte(9));
    assert_eq!(foreign.ask(&command).await, lost());
    let landlord = Desk::with(|market| {
        market.holding.owner = Address::repeat_byte(9);
        market.terms.owner = CUSTOMER;
    });
    assert!(landlord.ask(&command).await.is_ok());
    let expired = Desk::with(|market| market.holding.state = SandboxState::Expired);
    assert_eq!(expired.ask(&command).await, lost());
    assert!(expired.ask(&delete(SANDBOX)).await.is_ok(), "what has expired can be deleted");
    let origin = CallKey { service: SERVICE + 1, call: 9 };
    let other = ExecBuilder::new(SandboxId { origin, slot: 0 }, "true").build().unwrap();
    assert_eq!(Desk::new().ask(&other).await, lost());
}

#[tokio::test]
async fn questions_are_bounded_in_size_number_and_rate() {
    let desk = Desk::new();
    let long = vec![b'x'; API_QUOTE_BODY_BYTES_MAX + 1];
    assert_eq!(desk.post_body(long.into()).await, refusal(413, "too_large"));
    assert_eq!(desk.post_body("{}".into()).await, refusal(400, "bad_request"));
    let all = desk.quoting.at_once.try_acquire_many(API_QUOTES_MAX as u32).unwrap();
    assert_eq!(desk.ask(&create()).await, refusal(429, "busy"));
    drop(all);
    // The clock of the chain stands far ahead, so that every quote falls into one second.
    let desk = Desk::with(|market| market.terms.chain_time = u64::MAX / 2);
    let mut quoted = 0;
    let busy = loop {
        match desk.ask(&create()).await {
            Ok(_) => quoted += 1,
            refused => break refused,
        }
    };
    assert_eq!((busy, quoted), (refusal(429, "busy"), QUOTE_ROUNDS_MAX));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for_for_ever() {
    let desk = Desk::new();
    let silent = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let begun = tokio::time::Instant::now();
    assert_eq!(desk.post_body(silent).await, refusal(400, "bad_request"));
    assert!(begun.elapsed() >= API_BODY_READ_MAX && begun.elapsed() < API_BODY_READ_MAX + Duration::from_secs(1));
}

#[tokio::test]
async fn tasks_of_a_batch_are_priced_by_the_sandboxes_that_are_here_and_the_customers() {
    let desk = Desk::new();
    let mut own = sandbox_fleet::fakes::sandbox(9);
    (own.id, own.owner) = (SANDBOX, CUSTOMER);
    desk.quoting.fleet.create(own).await.unwrap();
    let elsewhere = SandboxId { slot: 1, ..SANDBOX };
    let asked = async |requester, named: &[SandboxId]| {
        let batch = sandbox_protocol::abi::BatchTaskRequest {
            sidecar_endpoints: named.iter().map(ToString::to_string).collect(),
            prompt: "do".into(),
            aggregation: "all".into(),
            ..Default::default()
        };
        let inputs = alloy::sol_types::SolValue::abi_encode(&batch).into();
        let request = QuoteRequest { requester, service: SERVICE, job: Job::BatchTask.id(), inputs };
        desk.post(&request).await.unwrap().price
    };
    // Ten turns of a minute each.
    let task = U256::from(HOUR_WEI).div_ceil(U256::from(6));
    assert_eq!(asked(CUSTOMER, &[SANDBOX]).await, task);
    assert_eq!(asked(CUSTOMER, &[SANDBOX, elsewhere, SANDBOX]).await, U256::from(HOUR_WEI).div_ceil(U256::from(3)));
    assert_eq!(asked(CUSTOMER, &[elsewhere]).await, U256::from(RATE_WEI));
    assert_eq!(asked(Address::repeat_byte(9), &[SANDBOX]).await, U256::from(RATE_WEI));
}
