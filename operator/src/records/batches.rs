//! Parts of batches: what is asked of whom, and what came of each item, until a while after the end.
//!
//! A part is found by its owner, service and batch; its items by their call. What came of an item is written once, so a part
//! of many items costs no more than they do. Which call is meant the inputs say as well: a chain that takes a block back may
//! give a call's id to another.

use alloy::primitives::{Address, B256};
use sandbox_protocol::batch::{Aggregation, BatchId, ItemReport, Majority};
use sandbox_protocol::{CallKey, Failure, SandboxId};
use serde::{Deserialize, Serialize};

use super::writer::Write;
use super::{Records, RecordsError, indexed, now_ms};
use crate::limits::{BATCH_KEPT, BATCH_PARTS_EACH_MAX, PRUNE_STEP_MAX};

/// Parts by owner, service, batch and call.
pub(super) const PARTS: &[u8] = b"part/";
/// Items by call, its inputs, and their places in the call's list.
pub(super) const ITEMS: &[u8] = b"part_item/";
/// Index of the parts by their beginning, and then as the parts themselves.
const AGES: &[u8] = b"part_age/";

/// What one call is to this operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartRecord {
    pub(crate) call: CallKey,
    pub(crate) job: u8,
    pub(crate) owner: Address,
    /// keccak256 of the call's inputs.
    pub(crate) inputs_hash: B256,
    pub(crate) batch: BatchId,
    /// Of a batch create nothing.
    pub(crate) aggregation: Option<Aggregation>,
    pub(crate) begun_ms: u64,
    /// This operator's items, by index.
    pub(crate) items: Vec<PartItem>,
    pub(crate) end: Option<PartEnd>,
}

/// An item as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartItem {
    /// Its place in the call's list; of a batch create its slot.
    pub(crate) index: u32,
    pub(crate) sandbox: Option<SandboxId>,
    /// Why it cannot be carried out at all.
    pub(crate) refused: Option<Failure>,
}

/// The end of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartEnd {
    pub(crate) kept_until_ms: u64,
    pub(crate) majority: Option<Majority>,
}

impl PartRecord {
    fn key(&self) -> Vec<u8> {
        [batch_key(self.owner, self.call.service, &self.batch).as_slice(), &self.call.call.to_be_bytes()].concat()
    }

    fn age_key(&self) -> Vec<u8> {
        [AGES, &self.begun_ms.to_be_bytes(), &self.key()].concat()
    }

    fn items_key(&self) -> Vec<u8> {
        [indexed(ITEMS, self.call).as_slice(), self.inputs_hash.as_slice()].concat()
    }

    fn item_key(&self, index: u32) -> Vec<u8> {
        [self.items_key().as_slice(), &index.to_be_bytes()].concat()
    }

    /// Whether nobody is owed it any more. One that never ended is kept as long after its beginning.
    const fn is_past(&self, now_ms: u64) -> bool {
        match &self.end {
            Some(end) => end.kept_until_ms < now_ms,
            None => self.begun_ms.saturating_add(2 * kept_ms()) < now_ms,
        }
    }
}

impl Records {
    /// Begins a part, or finds it begun, with what is known of its items.
    pub(crate) async fn begin_part(&self, part: PartRecord) -> Result<(PartRecord, Vec<ItemReport>), RecordsError> {
        let known: Option<PartRecord> = self.read(&part.key())?;
        let mut write = Write { what: "a batch", ..Write::default() };
        if let Some(known) = known {
            if known.inputs_hash == part.inputs_hash {
                let items = self.part_items(&known)?;
                return Ok((known, items));
            }
            self.remove_part(&mut write, &known)?;
        }
        self.make_room(&mut write, part.owner, now_ms())?;
        write.batch.insert(part.key(), self.encode(&part.key(), &part)?);
        write.batch.insert(part.age_key(), &[]);
        self.writer.write(write).await?;
        Ok((part, Vec::new()))
    }

