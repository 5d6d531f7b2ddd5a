//! The records as their users see them, over restarts and failing disks.

use std::process::Command;
use std::time::Duration;

use alloy::primitives::{Address, B256, Signature, U256};
use sandbox_fleet::fakes::ssh_key;
use sandbox_fleet::keys::{SshKey, SshKeys};
use sandbox_fleet::request::{AgentChoice, Resources, SandboxSpec, SnapshotUri};
use sandbox_fleet::sandbox::{EndReason, Instance, Phase, Rest, SidecarToken, StopReason};
use sandbox_protocol::Failure;
use sandbox_protocol::receipt::{SandboxReceipt, SignedReceipt};
use tokio::time::timeout;

use super::*;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn call(call: u64) -> CallRecord {
    CallRecord::seen(CallKey { service: 1, call }, 0, [1; 20].into(), vec![1, 2].into(), 5)
}

fn dropped(number: u64) -> CallRecord {
    CallRecord { progress: Progress::Dropped { reason: "answered by another".into() }, ..call(number) }
}

pub(super) fn answer(response: Vec<u8>) -> Answer {
    let receipt = SandboxReceipt {
        service: 1,
        call: 2,
        job: 10,
        operator: Address::repeat_byte(3),
        caller: Address::repeat_byte(1),
        inputs_hash: B256::repeat_byte(4),
        response_hash: B256::repeat_byte(5),
        outcome: 1,
        detail: U256::from(6),
        failure: "timeout".into(),
        runtime: "runc".into(),
        image_digest: "sha256:00".into(),
        started_block: 7,
        ended_block: 8,
        duration_ms: 9,
    };
    let signature = Signature::new(U256::from(10), U256::from(11), true);
    let receipt = SignedReceipt { chain_id: 31_337, core: Address::repeat_byte(12), receipt, signature };
    Answer { response: response.into(), failure: Some(FailureCode::Timeout), receipt }
}

#[test]
fn a_call_is_over_from_its_answer_on_and_when_it_is_dropped() {
    let is_over = |progress| CallRecord { progress, ..call(1) }.is_over();
    assert!(!is_over(Progress::Seen) && !is_over(Progress::Begun { block: 5 }));
    assert!(is_over(Progress::Answered(answer(vec![1]))) && dropped(1).is_over());
}

/// Checks the stored form of a value, and that it is read back. Where it must change, so must `VERSION`.
fn check_layout<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, expected: &str) {
    let stored = encode(value).unwrap();
    assert_eq!(String::from_utf8(stored.clone()).unwrap().replace(",\"", ",\n\""), expected);
    assert_eq!(&decode::<T>(&stored).unwrap(), value);
}

#[tokio::test]
async fn calls_and_the_cursor_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (records, _guard) = Records::open(dir.path()).unwrap();
        records.take_in(&[call(1), call(2)], 9).await.unwrap();
        let mut begun = call(1);
        begun.progress = Progress::Begun { block: 7 };
        records.put_call(&begun).await.unwrap();
    }
    let (records, _guard) = Records::open(dir.path()).unwrap();
    assert_eq!(records.cursor().unwrap(), Some(9));
    let open: Vec<_> = records.open_calls().unwrap().into_iter().map(|call| call.key.call).collect();
    assert_eq!(open, [1, 2]);
    assert!(matches!(records.call(call(1).key).unwrap().unwrap().progress, Progress::Begun { block: 7 }));
}

#[tokio::test]
async fn a_call_seen_again_keeps_its_progress() {
    let dir = tempfile::tempdir().unwrap();
    let (records, _guard) = Records::open(dir.path()).unwrap();
    let settled = CallRecord { progress: Progress::Settled { answer: answer(vec![1]), transaction: None }, ..call(1) };
    records.put_call(&settled).await.unwrap();
    records.take_in(&[call(1)], 3).await.unwrap();
    assert_eq!(records.call(settled.key).unwrap(), Some(settled));
    assert_eq!(records.open_calls().unwrap(), []);
}

