//! Promises of a batch create, kept over a fleet of fakes.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::B256;
use sandbox_fleet::Keeper;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::fakes::{FakeWorld, OWNER, sandbox};
use sandbox_fleet::keys::SshKeys;
use sandbox_fleet::request::Resources;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::records::{Records, RecordsGuard};
use crate::stories::Stories;

const CALL: CallKey = CallKey { service: 7, call: 3 };

struct Shop {
    maker: Maker,
    world: Arc<FakeWorld>,
    _kept: (RecordsGuard, TempDir, AbortOnDropHandle<()>),
}

impl Shop {
    /// With room for so many sandboxes, and slots from 4 on to be made.
    async fn of(room: u32, count: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (records, guard) = Records::open(dir.path()).unwrap();
        let world = Arc::new(FakeWorld::default());
        let resources = Resources { cpu_cores: 100, memory_mb: 1_000_000, disk_gb: 1_000 };
        let capacity = Capacity { sandboxes: room, sandboxes_each_max: room, resources, cpu_cores_each_max: 8 };
        let (keeper, fleet) = Keeper::new(capacity, world.ports());
        let keeping = AbortOnDropHandle::new(tokio::spawn(keeper.run(Vec::new(), CancellationToken::new())));
        let order = Order { owner: OWNER, spec: sandbox(3).spec, expires_at_block: None, ssh_keys: SshKeys::default() };
        let part = PartRecord {
            call: CALL,
            job: Job::BatchCreate.id(),
            owner: OWNER,
            inputs_hash: B256::ZERO,
            batch: BatchId::of_call(CALL),
            aggregation: None,
            begun_ms: now_ms(),
            items: slots(CALL, 4, count),
            end: None,
        };
        let (part, _) = records.begin_part(part).await.unwrap();
        let ledger = Ledger { records, stories: Stories::default(), part };
        let until = Instant::now() + Duration::from_secs(500);
        Self { maker: Maker { fleet, order, ledger, until }, world, _kept: (guard, dir, keeping) }
    }

    /// Makes what is to be made, knowing what is on record, and says which slots there are.
    async fn make(&self) -> Result<Vec<u8>, Failure> {
        let ledger = &self.maker.ledger;
        let known = ledger.records.part_items(&ledger.part).unwrap();
        let tally = Tally::of(self.maker.make_all(&known).await.unwrap())?;
        let bits: Vec<u8> = (0..=u8::MAX).filter(|slot| tally.slots.bit(usize::from(*slot))).collect();
        assert_eq!(tally.ids.iter().map(|id| id.slot).collect::<Vec<_>>(), bits);
        Ok(bits)
    }

    fn on_record(&self) -> Vec<(u32, ItemState)> {
        let items = self.maker.ledger.records.part_items(&self.maker.ledger.part).unwrap();
        items.iter().map(|item| (item.index, item.state)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn every_slot_of_the_share_is_made_and_told_of() {
    let shop = Shop::of(4, 4).await;
    assert_eq!(shop.make().await.unwrap(), [4, 5, 6, 7]);
    assert_eq!(shop.world.running().len(), 4);
    assert_eq!(shop.on_record(), [4, 5, 6, 7].map(|slot| (slot, ItemState::Succeeded)));
    let told = shop.maker.ledger.stories.after(CALL, 0);
    assert_eq!(told.len(), 0, "the story begins with the call");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_fails_for_a_passing_reason_is_made_all_the_same() {
    let shop = Shop::of(4, 1).await;
    shop.world.fail_next([FailureCode::Engine]);
    assert_eq!(shop.make().await.unwrap(), [4]);
    assert_eq!((shop.world.provisions(), shop.world.containers().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_reason_that_does_not_pass_is_not_tried_again_and_one_that_stays_so_often() {
    let shop = Shop::of(4, 1).await;
    shop.world.fail_next([FailureCode::Hardening]);
    assert_eq!(shop.make().await.unwrap_err().code, FailureCode::Hardening);
    assert_eq!(shop.world.provisions(), 1);
    let full = Shop::of(0, 1).await;
    let begun = Instant::now();
    assert_eq!(full.make().await.unwrap_err().code, FailureCode::NoCapacity);
    let pauses: Duration = (1..BATCH_SLOT_TRIES_MAX).map(|tried| BATCH_SLOT_PAUSE * (1 << (tried - 1))).sum();
    assert_eq!(begun.elapsed().as_millis() / 100, pauses.as_millis() / 100);
}

#[tokio::test(start_paused = true)]
async fn slots_for_which_there_is_no_room_fail_one_by_one_and_the_others_are_made() {
    let shop = Shop::of(3, 4).await;
    assert_eq!(shop.make().await.unwrap().len(), 3);
    let failed = shop.on_record().iter().filter(|(_, state)| *state == ItemState::Failed).count();
    assert_eq!(failed, 1);
}

#[tokio::test(start_paused = true)]
async fn another_life_adopts_what_was_made_and_makes_the_rest() {
    let shop = Shop::of(4, 4).await;
    for slot in [4, 5] {
        let id = SandboxId { origin: CALL, slot };
        shop.maker.order.make(&shop.maker.fleet, id).await.unwrap();
    }
    let ended = bare(4, Some(SandboxId { origin: CALL, slot: 4 }), ItemState::Succeeded);
    shop.maker.ledger.note(&[ended]).await.unwrap();
    assert_eq!(shop.make().await.unwrap(), [4, 5, 6, 7]);
    assert_eq!(shop.world.provisions(), 4, "nothing is made twice");
    assert_eq!(shop.make().await.unwrap(), [4, 5, 6, 7]);
    assert_eq!(shop.world.provisions(), 4);
}

#[test]
fn a_share_ends_with_the_last_slot_that_there_is() {
    let indexes = |first, count| slots(CALL, first, count).iter().map(|item| item.index).collect::<Vec<_>>();
    assert_eq!(indexes(3, 2), [3, 4]);
    assert_eq!(indexes(254, 9), [254, 255]);
    assert_eq!(indexes(3, 0), [0_u32; 0]);
}
