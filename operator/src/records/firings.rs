//! What names the firings of workflows: a call, a delivery, a signature, an event. What has a name that is known fires nothing again.
//!
//! The names of a workflow are numbered as they are written: the oldest go first, and whether so many are held is known without counting.
//! A name by which a request could be sent again is held for as long as that request would be believed, however many come after it.

use alloy::primitives::{B256, keccak256};
use sandbox_protocol::CallKey;
use serde::{Deserialize, Serialize};

use super::workflows::{RunKey, number_in, workflow_in};
use super::writer::Write;
use super::{Records, RecordsError, indexed, now_ms};
use crate::limits::{HOOK_NAMES_KEPT, PRUNE_STEP_MAX, WORKFLOW_NAMES_HELD_MAX, WORKFLOW_NAMES_KEPT_MIN};

/// Numbers of runs by what fired them.
pub(super) const FIRINGS: &[u8] = b"workflow_fired/";
/// The names by their own numbers.
pub(super) const NAMES: &[u8] = b"workflow_name/";

/// What names a firing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// Each by itself.
    pub(crate) texts: Vec<String>,
    /// They are held until then at the least, in milliseconds since 1970; 0 where it is enough that so many are.
    pub(crate) held_until_ms: u64,
}

/// A name by its number.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Name {
    /// What it is found by.
    hash: B256,
    held_until_ms: u64,
}

impl Names {
    /// Those of a request, which is held as long as it would be believed.
    pub(crate) fn of_request(texts: Vec<String>) -> Self {
        Self { texts, held_until_ms: now_ms().saturating_add(hook_names_kept_ms()) }
    }

    /// Those of what is told once.
    pub(crate) const fn of_word(texts: Vec<String>) -> Self {
        Self { texts, held_until_ms: 0 }
    }
}

impl Records {
    /// The run that was fired by what has this name.
    pub(crate) fn fired(&self, workflow: CallKey, name: &str) -> Result<Option<u64>, RecordsError> {
        self.read(&firing_key(workflow, keccak256(name)))
    }

    /// Names a firing besides what it is known by.
    pub(crate) async fn name_firing(&self, run: RunKey, names: &Names) -> Result<(), RecordsError> {
        let mut write = Write { what: "a firing's name", ..Write::default() };
        self.enter_names(&mut write, run, names)?;
        self.writer.write(write).await
    }

    /// Whether another name can be held: as many as are held at the most may all be needed still.
    pub(crate) fn has_room_for_names(&self, workflow: CallKey) -> Result<bool, RecordsError> {
        let Some(number) = self.next_name(workflow)?.checked_sub(WORKFLOW_NAMES_HELD_MAX) else { return Ok(true) };
        let oldest: Option<Name> = self.read(&name_key(workflow, number))?;
        Ok(oldest.is_none_or(|name| name.held_until_ms <= now_ms()))
    }

    /// Enters names of a run, and takes a few of the oldest out beyond those that are kept.
    pub(super) fn enter_names(&self, write: &mut Write, run: RunKey, names: &Names) -> Result<(), RecordsError> {
        let next = self.next_name(run.workflow)?;
        for (number, text) in (next..).zip(&names.texts) {
            let name = Name { hash: keccak256(text), held_until_ms: names.held_until_ms };
            let key = firing_key(run.workflow, name.hash);
            let value = self.encode(&key, &run.number)?;
            write.batch.insert(key, value);
            let key = name_key(run.workflow, number);
            let value = self.encode(&key, &name)?;
            write.batch.insert(key, value);
        }
        let end = name_key(run.workflow, next.saturating_sub(WORKFLOW_NAMES_KEPT_MIN));
        for entry in self.tree.range(indexed(NAMES, run.workflow)..end).take(PRUNE_STEP_MAX) {
            let (key, value) = entry.map_err(RecordsError::Read)?;
            let name: Name = self.vault.decode(&key, &value)?;
            if name.held_until_ms > now_ms() {
                break;
            }
            write.batch.remove(firing_key(run.workflow, name.hash));
            write.batch.remove(key);
        }
        Ok(())
    }

    /// Numbers the names of before they had numbers, in the order of their runs.
    pub(super) fn number_names(&self) -> Result<(), RecordsError> {
        let mut found = Vec::new();
        for entry in self.tree.scan_prefix(FIRINGS) {
            let (key, value) = entry.map_err(RecordsError::Read)?;
            let hash = key.get(FIRINGS.len() + 2 * size_of::<u64>()..).and_then(|hash| B256::try_from(hash).ok());
            let Some((workflow, hash)) = workflow_in(FIRINGS, &key).zip(hash) else { continue };
            found.push((workflow, self.vault.decode::<u64>(&key, &value)?, hash));
        }
        found.sort_unstable();
        let held_until_ms = now_ms().saturating_add(hook_names_kept_ms());
        let (mut of, mut number) = (None, 0);
        for (workflow, _, hash) in found {
            number = if of.replace(workflow) == Some(workflow) { number + 1 } else { 0 };
            let key = name_key(workflow, number);
            let value = self.encode(&key, &Name { hash, held_until_ms })?;
            self.tree.insert(key, value).map_err(RecordsError::Write)?;
        }
        Ok(())
    }

