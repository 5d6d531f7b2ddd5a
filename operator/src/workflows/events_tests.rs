//! Promises of what fires workflows by itself: logs that a node may refuse, and what happens to sandboxes.

use alloy::primitives::{Address, B256, Bytes, Log as Inner};
use alloy::rpc::types::Log;
use sandbox_fleet::children::ChildName;
use sandbox_fleet::fakes::sandbox;
use sandbox_fleet::ports::Sandboxes as _;
use sandbox_fleet::sandbox::{EndReason, Phase, Sandbox};
use serde_json::json;

use super::events::Looked;
use super::tests::{BLOCK, KEY, Yard, steps};
use super::*;
use crate::limits::{LOG_RANGE_BLOCKS_MAX, WORKFLOW_LOG_DATA_BYTES_MAX, WORKFLOW_LOGS_EACH_MAX};
use crate::records::Watched;

const OTHER: CallKey = CallKey { call: 21, ..KEY };
const EVENT: &str = "Moved()";
const HERE: Address = Address::repeat_byte(1);
const THERE: Address = Address::repeat_byte(2);

fn log(address: Address, block: u64, index: u64) -> Log {
    let inner = Inner::new_unchecked(address, vec![alloy::primitives::keccak256(EVENT)], Bytes::new());
    let (block_number, block_hash, log_index) =
        (Some(block), Some(B256::from(alloy::primitives::U256::from(block))), Some(index));
    Log { inner, block_number, block_hash, log_index, ..Log::default() }
}

/// Workflows that wait for the event of a contract each, and how far the chain was watched.
async fn waiting(dir: &tempfile::TempDir, contracts: &[(CallKey, Address)], blocks: u64) -> (Yard, Watched) {
    let yard = Yard::new(dir).await;
    for (key, address) in contracts {
        let config = json!({"event": EVENT, "address": address, "overlap": "queue"}).to_string();
        yard.have_as(*key, (&steps(&[("a", &[])]), ""), ("event", &config)).await;
    }
    yard.looks.send_modify(|look| look.block.number = BLOCK + blocks);
    (yard, Watched { block: BLOCK + 1, event: 0 })
}

impl Yard {
    fn refuse(&self) {
        self.node.push_failure_msg("query returned more than 10000 results");
    }

    fn lives(&self) {
        self.node.push_success(&"0x64");
    }

    fn fired(&self, key: CallKey) -> u64 {
        self.records.workflow_standing(key).unwrap().map_or(0, |standing| standing.last_run)
    }
}

#[tokio::test]
async fn a_range_that_the_node_refuses_is_halved_until_it_gives_it_and_the_next_is_as_wide_as_that() {
    let dir = tempfile::tempdir().unwrap();
    let (yard, mut watched) = waiting(&dir, &[(KEY, HERE)], 8).await;
    let mut width = LOG_RANGE_BLOCKS_MAX;
    for _ in 0..2 {
        yard.refuse();
        yard.lives();
    }
    yard.node.push_success(&[log(HERE, BLOCK + 2, 0)]);
    let looked = yard.workflows.0.watch_logs(&mut watched, &mut width).await;
    assert_eq!((looked, watched.block, width), (Looked::OnTheWay, BLOCK + 3, 2));
    assert_eq!(yard.fired(KEY), 1);
    yard.node.push_success::<[Log; 0]>(&[]);
    let looked = yard.workflows.0.watch_logs(&mut watched, &mut width).await;
    assert_eq!((looked, watched.block, width), (Looked::OnTheWay, BLOCK + 5, 4));
    yard.node.push_success(&[log(HERE, BLOCK + 8, 0)]);
    let looked = yard.workflows.0.watch_logs(&mut watched, &mut width).await;
    assert_eq!((looked, watched.block), (Looked::Through, BLOCK + 9));
    assert_eq!(yard.fired(KEY), 2);
}

#[tokio::test]
async fn a_contract_whose_logs_the_node_never_gives_stops_nobody_who_waits_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let (yard, mut watched) = waiting(&dir, &[(KEY, HERE), (OTHER, THERE)], 1).await;
    // Both in the block; both by themselves; the first alone, three times; the second.
    yard.refuse();
    yard.lives();
    yard.refuse();
    yard.lives();
    yard.refuse();
    yard.refuse();
    yard.lives();
    yard.refuse();
    yard.node.push_success(&[log(THERE, BLOCK + 1, 0)]);
    let looked = yard.workflows.0.watch_logs(&mut watched, &mut 1).await;
    assert_eq!((looked, watched.block), (Looked::Through, BLOCK + 2));
    assert_eq!((yard.fired(KEY), yard.fired(OTHER)), (0, 1));
}

