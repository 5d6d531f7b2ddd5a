//! `POST /v1/quotes`: this operator's signed price for one job of one customer.
//!
//! Anybody may ask: a quote is good for its requester only and holds no room. So every question costs little and is bounded:
//! the body, the questions at a time, the quotes of a second. What is refused is what the contract or this operator would
//! refuse once it is paid for.

mod asked;
mod market;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use alloy::primitives::{Address, U256, keccak256};
use alloy::signers::local::PrivateKeySigner;
use axum::Json;
use axum::extract::State;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::pricing::{Life, Tariff, Work, price};
use sandbox_fleet::request::Menu;
use sandbox_fleet::{Fleet, Unfinished};
use sandbox_protocol::http::{ErrorBody, QuoteBody, QuoteRequest};
use sandbox_protocol::{Failure, FailureCode, Job, SandboxId};
use sandbox_sdk::Chain;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::SandboxState;
use sandbox_sdk::quotes::{self, Draft, Ledger};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiError;
use super::document::OpenErrors;
use super::extract::InBody;
use crate::chain::key::SealKeys;
use crate::config::OfferConfig;
use crate::limits::{API_CHAIN_TIMEOUT, API_QUOTE_BODY_BYTES_MAX, API_QUOTES_MAX};

use asked::{Asked, asked};
use market::{ChainMarket, Market, Terms};

const TOO_MANY: &str = "too many ask for quotes";

/// What quotes are made with.
pub(crate) struct QuoteParts {
    pub(crate) chain: Chain,
    pub(crate) key: PrivateKeySigner,
    pub(crate) seal_keys: SealKeys,
    pub(crate) fleet: Fleet,
    pub(crate) menu: Menu,
    pub(crate) offer: OfferConfig,
    /// Only this service, where one is named.
    pub(crate) service: Option<u64>,
}

/// What the route works with.
pub(crate) struct Quoting {
    market: Box<dyn Market>,
    key: PrivateKeySigner,
    /// Chain id and core: the domain of what is signed.
    place: (u64, Address),
    seal_keys: SealKeys,
    fleet: Fleet,
    menu: Menu,
    capacity: Capacity,
    core_hours: BTreeMap<Address, U256>,
    ledger: Mutex<Ledger>,
    at_once: Semaphore,
}

impl Quoting {
    pub(super) fn new(parts: QuoteParts) -> Self {
        let deployment = parts.chain.deployment();
        let place = (deployment.chain_id, deployment.core);
        let market = ChainMarket::new(parts.chain, parts.key.address(), parts.service);
        let mut core_hours = parts.offer.token_prices_per_hour;
        core_hours.insert(Address::ZERO, parts.offer.price_per_hour);
        Self {
            market: Box::new(market),
            key: parts.key,
            place,
            seal_keys: parts.seal_keys,
            fleet: parts.fleet,
            menu: parts.menu,
            capacity: parts.offer.capacity,
            core_hours,
            ledger: Mutex::new(Ledger::new(parts.offer.quote_life_s)),
            at_once: Semaphore::const_new(API_QUOTES_MAX),
        }
    }
}

/// The route, as a value.
pub(super) fn routes() -> OpenApiRouter<Arc<Quoting>> {
    OpenApiRouter::new().routes(routes!(quote))
}

/// Signs this operator's price for one job of one customer, who alone can redeem it.
#[utoipa::path(
    post, path = "/v1/quotes", operation_id = "quote", tag = "quotes", request_body = QuoteRequest,
    responses(
        (status = 200, description = "The quote", body = QuoteBody),
        (status = 404, description = "This operator serves no such service", body = ErrorBody),
        (status = 422, description = "The job would be refused, or has no price here", body = ErrorBody),
        OpenErrors,
    )
)]
async fn quote(
    State(quoting): State<Arc<Quoting>>,
    InBody(request): InBody<QuoteRequest, API_QUOTE_BODY_BYTES_MAX>,
) -> Result<Json<QuoteBody>, ApiError> {
    let _turn = quoting.at_once.try_acquire().map_err(|_| ApiError::Busy(TOO_MANY))?;
    let answered = timeout(API_CHAIN_TIMEOUT, quoting.answer(&request)).await;
    answered.map_err(|_| ApiError::TooSlow("node"))?.map(Json)
}

