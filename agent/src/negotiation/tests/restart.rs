//! Lives of a debate: what a crash loses, and what the next life asks again.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use proptest::prelude::*;
use sandbox_protocol::agent::negotiation::{MoveReport, plan};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::super::{Call, CheckpointError, Checkpoints, Completed, FileCheckpoints, Maker, Outcome};
use super::fakes::{Hall, Kept, answered, brief, usual};
use crate::limits::NEGOTIATION_RECORD_BYTES_MAX;
use crate::model::{Ask, Message, Model, ModelError, Role, Usage};

/// A file whose process dies when so many calls are recorded. Each call is made when the one before is.
struct Mortal {
    file: FileCheckpoints,
    left: AtomicUsize,
    dies: Arc<Notify>,
    turns: Arc<Semaphore>,
}

#[async_trait]
impl Checkpoints for Mortal {
    fn load(&self) -> Vec<Completed> {
        self.file.load()
    }

    async fn record(&self, completed: &Completed) -> Result<(), CheckpointError> {
        self.file.record(completed).await?;
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 1 {
            self.dies.notify_one();
            std::future::pending::<()>().await;
        }
        self.turns.add_permits(1);
        Ok(())
    }

    async fn settle(&self) -> Result<(), CheckpointError> {
        self.file.settle().await
    }
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("move.jsonl");
    (directory, path)
}

/// A life that ends with its `last`th record. How often it asked the model.
async fn life_until(path: &Path, last: usize) -> usize {
    let (dies, turns) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(1)));
    let file = FileCheckpoints::open(path).unwrap();
    let left = AtomicUsize::new(last);
    let mut hall = Hall::new().keeping(Mortal { file, left, dies: dies.clone(), turns: turns.clone() });
    hall.model.turns = Some(turns);
    let brief = brief(10);
    tokio::select! {
        biased;
        _ = hall.debate(&brief) => panic!("it was to die"),
        () = dies.notified() => hall.asked().len(),
    }
}

async fn whole_life(path: &Path) -> (MoveReport, usize) {
    let hall = Hall::new().keeping(FileCheckpoints::open(path).unwrap());
    let report = hall.debate(&brief(10)).await;
    assert_eq!(hall.told("sandbox_round").len(), 20, "rounds are told anew");
    (report, hall.asked().len())
}

fn answer(call: Call) -> Completed {
    Completed { call, retries: 0, outcome: Outcome::Answered { text: "Words.\n".into(), usage: Usage::default() } }
}

#[tokio::test]
async fn a_crash_after_any_call_repeats_none_of_them() {
    let expected = Hall::new().debate(&brief(10)).await;
    for last in 1..=plan(10).calls as usize {
        let (_directory, path) = place();
        let before = life_until(&path, last).await;
        let (report, after) = whole_life(&path).await;
        assert_eq!(before + after, plan(10).calls as usize, "after {last}");
        assert_eq!(report, expected, "after {last}");
    }
}

#[tokio::test]
async fn a_line_that_a_crash_tore_is_cut_off_and_its_call_made_again() {
    let (_directory, path) = place();
    life_until(&path, 8).await;
    let whole = fs::read(&path).unwrap();
    assert_eq!(FileCheckpoints::open(&path).unwrap().load().len(), 8);
    let lines = whole.iter().filter(|byte| **byte == b'\n').count();
    let last_line = whole.split_inclusive(|byte| *byte == b'\n').next_back().unwrap().len();
    for kept in [whole.len() - 1, whole.len() - last_line / 2, whole.len() - last_line + 1] {
        fs::write(&path, &whole[..kept]).unwrap();
        assert_eq!(FileCheckpoints::open(&path).unwrap().load().len(), lines - 1);
        assert_eq!(fs::read(&path).unwrap(), whole[..whole.len() - last_line]);
    }
    fs::write(&path, [&whole[..whole.len() - last_line], b"\0\0\0\n", &whole[whole.len() - last_line..]].concat())
        .unwrap();
    let (_, after) = whole_life(&path).await;
    assert_eq!(after, plan(10).calls as usize - (lines - 1), "nothing behind a line that is none is read");
    assert_eq!(FileCheckpoints::open(&path).unwrap().load().len(), plan(10).calls as usize);
}

#[tokio::test]
async fn what_is_recorded_comes_back_in_its_order() {
    let (_directory, path) = place();
    let file = FileCheckpoints::open(&path).unwrap();
    let failed = Outcome::Failed { reason: "no".into() };
    let all = [
        answer(Call::Opening),
        answer(Call::Defence { round: 1, maker: Maker::D1 }),
        Completed { call: Call::Critique { round: 2, maker: Maker::D2 }, retries: 3, outcome: failed },
        answer(Call::Summary { maker: Maker::D3, through: 4 }),
        answer(Call::Scoring { maker: Maker::D3 }),
    ];
    for one in &all {
        file.record(one).await.unwrap();
    }
    file.settle().await.unwrap();
    assert_eq!(FileCheckpoints::open(&path).unwrap().load(), all);
    let first = fs::read_to_string(&path).unwrap().lines().next().unwrap().to_owned();
    let expected =
        r#"{"call":"opening","retries":0,"answered":{"text":"Words.\n","usage":{"input_tokens":0,"output_tokens":0}}}"#;
    assert_eq!(first, expected);
}

