//! What becomes of calls and receipts when the chain takes blocks back.

use alloy::primitives::B256;
use proptest::prelude::*;

use super::tests::answer;
use super::*;
use crate::limits::TRAIL_BLOCKS_MAX;

const CREATE: u8 = 0;
const EXEC: u8 = 10;

fn call(number: u64, job: u8, inputs: u8, block: u64) -> CallRecord {
    CallRecord::seen(CallKey { service: 1, call: number }, job, [1; 20].into(), vec![inputs].into(), block)
}

fn with(progress: Progress, call: CallRecord) -> CallRecord {
    CallRecord { progress, ..call }
}

fn answered() -> Progress {
    Progress::Answered(answer(vec![7]))
}

fn settled() -> Progress {
    Progress::Settled { answer: answer(vec![7]), transaction: None }
}

fn hash(fork: u8, block: u64) -> B256 {
    let mut hash = B256::repeat_byte(fork);
    hash[..8].copy_from_slice(&block.to_be_bytes());
    hash
}

struct Desk {
    records: Records,
    _kept: (RecordsGuard, tempfile::TempDir),
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (records, guard) = Records::open(dir.path()).unwrap();
        Self { records, _kept: (guard, dir) }
    }

    async fn read(&self, fork: u8, block: u64, calls: &[CallRecord]) -> Vec<CallRecord> {
        self.records.take_in_at(calls, block + 1, hash(fork, block)).await.unwrap()
    }

    fn progress(&self, number: u64) -> Progress {
        self.records.call(CallKey { service: 1, call: number }).unwrap().unwrap().progress
    }
}

#[tokio::test]
async fn the_trail_goes_back_so_far_and_a_rewind_cuts_it() {
    let desk = Desk::new();
    for block in 0..200 {
        desk.read(1, block, &[]).await;
    }
    let trail = desk.records.trail().unwrap();
    assert_eq!(trail.len(), TRAIL_BLOCKS_MAX);
    assert_eq!(trail[0], (199, hash(1, 199)));
    desk.records.rewind(190).await.unwrap();
    assert_eq!(desk.records.trail().unwrap()[0], (190, hash(1, 190)));
    assert_eq!(desk.records.cursor().unwrap(), Some(191));
}

#[tokio::test]
async fn a_call_that_comes_back_in_another_block_is_the_same_call() {
    let desk = Desk::new();
    desk.read(1, 5, &[call(1, EXEC, 1, 5)]).await;
    desk.records.put_call(&with(answered(), call(1, EXEC, 1, 5))).await.unwrap();
    assert_eq!(desk.records.rewind(4).await.unwrap().suspects, 1);
    desk.read(2, 5, &[]).await;
    let due = desk.read(2, 6, &[call(1, EXEC, 1, 6)]).await;
    assert_eq!(due, [with(answered(), call(1, EXEC, 1, 6))]);
    assert_eq!(desk.records.suspects().unwrap(), []);
}

#[tokio::test]
async fn another_call_under_the_same_id_is_a_new_one_and_the_former_returns_with_its_answer() {
    let desk = Desk::new();
    let (one, other) = (call(1, EXEC, 1, 5), call(1, EXEC, 2, 5));
    desk.read(1, 5, std::slice::from_ref(&one)).await;
    desk.records.put_call(&with(settled(), one.clone())).await.unwrap();
    desk.records.rewind(4).await.unwrap();
    assert_eq!(desk.read(2, 5, std::slice::from_ref(&other)).await, [other]);
    assert!(!desk.records.put_call(&with(answered(), one.clone())).await.unwrap(), "nothing is written of the former");
    desk.records.rewind(4).await.unwrap();
    assert_eq!(desk.read(1, 5, std::slice::from_ref(&one)).await, [with(answered(), one.clone())]);
    assert!(desk.records.put_call(&with(settled(), one)).await.unwrap());
}

#[tokio::test]
async fn a_call_is_listed_to_its_caller_where_it_stands_now_and_to_nobody_else() {
    let desk = Desk::new();
    let listed = |caller: u8| {
        let calls = desk.records.calls_of([caller; 20].into(), None, 9).unwrap();
        calls.iter().map(|call| call.block).collect::<Vec<_>>()
    };
    desk.read(1, 5, &[call(1, EXEC, 1, 5)]).await;
    desk.records.rewind(4).await.unwrap();
    desk.read(2, 6, &[call(1, EXEC, 1, 6)]).await;
    assert_eq!(listed(1), [6]);
    desk.records.rewind(4).await.unwrap();
    desk.read(3, 7, &[CallRecord { caller: [2; 20].into(), ..call(1, EXEC, 1, 7) }]).await;
    assert_eq!((listed(1), listed(2)), (vec![], vec![7]));
}

