//! What happened to the sandboxes: a log that rises over restarts and forgets its oldest beyond a bound.
//!
//! The thread that commits gives out the ids, so they are in the order of the disk: who has read up to one id has missed
//! nothing before it. An event stands in the same batch as the sandbox it is about.

use std::sync::Arc;

use alloy::primitives::Address;
use sandbox_fleet::sandbox::{Phase, Sandbox};
use sandbox_protocol::SandboxId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::writer::Write;
use super::{Records, RecordsError, decode, encode};
use crate::limits::PRUNE_STEP_MAX;

/// Events by owner and id: what an owner reads.
const EVENTS: &[u8] = b"event/";
/// Owners of events by id: what is pruned by.
const OWNERS: &[u8] = b"event_owner/";
/// The reason of a sandbox that runs, and whose owner was warned.
const EXPIRES_SOON: &str = "expires_soon";

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventRecord {
    /// Its id.
    pub(crate) seq: u64,
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// What it happened to.
    #[serde(flatten)]
    pub(crate) happened: Happened,
}

/// An event that has no id yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Happened {
    pub(crate) sandbox: SandboxId,
    pub(crate) owner: Address,
    pub(crate) phase: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// The end of the log, where the committing thread writes.
pub(super) struct EventLog {
    tree: sled::Tree,
    /// Oldest id that is kept, and the one that is given out next.
    kept: std::ops::Range<u64>,
    max: u64,
    durable: Arc<watch::Sender<u64>>,
}

impl EventLog {
    /// The log in `tree`, to keep `max` events.
    pub(super) fn open(tree: sled::Tree, max: u64) -> Result<Self, RecordsError> {
        let end = |key: Result<Option<(sled::IVec, sled::IVec)>, sled::Error>| {
            Ok::<_, RecordsError>(key.map_err(RecordsError::Read)?.and_then(|(key, _)| seq_in(&key)))
        };
        let first = end(tree.scan_prefix(OWNERS).next().transpose())?;
        let last = end(tree.scan_prefix(OWNERS).next_back().transpose())?;
        let next = last.map_or(1, |last| last + 1);
        let durable = Arc::new(watch::Sender::new(next - 1));
        Ok(Self { tree, kept: first.unwrap_or(next)..next, max, durable })
    }

    /// Where the last id on disk is told.
    pub(super) fn durable(&self) -> Arc<watch::Sender<u64>> {
        self.durable.clone()
    }

    /// Enters what happened into the batch of its sandbox, and takes a few of the oldest out beyond those that are kept.
    pub(super) fn enter(&mut self, write: &mut Write) -> Result<(), RecordsError> {
        for happened in std::mem::take(&mut write.events) {
            let (seq, owner) = (self.kept.end, happened.owner);
            let event = EventRecord { seq, time_ms: now_ms(), happened };
            write.batch.insert(event_key(owner, seq), encode(&event)?);
            write.batch.insert(owner_key(seq), owner.as_slice());
            self.kept.end += 1;
        }
        for _ in 0..PRUNE_STEP_MAX {
            let oldest = self.kept.start;
            // One that came with this group is in the store only after it.
            if self.kept.end - oldest <= self.max || oldest > *self.durable.borrow() {
                break;
            }
            if let Some(owner) = self.tree.get(owner_key(oldest)).map_err(RecordsError::Read)? {
                write.batch.remove([EVENTS, owner.as_ref(), &oldest.to_be_bytes()].concat());
                write.batch.remove(owner_key(oldest));
            }
            self.kept.start += 1;
        }
        Ok(())
    }

    /// What was entered is on disk.
    pub(super) fn publish(&self) {
        let last = self.kept.end - 1;
        self.durable.send_if_modified(|durable| std::mem::replace(durable, last) != last);
    }
}

/// What a new state of a sandbox tells its owner; nothing where phase and reason are as they were.
pub(super) fn difference(before: Option<&Sandbox>, now: &Sandbox) -> Option<Happened> {
    let told = |sandbox: &Sandbox| (sandbox.phase.name(), reason(sandbox));
    let (phase, reason) = told(now);
    let is_news = before.is_none_or(|before| told(before) != (phase, reason.clone()));
    is_news.then(|| Happened { sandbox: now.id, owner: now.owner, phase: phase.to_owned(), reason })
}

/// Why a sandbox is as it is, in one word, where there is a reason.
pub(crate) fn reason(sandbox: &Sandbox) -> Option<String> {
    match &sandbox.phase {
        Phase::Requested | Phase::Provisioning | Phase::Resuming(..) => None,
        Phase::Running(_) => sandbox.warned.then(|| EXPIRES_SOON.to_owned()),
        Phase::Stopping(rest) | Phase::Stopped(rest) => {
            rest.failure.as_ref().map(|failure| failure.code.to_string()).or_else(|| word(&rest.reason))
        }
        Phase::Deleting(reason) | Phase::Gone(reason) => word(reason),
        Phase::Discarding(failure) | Phase::Failed(failure) => Some(failure.code.to_string()),
    }
}

/// The name of a variant, as it is stored.
fn word(reason: &impl Serialize) -> Option<String> {
    serde_json::to_value(reason).ok()?.as_str().map(str::to_owned)
}

impl Records {
    /// A few events of `owner` that are on disk, the first of them behind `after`.
    pub(crate) fn events(&self, owner: Address, after: u64, count: usize) -> Result<Vec<EventRecord>, RecordsError> {
        let durable = *self.durable_events.borrow();
        if after >= durable {
            return Ok(Vec::new());
        }
        let range = event_key(owner, after.saturating_add(1))..=event_key(owner, durable);
        let found = self.tree.range(range).values().take(count);
        found.map(|event| decode(&event.map_err(RecordsError::Read)?)).collect()
    }