#[test]
fn a_record_is_its_customers_alone_and_has_a_bound() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, path) = place();
    FileCheckpoints::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(NEGOTIATION_RECORD_BYTES_MAX + 1).unwrap();
    let refused = FileCheckpoints::open(&path).unwrap_err();
    assert!(matches!(refused, CheckpointError::TooLong { .. }), "{refused}");
    file.set_len(NEGOTIATION_RECORD_BYTES_MAX).unwrap();
    assert!(FileCheckpoints::open(&path).unwrap().load().is_empty());
    let nowhere = FileCheckpoints::open(&path.join("below")).unwrap_err();
    assert!(matches!(nowhere, CheckpointError::Open(_)), "{nowhere}");
}

#[tokio::test]
async fn a_failed_call_is_not_asked_for_again_in_the_next_life() {
    let (_directory, path) = place();
    let failing = || {
        Hall::with(|asked| match asked.label.as_str() {
            "critique D2 3" => Err(ModelError::Failed { status: 500 }),
            label => Ok(answered(&usual(label))),
        })
    };
    let first = failing().keeping(FileCheckpoints::open(&path).unwrap()).debate(&brief(10)).await;
    let hall = Hall::new().keeping(FileCheckpoints::open(&path).unwrap());
    assert_eq!(hall.debate(&brief(10)).await, first);
    assert!(hall.asked().is_empty());
}

/// A life behind these records, whose model fails in the calls of these labels. Its report, and all that is recorded then.
fn life_after(former: &[Completed], failing: Vec<String>, narrow: bool) -> (MoveReport, Vec<Completed>) {
    let recorded = Arc::new(Mutex::new(former.to_vec()));
    let mut hall = Hall::with(move |asked| match failing.contains(&asked.label) {
        true => Err(ModelError::Failed { status: 500 }),
        false => Ok(answered(&usual(&asked.label).repeat(if asked.label.starts_with("scoring") { 1 } else { 20 }))),
    });
    hall = hall.keeping(Kept { former: former.to_vec(), recorded: recorded.clone(), fails: false });
    hall.context_tokens = narrow.then_some(3_200);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let report = runtime.block_on(hall.debate(&brief(10)));
    let recorded = recorded.lock().unwrap().clone();
    (report, recorded)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_fails_and_wherever_it_crashes_the_report_is_the_same(
        failing in prop::collection::vec("opening|(critique|defence) D[123] [1-9]|scoring D[123]|summary [3-7]", 0..3),
        narrow: bool,
        crash in 0..200_usize,
    ) {
        let (report, recorded) = life_after(&[], failing.clone(), narrow);
        let (after, again) = life_after(&recorded[..crash.min(recorded.len())], failing, narrow);
        prop_assert_eq!(&after, &report);
        prop_assert_eq!(again.len(), recorded.len(), "a call was made twice");
        prop_assert!((12..=120).contains(&report.score.total_score));
        prop_assert!(report.ledger.logical_calls <= plan(10).calls && report.rounds <= 10);
        prop_assert!(report.error.is_some() || narrow == (report.ledger.summaries > 0));
        prop_assert_eq!(report.error.is_none(), report.ledger.failed_calls == 0);
        prop_assert!(report.logs.all().iter().all(|log| (2 * report.rounds as usize..=20).contains(&log.len())));
    }
}

#[tokio::test(start_paused = true)]
async fn a_debate_that_ran_out_of_time_is_not_taken_up_behind_its_scores() {
    let (_directory, path) = place();
    let mut hall = Hall::new().slow(Duration::from_secs(1)).keeping(FileCheckpoints::open(&path).unwrap());
    hall.deadline = Some(Instant::now() + Duration::from_millis(7_500));
    let first = hall.debate(&brief(10)).await;
    assert_eq!(first.score.total_score, 98);
    let hall = Hall::new().keeping(FileCheckpoints::open(&path).unwrap());
    assert_eq!(hall.debate(&brief(10)).await, first);
    assert!(hall.asked().is_empty());
}

#[tokio::test]
#[ignore = "a measurement: run it alone"]
async fn overhead_of_a_move_of_ten_rounds() {
    let (delay, stages) = (Duration::from_millis(100), plan(10).stages);
    for _ in 0..5 {
        let (_directory, path) = place();
        let on_disk = Hall::new().slow(delay).keeping(FileCheckpoints::open(&path).unwrap());
        let mut overhead_ms = Vec::new();
        for hall in [on_disk, Hall::new().slow(delay)] {
            let begun = Instant::now();
            let report = hall.debate(&brief(10)).await;
            overhead_ms.push((begun.elapsed() - delay * stages).as_secs_f64() * 1e3);
            assert_eq!(report.ledger.logical_calls, 61);
        }
        let (hall, begun) = (Hall::new().slow(delay), Instant::now());
        for _ in 0..stages {
            let ask = Ask { messages: vec![Message::new(Role::User, ""); 2], ..Ask::default() };
            hall.model.answer(&ask, &mut |_| ()).await.unwrap();
        }
        let clock_ms = (begun.elapsed() - delay * stages).as_secs_f64() * 1e3;
        let [on_disk, in_memory] = overhead_ms[..] else { panic!("two debates") };
        println!("overhead_ms {on_disk:.1}, without a disk {in_memory:.1}, of the model's own clock {clock_ms:.1}");
    }
}