    /// The number of the next name. Who writes names of a workflow holds its turn.
    fn next_name(&self, workflow: CallKey) -> Result<u64, RecordsError> {
        let last = self.tree.scan_prefix(indexed(NAMES, workflow)).keys().next_back();
        let last = last.transpose().map_err(RecordsError::Read)?;
        Ok(last.and_then(|key| number_in(NAMES, &key, 2)).map_or(0, |number| number + 1))
    }
}

fn hook_names_kept_ms() -> u64 {
    u64::try_from(HOOK_NAMES_KEPT.as_millis()).unwrap_or(u64::MAX)
}

/// Names are of any length and from anybody.
fn firing_key(workflow: CallKey, hash: B256) -> Vec<u8> {
    [indexed(FIRINGS, workflow).as_slice(), hash.as_slice()].concat()
}

fn name_key(workflow: CallKey, number: u64) -> Vec<u8> {
    [indexed(NAMES, workflow).as_slice(), &number.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunKey = RunKey { workflow: CallKey { service: 1, call: 2 }, number: 7 };

    fn texts(kind: &str, count: u64) -> Vec<String> {
        (0..count).map(|number| format!("{kind} {number}")).collect()
    }

    fn fired(records: &Records, name: &str) -> Option<u64> {
        records.fired(RUN.workflow, name).unwrap()
    }

    #[tokio::test]
    async fn so_many_names_are_known_and_older_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        records.name_firing(RUN, &Names::of_word(texts("old", 2))).await.unwrap();
        records.name_firing(RUN, &Names::of_word(texts("more", WORKFLOW_NAMES_KEPT_MIN - 1))).await.unwrap();
        records.name_firing(RUN, &Names::of_word(texts("next", 1))).await.unwrap();
        assert_eq!((fired(&records, "old 0"), fired(&records, "old 1")), (None, Some(7)));
        records.name_firing(RUN, &Names::of_word(texts("last", 1))).await.unwrap();
        assert_eq!((fired(&records, "old 1"), fired(&records, "more 0")), (None, Some(7)));
        assert_eq!(records.tree.scan_prefix(FIRINGS).count(), records.tree.scan_prefix(NAMES).count());
    }

    #[tokio::test]
    async fn names_of_requests_are_known_as_long_as_those_would_be_believed_however_many_come_after() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let past = Names { held_until_ms: 1, ..Names::of_word(texts("past", 1)) };
        records.name_firing(RUN, &past).await.unwrap();
        records.name_firing(RUN, &Names::of_request(texts("held", 1))).await.unwrap();
        records.name_firing(RUN, &Names::of_word(texts("more", WORKFLOW_NAMES_KEPT_MIN + 9))).await.unwrap();
        records.name_firing(RUN, &Names::of_word(texts("last", 1))).await.unwrap();
        assert_eq!((fired(&records, "past 0"), fired(&records, "held 0")), (None, Some(7)));
    }

    #[tokio::test]
    async fn there_is_no_room_for_another_name_while_as_many_as_may_are_needed() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let has_room = || records.has_room_for_names(RUN.workflow).unwrap();
        records.name_firing(RUN, &Names::of_request(texts("held", WORKFLOW_NAMES_HELD_MAX - 1))).await.unwrap();
        assert!(has_room());
        records.name_firing(RUN, &Names::of_request(texts("one more", 1))).await.unwrap();
        assert!(!has_room());
        let other = CallKey { call: 3, ..RUN.workflow };
        assert!(records.has_room_for_names(other).unwrap());
        // As if the time of the oldest were over.
        let past = Name { hash: keccak256("held 0"), held_until_ms: 1 };
        records.tree.insert(name_key(RUN.workflow, 0), serde_json::to_vec(&past).unwrap()).unwrap();
        assert!(has_room());
    }

    #[test]
    fn a_request_is_known_for_longer_than_it_would_be_believed() {
        let believed_ms = 2 * sandbox_protocol::limits::HOOK_WINDOW_S_MAX * 1_000;
        assert!(hook_names_kept_ms() > believed_ms);
    }

    #[tokio::test]
    async fn names_of_before_they_had_numbers_are_known_and_go_as_others_do() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open(dir.path()).unwrap();
            for name in ["a", "b"] {
                let value = serde_json::to_vec(&7_u64).unwrap();
                records.tree.insert(firing_key(RUN.workflow, keccak256(name)), value).unwrap();
            }
            records.forget_indexes();
        }
        let (records, _guard) = Records::open(dir.path()).unwrap();
        assert_eq!((fired(&records, "a"), fired(&records, "b")), (Some(7), Some(7)));
        assert_eq!(records.tree.scan_prefix(NAMES).count(), 2);
    }
}
