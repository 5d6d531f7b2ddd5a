//! What of the records hangs on blocks that the chain may take back.
//!
//! A call is the same call only with the same inputs: under one id there may be one call in one fork and another in the
//! next. The one that counts stands under the id; those that were begun and then taken back are kept aside with what was
//! made of them, so that one which returns is not carried out twice. What was made of a call that creates sandboxes is
//! undone, and until it is the id is marked.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alloy::primitives::{Address, B256};
use sandbox_protocol::{CallKey, Job, SandboxId};

use super::writer::Write;
use super::{CURSOR_KEY, CallRecord, FINAL, Progress, Records, RecordsError, decode, encode, indexed, sandbox_key};
use crate::limits::{GIVEN_UP_MAX, PRUNE_STEP_MAX, TRAIL_BLOCKS_MAX};

/// Hashes of the last blocks read, by number.
const TRAIL: &[u8] = b"trail/";
/// Calls that stood in blocks which the chain took back, until it is known what became of them.
const SUSPECTS: &[u8] = b"suspect/";
/// Calls whose receipt is on chain, by the block of the receipt and then as the calls themselves.
const SETTLED: &[u8] = b"settled/";
/// Calls that were begun and then taken back, by block, id and inputs.
pub(super) const FORMER: &[u8] = b"former/";
/// Ids under which something is to be undone before they are used again.
const UNDO: &[u8] = b"undo/";

const BLOCK_BYTES: usize = size_of::<u64>();

/// What a call is, beyond its id.
type Identity = (CallKey, u8, Address, B256);

/// Calls that were taken back in this life. Whoever is still carrying one out may write nothing of it any more.
#[derive(Clone, Default)]
pub(super) struct GivenUp(Arc<Mutex<HashSet<Identity>>>);

/// Access to them; nothing is written meanwhile.
pub(super) struct GivenUpNow<'a>(MutexGuard<'a, HashSet<Identity>>);

/// What going back to a block changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rewound {
    /// Calls whose receipt is not on chain any more.
    pub(crate) unsettled: Vec<CallKey>,
    /// Calls that stood in blocks which the chain took back.
    pub(crate) suspects: usize,
}

impl GivenUp {
    pub(super) fn lock(&self) -> GivenUpNow<'_> {
        GivenUpNow(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl GivenUpNow<'_> {
    pub(super) fn contains(&self, call: &CallRecord) -> bool {
        self.0.contains(&identity(call))
    }

    fn insert(&mut self, call: &CallRecord) {
        // By then the oldest of them are long let go of.
        if self.0.len() >= GIVEN_UP_MAX {
            self.0.clear();
        }
        self.0.insert(identity(call));
    }

    fn remove(&mut self, call: &CallRecord) {
        self.0.remove(&identity(call));
    }
}

impl Records {
    /// Takes in calls together with the cursor behind them and the hash of the block before it. A call that is known stays
    /// as it is; one that was dropped, or has taken another's id, is as new. Returns those that are to be worked on.
    pub(crate) async fn take_in_at(
        &self,
        calls: &[CallRecord],
        cursor: u64,
        tip: B256,
    ) -> Result<Vec<CallRecord>, RecordsError> {
        let place = self.writer.place().await?;
        let (due, pruned, written) = {
            let mut given_up = self.given_up.lock();
            let mut write = Write::default();
            let due = self.take_all_in(&mut write, &mut given_up, calls)?;
            let pruned = self.prune(&mut write)?;
            write.batch.insert(CURSOR_KEY, encode(&cursor)?);
            self.lengthen_trail(&mut write, cursor.saturating_sub(1), tip)?;
            (due, pruned, place.write(write))
        };
        written.on_disk().await?;
        self.finals.fetch_sub(pruned, std::sync::atomic::Ordering::Relaxed);
        Ok(due)
    }

    /// As [`Records::take_in_at`] for a call that the reader passed by, without a cursor.
    pub(crate) async fn take_in_missed(&self, call: &CallRecord) -> Result<Vec<CallRecord>, RecordsError> {
        let place = self.writer.place().await?;
        let (due, written) = {
            let mut given_up = self.given_up.lock();
            let mut write = Write::default();
            let due = self.take_all_in(&mut write, &mut given_up, std::slice::from_ref(call))?;
            (due, place.write(write))
        };
        written.on_disk().await?;
        Ok(due)
    }

