//! Sending a batch: one plain call for all operators, or one quoted call for each under one batch id.
//!
//! A plain batch that one operator leaves unanswered stays open, and the core pays nothing back. So what is paid by quote goes to
//! each operator by itself: who answers is paid, whatever the others do.

use alloy::primitives::{Address, U256};
use futures::future::{join_all, try_join_all};
use rand::Rng as _;
use sandbox_protocol::batch::BatchId;

use super::{Batch, BatchError, Share, plan};
use crate::chain::{Account, Cost, CustomerError, SubmittedJob};
use crate::quotes::{Asked, Offer, Quotes};
use crate::requests::{BatchBuilder, BatchCreateBuilder, JobRequest};

/// A batch that is on chain.
#[derive(Debug)]
pub struct Sent {
    /// The batch.
    pub batch: Batch,
    /// Its calls, as they were paid.
    pub jobs: Vec<SubmittedJob>,
    /// Operators whose call did not come onto the chain though others did.
    pub unsent: Vec<(Address, CustomerError)>,
}

/// A call for one operator, and what that asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotedCall {
    /// What is redeemed.
    pub offer: Offer,
    /// The job.
    pub request: JobRequest,
    /// Where its items stand in the batch; of a create they follow those of the calls before.
    places: Option<Vec<u32>>,
}

/// A batch that operators would do for these prices. Nothing of it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quoted {
    /// What it will be called.
    pub id: BatchId,
    /// Its service.
    pub service: u64,
    /// One call for each operator.
    pub calls: Vec<QuotedCall>,
}

impl Quoted {
    /// What all of it costs, and in what.
    ///
    /// # Errors
    /// [`CustomerError::TooDear`] where no amount is as much.
    pub fn cost(&self) -> Result<Cost, CustomerError> {
        let asset = self.calls.first().map_or(Address::ZERO, |call| call.offer.asset);
        let sum = self.calls.iter().try_fold(U256::ZERO, |sum, call| sum.checked_add(call.offer.price()));
        Ok(Cost { asset, amount: sum.ok_or(CustomerError::TooDear)? })
    }
}

/// An id for a batch of several calls that has been given none.
///
/// # Errors
/// None in practice: the text is of the form that ids have.
pub fn fresh_id() -> Result<BatchId, sandbox_protocol::batch::NotABatchId> {
    format!("b-{:016x}", rand::rng().random::<u64>()).parse()
}

impl Account {
    /// Submits a batch as one call at the list price. Without an id it is called by its call.
    ///
    /// # Errors
    /// [`BatchError`].
    pub async fn submit_batch(
        &self,
        service: u64,
        request: JobRequest,
        id: Option<BatchId>,
    ) -> Result<Sent, BatchError> {
        let job = self.submit_job(service, request).await?;
        let id = id.unwrap_or_else(|| BatchId::of_call(job.key));
        let batch = Batch::of_submitted(id, self.address(), &[(job.clone(), None)])?;
        Ok(Sent { batch, jobs: vec![job], unsent: Vec::new() })
    }

    /// Submits a batch by its quotes, all calls at once. One that does not come onto the chain is told; the others stand.
    ///
    /// # Errors
    /// [`BatchError::Customer`] where none did.
    pub async fn submit_quoted_batch(&self, quoted: Quoted) -> Result<Sent, BatchError> {
        // For all together: calls that each allow the core their own price would take each other's away.
        self.provide(quoted.cost()?).await?;
        let Quoted { id, service, calls } = quoted;
        let send = |call: QuotedCall| async move {
            let operator = call.offer.quote.operator;
            let sent = self.submit_quoted(service, call.request, vec![call.offer.quote]).await;
            (operator, sent.map(|job| (job, call.places)))
        };
        let (mut sent, mut unsent) = (Vec::new(), Vec::new());
        for (operator, result) in join_all(calls.into_iter().map(send)).await {
            match result {
                Ok(job) => sent.push(job),
                Err(error) => unsent.push((operator, error)),
            }
        }
        if sent.is_empty()
            && let Some((_, error)) = unsent.pop()
        {
            return Err(error.into());
        }
        let batch = Batch::of_submitted(id, self.address(), &sent)?;
        Ok(Sent { batch, jobs: sent.into_iter().map(|(job, _)| job).collect(), unsent })
    }
}

