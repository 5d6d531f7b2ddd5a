//! Calls from the chain, each delivered until it is answered.
//!
//! A block range is read in one wide query, halved when the node refuses it; the calls in it, the cursor behind it and the
//! hash of its last block are written together. So a call is either on disk or will be read again, however long the
//! operator was away. Where the chain has no more the block that the cursor stands on, reading goes back to the last
//! block that both have; calls of the blocks between are suspects until the chain, at a block that is believed, says
//! whether it still has them.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::B256;
use sandbox_fleet::Fleet;
use sandbox_sdk::Chain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::admittance::{Admittance, AdmittanceError, Found};
use super::blocks::{self, Block, BlockError};
use super::duty::LookupError;
use super::head::Look;
use super::logs::{self, Blocks};
use super::outbox::Outbox;
use super::{until_answered, until_answered_within};
use crate::limits::{
    EXPIRY_GRACE_BLOCKS_MAX, FORK_BLOCKS_MAX, HEAD_SILENCE_MAX, LOG_RANGE_BLOCKS_MAX, RETRY_PAUSE_MIN,
};
use crate::records::{CallRecord, Records, RecordsError};

/// Reads the chain and feeds whoever acts on it.
pub(crate) struct Source {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) outbox: Outbox,
    pub(crate) admittance: Arc<Admittance>,
    /// Blocks that a block must have on top of it before it is believed.
    pub(crate) confirmations: u64,
}

/// What came of reading some blocks.
enum Read {
    /// They, up to this one, are taken in.
    UpTo(Block),
    /// They are on another fork than what was read before.
    Fork,
    /// The node does not have them now.
    Absent,
}

impl Source {
    /// Resumes what a former life left open, then reads on until `stop`.
    ///
    /// Ends early only where records cannot be read or written; a node that then went on would be deaf.
    pub(crate) async fn run(self, looks: watch::Receiver<Look>, stop: CancellationToken) -> Result<(), RecordsError> {
        self.admittance.resume()?;
        // Side by side: what is undone slowly holds up no new call.
        let reading = futures::future::try_join(self.admittance.look_after(), self.follow(looks));
        stop.run_until_cancelled(reading).await.map_or(Ok(()), |ended| ended.map(drop))
    }