#[test]
fn a_second_process_on_the_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Records::open(dir.path()).unwrap();
    assert!(matches!(Records::open(dir.path()).err(), Some(RecordsError::InUse { .. })));
}

#[tokio::test]
async fn an_answer_of_any_length_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut long = call(1);
    long.progress = Progress::Answered(answer(vec![7; 2 * 1024 * 1024]));
    {
        let (records, _guard) = Records::open(dir.path()).unwrap();
        records.put_call(&long).await.unwrap();
    }
    let (records, _guard) = Records::open(dir.path()).unwrap();
    assert_eq!(records.call_on_disk(long.key).await.unwrap(), Some(long));
}

#[tokio::test]
async fn a_bad_record_hides_no_other_open_call() {
    let dir = tempfile::tempdir().unwrap();
    let (records, _guard) = Records::open(dir.path()).unwrap();
    records.take_in(&[call(1), call(2), call(3)], 9).await.unwrap();
    records.tree.insert(indexed(CALLS, call(1).key), "garbage").unwrap();
    records.tree.remove(indexed(CALLS, call(2).key)).unwrap();
    assert_eq!(records.open_calls().unwrap(), [call(3)]);
}

#[tokio::test]
async fn nothing_is_told_of_a_call_while_it_is_being_written() {
    let dir = tempfile::tempdir().unwrap();
    let (records, _guard) = Records::open(dir.path()).unwrap();
    records.put_call(&call(1)).await.unwrap();
    records.changes.begin(&[call(1).key]);
    let mut told = std::pin::pin!(records.call_on_disk(call(1).key));
    assert!(futures::poll!(told.as_mut()).is_pending());
    records.changes.end(&[call(1).key]);
    assert_eq!(told.await.unwrap(), Some(call(1)));
}

#[tokio::test]
async fn the_oldest_calls_at_their_end_go_and_the_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let kept = async |records: &Records| {
        let kept = (1..=8).filter(|number| records.call(call(*number).key).unwrap().is_some());
        kept.collect::<Vec<_>>()
    };
    {
        let (records, _guard) = Records::open_keeping(dir.path(), (2, EVENTS_MAX, ENDED_SANDBOXES_MAX)).unwrap();
        records.take_in(&[call(1)], 1).await.unwrap();
        // Their blocks fall as their numbers rise.
        for number in 2..=6 {
            records.put_call(&CallRecord { block: 100 - number, ..dropped(number) }).await.unwrap();
        }
        records.put_call(&CallRecord { block: 94, ..dropped(6) }).await.unwrap();
        assert_eq!(kept(&records).await, [1, 2, 3, 4, 5, 6]);
        records.take_in(&[call(7)], 2).await.unwrap();
        assert_eq!(kept(&records).await, [1, 2, 3, 7]);
    }
    let (records, _guard) = Records::open_keeping(dir.path(), (1, EVENTS_MAX, ENDED_SANDBOXES_MAX)).unwrap();
    records.take_in(&[], 3).await.unwrap();
    assert_eq!(kept(&records).await, [1, 2, 7], "what there is was counted at the start");
    records.take_in(&[], 4).await.unwrap();
    assert_eq!(kept(&records).await, [1, 2, 7]);
}

#[tokio::test]
async fn calls_go_in_small_steps() {
    let dir = tempfile::tempdir().unwrap();
    let (records, _guard) = Records::open_keeping(dir.path(), (0, EVENTS_MAX, ENDED_SANDBOXES_MAX)).unwrap();
    let count = PRUNE_STEP_MAX as u64 + 1;
    let all: Vec<_> = (0..count).map(dropped).collect();
    records.take_in(&all, 1).await.unwrap();
    let left = || all.iter().filter(|call| records.call(call.key).unwrap().is_some()).count();
    records.take_in(&[], 2).await.unwrap();
    assert_eq!(left(), 1);
    records.take_in(&[], 3).await.unwrap();
    assert_eq!(left(), 0);
}