    /// As [`Records::take_in_at`], of a chain that takes nothing back.
    #[cfg(test)]
    pub(crate) async fn take_in(&self, calls: &[CallRecord], cursor: u64) -> Result<(), RecordsError> {
        self.take_in_at(calls, cursor, B256::ZERO).await.map(drop)
    }

    /// The last blocks read, newest first.
    pub(crate) fn trail(&self) -> Result<Vec<(u64, B256)>, RecordsError> {
        let entries = self.tree.scan_prefix(TRAIL).rev();
        entries
            .map(|entry| {
                let (key, hash) = entry.map_err(RecordsError::Read)?;
                Ok((block_of(key.get(TRAIL.len()..).unwrap_or_default()), decode(&hash)?))
            })
            .collect()
    }

    /// Goes back to block `common`, the last that the chain still has: reading goes on behind it, calls of later blocks are
    /// suspects, and receipts of later blocks are to be sent again.
    pub(crate) async fn rewind(&self, common: u64) -> Result<Rewound, RecordsError> {
        let place = self.writer.place().await?;
        let (rewound, written) = {
            let _writing = self.given_up.lock();
            let mut write = Write::default();
            write.batch.insert(CURSOR_KEY, encode(&(common + 1))?);
            for (block, _) in self.trail()?.into_iter().take_while(|(block, _)| *block > common) {
                write.batch.remove(trail_key(block));
            }
            let suspects = self.suspect_all_behind(&mut write, common)?;
            let unsettled = self.unsettle_all_behind(&mut write, common)?;
            self.sweep_again(&mut write)?;
            (Rewound { unsettled, suspects }, place.write(write))
        };
        written.on_disk().await?;
        Ok(rewound)
    }

    /// Calls that stood in blocks which the chain took back.
    pub(crate) fn suspects(&self) -> Result<Vec<CallRecord>, RecordsError> {
        self.named_by(SUSPECTS)
    }

    /// Whether this call stood in a block that the chain took back, and may not be on it any more.
    pub(crate) fn is_suspect(&self, key: CallKey) -> Result<bool, RecordsError> {
        self.holds(indexed(SUSPECTS, key))
    }

    /// A suspect was found to be on the chain after all.
    pub(crate) async fn absolve(&self, key: CallKey) -> Result<(), RecordsError> {
        let mut write = Write::default();
        write.batch.remove(indexed(SUSPECTS, key));
        self.writer.write(write).await
    }

    /// Gives up a call that the chain positively has no more. What was made of it is to be undone.
    pub(crate) async fn give_up(&self, call: &CallRecord, reason: &str) -> Result<(), RecordsError> {
        let place = self.writer.place().await?;
        let written = {
            let mut given_up = self.given_up.lock();
            let mut write = Write::default();
            // What is known now: whoever carries it out may have come further.
            let known = self.call(call.key)?.filter(|known| known.is_same(call)).unwrap_or_else(|| call.clone());
            self.set_aside(&mut write, &mut given_up, &known)?;
            let dropped = CallRecord { progress: Progress::Dropped { reason: reason.into() }, ..known.clone() };
            self.put_instead(&mut write, &known, &dropped)?;
            write.batch.remove(indexed(SUSPECTS, call.key));
            place.write(write)
        };
        written.on_disk().await
    }

    /// The receipt of a call is on chain, in `block` where that is known; `call` says so.
    pub(crate) async fn settle(&self, call: &CallRecord, block: Option<u64>) -> Result<bool, RecordsError> {
        let place = self.writer.place().await?;
        let written = {
            if self.given_up.lock().contains(call) {
                return Ok(false);
            }
            let mut write = Write::default();
            self.put(&mut write, call)?;
            if let Some(block) = block {
                write.batch.insert(settled_key(block, call.key), &[]);
            }
            place.write(write)
        };
        written.on_disk().await.map(|()| true)
    }

