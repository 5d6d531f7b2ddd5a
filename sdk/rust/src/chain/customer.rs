//! What a customer does: rent a service, submit jobs, end it. Operators' and deployers' deeds have modules of their own.

use std::time::Duration;

use alloy::primitives::{Address, B256, U256, keccak256};
use sandbox_protocol::CallKey;
use tokio::time::Instant;

use super::pause::Pause;
use super::{Account, Chain, Mined, ReadError, SendError};
use crate::calls::{self, ServiceTerms};
use crate::contracts::ITangleCore::{JobSubmitted, Service, ServiceRequested};
use crate::requests::JobRequest;

/// The core's status of a service that is neither pending nor ended.
const SERVICE_ACTIVE: u8 = 1;

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
    /// What was paid, in wei.
    pub price: U256,
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
    /// Requests a service of operators that are named.
    ///
    /// # Errors
    /// [`CustomerError`].
    pub async fn request_service(&self, terms: &ServiceTerms) -> Result<RequestedService, CustomerError> {
        let mined = self.send(&calls::request_service(self.deployment(), terms)).await?;
        let event: ServiceRequested = mined.event(self.deployment().core)?;
        Ok(RequestedService {
            request: event.requestId,
            operators: terms.operators.clone(),
            block: mined.block,
            transaction: mined.transaction,
        })
    }

    /// Submits a job to a service of this blueprint and pays exactly its rate.
    ///
    /// # Errors
    /// [`CustomerError`].
    pub async fn submit_job(&self, service: u64, request: JobRequest) -> Result<SubmittedJob, CustomerError> {
        self.chain().own_service(service).await?;
        let job = request.job.id();
        let price = self.chain().price(job).await?;
        let call = calls::submit_job(self.deployment(), service, job, request.inputs.clone(), price);
        let mined = self.send(&call).await?;
        let event: JobSubmitted = mined.event(self.deployment().core)?;
        let key = CallKey { service: event.serviceId, call: event.callId };
        Ok(SubmittedJob { key, request, price, block: mined.block, transaction: mined.transaction })
    }

    /// Ends a service of this account.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn terminate(&self, service: u64) -> Result<Mined, SendError> {
        self.send(&calls::terminate_service(self.deployment(), service)).await
    }

    /// Has paid out what this account has earned in native coin.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn claim_rewards(&self) -> Result<Mined, SendError> {
        self.send(&calls::claim_rewards(self.deployment())).await
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

/// Whether the core counts a service as active. Its life may be over all the same: see its `createdAt` and `ttl`.
pub const fn is_active(service: &Service) -> bool {
    service.status == SERVICE_ACTIVE
}