impl Quotes {
    /// Quotes for a batch create, shared out among operators that quote. One that does not is planned without.
    ///
    /// # Errors
    /// [`BatchError`].
    pub async fn of_batch_create(
        &self,
        service: u64,
        builder: &BatchCreateBuilder,
        id: &BatchId,
    ) -> Result<Quoted, BatchError> {
        let chain = self.account().chain();
        let seed = rand::rng().random::<[u8; 32]>().into();
        let mut pool = chain.pool(service, &builder.operators).await?;
        let mut refusals = Vec::new();
        loop {
            let offers = chain.offers(&pool).await?;
            let shares = match plan(&offers, builder.count, (builder.distribution, seed)) {
                Err(BatchError::NoRoom { .. }) if !refusals.is_empty() => {
                    return Err(BatchError::Nobody(refusals.join("; ")));
                }
                shares => shares?,
            };
            let asked = shares.iter().map(|share| self.of_share(service, builder, (share, id)));
            let (mut calls, before) = (Vec::new(), pool.len());
            for (request, asked) in try_join_all(asked).await? {
                match asked.offer {
                    Ok(offer) => calls.push(QuotedCall { offer, request, places: None }),
                    Err(error) => {
                        refusals.push(format!("{}: {error}", asked.operator));
                        pool.retain(|operator| *operator != asked.operator);
                    }
                }
            }
            if pool.len() == before {
                return Ok(Quoted { id: id.clone(), service, calls });
            }
        }
    }

    async fn of_share(
        &self,
        service: u64,
        builder: &BatchCreateBuilder,
        (share, id): (&Share, &BatchId),
    ) -> Result<(JobRequest, Asked), BatchError> {
        let request = builder.share(share.slots.into(), share.operator).batch(id).build()?;
        self.of_one(service, request, share.operator).await
    }

    /// Quotes for what is to be done in many sandboxes, each of the operator that holds them.
    ///
    /// # Errors
    /// [`BatchError`]; one operator that does not quote is enough.
    pub async fn of_batch(&self, service: u64, builder: &BatchBuilder, id: &BatchId) -> Result<Quoted, BatchError> {
        let groups = self.by_holder(builder).await?;
        let asked = groups.into_iter().map(|(operator, sandboxes, places)| async move {
            let request = builder.among(sandboxes).batch(id).build()?;
            let (request, asked) = self.of_one(service, request, operator).await?;
            match asked.offer {
                Ok(offer) => Ok(QuotedCall { offer, request, places: Some(places) }),
                Err(source) => Err(BatchError::Unquoted { operator, source }),
            }
        });
        Ok(Quoted { id: id.clone(), service, calls: try_join_all(asked).await? })
    }

    /// The sandboxes by who holds them, with their places.
    async fn by_holder(&self, builder: &BatchBuilder) -> Result<Vec<Held>, BatchError> {
        let chain = self.account().chain();
        let rows = try_join_all(builder.sandboxes().iter().map(|id| chain.sandbox(*id))).await?;
        let mut groups: Vec<Held> = Vec::new();
        for ((place, id), row) in (0..).zip(builder.sandboxes()).zip(rows) {
            if row.operator.is_zero() {
                return Err(BatchError::NoSandbox(*id));
            }
            match groups.iter_mut().find(|(operator, ..)| *operator == row.operator) {
                Some((_, sandboxes, places)) => (sandboxes.push(*id), places.push(place)),
                None => (groups.push((row.operator, vec![*id], vec![place])), ()),
            };
        }
        Ok(groups)
    }

    /// What one operator asks for a job that is for it alone.
    async fn of_one(
        &self,
        service: u64,
        request: JobRequest,
        operator: Address,
    ) -> Result<(JobRequest, Asked), BatchError> {
        let request = self.account().sealed_to(service, request, &[operator]).await?;
        let mut asked = self.of_operators(service, &request, &[operator]).await?;
        let asked = asked.pop().ok_or_else(|| BatchError::Nobody(format!("{operator}: not asked")))?;
        Ok((request, asked))
    }
}

/// An operator, what it holds of a batch, and the places of that.
type Held = (Address, Vec<sandbox_protocol::SandboxId>, Vec<u32>);