    async fn follow(&self, mut looks: watch::Receiver<Look>) -> Result<(), RecordsError> {
        let mut next = match self.records.cursor()? {
            Some(cursor) => cursor,
            None => self.first_block().await,
        };
        let mut seen = None;
        loop {
            let block = looks.borrow_and_update().block;
            if seen.replace(block) != Some(block) {
                let is_absent;
                (next, is_absent) = self.advance(next, block).await?;
                seen = seen.filter(|_| !is_absent);
            }
            if looks.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// Reads up to what is believed of the chain whose newest block is `head`; returns the first block that is not read, and
    /// whether the node did not have it though it should.
    async fn advance(&self, mut next: u64, head: Block) -> Result<(u64, bool), RecordsError> {
        let mut is_absent = false;
        if head.number < next && self.forked_at(head).await? {
            next = self.rewind().await?;
        }
        let last = head.number.saturating_sub(self.confirmations);
        while next <= last {
            match self.read(next, last.min(next + LOG_RANGE_BLOCKS_MAX - 1), head).await? {
                Read::UpTo(block) => {
                    next = block.number + 1;
                    self.clear_suspects(block).await?;
                }
                Read::Fork => next = self.rewind().await?,
                Read::Absent => {
                    is_absent = true;
                    break;
                }
            }
        }
        // Only blocks that were read can be past: a call that came before the end of a sandbox finds it alive.
        if let Some(read) = next.checked_sub(1) {
            self.fleet.reached(read);
            self.fleet.head(self.settled_height(read)?).await;
        }
        Ok((next, is_absent))
    }

    /// The height up to which calls are answered: one that came before a sandbox expired finds it alive. A call that stays
    /// open holds up expiry for a while, not for ever.
    fn settled_height(&self, last: u64) -> Result<u64, RecordsError> {
        let open = self.records.open_calls()?;
        let unanswered = open.iter().filter(|call| call.answer().is_none()).map(|call| call.block);
        let oldest = unanswered.filter(|block| block + EXPIRY_GRACE_BLOCKS_MAX > last).min();
        Ok(oldest.map_or(last, |block| block.min(last)))
    }

    async fn first_block(&self) -> u64 {
        let blueprint = self.chain.blueprint();
        until_answered("deployed block", || async { blueprint.deployedBlock().call().await }).await
    }

    /// Takes in `from..=to`, or as much of it as the node serves. `head` was the newest block a moment ago.
    async fn read(&self, from: u64, mut to: u64, head: Block) -> Result<Read, RecordsError> {
        let before = self.trail_at(from.checked_sub(1))?;
        let mut known = Some(head);
        let mut pause = RETRY_PAUSE_MIN;
        let (found, tip) = loop {
            let tip = known.take().filter(|block| block.number == to);
            match self.look(from, (to, tip), before).await {
                Ok(Some((found, tip))) => break (found, tip),
                Ok(None) => return Ok(Read::Fork),
                Err(LookupError::Block(BlockError::NotYet)) => return Ok(Read::Absent),
                // The range may be too wide for the node, or too long for its patience. The logs are read again too: what
                // they spoke of may be gone from the chain.
                Err(error) => {
                    tracing::warn!(from, to, error = %crate::error_chain(&error), "no answer; asking for less");
                    to = from + (to - from) / 2;
                    tokio::time::sleep(pause).await;
                    pause = Duration::min(pause * 2, HEAD_SILENCE_MAX);
                }
            }
        };
        self.admittance.take_in(found, tip.number, tip.hash).await?;
        Ok(Read::UpTo(tip))
    }

    /// What is in `from..=to`, and its last block, where that is not known; `None` where it does not follow on the block `before`.
    async fn look(
        &self,
        from: u64,
        (to, tip): (u64, Option<Block>),
        before: Option<B256>,
    ) -> Result<Option<(Found, Block)>, LookupError> {
        let tip = match tip {
            Some(tip) => tip,
            None => self.block(to).await?,
        };
        let parent = if from == to {
            Some(tip.parent)
        } else {
            match from.checked_sub(1) {
                Some(before) => Some(self.block(before).await?.hash),
                None => None,
            }
        };
        if before.is_some() && parent != before {
            return Ok(None);
        }
        let blocks = if from == to { Blocks::One(tip.hash) } else { Blocks::Range(from, to) };
        let words = logs::words(&self.chain, blocks).await.map_err(LookupError::Logs)?;
        let found = self.admittance.sort(words).await?;
        // A range is read of whatever fork the node is on: was it still the same at the end?
        if from != to && self.block(to).await?.hash != tip.hash {
            return Err(LookupError::Moved);
        }
        Ok(Some((found, tip)))
    }

    async fn block(&self, number: u64) -> Result<Block, LookupError> {
        Ok(blocks::at(&self.chain, number).await?.ok_or(BlockError::NotYet)?)
    }

    fn trail_at(&self, block: Option<u64>) -> Result<Option<B256>, RecordsError> {
        let trail = self.records.trail()?;
        Ok(trail.into_iter().find(|(number, _)| Some(*number) == block).map(|(_, hash)| hash))
    }

    /// Whether the chain, whose newest block lies behind the cursor, is another than was read. A node that is merely behind
    /// has the same blocks.
    async fn forked_at(&self, head: Block) -> Result<bool, RecordsError> {
        Ok(self.trail_at(Some(head.number))?.is_some_and(|hash| hash != head.hash))
    }

    /// Goes back to the last block that the chain still has; returns the one behind it.
    async fn rewind(&self) -> Result<u64, RecordsError> {
        let trail = self.records.trail()?;
        let mut common = None;
        for (number, hash) in &trail {
            let ask = || blocks::at(&self.chain, *number);
            let found = until_answered_within("block of a fork", HEAD_SILENCE_MAX, ask).await;
            if found.is_some_and(|block| block.hash == *hash) {
                common = Some(*number);
                break;
            }
        }
        let common = match (common, trail.last()) {
            (Some(common), _) => common,
            (None, Some((oldest, _))) => {
                tracing::error!(oldest, "the chain took back more than is remembered; reading far back");
                oldest.saturating_sub(FORK_BLOCKS_MAX).max(self.first_block().await.saturating_sub(1))
            }
            (None, None) => self.first_block().await.saturating_sub(1),
        };
        self.admittance.forget_services();
        let rewound = self.records.rewind(common).await?;
        tracing::warn!(
            common,
            suspects = rewound.suspects,
            unsettled = rewound.unsettled.len(),
            "the chain took back blocks; reading them again"
        );
        for key in rewound.unsettled {
            self.outbox.notify(key);
        }
        Ok(common + 1)
    }

    /// Of the calls that stood in blocks which the chain took back, and are not read again up to `read`, those go that the
    /// chain at that block positively does not have.
    async fn clear_suspects(&self, read: Block) -> Result<(), RecordsError> {
        for call in self.records.suspects()?.into_iter().filter(|call| call.block <= read.number) {
            match self.admittance.duty.existed(call.key, read.hash).await {
                Ok(false) => self.admittance.give_up(&call, "the chain took it back").await?,
                Ok(true) => self.look_again(&call).await?,
                Err(error) => {
                    tracing::debug!(call = %call.key, error = %crate::error_chain(&error), "a suspect stays one");
                }
            }
        }
        Ok(())
    }

    /// A suspect's id is on the chain. Where no log told of it, it is looked for: it may stand for another call.
    async fn look_again(&self, call: &CallRecord) -> Result<(), RecordsError> {
        let Ok(Some(found)) = self.chain.submission(call.key).await else { return Ok(()) };
        let found_call = CallRecord::seen(call.key, found.job, found.caller, found.inputs.clone(), found.block);
        if found_call.is_same(call) {
            self.records.absolve(call.key).await?;
            self.outbox.notify(call.key);
            return Ok(());
        }
        match self.admittance.take_in_missed(found).await {
            Ok(()) => Ok(()),
            Err(AdmittanceError::Records(error)) => Err(error),
            Err(AdmittanceError::Lookup(error)) => {
                tracing::debug!(call = %call.key, error = %crate::error_chain(&error), "a suspect stays one");
                Ok(())
            }
        }
    }
}
