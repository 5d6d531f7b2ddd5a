//! What must hold before an effect begins: a fresh sight of the chain, the contract's word that the call is this
//! operator's, and, for jobs that another could be given instead, enough blocks to finish.

use std::time::SystemTime;

use sandbox_protocol::Job;
use tokio::sync::watch;
use tokio::time::Instant;

use super::terms;
use crate::chain::duty::{Duty, LookupError, Standing};
use crate::chain::head::Look;
use crate::chain::until_answered_within;
use crate::limits::{HEAD_SILENCE_MAX, STANDING_TIMEOUT};
use crate::records::CallRecord;

/// Looks before work begins. Clones look the same.
#[derive(Clone)]
pub(crate) struct Fence {
    pub(crate) duty: Duty,
    pub(crate) looks: watch::Receiver<Look>,
    /// Oldest newest block on which an effect may begin, in seconds of its age; zero is without bound.
    pub(crate) head_age_s_max: u64,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It begins.
    Begin,
    /// It is left alone for now: too little time is left, and the contract may give it to another.
    Leave,
    /// The contract has its answer.
    Answered,
    /// The contract gave it to another operator.
    Elsewhere,
}

impl Fence {
    /// Waits for a fresh sight of the chain, and says what becomes of a call whose effect has not begun.
    pub(super) async fn before(&self, call: &CallRecord) -> Verdict {
        self.fresh(call.block).await;
        until_answered_within("standing of a call", HEAD_SILENCE_MAX, || self.judge(call)).await
    }

    /// Whether a call whose effect has begun is positively not this operator's any more. A node that does not answer holds
    /// nothing up: what has begun goes on.
    pub(super) async fn again(&self, call: &CallRecord) -> Verdict {
        let asked = tokio::time::timeout(STANDING_TIMEOUT, self.duty.standing(call.key)).await;
        match asked {
            Ok(Ok(Standing::Elsewhere)) => Verdict::Elsewhere,
            Ok(Ok(Standing::Answered)) => Verdict::Answered,
            Ok(Ok(Standing::Mine { .. }) | Err(_)) | Err(_) => Verdict::Begin,
        }
    }

    /// Returns on a sight that is fresh and not older than the call itself.
    async fn fresh(&self, block: u64) {
        let mut looks = self.looks.clone();
        loop {
            let look = *looks.borrow_and_update();
            let stale = look.staleness((Instant::now(), SystemTime::now()), self.head_age_s_max);
            if stale.is_none() && look.block.number >= block {
                return;
            }
            tracing::debug!(?stale, head = look.block.number, "no effect begins on an old sight of the chain");
            if looks.changed().await.is_err() {
                // The process is stopping; its next life begins where this one stood.
                return std::future::pending().await;
            }
        }
    }

    async fn judge(&self, call: &CallRecord) -> Result<Verdict, LookupError> {
        let deadline = match self.duty.standing_now(call.key).await? {
            Standing::Mine { deadline_block } => deadline_block,
            Standing::Answered => return Ok(Verdict::Answered),
            Standing::Elsewhere => return Ok(Verdict::Elsewhere),
        };
        let head = self.looks.borrow().block.number;
        let Some(job) = Job::from_id(call.job) else { return Ok(Verdict::Leave) };
        if terms::is_time_left(job, call.block, deadline, head) {
            return Ok(Verdict::Begin);
        }
        // With nobody to give it to, late is better than never.
        let stays = if head > deadline {
            !self.duty.could_move(call.key).await?
        } else {
            self.duty.is_alone(call.key.service).await?
        };
        Ok(if stays { Verdict::Begin } else { Verdict::Leave })
    }
}