    /// Tells the last id on disk, of whosever event.
    pub(crate) fn last_event(&self) -> watch::Receiver<u64> {
        self.durable_events.subscribe()
    }

    /// The oldest id that is kept; the next one where there is none.
    pub(crate) fn oldest_event(&self) -> Result<u64, RecordsError> {
        let next = *self.durable_events.borrow() + 1;
        let first = self.tree.scan_prefix(OWNERS).keys().next().transpose().map_err(RecordsError::Read)?;
        Ok(first.and_then(|key| seq_in(&key)).unwrap_or(next))
    }
}

fn event_key(owner: Address, seq: u64) -> Vec<u8> {
    [EVENTS, owner.as_slice(), &seq.to_be_bytes()].concat()
}

fn owner_key(seq: u64) -> Vec<u8> {
    [OWNERS, &seq.to_be_bytes()].concat()
}

fn seq_in(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(OWNERS.len()..)?.try_into().ok()?))
}

pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use sandbox_fleet::fakes;
    use sandbox_fleet::ports::Sandboxes as _;
    use sandbox_fleet::sandbox::EndReason;

    use super::*;

    const OWNER: Address = Address::repeat_byte(1);
    const OTHER: Address = Address::repeat_byte(2);

    fn of(owner: Address, call: u64, phase: Phase) -> Sandbox {
        Sandbox { owner, phase, ..fakes::sandbox(call) }
    }

    fn seen(records: &Records, owner: Address, after: u64) -> Vec<(u64, String)> {
        let events = records.events(owner, after, 100).unwrap();
        events.into_iter().map(|event| (event.seq, event.happened.phase)).collect()
    }

    #[tokio::test]
    async fn every_change_of_phase_is_one_event_of_its_owner_and_ids_rise_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open(dir.path()).unwrap();
            for phase in [Phase::Requested, Phase::Provisioning, Phase::Provisioning] {
                records.save(&of(OWNER, 1, phase)).await.unwrap();
            }
            records.save(&of(OTHER, 2, Phase::Requested)).await.unwrap();
        }
        let (records, _guard) = Records::open(dir.path()).unwrap();
        records.save(&of(OWNER, 1, Phase::Deleting(EndReason::Expired))).await.unwrap();
        let expected = [(1, "requested"), (2, "provisioning"), (4, "deleting")].map(|(seq, phase)| (seq, phase.into()));
        assert_eq!(seen(&records, OWNER, 0), expected);
        assert_eq!(seen(&records, OWNER, 2), expected[2..]);
        assert_eq!(seen(&records, OTHER, 0), [(3, "requested".into())]);
        let last = records.events(OWNER, 3, 1).unwrap().remove(0);
        assert_eq!((last.happened.reason.as_deref(), last.seq), (Some("expired"), *records.last_event().borrow()));
    }

    #[tokio::test]
    async fn another_reason_for_the_same_phase_is_news() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        for reason in [EndReason::Deleted, EndReason::Expired, EndReason::Expired] {
            records.save(&of(OWNER, 1, Phase::Gone(reason))).await.unwrap();
        }
        assert_eq!(seen(&records, OWNER, 0).len(), 2);
    }

    #[tokio::test]
    async fn a_warning_is_news() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let running = of(OWNER, 1, Phase::Running(fakes::instance(fakes::sandbox(1).id)));
        records.save(&running).await.unwrap();
        records.save(&Sandbox { warned: true, ..running }).await.unwrap();
        let events = records.events(OWNER, 0, 9).unwrap().into_iter();
        let told: Vec<_> = events.map(|event| (event.happened.phase, event.happened.reason)).collect();
        assert_eq!(told, [("running".into(), None), ("running".into(), Some(EXPIRES_SOON.to_owned()))]);
    }

    #[tokio::test]
    async fn the_oldest_go_beyond_those_that_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (records, guard) = Records::open_keeping(dir.path(), (10, 3, 10)).unwrap();
        for call in 1..=3 {
            records.save(&of(OWNER, call, Phase::Requested)).await.unwrap();
        }
        assert_eq!((records.oldest_event().unwrap(), seen(&records, OWNER, 0).len()), (1, 3));
        records.save(&of(OTHER, 4, Phase::Requested)).await.unwrap();
        assert_eq!((records.oldest_event().unwrap(), seen(&records, OWNER, 0)[0].0), (2, 2));
        drop((records, guard));
        let (records, _guard) = Records::open_keeping(dir.path(), (10, 1, 10)).unwrap();
        records.save(&of(OTHER, 5, Phase::Requested)).await.unwrap();
        assert_eq!((records.oldest_event().unwrap(), seen(&records, OTHER, 0)), (5, vec![(5, "requested".into())]));
        assert_eq!(seen(&records, OWNER, 0), []);
    }

    #[tokio::test]
    async fn many_at_once_are_in_the_order_of_the_disk_and_none_is_missed_by_who_follows() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let writing: Vec<_> = (1..=200)
            .map(|call| {
                let records = records.clone();
                tokio::spawn(async move { records.save(&of(OWNER, call, Phase::Requested)).await.unwrap() })
            })
            .collect();
        let (mut last, mut follow, mut found) = (0, records.last_event(), Vec::new());
        while found.len() < 200 {
            let new = records.events(OWNER, last, 7).unwrap();
            match new.last() {
                Some(event) => last = event.seq,
                None => follow.changed().await.unwrap(),
            }
            found.extend(new.into_iter().map(|event| event.seq));
        }
        assert_eq!(found, (1..=200).collect::<Vec<_>>());
        futures::future::join_all(writing).await;
    }
}
