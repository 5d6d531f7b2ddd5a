//! Sandboxes at their end are remembered for repeats of old calls and for who looks late, so many of them and not for ever.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sandbox_fleet::sandbox::Sandbox;
use sandbox_protocol::{CallKey, SandboxId};

use super::writer::Write;
use super::{OPEN, Records, RecordsError, indexed, sandbox_key};
use crate::limits::PRUNE_STEP_MAX;

/// Index of the sandboxes at their end, by the time of it.
const ENDED: &[u8] = b"ended/";

/// The index in memory, oldest first: who takes an entry out removes that sandbox.
#[derive(Clone)]
pub(super) struct Ended {
    queue: Arc<Mutex<VecDeque<Entry>>>,
    max: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    time_ms: u64,
    id: SandboxId,
}

impl Ended {
    pub(super) fn new(max: usize) -> Self {
        Self { queue: Arc::default(), max }
    }

    fn push(&self, entry: Entry) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(entry);
    }

    /// A few of the oldest beyond those that are kept.
    fn take_surplus(&self) -> Vec<Entry> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let beyond = queue.len().saturating_sub(self.max);
        queue.drain(..beyond.min(PRUNE_STEP_MAX)).collect()
    }
}

impl Records {
    /// Notes that a sandbox is at its end, and removes the oldest of those beyond the bound.
    pub(super) fn end(&self, write: &mut Write, id: SandboxId) -> Result<(), RecordsError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let entry = Entry { time_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX), id };
        write.batch.insert(entry.key(), &[]);
        self.ended.push(entry);
        for entry in self.ended.take_surplus() {
            if entry.id == id || self.is_created_still(entry.id)? {
                self.ended.push(entry);
                continue;
            }
            write.batch.remove(entry.key());
            if self.is_ended(entry.id)? {
                write.batch.remove(sandbox_key(entry.id));
            }
        }
        Ok(())
    }

    /// Reads the index, and enters what ended before there was one.
    pub(super) fn index_ended(&self) -> Result<(), RecordsError> {
        let mut known = Vec::new();
        for key in self.tree.scan_prefix(ENDED).keys() {
            let key = key.map_err(RecordsError::Read)?;
            known.extend(Entry::of(&key));
        }
        let ids: HashSet<SandboxId> = known.iter().map(|entry| entry.id).collect();
        let mut batch = sled::Batch::default();
        for sandbox in self.sandboxes()?.iter().filter(|sandbox| sandbox.phase.is_final()) {
            if !ids.contains(&sandbox.id) {
                let entry = Entry { time_ms: 0, id: sandbox.id };
                batch.insert(entry.key(), &[]);
                self.ended.push(entry);
            }
        }
        self.tree.apply_batch(batch).map_err(RecordsError::Write)?;
        known.into_iter().for_each(|entry| self.ended.push(entry));
        Ok(())
    }

    /// Whether the call that makes it is not answered: carried out anew, it must find what became of it.
    fn is_created_still(&self, id: SandboxId) -> Result<bool, RecordsError> {
        self.tree.contains_key(indexed(OPEN, id.origin)).map_err(RecordsError::Read)
    }

    /// Its id may stand for another one since.
    fn is_ended(&self, id: SandboxId) -> Result<bool, RecordsError> {
        let sandbox: Option<Sandbox> = self.read(&sandbox_key(id))?;
        Ok(sandbox.is_some_and(|sandbox| sandbox.phase.is_final()))
    }
}

impl Entry {
    fn key(self) -> Vec<u8> {
        let CallKey { service, call } = self.id.origin;
        let (service, call) = (service.to_be_bytes(), call.to_be_bytes());
        [ENDED, &self.time_ms.to_be_bytes(), &service, &call, &[self.id.slot]].concat()
    }

    fn of(key: &[u8]) -> Option<Self> {
        let (time_ms, rest) = key.get(ENDED.len()..)?.split_first_chunk()?;
        let (service, rest) = rest.split_first_chunk()?;
        let (call, rest) = rest.split_first_chunk()?;
        let origin = CallKey { service: u64::from_be_bytes(*service), call: u64::from_be_bytes(*call) };
        Some(Self { time_ms: u64::from_be_bytes(*time_ms), id: SandboxId { origin, slot: *rest.first()? } })
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Address;
    use sandbox_fleet::fakes;
    use sandbox_fleet::ports::Sandboxes as _;
    use sandbox_fleet::sandbox::{EndReason, Phase};

    use super::*;
    use crate::records::CallRecord;

    fn sandbox(call: u64, phase: Phase) -> Sandbox {
        Sandbox { phase, ..fakes::sandbox(call) }
    }

    fn gone(call: u64) -> Sandbox {
        sandbox(call, Phase::Gone(EndReason::Deleted))
    }

    fn kept(records: &Records) -> Vec<u64> {
        records.sandboxes().unwrap().iter().map(|sandbox| sandbox.id.origin.call).collect()
    }

    #[tokio::test]
    async fn so_many_sandboxes_are_remembered_after_their_end_and_all_that_live() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open_keeping(dir.path(), (1, 1, 2)).unwrap();
            records.save(&sandbox(1, Phase::Requested)).await.unwrap();
            for call in [3, 2, 4] {
                records.save(&gone(call)).await.unwrap();
                records.save(&gone(call)).await.unwrap();
            }
            assert_eq!(kept(&records), [1, 2, 4], "the first that ended is forgotten");
        }
        let (records, _guard) = Records::open_keeping(dir.path(), (1, 1, 2)).unwrap();
        records.save(&gone(5)).await.unwrap();
        assert_eq!(kept(&records), [1, 4, 5], "in the same order after a restart");
        records.save(&gone(1)).await.unwrap();
        assert_eq!(kept(&records), [1, 5]);
    }

    #[tokio::test]
    async fn one_whose_create_is_not_answered_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open_keeping(dir.path(), (1, 1, 1)).unwrap();
        let origin = gone(1).id.origin;
        records.put_call(&CallRecord::seen(origin, 0, Address::ZERO, vec![1].into(), 5)).await.unwrap();
        for call in 1..4 {
            records.save(&gone(call)).await.unwrap();
        }
        assert!(kept(&records).contains(&1));
    }

    #[tokio::test]
    async fn an_id_that_stands_for_another_by_now_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open_keeping(dir.path(), (1, 1, 1)).unwrap();
        records.save(&gone(1)).await.unwrap();
        records.undone(gone(1).id.origin, &[gone(1).id]).await.unwrap();
        records.save(&sandbox(1, Phase::Provisioning)).await.unwrap();
        records.save(&gone(2)).await.unwrap();
        assert_eq!(kept(&records), [1, 2]);
    }

    #[tokio::test]
    async fn what_ended_before_there_was_an_index_is_the_oldest() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open_keeping(dir.path(), (1, 1, 2)).unwrap();
            let value = serde_json::to_vec(&gone(9)).unwrap();
            records.tree.insert(sandbox_key(gone(9).id), value).unwrap();
            records.save(&gone(1)).await.unwrap();
        }
        let (records, _guard) = Records::open_keeping(dir.path(), (1, 1, 2)).unwrap();
        records.save(&gone(2)).await.unwrap();
        assert_eq!(kept(&records), [1, 2]);
    }
}