#[tokio::test]
async fn a_store_that_failed_says_so_and_takes_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let (records, guard) = Records::open(dir.path()).unwrap();
    records.put_call(&call(1)).await.unwrap();
    assert!(!records.failed().is_cancelled());
    // Where pages too long for the log go.
    std::fs::remove_dir(dir.path().join("records/blobs")).unwrap();
    let mut long = call(1);
    long.progress = Progress::Answered(answer(vec![7; 300_000]));
    let failed = timeout(PATIENCE, records.put_call(&long)).await.unwrap();
    assert!(matches!(failed, Err(RecordsError::Commit(_))), "{failed:?}");
    assert!(records.failed().is_cancelled());
    let told = timeout(PATIENCE, records.call_on_disk(long.key)).await.unwrap();
    assert!(matches!(told, Err(RecordsError::Failed)), "an answer that is not on disk is not told: {told:?}");
    let refused = timeout(PATIENCE, records.put_call(&call(2))).await.unwrap();
    assert!(matches!(refused, Err(RecordsError::Stopped)), "{refused:?}");
    let ended = tokio::task::spawn_blocking(move || drop((records, guard)));
    timeout(PATIENCE, ended).await.expect("the store does not close").unwrap();
}

#[tokio::test]
async fn a_disk_full_of_long_pages_ends_the_store_and_the_next_start_has_all_that_was_confirmed() {
    fill_a_disk(40_000).await;
}

#[tokio::test]
async fn a_disk_full_of_log_ends_the_store_and_the_next_start_has_all_that_was_confirmed() {
    fill_a_disk(100).await;
}

async fn fill_a_disk(response_bytes: usize) {
    let dir = SmallDisk::new();
    let (records, guard) = Records::open(dir.path()).unwrap();
    let mut confirmed = Vec::new();
    while !records.failed().is_cancelled() {
        let number = confirmed.len() as u64;
        let progress = Progress::Answered(answer(vec![7; response_bytes]));
        let call = CallRecord { progress, ..call(number) };
        match timeout(PATIENCE, records.put_call(&call)).await.expect("the store hangs") {
            Ok(_) => confirmed.push(call),
            // The store's own threads may find the disk full before a write does; then it reads nothing either.
            Err(error) => assert!(matches!(error, RecordsError::Commit(_) | RecordsError::Read(_)), "{error:?}"),
        }
    }
    assert!(!confirmed.is_empty());
    let ended = tokio::task::spawn_blocking(move || drop((records, guard)));
    timeout(PATIENCE, ended).await.expect("the store does not close").unwrap();

    dir.grow();
    // A process of its own would be next; in this one the store that failed keeps its lock, so it is copied.
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(dir.path().join("records")).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    let (records, _guard) = Records::open(copy.path()).unwrap();
    for call in confirmed {
        assert!(records.call(call.key).unwrap() == Some(call));
    }
}

/// A file system that fills up soon.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(dir.path()).status();
        assert!(mounted.unwrap().success(), "cannot mount a small file system; this test needs root");
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn grow(&self) {
        let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(self.path()).status();
        assert!(grown.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("clean-up: {} is still mounted", self.path().display());
        }
    }
}

