//! The calls of an account, newest first: an index beside the calls.

use alloy::primitives::Address;
use sandbox_protocol::CallKey;

use super::writer::Write;
use super::{CALLS, CallRecord, Records, RecordsError, indexed};

/// Index of the calls by caller, then by block, and then as the calls themselves.
const CALLERS: &[u8] = b"caller/";
/// Set once the index holds every call.
const INDEXED_KEY: &[u8] = b"callers_indexed";

/// A call's place among those of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallPlace {
    pub(crate) block: u64,
    pub(crate) key: CallKey,
}

impl std::fmt::Display for CallPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.block, self.key.service, self.key.call)
    }
}

impl CallPlace {
    /// The place that [`Display`](std::fmt::Display) prints.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('-').map(|number| number.parse().ok());
        let (block, service, call) = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(Self { block, key: CallKey { service, call } })
    }
}

impl From<&CallRecord> for CallPlace {
    fn from(call: &CallRecord) -> Self {
        Self { block: call.block, key: call.key }
    }
}

impl Records {
    /// A few calls of `caller`, newest first, from behind `before` on.
    pub(crate) fn calls_of(
        &self,
        caller: Address,
        before: Option<CallPlace>,
        count: usize,
    ) -> Result<Vec<CallRecord>, RecordsError> {
        let first = [CALLERS, caller.as_slice()].concat();
        let end = before.map_or_else(
            || [&first, [u8::MAX; 3 * size_of::<u64>() + 1].as_slice()].concat(),
            |place| key_of(caller, place),
        );
        let mut calls = Vec::new();
        for key in self.tree.range(first.clone()..end).keys().rev().take(count) {
            let key = key.map_err(RecordsError::Read)?;
            let call = key.get(first.len() + size_of::<u64>()..).unwrap_or_default();
            // One that was pruned in between is passed over.
            calls.extend(self.read::<CallRecord>(&[CALLS, call].concat())?);
        }
        Ok(calls)
    }

    /// Enters a call into the index.
    pub(super) fn index(write: &mut Write, call: &CallRecord) {
        write.batch.insert(caller_key(call), &[]);
    }

    /// Takes out a call that is put elsewhere, or is no more.
    pub(super) fn remove_index(write: &mut Write, call: &CallRecord) {
        write.batch.remove(caller_key(call));
    }

    /// Takes the call out that is stored under `key`.
    pub(super) fn unindex(&self, write: &mut Write, key: &[u8]) -> Result<(), RecordsError> {
        if let Some(call) = self.read::<CallRecord>(key)? {
            Self::remove_index(write, &call);
        }
        Ok(())
    }

    /// Makes the index for records of before there was one.
    pub(super) fn index_callers(&self) -> Result<(), RecordsError> {
        if self.tree.contains_key(INDEXED_KEY).map_err(RecordsError::Read)? {
            return Ok(());
        }
        for entry in self.tree.scan_prefix(CALLS) {
            let (key, call) = entry.map_err(RecordsError::Read)?;
            match self.vault.decode::<CallRecord>(&key, &call) {
                Ok(call) => drop(self.tree.insert(caller_key(&call), &[]).map_err(RecordsError::Write)?),
                Err(error) => tracing::error!(error = %crate::error_chain(&error), "a call is passed over"),
            }
        }
        self.write_now(INDEXED_KEY, &true)
    }
}

fn caller_key(call: &CallRecord) -> Vec<u8> {
    key_of(call.caller, call.into())
}

fn key_of(caller: Address, place: CallPlace) -> Vec<u8> {
    let prefix = [CALLERS, caller.as_slice(), &place.block.to_be_bytes()].concat();
    indexed(&prefix, place.key)
}

#[cfg(test)]
mod tests {
    use super::super::Progress;
    use super::*;

    fn call(caller: u8, number: u64, block: u64) -> CallRecord {
        let key = CallKey { service: 1, call: number };
        CallRecord::seen(key, 0, Address::repeat_byte(caller), vec![1].into(), block)
    }

    fn numbers(records: &Records, before: Option<CallPlace>, count: usize) -> Vec<u64> {
        let calls = records.calls_of(Address::repeat_byte(1), before, count).unwrap();
        calls.iter().map(|call| call.key.call).collect()
    }

    #[tokio::test]
    async fn calls_are_listed_newest_first_to_their_caller_in_pages() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let calls = [call(1, 3, 5), call(1, 1, 300), call(2, 2, 6), call(1, 4, 7)];
        records.take_in(&calls, 9).await.unwrap();
        assert_eq!(numbers(&records, None, 9), [1, 4, 3]);
        let place = CallPlace::from(&calls[3]);
        assert_eq!(CallPlace::parse(&place.to_string()), Some(place));
        assert_eq!(numbers(&records, Some(place), 9), [3]);
        assert_eq!(numbers(&records, None, 1), [1]);
    }

    #[tokio::test]
    async fn a_pruned_call_is_listed_no_more_and_one_of_before_the_index_is() {
        let dir = tempfile::tempdir().unwrap();
        let (records, guard) = Records::open_keeping(dir.path(), (1, 1, 1)).unwrap();
        for number in 1..=2 {
            let dropped = Progress::Dropped { reason: "late".into() };
            records.put_call(&CallRecord { progress: dropped, ..call(1, number, number) }).await.unwrap();
        }
        records.take_in(&[], 9).await.unwrap();
        assert_eq!(numbers(&records, None, 9), [2]);
        assert_eq!(records.tree.scan_prefix(CALLERS).count(), 1);

        for key in records.tree.scan_prefix(CALLERS).keys().chain([Ok(INDEXED_KEY.into())]) {
            records.tree.remove(key.unwrap()).unwrap();
        }
        drop((records, guard));
        let (records, _guard) = Records::open(dir.path()).unwrap();
        assert_eq!(numbers(&records, None, 9), [2]);
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in ["", "1-2", "1-2-3-4", "1-2-x", "-1-2-3"] {
            assert_eq!(CallPlace::parse(text), None, "{text:?}");
        }
    }
}
