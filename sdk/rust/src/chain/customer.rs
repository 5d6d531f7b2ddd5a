//! What a customer does: rent a service, submit jobs, end it. Operators' and deployers' deeds have modules of their own.

use std::time::Duration;

use alloy::primitives::{Address, B256, U256, keccak256};
use sandbox_protocol::CallKey;
use tokio::time::Instant;

use super::pause::Pause;
use super::{Account, Chain, Cost, Mined, ReadError, SendError};
use crate::calls::{self, ServiceTerms};
use crate::contracts::ITangleCore::{JobSubmitted, JobSubmittedFromQuote, Service, ServiceRequested, SignedJobQuote};
use crate::quotes::{self, Expectation, QuoteError};
use crate::requests::JobRequest;
use crate::sealing::SealingError;

/// The core's status of a service that is neither pending nor ended.
const SERVICE_ACTIVE: u8 = 1;
/// The core's number of services whose calls are paid one by one.
const PRICING_EVENT_DRIVEN: u8 = 2;

/// What became of a customer's deed.
#[derive(Debug, thiserror::Error)]
pub enum CustomerError {
    /// The chain could not be asked.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The transaction did not do what it should.
    #[error(transparent)]
    Send(#[from] SendError),
    /// There is no such service.
    #[error("there is no service {0}")]
    NoService(u64),
    /// The service is another blueprint's, where these inputs mean nothing and payment would be lost.
    #[error("service {service} is of blueprint {found}, not of blueprint {expected}")]
    ForeignService {
        /// The service.
        service: u64,
        /// This client's blueprint.
        expected: u64,
        /// The service's blueprint.
        found: u64,
    },
    /// The core would keep what is paid for a quoted call of such a service.
    #[error("calls of service {0} are not paid one by one, so they take no quotes")]
    NotQuotable(u64),
    /// The core would not take a quote.
    #[error(transparent)]
    Quote(#[from] QuoteError),
    /// What is not to be public could not be sealed.
    #[error(transparent)]
    Sealing(#[from] SealingError),
    /// The quotes together cost more than there is.
    #[error("the prices of the quotes exceed every amount")]
    TooDear,
    /// An operator rejected the request.
    #[error("service request {0} was rejected by an operator")]
    Rejected(u64),
    /// Not every operator has approved yet.
    #[error("service request {request} has {approvals} of {operators} approvals after {waited_s} s")]
    NotActivated {
        /// The request.
        request: u64,
        /// How many have.
        approvals: u32,
        /// How many must.
        operators: u32,
        /// How long was waited.
        waited_s: u64,
    },
    /// The request is gone or active, but no service of it is found.
    #[error("service request {0} has no service")]
    Lost(u64),
}

/// A service request that is on chain.
#[derive(Debug, Clone)]
pub struct RequestedService {
    /// Its id.
    pub request: u64,
    /// The operators that must approve it.
    pub operators: Vec<Address>,
    /// The block it is in.
    pub block: u64,
    /// The transaction it is in.
    pub transaction: B256,
}

/// A job that is on chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedJob {
    /// Its call.
    pub key: CallKey,
    /// What was asked.
    pub request: JobRequest,
    /// What was paid, in the smallest unit of `asset`.
    pub price: U256,
    /// What it was paid in; zero is the chain's coin.
    pub asset: Address,
    /// The block it is in.
    pub block: u64,
    /// The transaction it is in.
    pub transaction: B256,
}

impl SubmittedJob {
    /// What its receipt must name.
    pub fn inputs_hash(&self) -> B256 {
        keccak256(&self.request.inputs)
    }
}

impl Account {
    /// Requests a service, and pays what the terms offer for it.
    ///
    /// # Errors
    /// [`CustomerError`].
    pub async fn request_service(&self, terms: &ServiceTerms) -> Result<RequestedService, CustomerError> {
        self.provide(terms.payment).await?;
        let mined = self.send(&calls::request_service(self.deployment(), terms)).await?;
        let event: ServiceRequested = mined.event(self.deployment().core)?;
        Ok(RequestedService {
            request: event.requestId,
            operators: terms.operators.clone(),
            block: mined.block,
            transaction: mined.transaction,
        })
    }

    /// Submits a job to a service of this blueprint and pays exactly its rate, in whatever the service is paid in. What is
    /// not to be public is sealed first, see [`Account::sealed`].
    ///
    /// # Errors
    /// [`CustomerError`].
    pub async fn submit_job(&self, service: u64, request: JobRequest) -> Result<SubmittedJob, CustomerError> {
        let request = self.sealed(service, request).await?;
        let job = request.job.id();
        let cost = async { Ok(self.chain().call_cost(service, job).await?) };
        let (_, cost) = tokio::try_join!(self.chain().own_service(service), cost)?;
        let value = self.provide(cost).await?;
        let call = calls::submit_job(self.deployment(), service, job, request.inputs.clone(), value);
        let mined = self.send(&call).await?;
        let event: JobSubmitted = mined.event(self.deployment().core)?;
        let key = CallKey { service: event.serviceId, call: event.callId };
        Ok(submitted(key, request, cost, &mined))
    }

    /// Submits a job by quotes of operators of the service, which alone may answer it, and pays what they ask. Quotes are for
    /// inputs as they are, so what is to be sealed is sealed before quotes are asked for. Those that the core would refuse are refused before anything is sent; that one is used already only the core knows.
    ///
    /// # Errors
    /// [`CustomerError`].
    pub async fn submit_quoted(
        &self,
        service: u64,
        request: JobRequest,
        quotes: Vec<SignedJobQuote>,
    ) -> Result<SubmittedJob, CustomerError> {
        let job = request.job.id();
        let terms = self.chain().quotable_service(service).await?;
        self.check_quotes(&terms, (service, &request), &quotes).await?;
        let amount = quotes.iter().try_fold(U256::ZERO, |sum, quote| sum.checked_add(quote.details.price));
        let asset = self.chain().call_cost(service, job).await?.asset;
        let cost = Cost { asset, amount: amount.ok_or(CustomerError::TooDear)? };
        let value = self.provide(cost).await?;
        let inputs = request.inputs.clone();
        let mined = self.send(&calls::submit_quoted(self.deployment(), (service, job), inputs, quotes, value)).await?;
        let event: JobSubmittedFromQuote = mined.event(self.deployment().core)?;
        let key = CallKey { service: event.serviceId, call: event.callId };
        Ok(submitted(key, request, cost, &mined))
    }

    async fn check_quotes(
        &self,
        terms: &Service,
        (service, request): (u64, &JobRequest),
        quotes: &[SignedJobQuote],
    ) -> Result<(), CustomerError> {
        let expected = Expectation {
            chain_id: self.deployment().chain_id,
            core: self.deployment().core,
            requester: self.address(),
            service,
            job: request.job.id(),
            inputs_hash: keccak256(&request.inputs),
            confidentiality: terms.confidentiality,
        };
        let now = self.chain().time().await?;
        quotes.iter().try_for_each(|quote| quotes::verify(quote, &expected, now)).map_err(CustomerError::Quote)
    }

    /// Sees to it that the core can take `cost`; gives the native coin that must go along with the call.
    pub(crate) async fn provide(&self, cost: Cost) -> Result<U256, CustomerError> {
        if cost.is_native() || cost.amount.is_zero() {
            return Ok(cost.amount);
        }
        let core = self.deployment().core;
        let allowed = self.chain().allowance(cost.asset, self.address()).await?;
        if allowed < cost.amount {
            // Some tokens change an allowance only from nothing or to nothing.
            if !allowed.is_zero() {
                self.send(&calls::approve_token(cost.asset, core, U256::ZERO)).await?;
            }
            self.send(&calls::approve_token(cost.asset, core, cost.amount)).await?;
        }
        Ok(U256::ZERO)
    }

    /// Ends a service of this account.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn terminate(&self, service: u64) -> Result<Mined, SendError> {
        self.send(&calls::terminate_service(self.deployment(), service)).await
    }

    /// Has paid out what this account has earned, in native coin and in every token.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn claim_rewards(&self) -> Result<Mined, SendError> {
        self.send(&calls::claim_all_rewards(self.deployment())).await
    }
}