#[test]
fn the_layout_of_a_call_is_that_of_version_3() {
    assert_eq!(VERSION, 3);
    let settled = Progress::Settled { answer: answer(vec![1, 2]), transaction: Some(B256::repeat_byte(13)) };
    check_layout(&CallRecord { progress: settled, ..call(2) }, SETTLED_CALL);
    check_layout(&Progress::Seen, r#""seen""#);
    check_layout(&Progress::Begun { block: 1 }, r#"{"begun":{"block":1}}"#);
    let refused =
        serde_json::to_value(Progress::Refused { answer: answer(vec![1, 2]), reason: "late".into() }).unwrap();
    assert_eq!((&refused["refused"]["reason"], refused["refused"]["answer"].is_object()), (&"late".into(), true));
    check_layout(&Progress::Dropped { reason: "late".into() }, r#"{"dropped":{"reason":"late"}}"#);
}

pub(super) fn running_sandbox() -> Sandbox {
    let token = SidecarToken::new(B256::repeat_byte(5));
    let instance =
        Instance { runtime: "runc".into(), image_digest: "sha256:00".into(), vessel: "sbx-1-2-3-x".into(), token };
    let place = |text| SnapshotUri::parse("", text).unwrap();
    Sandbox {
        id: SandboxId { origin: CallKey { service: 1, call: 2 }, slot: 3 },
        owner: Address::repeat_byte(1),
        spec: SandboxSpec {
            resources: Resources { cpu_cores: 1, memory_mb: 2, disk_gb: 3 },
            image: "image".into(),
            env: [("A".to_owned(), "b".to_owned())].into(),
            runtime: Some("runsc".into()),
            idle_timeout_s: Some(6),
            snapshot: place("s3://a/b"),
            snapshot_destination: place("s3://c/d"),
            egress: "e".into(),
            name: "n".into(),
            labels: [("k".to_owned(), "v".to_owned())].into(),
            agent: AgentChoice { backend: "native".into(), profile: "p".into() },
        },
        expires_at_block: Some(4),
        warned: true,
        child: None,
        ssh_keys: SshKeys::default(),
        keys_call: None,
        phase: Phase::Running(instance),
    }
}

#[test]
fn a_sandbox_of_version_1_is_read_by_what_it_has() {
    let old: Sandbox = decode(OLD_SANDBOX.replace('\n', "").as_bytes()).unwrap();
    let new = running_sandbox();
    assert_eq!((old.id, old.owner, old.spec.image, old.expires_at_block), (new.id, new.owner, new.spec.image, Some(4)));
    assert_eq!((old.spec.idle_timeout_s, old.spec.egress.as_str(), old.warned), (None, "", false));
    let Phase::Running(instance) = old.phase else { panic!("it ran") };
    assert_eq!((instance.vessel.as_str(), instance.token), ("", SidecarToken::default()));
}

#[test]
fn the_layout_of_a_sandbox_is_that_of_version_3() {
    assert_eq!(VERSION, 3);
    check_layout(&running_sandbox(), RUNNING_SANDBOX);
    let rest = Rest { instance: Instance::default(), reason: StopReason::Idle, failed_resumes: 1, failure: None };
    check_layout(&Phase::Stopped(rest), STOPPED);
    check_layout(&Phase::Requested, r#""requested""#);
    let (key, admitted_by) = (ssh_key(1), Address::repeat_byte(1));
    check_layout(&SshKeys::of(SshKey { key, expires_at_block: Some(7), admitted_by }), SSH_KEYS);
    check_layout(&Phase::Provisioning, r#""provisioning""#);
    check_layout(&Phase::Deleting(EndReason::Deleted), r#"{"deleting":"deleted"}"#);
    check_layout(&Phase::Gone(EndReason::Expired), r#"{"gone":"expired"}"#);
    let failure = Failure::new(FailureCode::Engine, "no engine");
    check_layout(
        &Phase::Discarding(failure.clone()),
        "{\"discarding\":{\"code\":\"engine\",\n\"message\":\"no engine\"}}",
    );
    check_layout(&Phase::Failed(failure), "{\"failed\":{\"code\":\"engine\",\n\"message\":\"no engine\"}}");
}

const SSH_KEYS: &str = r#"[{"key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB",
"expires_at_block":7,
"admitted_by":"0x0101010101010101010101010101010101010101"}]"#;

pub(super) const SETTLED_CALL: &str = r#"{"key":{"service":1,
"call":2},
"job":0,
"caller":"0x0101010101010101010101010101010101010101",
"inputs":"0x0102",
"inputs_hash":"0x22ae6da6b482f9b1b19b0b897c3fd43884180a1c5ee361e1107a1bc635649dda",
"block":5,
"progress":{"settled":{"answer":{"response":"0x0102",
"failure":"timeout",
"receipt":{"chain_id":31337,
"core":"0x0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c",
"receipt":{"service":1,
"call":2,
"job":10,
"operator":"0x0303030303030303030303030303030303030303",
"caller":"0x0101010101010101010101010101010101010101",
"inputs_hash":"0x0404040404040404040404040404040404040404040404040404040404040404",
"response_hash":"0x0505050505050505050505050505050505050505050505050505050505050505",
"outcome":1,
"detail":"0x6",
"failure":"timeout",
"runtime":"runc",
"image_digest":"sha256:00",
"started_block":7,
"ended_block":8,
"duration_ms":9},
"signature":{"r":"0xa",
"s":"0xb",
"yParity":"0x1",
"v":"0x1"}}},
"transaction":"0x0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d"}}}"#;

pub(super) const OLD_SANDBOX: &str = r#"{"id":"sbx-1-2-3",
"owner":"0x0101010101010101010101010101010101010101",
"spec":{"resources":{"cpu_cores":1,
"memory_mb":2,
"disk_gb":3},
"image":"image",
"env":{"A":"b"}},
"expires_at_block":4,
"token":"0x0505050505050505050505050505050505050505050505050505050505050505",
"phase":{"running":{"runtime":"runc",
"image_digest":"sha256:00"}}}"#;

const RUNNING_SANDBOX: &str = r#"{"id":"sbx-1-2-3",
"owner":"0x0101010101010101010101010101010101010101",
"spec":{"resources":{"cpu_cores":1,
"memory_mb":2,
"disk_gb":3},
"image":"image",
"env":{"A":"b"},
"runtime":"runsc",
"idle_timeout_s":6,
"snapshot":"s3://a/b",
"snapshot_destination":"s3://c/d",
"egress":"e",
"name":"n",
"labels":{"k":"v"},
"agent":{"backend":"native",
"profile":"p"}},
"expires_at_block":4,
"warned":true,
"phase":{"running":{"runtime":"runc",
"image_digest":"sha256:00",
"vessel":"sbx-1-2-3-x",
"token":"0x0505050505050505050505050505050505050505050505050505050505050505"}}}"#;

const STOPPED: &str = r#"{"stopped":{"instance":{"runtime":"",
"image_digest":"",
"vessel":"",
"token":"0x0000000000000000000000000000000000000000000000000000000000000000"},
"reason":"idle",
"failed_resumes":1,
"failure":null}}"#;

