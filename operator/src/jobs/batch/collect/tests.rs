//! What is told of batches, over a chain of which only the answers exist.

use alloy::primitives::{B256, Bytes};
use alloy::sol_types::SolValue as _;
use alloy::transports::mock::Asserter;
use sandbox_protocol::batch::{Aggregation, ItemExec};
use sandbox_protocol::exec::ByteText;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::Assignment;
use sandbox_sdk::limits::BATCH_REPORT_BODY_BYTES_MAX;
use tempfile::TempDir;

use super::*;
use crate::chain::mocked;
use crate::records::{PartItem, Progress, RecordsGuard, now_ms};

const OWNER: Address = Address::repeat_byte(1);
const ME: Address = Address::repeat_byte(2);
const OTHER: Address = Address::repeat_byte(3);
const CALL: CallKey = CallKey { service: 1, call: 4 };
const DEADLINE: u64 = 90;

struct Office {
    collector: Collector,
    answers: Asserter,
    head: watch::Sender<u64>,
    part: PartRecord,
    _kept: (RecordsGuard, TempDir),
}

impl Office {
    /// A batch exec of two items of this operator's, the first of which has ended.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (records, guard) = Records::open(dir.path()).unwrap();
        let answers = Asserter::new();
        let chain = mocked::chain(&answers).await;
        let (head, heads) = watch::channel(10);
        let begun = CallRecord {
            progress: Progress::Begun { block: 5 },
            ..CallRecord::seen(CALL, Job::BatchExec.id(), OWNER, vec![1].into(), 5)
        };
        records.put_call(&begun).await.unwrap();
        let item = |index| PartItem { index, sandbox: None, refused: None };
        let part = PartRecord {
            call: CALL,
            job: Job::BatchExec.id(),
            owner: OWNER,
            inputs_hash: B256::ZERO,
            batch: "b".parse().unwrap(),
            aggregation: Some(Aggregation::All),
            begun_ms: now_ms(),
            items: vec![item(1), item(3)],
            end: None,
        };
        let (part, _) = records.begin_part(part).await.unwrap();
        records.put_items(&part, &[bare(1, None, ItemState::Succeeded)]).await.unwrap();
        let collector = Collector { chain, records, me: ME, head: heads };
        Self { collector, answers, head, part, _kept: (guard, dir) }
    }

    /// What the chain says of the other operator.
    fn other_has(&self, outcome: Option<u8>) {
        let assignment = Assignment { parts: 2, ..mocked::assignment(Job::BatchExec, Address::ZERO, OWNER, DEADLINE) };
        let part = |operator, outcome: Option<u8>| Part {
            operator,
            answered: outcome.is_some(),
            outcome: outcome.unwrap_or_default(),
            firstSlot: 0,
            slots: 0,
        };
        self.answers.push_success(&Bytes::from(assignment.abi_encode()));
        self.answers.push_success(&Bytes::from(vec![part(ME, None), part(OTHER, outcome)].abi_encode()));
    }

    async fn report(&self, owner: Address) -> BatchReport {
        let wanted = Wanted { owner, service: CALL.service, batch: "b".parse().unwrap() };
        self.collector.report(wanted).await.unwrap()
    }
}

fn states(report: &BatchReport) -> Vec<(u32, ItemState)> {
    report.parts.iter().flat_map(|part| &part.items).map(|item| (item.index, item.state)).collect()
}

#[tokio::test]
async fn a_batch_is_shown_while_it_is_carried_out_and_after_to_its_owner_alone() {
    let office = Office::new().await;
    office.other_has(None);
    let found = office.report(OWNER).await;
    assert_eq!(
        (found.status, states(&found)),
        (BatchStatus::Running, vec![(1, ItemState::Succeeded), (3, ItemState::Waiting)])
    );
    assert_eq!(found.others, [OtherPart { call: 4, operator: OTHER, outcome: None, is_silent: false }]);

    let stranger = office.report(OTHER).await;
    assert_eq!((stranger.status, stranger.parts.len(), stranger.others.len()), (BatchStatus::Unknown, 0, 0));

    office.collector.records.end_part(&office.part, None).await.unwrap();
    office.other_has(Some(1));
    let found = office.report(OWNER).await;
    assert_eq!((found.status, found.others[0].outcome), (BatchStatus::Done, Some(Outcome::Caller)));
    assert!(found.parts[0].is_over && found.parts[0].kept_until_ms.is_some());
}

#[tokio::test]
async fn who_has_not_answered_by_the_deadline_is_silent() {
    let office = Office::new().await;
    for (head, outcome, is_silent) in
        [(DEADLINE, None, false), (DEADLINE + 1, None, true), (DEADLINE + 1, Some(0), false)]
    {
        office.head.send_replace(head);
        office.other_has(outcome);
        assert_eq!(office.report(OWNER).await.others[0].is_silent, is_silent, "{head} {outcome:?}");
    }
}

#[tokio::test]
async fn items_of_a_call_that_is_over_before_them_have_failed() {
    let office = Office::new().await;
    let dropped = CallRecord {
        progress: Progress::Dropped { reason: "moved".into() },
        ..CallRecord::seen(CALL, Job::BatchExec.id(), OWNER, vec![1].into(), 5)
    };
    office.collector.records.put_call(&dropped).await.unwrap();
    office.other_has(None);
    let found = office.report(OWNER).await;
    assert_eq!(
        (found.status, states(&found)),
        (BatchStatus::Done, vec![(1, ItemState::Succeeded), (3, ItemState::Failed)])
    );
    assert_eq!(found.parts[0].items[1].failure.as_ref().map(|failure| failure.code), Some(FailureCode::Interrupted));
}

#[tokio::test]
async fn a_report_is_so_long_and_says_what_is_left_out() {
    let office = Office::new().await;
    let records = &office.collector.records;
    let exec = |bytes| ItemExec { stdout: ByteText(vec![b'x'; bytes]), ..ItemExec::default() };
    for call in 5..=4 + BATCH_REPORT_PARTS_MAX as u64 {
        let items = (0..128).map(|index| PartItem { index, sandbox: None, refused: None }).collect();
        let part = PartRecord { call: CallKey { call, ..CALL }, items, ..office.part.clone() };
        let (part, _) = records.begin_part(part).await.unwrap();
        let item = |(index, bytes)| ItemReport { exec: Some(exec(bytes)), ..bare(index, None, ItemState::Succeeded) };
        let items: Vec<_> = (0..).zip([256; 127].into_iter().chain([1])).map(item).collect();
        records.put_items(&part, &items).await.unwrap();
        records.end_part(&part, None).await.unwrap();
        office.other_has(None);
    }
    let found = office.report(OWNER).await;
    let (before, told) = found.parts.split_first().unwrap();
    assert_eq!((before.call, before.items.len(), before.left_out, before.is_over), (4, 0, 2, false));
    assert_eq!(found.status, BatchStatus::Running, "what is left out counts");
    assert_eq!((told.len(), found.others.len()), (BATCH_REPORT_PARTS_MAX, BATCH_REPORT_PARTS_MAX));
    let shown = told.iter().flat_map(|part| &part.items).map(|item| item.exec.as_ref().unwrap());
    assert!(shown.clone().all(|exec| exec.truncated == (exec.stdout.0.len() > 1)));
    assert!(shown.map(|exec| exec.stdout.0.len()).sum::<usize>() <= BATCH_REPORT_BYTES_MAX);
    assert!(serde_json::to_vec(&found).unwrap().len() <= BATCH_REPORT_BODY_BYTES_MAX);
}