    /// The receipt of a call is not on chain any more.
    pub(crate) async fn unsettle(&self, key: CallKey) -> Result<bool, RecordsError> {
        let Some(call) = self.call(key)? else { return Ok(false) };
        let Progress::Settled { answer, .. } = &call.progress else { return Ok(false) };
        let answered = CallRecord { progress: Progress::Answered(answer.clone()), ..call.clone() };
        let mut write = Write::default();
        self.put_instead(&mut write, &call, &answered)?;
        self.writer.write(write).await.map(|()| true)
    }

    /// Ids under which something is to be undone.
    pub(crate) fn to_undo(&self) -> Result<Vec<CallKey>, RecordsError> {
        let keys = self.tree.scan_prefix(UNDO).keys();
        keys.map(|key| Ok(call_key(key.map_err(RecordsError::Read)?.get(UNDO.len()..).unwrap_or_default()))).collect()
    }

    /// Whether something is to be undone under this id.
    pub(crate) fn is_to_undo(&self, key: CallKey) -> Result<bool, RecordsError> {
        self.holds(indexed(UNDO, key))
    }

    /// Nothing is left of these sandboxes, so that their call's id may be used again.
    pub(crate) async fn undone(&self, key: CallKey, sandboxes: &[SandboxId]) -> Result<(), RecordsError> {
        let mut write = Write::default();
        write.batch.remove(indexed(UNDO, key));
        for id in sandboxes {
            write.batch.remove(sandbox_key(*id));
        }
        self.writer.write(write).await
    }

    fn take_all_in(
        &self,
        write: &mut Write,
        given_up: &mut GivenUpNow<'_>,
        calls: &[CallRecord],
    ) -> Result<Vec<CallRecord>, RecordsError> {
        let mut due = Vec::new();
        for call in calls {
            let taken = self.take_one_in(write, given_up, call)?;
            if !taken.progress.is_final() {
                due.push(taken);
            }
        }
        Ok(due)
    }

    fn take_one_in(
        &self,
        write: &mut Write,
        given_up: &mut GivenUpNow<'_>,
        call: &CallRecord,
    ) -> Result<CallRecord, RecordsError> {
        let suspect = indexed(SUSPECTS, call.key);
        let was_suspect = self.holds(&suspect)?;
        write.batch.remove(suspect);
        let Some(known) = self.call(call.key)? else {
            self.put(write, call)?;
            return Ok(call.clone());
        };
        let is_dropped = matches!(known.progress, Progress::Dropped { .. });
        if known.is_same(call) && !is_dropped {
            // One that is being written comes to its new block another time: what is on its way must not be undone.
            if !was_suspect || known.block == call.block || self.changes.is_writing(call.key) {
                return Ok(known);
            }
            let moved = CallRecord { block: call.block, ..known.clone() };
            self.put_instead(write, &known, &moved)?;
            return Ok(moved);
        }
        if !is_dropped {
            self.set_aside(write, given_up, &known)?;
        }
        given_up.remove(call);
        let taken = self.former(write, call)?.unwrap_or_else(|| call.clone());
        self.put_instead(write, &known, &taken)?;
        Ok(taken)
    }

    /// Keeps what was made of a call that the chain took back, or marks it to be undone where it can be.
    fn set_aside(
        &self,
        write: &mut Write,
        given_up: &mut GivenUpNow<'_>,
        call: &CallRecord,
    ) -> Result<(), RecordsError> {
        given_up.insert(call);
        if creates(call.job) {
            write.batch.insert(indexed(UNDO, call.key), &[]);
            return Ok(());
        }
        let progress = match &call.progress {
            Progress::Seen | Progress::Dropped { .. } => return Ok(()),
            Progress::Begun { block } => Progress::Begun { block: *block },
            // On this fork its receipt is in no block.
            Progress::Answered(answer) | Progress::Settled { answer, .. } | Progress::Refused { answer, .. } => {
                Progress::Answered(answer.clone())
            }
        };
        let kept = CallRecord { progress, ..call.clone() };
        let key = former_key(&kept);
        let value = self.encode(&key, &kept)?;
        write.batch.insert(key, value);
        Ok(())
    }