#[tokio::test]
async fn a_node_that_gives_no_logs_at_all_is_asked_again_for_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (yard, mut watched) = waiting(&dir, &[(KEY, HERE)], 1).await;
    let (mut width, before) = (LOG_RANGE_BLOCKS_MAX, watched);
    // It does not answer.
    yard.refuse();
    yard.refuse();
    assert_eq!(yard.workflows.0.watch_logs(&mut watched, &mut width).await, Looked::Refused);
    // It answers, but has no logs of the block.
    yard.refuse();
    yard.lives();
    yard.refuse();
    yard.refuse();
    yard.lives();
    yard.refuse();
    assert_eq!(yard.workflows.0.watch_logs(&mut watched, &mut width).await, Looked::Refused);
    assert_eq!((watched, width), (before, LOG_RANGE_BLOCKS_MAX));
    yard.node.push_success(&[log(HERE, BLOCK + 1, 0)]);
    assert_eq!(yard.workflows.0.watch_logs(&mut watched, &mut width).await, Looked::Through);
    assert_eq!(yard.fired(KEY), 1);
}

#[tokio::test]
async fn a_busy_contract_fires_a_workflow_so_often_at_a_time_and_others_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (yard, mut watched) = waiting(&dir, &[(KEY, HERE), (OTHER, THERE)], 2).await;
    let each = u64::try_from(WORKFLOW_LOGS_EACH_MAX).unwrap();
    let busy = |block: u64, count: u64| (0..count).map(move |index| log(HERE, block, index));
    yard.node.push_success(&busy(BLOCK + 1, each).collect::<Vec<_>>());
    yard.workflows.0.watch_logs(&mut watched, &mut 1).await;
    assert_eq!((yard.fired(KEY), yard.fired(OTHER)), (each, 0));
    let logs: Vec<Log> = busy(BLOCK + 2, each + 1).chain([log(THERE, BLOCK + 2, each + 1)]).collect();
    yard.node.push_success(&logs);
    yard.workflows.0.watch_logs(&mut watched, &mut 1).await;
    assert_eq!((yard.fired(KEY), yard.fired(OTHER)), (2 * each, 1));
}

#[tokio::test]
async fn the_longest_data_comes_whole_and_of_longer_a_run_is_told_that_it_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (yard, mut watched) = waiting(&dir, &[(KEY, HERE)], 1).await;
    let with = |index: u64, bytes: usize| {
        let mut log = log(HERE, BLOCK + 1, index);
        log.inner.data.data = vec![0xab; bytes].into();
        log
    };
    let longest = WORKFLOW_LOG_DATA_BYTES_MAX;
    yard.node.push_success(&[with(0, longest), with(1, longest + 1)]);
    yard.workflows.0.watch_logs(&mut watched, &mut 1).await;
    for (number, is_cut) in [(1, false), (2, true)] {
        let run = yard.records.run(RunKey { workflow: KEY, number }).unwrap().unwrap();
        let Value::Object(body) = run.body else { panic!("no body") };
        let Some(Value::Text(data)) = body.get("data") else { panic!("no data") };
        assert_eq!((data.len(), &body["is_data_cut"]), (2 + 2 * longest, &Value::Bool(is_cut)));
    }
}

#[tokio::test]
async fn a_sandbox_fires_however_old_its_create_is_and_one_of_a_runs_own_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let yard = Yard::new(&dir).await;
    yard.have(&steps(&[("a", &[])]), "", ("event", r#"{"event":"sandbox.gone","overlap":"queue"}"#)).await;
    let gone = |call: u64| Sandbox { phase: Phase::Gone(EndReason::Deleted), ..sandbox(call) };
    let own = Sandbox { child: Some(ChildName::parse("run-1").unwrap()), ..gone(5) };
    let mut watched = Watched { block: BLOCK + 1, event: 0 };
    yard.records.save(&own).await.unwrap();
    assert!(yard.workflows.0.watch_own(&mut watched).await);
    assert_eq!((yard.fired(KEY), watched.event), (0, 1));
    // Nothing is known of the call that made it.
    yard.records.save(&gone(6)).await.unwrap();
    assert!(yard.workflows.0.watch_own(&mut watched).await);
    assert_eq!((yard.fired(KEY), watched.event), (1, 2));
}