#[tokio::test]
async fn what_a_create_made_is_undone_before_its_id_is_used_again() {
    let desk = Desk::new();
    let (one, other) = (call(1, CREATE, 1, 5), call(1, CREATE, 2, 5));
    desk.read(1, 5, std::slice::from_ref(&one)).await;
    desk.records.put_call(&with(answered(), one.clone())).await.unwrap();
    desk.records.rewind(4).await.unwrap();
    desk.read(2, 5, std::slice::from_ref(&other)).await;
    assert_eq!(desk.records.to_undo().unwrap(), [one.key]);
    desk.records.undone(one.key, &[]).await.unwrap();
    assert!(!desk.records.is_to_undo(one.key).unwrap());
    desk.records.rewind(4).await.unwrap();
    assert_eq!(desk.read(1, 5, std::slice::from_ref(&one)).await, [one], "it is made anew");
}

#[tokio::test]
async fn a_call_that_the_chain_has_no_more_is_dropped_and_is_as_new_when_it_returns() {
    let desk = Desk::new();
    let one = call(1, EXEC, 1, 5);
    desk.read(1, 5, std::slice::from_ref(&one)).await;
    desk.records.rewind(4).await.unwrap();
    desk.records.give_up(&one, "gone").await.unwrap();
    assert!(matches!(desk.progress(1), Progress::Dropped { .. }));
    assert_eq!((desk.records.suspects().unwrap(), desk.records.open_calls().unwrap()), (vec![], vec![]));
    assert_eq!(desk.read(2, 9, &[call(1, EXEC, 1, 9)]).await, [call(1, EXEC, 1, 9)]);
}

#[tokio::test]
async fn a_receipt_in_a_block_that_was_taken_back_is_to_be_sent_again_and_an_older_one_is_not() {
    let desk = Desk::new();
    for (number, block) in [(1, 8), (2, 9)] {
        desk.read(1, number, &[call(number, EXEC, 1, number)]).await;
        let done = with(settled(), call(number, EXEC, 1, number));
        assert!(desk.records.settle(&done, Some(block)).await.unwrap());
    }
    let rewound = desk.records.rewind(8).await.unwrap();
    assert_eq!(rewound.unsettled, [CallKey { service: 1, call: 2 }]);
    assert_eq!((desk.progress(1), desk.progress(2)), (settled(), answered()));
    assert_eq!(desk.records.open_calls().unwrap().len(), 1);
}

#[tokio::test]
async fn services_are_counted_through_once_more_after_a_fork() {
    let desk = Desk::new();
    desk.records.sweep_services(&[3], 4).await.unwrap();
    desk.records.set_swept(3, 1_000).await.unwrap();
    desk.records.rewind(5).await.unwrap();
    assert_eq!(desk.records.swept().unwrap(), [(3, 1_000 - crate::limits::SWEEP_BACK_CALLS)]);
    desk.records.sweep_services(&[3], 4).await.unwrap();
    assert_eq!(desk.records.swept().unwrap().len(), 1, "and from where it was");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Forks of four ids and two inputs each: after every read the records say of each id what the chain says.
    #[test]
    fn whatever_forks_come_the_records_are_those_of_the_last(forks in prop::collection::vec(
        (0..6_u64, prop::collection::vec((0..4_u64, 1..3_u8), 1..6)), 1..8,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let desk = Desk::new();
            let mut chain: Vec<(u64, u8)> = Vec::new();
            for (fork, (keep, calls)) in (1_u8..).zip(forks) {
                let keep = usize::try_from(keep).unwrap().min(chain.len());
                let common = keep as u64;
                desk.records.rewind(common).await.unwrap();
                chain.truncate(keep);
                for (number, inputs) in calls {
                    // An id that the fork has already is not given again.
                    if chain.iter().any(|(known, _)| *known == number) { continue }
                    chain.push((number, inputs));
                    let block = chain.len() as u64;
                    desk.read(fork, block, &[call(number, EXEC, inputs, block)]).await;
                }
                for suspect in desk.records.suspects().unwrap() {
                    prop_assert!(!chain.iter().any(|(number, _)| *number == suspect.key.call));
                    desk.records.give_up(&suspect, "gone").await.unwrap();
                }
                for number in 0..4 {
                    let found = desk.records.call(CallKey { service: 1, call: number }).unwrap();
                    let live = found.filter(|call| !call.progress.is_final()).map(|call| call.inputs[0]);
                    let expected = chain.iter().find(|(known, _)| *known == number).map(|(_, inputs)| *inputs);
                    prop_assert_eq!(live, expected);
                }
            }
            Ok(())
        })?;
    }
}