impl Chain {
    /// Terms for `count` operators drawn by `seed` from those eligible now.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn drawn_terms(&self, count: u32, seed: B256) -> Result<ServiceTerms, ReadError> {
        Ok(ServiceTerms::drawn(self.preview(count, seed).await?, seed))
    }

    /// The same terms with the least payment that is taken: none where calls are paid one by one.
    ///
    /// # Errors
    /// [`ReadError`]; a service that never ends may have no price.
    pub async fn at_floor(&self, terms: ServiceTerms) -> Result<ServiceTerms, ReadError> {
        let count = u32::try_from(terms.operators.len()).unwrap_or(u32::MAX);
        let floor = self.service_floor(count, terms.ttl_s).await?;
        let payment = if floor.amount.is_zero() { Cost::NOTHING } else { floor };
        Ok(ServiceTerms { payment, ..terms })
    }

    /// A service of this blueprint.
    ///
    /// # Errors
    /// [`CustomerError::NoService`], [`CustomerError::ForeignService`], [`CustomerError::Read`].
    pub async fn own_service(&self, service: u64) -> Result<Service, CustomerError> {
        let found = self.service(service).await?.ok_or(CustomerError::NoService(service))?;
        let expected = self.deployment().blueprint_id;
        if found.blueprintId == expected {
            return Ok(found);
        }
        Err(CustomerError::ForeignService { service, expected, found: found.blueprintId })
    }

    /// A service of this blueprint whose operators can be paid by quotes. Of others the core would keep the payment.
    ///
    /// # Errors
    /// [`CustomerError::NotQuotable`], and as [`Chain::own_service`].
    pub async fn quotable_service(&self, service: u64) -> Result<Service, CustomerError> {
        let found = self.own_service(service).await?;
        let is_quotable = found.pricing == PRICING_EVENT_DRIVEN;
        if is_quotable { Ok(found) } else { Err(CustomerError::NotQuotable(service)) }
    }

    /// Waits until every operator has approved, at most `bound`; gives the service's id.
    ///
    /// # Errors
    /// [`CustomerError`].
    pub async fn wait_for_service(&self, requested: &RequestedService, bound: Duration) -> Result<u64, CustomerError> {
        let until = Instant::now() + bound;
        let id = requested.request;
        let mut pause = Pause::new();
        loop {
            let request = self.request(id).await?.ok_or(CustomerError::Lost(id))?;
            // A node may show the new state a moment before the log of it.
            if request.activated
                && let Some(service) = self.service_of(id, requested.block).await?
            {
                return Ok(service);
            }
            if request.rejected {
                return Err(CustomerError::Rejected(id));
            }
            if Instant::now() >= until {
                let (approvals, operators) = (request.approvalCount, request.operatorCount);
                let waited_s = bound.as_secs();
                return Err(CustomerError::NotActivated { request: id, approvals, operators, waited_s });
            }
            pause.take().await;
        }
    }
}

fn submitted(key: CallKey, request: JobRequest, paid: Cost, mined: &Mined) -> SubmittedJob {
    let Cost { asset, amount: price } = paid;
    SubmittedJob { key, request, price, asset, block: mined.block, transaction: mined.transaction }
}

/// Whether the core counts a service as active. Its life may be over all the same: see its `createdAt` and `ttl`.
pub const fn is_active(service: &Service) -> bool {
    service.status == SERVICE_ACTIVE
}