    /// Writes down where items are.
    pub(crate) async fn put_items(&self, part: &PartRecord, items: &[ItemReport]) -> Result<(), RecordsError> {
        let mut write = Write { what: "an item", ..Write::default() };
        for item in items {
            let key = part.item_key(item.index);
            let value = self.encode(&key, item)?;
            write.batch.insert(key, value);
        }
        self.writer.write(write).await
    }

    /// Writes down that a part is at its end.
    pub(crate) async fn end_part(&self, part: &PartRecord, majority: Option<Majority>) -> Result<(), RecordsError> {
        let end = PartEnd { kept_until_ms: now_ms().saturating_add(kept_ms()), majority };
        let ended = PartRecord { end: Some(end), ..part.clone() };
        let mut write = Write { what: "a batch", ..Write::default() };
        write.batch.insert(ended.key(), self.encode(&ended.key(), &ended)?);
        self.writer.write(write).await
    }

    /// The parts of a batch, by call.
    pub(crate) fn parts_of(
        &self,
        owner: Address,
        service: u64,
        batch: &BatchId,
    ) -> Result<Vec<PartRecord>, RecordsError> {
        let parts = self.tree.scan_prefix(batch_key(owner, service, batch)).map(|part| self.decode(part));
        let parts: Vec<PartRecord> = parts.collect::<Result<_, _>>()?;
        let now_ms = now_ms();
        Ok(parts.into_iter().filter(|part| !part.is_past(now_ms)).collect())
    }

    /// What is known of a part's items, by index.
    pub(crate) fn part_items(&self, part: &PartRecord) -> Result<Vec<ItemReport>, RecordsError> {
        self.tree.scan_prefix(part.items_key()).map(|item| self.decode(item)).collect()
    }

    /// Takes out a few parts that are past, and the oldest of the owner's beyond those that are kept.
    fn make_room(&self, write: &mut Write, owner: Address, now_ms: u64) -> Result<(), RecordsError> {
        for key in self.tree.scan_prefix(AGES).keys().take(PRUNE_STEP_MAX) {
            let key = key.map_err(RecordsError::Read)?;
            let part = key.get(AGES.len() + size_of::<u64>()..).unwrap_or_default();
            match self.read::<PartRecord>(part)? {
                Some(part) if part.is_past(now_ms) => self.remove_part(write, &part)?,
                Some(_) => {}
                None => write.batch.remove(key),
            }
        }
        let own = self.tree.scan_prefix([PARTS, owner.as_slice()].concat()).map(|part| self.decode(part));
        let mut own: Vec<PartRecord> = own.collect::<Result<_, _>>()?;
        let beyond = (own.len() + 1).saturating_sub(BATCH_PARTS_EACH_MAX);
        own.retain(|part| part.end.is_some());
        own.sort_by_key(|part| part.begun_ms);
        own.iter().take(beyond).try_for_each(|part| self.remove_part(write, part))
    }

    fn remove_part(&self, write: &mut Write, part: &PartRecord) -> Result<(), RecordsError> {
        write.batch.remove(part.key());
        write.batch.remove(part.age_key());
        for key in self.tree.scan_prefix(part.items_key()).keys() {
            write.batch.remove(key.map_err(RecordsError::Read)?);
        }
        Ok(())
    }
}

const fn kept_ms() -> u64 {
    BATCH_KEPT.as_secs() * 1_000
}