#[tokio::test]
async fn a_call_stays_in_the_indexes_while_it_is_open_and_comes_back_into_them_when_it_is_open_again() {
    let dir = tempfile::tempdir().unwrap();
    let (records, _guard) = Records::open(dir.path()).unwrap();
    let step = |progress: Progress| CallRecord { progress, ..call(1) };
    let answer = answer(vec![1]);
    let is_open = || records.open_calls().unwrap().len() == 1;
    for progress in [Progress::Seen, Progress::Begun { block: 6 }, Progress::Answered(answer.clone())] {
        records.put_call(&step(progress)).await.unwrap();
        assert!(is_open());
    }
    records.settle(&step(Progress::Settled { answer: answer.clone(), transaction: None }), Some(7)).await.unwrap();
    assert!(!is_open());
    records.unsettle(call(1).key).await.unwrap();
    records.put_call(&step(Progress::Answered(answer))).await.unwrap();
    assert!(is_open());
    assert_eq!(records.calls_of(call(1).caller, None, 9).unwrap().len(), 1);
}

#[tokio::test]
async fn a_call_that_is_put_while_its_end_is_on_the_way_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let (records, _guard) = Records::open(dir.path()).unwrap();
    records.put_call(&call(1)).await.unwrap();
    let (end, begun) = (dropped(1), call(1));
    let (ended, put) = tokio::join!(records.put_call(&end), records.put_call(&begun));
    assert!(ended.unwrap() && put.unwrap());
    assert_eq!(records.open_calls().unwrap(), [call(1)]);
}
