//! Counts the calls of every service through, for those that no log told of.
//!
//! Ids of a service's calls are dense, so a gap shows: where a node served the blocks but not all of their logs, the reader
//! has passed a call by. The sweep asks the core for each id in its order and takes in what the reader, which must have
//! been past its block, does not know. A round is bounded; the next goes on where it ended.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use sandbox_protocol::CallKey;
use sandbox_sdk::Chain;
use sandbox_sdk::chain::ReadError;
use tokio_util::sync::CancellationToken;

use super::admittance::{Admittance, AdmittanceError};
use super::duty::LookupError;
use crate::limits::{RECOUNT_PAUSE, SWEEP_AT_ONCE_MAX, SWEEP_CALLS_MAX, SWEEP_SERVICES_MAX};
use crate::records::Records;

/// The task's parts.
pub(crate) struct Sweep {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) admittance: Arc<Admittance>,
}

/// How a call that the core was asked for stands.
enum Look {
    /// There is none of this id yet.
    None,
    /// It is known, complete, or nobody's business here.
    Settled,
    /// It is unknown and open; the block it is in is read already.
    Missed(sandbox_sdk::chain::Submission),
    /// The reader comes to it.
    Ahead,
}

impl Sweep {
    /// Sweeps until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let sweeping = async {
            loop {
                if let Err(error) = self.round().await {
                    tracing::debug!(error = %crate::error_chain(&error), "a sweep waits for the chain");
                }
                tokio::time::sleep(RECOUNT_PAUSE).await;
            }
        };
        stop.run_until_cancelled(sweeping).await;
    }

    async fn round(&self) -> Result<(), AdmittanceError> {
        self.find_services().await?;
        for (service, next) in self.records.swept()? {
            self.count_through(service, next).await?;
        }
        Ok(())
    }

    /// Looks which of the services that came since are this operator's.
    async fn find_services(&self) -> Result<(), AdmittanceError> {
        if let Some(only) = self.admittance.service {
            let next = self.records.services_swept()?;
            return Ok(self.records.sweep_services(&[only], next).await?);
        }
        let next = self.records.services_swept()?;
        let count = self.chain.core().serviceCount().call().await.map_err(unanswered("serviceCount"))?;
        let behind = count.min(next + SWEEP_SERVICES_MAX);
        if behind <= next {
            return Ok(());
        }
        let mine: Vec<u64> = futures::stream::iter(next..behind)
            .map(|service| async move { Ok((service, self.is_mine(service).await?)) })
            .buffered(SWEEP_AT_ONCE_MAX)
            .try_filter_map(|(service, is_mine)| async move { Ok::<_, LookupError>(is_mine.then_some(service)) })
            .try_collect()
            .await?;
        Ok(self.records.sweep_services(&mine, behind).await?)
    }

    /// Whether the service is of this blueprint. Whose its calls are is asked call by call: operators join and leave.
    async fn is_mine(&self, service: u64) -> Result<bool, LookupError> {
        let is_foreign = self.admittance.is_foreign(service).await?;
        Ok(!is_foreign)
    }

    async fn count_through(&self, service: u64, mut next: u64) -> Result<(), AdmittanceError> {
        let begin = next;
        let keys = (next..next + SWEEP_CALLS_MAX).map(|call| CallKey { service, call });
        let mut looks =
            std::pin::pin!(futures::stream::iter(keys).map(|key| self.look(key)).buffered(SWEEP_AT_ONCE_MAX));
        while let Some(look) = looks.next().await {
            match look? {
                Look::None | Look::Ahead => break,
                Look::Settled => {}
                Look::Missed(submission) => self.admittance.take_in_missed(submission).await?,
            }
            next += 1;
        }
        if next != begin {
            self.records.set_swept(service, next).await?;
        }
        Ok(())
    }

    async fn look(&self, key: CallKey) -> Result<Look, AdmittanceError> {
        let Some(call) = self.chain.job_call(key).await.map_err(LookupError::Read)? else { return Ok(Look::None) };
        if call.completed || self.is_known(key)? {
            return Ok(Look::Settled);
        }
        let Some(submission) = self.chain.submission(key).await.map_err(LookupError::Read)? else {
            return Ok(Look::Ahead);
        };
        let read = self.records.cursor()?.unwrap_or_default();
        if submission.block >= read {
            return Ok(Look::Ahead);
        }
        // The reader may have come to it meanwhile.
        Ok(if self.is_known(key)? { Look::Settled } else { Look::Missed(submission) })
    }

    fn is_known(&self, key: CallKey) -> Result<bool, AdmittanceError> {
        Ok(self.records.call(key)?.is_some())
    }
}

fn unanswered(question: &'static str) -> impl FnOnce(alloy::contract::Error) -> LookupError {
    move |source| LookupError::Read(ReadError::Call { question, source: Box::new(source) })
}