/// A batch's id holds no NUL, so that none is the beginning of another.
fn batch_key(owner: Address, service: u64, batch: &BatchId) -> Vec<u8> {
    [PARTS, owner.as_slice(), &service.to_be_bytes(), batch.as_str().as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::FailureCode;
    use sandbox_protocol::batch::ItemState;

    use super::*;

    fn part(call: u64, batch: &str) -> PartRecord {
        PartRecord {
            call: CallKey { service: 1, call },
            job: 22,
            owner: Address::repeat_byte(1),
            inputs_hash: B256::repeat_byte(7),
            batch: batch.parse().unwrap(),
            aggregation: Some(Aggregation::All),
            begun_ms: now_ms(),
            items: vec![PartItem { index: 3, sandbox: None, refused: None }],
            end: None,
        }
    }

    fn item(index: u32, state: ItemState) -> ItemReport {
        let failure = Some(Failure::new(FailureCode::BadRequest, "why"));
        ItemReport { index, sandbox: None, state, failure, exec: None, task: None }
    }

    fn calls(records: &Records, owner: u8, batch: &str) -> Vec<u64> {
        let found = records.parts_of(Address::repeat_byte(owner), 1, &batch.parse().unwrap()).unwrap();
        found.iter().map(|part| part.call.call).collect()
    }

    #[tokio::test]
    async fn a_part_and_its_items_survive_a_restart_and_are_begun_once() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open(dir.path()).unwrap();
            let (begun, items) = records.begin_part(part(2, "b")).await.unwrap();
            assert_eq!(items, []);
            records.put_items(&begun, &[item(3, ItemState::Running)]).await.unwrap();
            records.put_items(&begun, &[item(3, ItemState::Failed), item(4, ItemState::Waiting)]).await.unwrap();
        }
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let again = PartRecord { items: Vec::new(), begun_ms: 0, ..part(2, "b") };
        let (found, items) = records.begin_part(again).await.unwrap();
        assert_eq!(found.items, part(2, "b").items);
        assert_eq!(items, [item(3, ItemState::Failed), item(4, ItemState::Waiting)]);
        records.end_part(&found, None).await.unwrap();
        let ended = records.parts_of(found.owner, 1, &found.batch).unwrap().remove(0);
        let kept_ms = ended.end.unwrap().kept_until_ms - now_ms();
        assert!(kept_ms > 6 * 24 * 3_600_000 && kept_ms <= 7 * 24 * 3_600_000);
    }

    #[tokio::test]
    async fn a_batch_is_its_owners_and_no_other_whose_name_begins_like_it() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        for part in [part(2, "b"), part(9, "b"), part(3, "b2")] {
            records.begin_part(part).await.unwrap();
        }
        assert_eq!(calls(&records, 1, "b"), [2, 9]);
        assert_eq!(calls(&records, 1, "b2"), [3]);
        assert_eq!(calls(&records, 2, "b"), [0_u64; 0]);
    }

    #[tokio::test]
    async fn another_call_under_the_same_id_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let (first, _) = records.begin_part(part(2, "b")).await.unwrap();
        records.put_items(&first, &[item(3, ItemState::Succeeded)]).await.unwrap();
        let other = PartRecord { inputs_hash: B256::repeat_byte(8), ..part(2, "b") };
        assert_eq!(records.begin_part(other.clone()).await.unwrap().1, []);
        assert_eq!(records.tree.scan_prefix(ITEMS).count(), 0);
        assert_eq!(records.parts_of(other.owner, 1, &other.batch).unwrap(), [other]);
    }

    #[tokio::test]
    async fn what_is_past_goes_with_its_items_and_so_does_the_oldest_of_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let old = PartRecord { end: Some(PartEnd { kept_until_ms: 1, majority: None }), begun_ms: 1, ..part(1, "old") };
        records.begin_part(old.clone()).await.unwrap();
        records.put_items(&old, &[item(3, ItemState::Succeeded)]).await.unwrap();
        assert_eq!(calls(&records, 1, "old"), [0_u64; 0], "it is not shown either");
        let end = Some(PartEnd { kept_until_ms: u64::MAX, majority: None });
        for call in 2..2 + BATCH_PARTS_EACH_MAX as u64 {
            let begun_ms = now_ms() + call;
            records.begin_part(PartRecord { begun_ms, end: end.clone(), ..part(call, "b") }).await.unwrap();
        }
        assert_eq!(records.tree.scan_prefix(ITEMS).count(), 0);
        assert_eq!(calls(&records, 1, "b").len(), BATCH_PARTS_EACH_MAX);
        records.begin_part(part(1_000, "b")).await.unwrap();
        let left = calls(&records, 1, "b");
        assert_eq!((left.len(), left.first(), left.last()), (BATCH_PARTS_EACH_MAX, Some(&3), Some(&1_000)));
        assert_eq!(records.tree.scan_prefix(AGES).count(), BATCH_PARTS_EACH_MAX);
    }
}