impl Quoting {
    async fn answer(&self, request: &QuoteRequest) -> Result<QuoteBody, ApiError> {
        if request.requester.is_zero() {
            return Err(ApiError::BadRequest("requester: nobody can redeem a quote of the zero address".into()));
        }
        let seal_keys = self.seal_keys.opening().map_err(|error| ApiError::Internal(Box::new(error)))?;
        let mut asked = asked(request.job, &request.inputs, (&self.menu, &seal_keys))?;
        if let Work::Tasks(_) = asked.work {
            asked.work = Work::Tasks(self.held(&asked.tasks_in, request.requester).await?);
        }
        self.has_room(&asked).await?;
        let terms = self.market.terms(request.service, request.job).await.map_err(ApiError::Chain)?;
        let terms = terms.ok_or(ApiError::NoService(request.service))?;
        if let Some(sandbox) = asked.sandbox {
            self.holds(sandbox, asked.job, (request, &terms)).await?;
        }
        if let Work::Sandboxes { life: Life::Blocks(blocks), .. } = asked.work
            && terms.outlived_by(blocks)
        {
            let message = format!("a sandbox of {blocks} blocks would outlive its service");
            return Err(Failure::new(FailureCode::BadRequest, message).into());
        }
        let draft = self.draft(request, &asked, &terms)?;
        let words = {
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.enter(&draft, terms.now()).map_err(|_| ApiError::Busy(TOO_MANY))?
        };
        let signed = quotes::signed(words, &self.key, self.place);
        let signed = signed.map_err(|error| ApiError::Internal(Box::new(error)))?;
        Ok(quotes::body(&signed, self.place, terms.asset))
    }

    /// The slots and cores that are free now. What a quote is redeemed for later, the contract judges by its own count.
    async fn has_room(&self, asked: &Asked) -> Result<(), ApiError> {
        let Some((count, each)) = asked.room() else { return Ok(()) };
        let taken = self.fleet.count().await.map_err(|_| ApiError::NotReady)?;
        let fits = taken.saturating_add(count as usize) <= self.capacity.sandboxes as usize;
        if !fits || each.cpu_cores > self.capacity.cpu_cores_each_max {
            let message = format!("no room for {count} more of this size");
            return Err(Failure::new(FailureCode::NoCapacity, message).into());
        }
        Ok(())
    }

    /// How many of these sandboxes, each as often as it is named, are here and the customer's.
    async fn held(&self, named: &[SandboxId], customer: Address) -> Result<u32, ApiError> {
        let mut held = 0;
        for id in named {
            match self.fleet.find(*id, customer).await {
                Ok(_) => held += 1,
                Err(Unfinished::Failed(_)) => {}
                Err(Unfinished::Stopping) => return Err(ApiError::NotReady),
            }
        }
        Ok(held)
    }

    /// A job in a sandbox is done by the operator that holds it, for those whom the contract lets ask for it.
    async fn holds(
        &self,
        sandbox: SandboxId,
        job: Job,
        (request, terms): (&QuoteRequest, &Terms),
    ) -> Result<(), ApiError> {
        let lost = |message: String| Err(Failure::new(FailureCode::SandboxLost, message).into());
        if sandbox.origin.service != request.service {
            return lost(format!("{sandbox} is of another service"));
        }
        let holding = self.market.holding(sandbox).await.map_err(ApiError::Chain)?;
        // One that has expired may still be deleted.
        let lives = holding.state == SandboxState::Live
            || (holding.state == SandboxState::Expired && job == Job::SandboxDelete);
        let may_ask = [holding.owner, terms.owner].contains(&request.requester);
        if lives && may_ask && holding.operator == self.key.address() {
            return Ok(());
        }
        lost(format!("this operator holds no live {sandbox} of {}", request.requester))
    }

    fn draft(&self, request: &QuoteRequest, asked: &Asked, terms: &Terms) -> Result<Draft, ApiError> {
        let tariff = Tariff {
            core_hour: self.core_hours.get(&terms.asset).copied(),
            rate: terms.rate,
            block_time_ms: terms.block_time_ms,
            service_left_s: terms.ends_at.map(|end| end.saturating_sub(terms.now())),
        };
        let price = price(&asked.work, &tariff).map_err(|_| ApiError::NoPrice(terms.asset))?;
        Ok(Draft {
            requester: request.requester,
            service: request.service,
            job: request.job,
            price,
            confidentiality: terms.confidentiality,
            inputs_hash: keccak256(&request.inputs),
            place: terms.place,
        })
    }
}

#[cfg(test)]
mod tests;