    /// What was made of the call when it was on the chain before.
    fn former(&self, write: &mut Write, call: &CallRecord) -> Result<Option<CallRecord>, RecordsError> {
        for entry in self.tree.scan_prefix(FORMER) {
            let (key, value) = entry.map_err(RecordsError::Read)?;
            let former: CallRecord = self.vault.decode(&key, &value)?;
            if former.is_same(call) {
                write.batch.remove(key);
                return Ok(Some(CallRecord { block: call.block, ..former }));
            }
        }
        Ok(None)
    }

    fn suspect_all_behind(&self, write: &mut Write, common: u64) -> Result<usize, RecordsError> {
        let mut suspects: Vec<CallKey> =
            self.open_calls()?.iter().filter(|call| call.block > common).map(|call| call.key).collect();
        for key in self.tree.range(behind(FINAL, common)..end_of(FINAL)).keys() {
            let key = key.map_err(RecordsError::Read)?;
            suspects.push(call_key(key.get(FINAL.len() + BLOCK_BYTES..).unwrap_or_default()));
        }
        for key in &suspects {
            write.batch.insert(indexed(SUSPECTS, *key), &[]);
        }
        Ok(suspects.len())
    }

    fn unsettle_all_behind(&self, write: &mut Write, common: u64) -> Result<Vec<CallKey>, RecordsError> {
        let mut unsettled = Vec::new();
        for entry in self.tree.range(behind(SETTLED, common)..end_of(SETTLED)).keys() {
            let entry = entry.map_err(RecordsError::Read)?;
            let key = call_key(entry.get(SETTLED.len() + BLOCK_BYTES..).unwrap_or_default());
            write.batch.remove(entry);
            let Some(call) = self.call(key)? else { continue };
            if let Progress::Settled { answer, .. } = &call.progress {
                let answered = CallRecord { progress: Progress::Answered(answer.clone()), ..call.clone() };
                self.put_instead(write, &call, &answered)?;
                unsettled.push(key);
            }
        }
        Ok(unsettled)
    }

    /// Adds a block to the trail and forgets what lies before its start.
    fn lengthen_trail(&self, write: &mut Write, block: u64, hash: B256) -> Result<(), RecordsError> {
        write.batch.insert(trail_key(block), encode(&hash)?);
        let trail = self.trail()?;
        for (old, _) in trail.iter().skip(TRAIL_BLOCKS_MAX - 1) {
            write.batch.remove(trail_key(*old));
        }
        let Some((oldest, _)) = trail.get(TRAIL_BLOCKS_MAX - 1) else { return Ok(()) };
        for index in [SETTLED, FORMER] {
            let old = self.tree.range(index.to_vec()..behind(index, *oldest)).keys().take(PRUNE_STEP_MAX);
            for key in old {
                write.batch.remove(key.map_err(RecordsError::Read)?);
            }
        }
        Ok(())
    }
}

/// Whether what the job makes can be undone: sandboxes that nobody could own.
fn creates(job: u8) -> bool {
    matches!(Job::from_id(job), Some(Job::SandboxCreate | Job::BatchCreate))
}

fn identity(call: &CallRecord) -> Identity {
    (call.key, call.job, call.caller, call.inputs_hash)
}

fn trail_key(block: u64) -> Vec<u8> {
    [TRAIL, &block.to_be_bytes()].concat()
}

fn settled_key(block: u64, key: CallKey) -> Vec<u8> {
    indexed(&[SETTLED, &block.to_be_bytes()].concat(), key)
}

fn former_key(call: &CallRecord) -> Vec<u8> {
    let key = indexed(&[FORMER, &call.block.to_be_bytes()].concat(), call.key);
    [key.as_slice(), call.inputs_hash.as_slice()].concat()
}

/// Where an index by block goes on behind `block`.
fn behind(index: &[u8], block: u64) -> Vec<u8> {
    [index, &block.saturating_add(1).to_be_bytes()].concat()
}

/// Where an index ends: all of them end in a slash.
fn end_of(index: &[u8]) -> Vec<u8> {
    let mut end = index.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn block_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn call_key(bytes: &[u8]) -> CallKey {
    CallKey { service: block_of(bytes), call: block_of(bytes.get(BLOCK_BYTES..).unwrap_or_default()) }
}
