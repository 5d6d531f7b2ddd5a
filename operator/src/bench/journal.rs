//! Appends to the records that were acknowledged as on disk, against one writer that appends the same bytes to a file and
//! syncs it each time. They take turns on one file system.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256};
use sandbox_protocol::{CallKey, SandboxId};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{answer, call_for_true, print};
use crate::records::{Answer, CallRecord, Progress, Records};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: `cargo xtask bench journal`"]
async fn journal() {
    let dir = on_disk();
    let (records, _guard) = Records::open(dir.path()).unwrap();
    let (mut at_64, mut at_100, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let service = round as u64;
        let found = [
            (&mut bare, synced_alone(dir.path())),
            (&mut at_64, appended(&records, 64, 2 * service).await),
            (&mut at_100, appended(&records, 100, 2 * service + 1).await),
        ];
        // The first round warms up.
        found.into_iter().filter(|_| round > 0).for_each(|(samples, per_s)| samples.push(per_s));
    }
    print("per_s_64", &at_64, &bare);
    print("per_s_100", &at_100, &bare);
}

/// A directory where the program itself is: elsewhere may be memory.
fn on_disk() -> TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

/// Acknowledged appends per second of so many writers, each on the road of one job after the other.
async fn appended(records: &Records, writers: u64, service: u64) -> f64 {
    let begun = Instant::now();
    let mut writing = JoinSet::new();
    for writer in 0..writers {
        let records = records.clone();
        writing.spawn(async move {
            let (mut appends, mut job) = (0, template());
            let answer = answer(&job);
            job.key = CallKey { service, call: writer };
            while begun.elapsed() < ROUND {
                job.key.call += writers;
                appends += road(&records, job.clone(), answer.clone()).await;
            }
            appends
        });
    }
    let appends: u32 = writing.join_all().await.into_iter().sum();
    f64::from(appends) / begun.elapsed().as_secs_f64()
}

/// What is written of a job once it is taken in; returns how often.
async fn road(records: &Records, mut call: CallRecord, answer: Answer) -> u32 {
    call.progress = Progress::Begun { block: 1_000 };
    assert!(records.put_call(&call).await.unwrap());
    call.progress = Progress::Answered(answer.clone());
    assert!(records.put_call(&call).await.unwrap());
    call.progress = Progress::Settled { answer, transaction: Some(B256::repeat_byte(0x77)) };
    assert!(records.settle(&call, Some(1_001)).await.unwrap());
    3
}

fn template() -> CallRecord {
    let sandbox = SandboxId { origin: CallKey { service: 1, call: 0 }, slot: 0 };
    call_for_true(CallKey { service: 1, call: 1 }, Address::repeat_byte(0xca), sandbox)
}

/// The baseline: records of the same length, one at a time, with nothing around them.
fn synced_alone(dir: &Path) -> f64 {
    let mut call = template();
    call.progress = Progress::Answered(answer(&call));
    let record = serde_json::to_vec(&call).unwrap();
    let mut file = File::options().create(true).append(true).open(dir.join("bare")).unwrap();
    let (begun, mut appends) = (Instant::now(), 0);
    while begun.elapsed() < ROUND {
        file.write_all(&record).unwrap();
        file.sync_data().unwrap();
        appends += 1;
    }
    f64::from(appends) / begun.elapsed().as_secs_f64()
}
