//! What the chain does not know of workflows: their runs, how far each was fired, what names a firing, texts that were checked.
//!
//! A firing is one write: the run, its place among those to be carried out, the number of the next, and what keeps it from being
//! fired again. So whatever names a firing, an instant or a delivery, fires once, over however many lives. What lists have of a run
//! stands beside it, so nobody reads what came of all steps to tell that it has ended.

use alloy::primitives::{B256, keccak256};
use sandbox_fleet::sandbox::Sandbox;
use sandbox_fleet::workflow::{RunState, Value};
use sandbox_protocol::CallKey;
use sandbox_protocol::workflow::{RunEntry, RunStatus};
use serde::{Deserialize, Serialize};

use super::firings::{FIRINGS, NAMES, Names};
use super::moves::MOVES;
use super::writer::Write;
use super::{Records, RecordsError, indexed};
use crate::limits::WORKFLOW_RUNS_KEPT_MAX;

/// How far each workflow is.
const STANDINGS: &[u8] = b"workflow/";
/// Texts of workflows, by the hash on chain.
pub(super) const TEXTS: &[u8] = b"workflow_text/";
/// Runs, with what came of their steps.
pub(super) const RUNS: &[u8] = b"workflow_run/";
/// What lists have of the runs.
pub(super) const RUN_ENTRIES: &[u8] = b"workflow_run_entry/";
/// Index of the runs that are not over.
const OPEN_RUNS: &[u8] = b"workflow_open/";
/// Secrets of webhooks.
pub(super) const SECRETS: &[u8] = b"workflow_secret/";
/// What the names of runs' own sandboxes are, before their numbers, and those of their negotiations begin with.
const RUN_CHILD: &str = "run-";
/// How far events that fire were looked at.
const WATCHED_KEY: &[u8] = b"workflow_watched";
/// Set once every run has an entry and every name a number.
const INDEXED_KEY: &[u8] = b"workflows_indexed";

/// A run of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunKey {
    /// Call that created the workflow.
    pub(crate) workflow: CallKey,
    /// From 1 on.
    pub(crate) number: u64,
}

/// How far a workflow is at this operator.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// The epoch in which it was last fired or entered.
    pub(crate) epoch: u16,
    /// Number of the last run.
    pub(crate) last_run: u64,
    /// The last instant of the clock that was fired, in seconds since 1970.
    pub(crate) last_slot_s: Option<i64>,
    /// Instants before this one are nobody's to fire, in seconds since 1970.
    pub(crate) since_s: i64,
    /// Logs of blocks up to this one are nobody's to fire for.
    pub(crate) since_block: u64,
    /// When it was last fired otherwise than by job 31, in seconds since 1970.
    pub(crate) fired_s: u64,
    /// The last of these that is on chain.
    pub(crate) reported_s: u64,
    /// Its owner wanted nothing fired when it was last looked at.
    pub(crate) is_paused: bool,
}

/// A run as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// What lists have of it.
    pub(crate) entry: RunEntry,
    /// The epoch in which it was fired.
    pub(crate) epoch: u16,
    /// What the trigger brought.
    pub(crate) body: Value,
    /// Its steps, once it was begun.
    pub(crate) state: Option<RunState>,
}

/// The text of a workflow, checked against its hash, with what was sealed opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkflowText {
    pub(crate) name: String,
    pub(crate) workflow_json: String,
    pub(crate) sandbox_config_json: String,
}

/// How far events that fire were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// First block whose logs were not looked at.
    pub(crate) block: u64,
    /// Last of the operator's own events that was.
    pub(crate) event: u64,
}

/// What is written with a firing.
pub(crate) struct Firing<'a> {
    pub(crate) key: RunKey,
    pub(crate) run: &'a RunRecord,
    pub(crate) standing: &'a Standing,
    /// What names it; of an instant its standing knows.
    pub(crate) names: &'a Names,
}

impl RunKey {
    /// What its own sandbox is called among the workflow's.
    pub(crate) fn child_name(self) -> String {
        format!("{RUN_CHILD}{}", self.number)
    }

    /// Whether a sandbox is its own.
    pub(crate) fn is_own(self, sandbox: &Sandbox) -> bool {
        let is_so_called = sandbox.child.as_ref().is_some_and(|name| name.to_string() == self.child_name());
        sandbox.id.origin == self.workflow && is_so_called
    }

    /// What the names of sandboxes begin with that a negotiation makes which is an attempt of the run's, of this name.
    pub(crate) fn scope(self, attempt: &str) -> String {
        format!("{}-{}", self.child_name(), hex::encode(&keccak256(attempt)[..8]))
    }

    /// Tells the moves of such a negotiation from others of the workflow; those of a run begin alike.
    pub(crate) fn moves(self, attempt: &str) -> B256 {
        let mut place = keccak256(attempt);
        place[..size_of::<u64>()].copy_from_slice(&self.number.to_be_bytes());
        place
    }

    /// The run that a sandbox was made for, its own or one of its steps'; of one that was made for something else, nothing.
    pub(crate) fn of_child(sandbox: &Sandbox) -> Option<Self> {
        let name = sandbox.child.as_ref()?.to_string();
        let number = name.strip_prefix(RUN_CHILD)?.split('-').next()?.parse().ok()?;
        Some(Self { workflow: sandbox.id.origin, number })
    }

    fn bytes(self, kind: &[u8]) -> Vec<u8> {
        [indexed(kind, self.workflow).as_slice(), &self.number.to_be_bytes()].concat()
    }

    fn of(kind: &[u8], key: &[u8]) -> Option<Self> {
        Some(Self { workflow: workflow_in(kind, key)?, number: number_in(kind, key, 2)? })
    }
}

impl Records {
    /// How far a workflow is here.
    pub(crate) fn workflow_standing(&self, workflow: CallKey) -> Result<Option<Standing>, RecordsError> {
        self.read(&indexed(STANDINGS, workflow))
    }

    /// Writes down how far a workflow is.
    pub(crate) async fn put_workflow_standing(
        &self,
        workflow: CallKey,
        standing: &Standing,
    ) -> Result<(), RecordsError> {
        self.put_value("a workflow", indexed(STANDINGS, workflow), standing).await
    }

    /// The text of a workflow, if it was checked before.
    pub(crate) fn workflow_text(&self, workflow: CallKey, hash: B256) -> Result<Option<WorkflowText>, RecordsError> {
        self.read(&text_key(workflow, hash))
    }

    /// Keeps the text of a workflow.
    pub(crate) async fn put_workflow_text(
        &self,
        workflow: CallKey,
        hash: B256,
        text: &WorkflowText,
    ) -> Result<(), RecordsError> {
        self.put_value("a workflow's text", text_key(workflow, hash), text).await
    }

    /// The secret of a workflow's webhook.
    pub(crate) fn workflow_secret(&self, workflow: CallKey) -> Result<Option<String>, RecordsError> {
        self.read(&indexed(SECRETS, workflow))
    }

    /// Replaces it.
    pub(crate) async fn put_workflow_secret(&self, workflow: CallKey, secret: &str) -> Result<(), RecordsError> {
        self.put_value("a secret", indexed(SECRETS, workflow), &secret).await
    }

    /// How far events were looked at.
    pub(crate) fn watched(&self) -> Result<Option<Watched>, RecordsError> {
        self.read(WATCHED_KEY)
    }

    /// Writes down how far.
    pub(crate) async fn put_watched(&self, watched: Watched) -> Result<(), RecordsError> {
        self.put_value("events that fire", WATCHED_KEY.to_vec(), &watched).await
    }

    /// Writes a firing, and takes the oldest of the workflow's runs out beyond those that are kept.
    pub(crate) async fn fire(&self, firing: Firing<'_>) -> Result<(), RecordsError> {
        let Firing { key, run, standing, names } = firing;
        let mut write = Write { what: "a firing", ..Write::default() };
        self.enter_run(&mut write, key, run)?;
        let standing_key = indexed(STANDINGS, key.workflow);
        let value = self.encode(&standing_key, standing)?;
        write.batch.insert(standing_key, value);
        self.enter_names(&mut write, key, names)?;
        self.prune_runs(&mut write, key)?;
        self.writer.write(write).await
    }

    /// Replaces what is known of a run.
    pub(crate) async fn put_run(&self, key: RunKey, run: &RunRecord) -> Result<(), RecordsError> {
        let mut write = Write { what: "a run", ..Write::default() };
        self.enter_run(&mut write, key, run)?;
        self.writer.write(write).await
    }

    /// A run.
    pub(crate) fn run(&self, key: RunKey) -> Result<Option<RunRecord>, RecordsError> {
        self.read(&key.bytes(RUNS))
    }

    /// What lists have of a run.
    pub(crate) fn run_entry(&self, key: RunKey) -> Result<Option<RunEntry>, RecordsError> {
        self.read(&key.bytes(RUN_ENTRIES))
    }

    /// A few of a workflow's runs before `before`, the newest first.
    pub(crate) fn runs(&self, workflow: CallKey, before: u64, count: usize) -> Result<Vec<RunEntry>, RecordsError> {
        let end = RunKey { workflow, number: before }.bytes(RUN_ENTRIES);
        let found = self.tree.range(indexed(RUN_ENTRIES, workflow)..end).rev().take(count);
        found.map(|entry| self.decode(entry)).collect()
    }

    /// The runs that are not over, in their order.
    pub(crate) fn open_runs(&self) -> Result<Vec<RunKey>, RecordsError> {
        let keys = self.tree.scan_prefix(OPEN_RUNS).keys();
        let found = keys.map(|key| Ok(RunKey::of(OPEN_RUNS, &key.map_err(RecordsError::Read)?)));
        Ok(found.collect::<Result<Vec<_>, RecordsError>>()?.into_iter().flatten().collect())
    }

    /// Writes down how far many workflows are.
    pub(crate) async fn put_workflow_standings(&self, standings: &[(CallKey, Standing)]) -> Result<(), RecordsError> {
        let mut write = Write { what: "workflows", ..Write::default() };
        for (workflow, standing) in standings {
            let key = indexed(STANDINGS, *workflow);
            let value = self.encode(&key, standing)?;
            write.batch.insert(key, value);
        }
        self.writer.write(write).await
    }

    /// Whether runs of a workflow are not over.
    pub(crate) fn has_open_runs(&self, workflow: CallKey) -> Result<bool, RecordsError> {
        let first = self.tree.scan_prefix(indexed(OPEN_RUNS, workflow)).keys().next();
        first.transpose().map(|found| found.is_some()).map_err(RecordsError::Read)
    }

    /// Every workflow of which it is known how far it is.
    pub(crate) fn known_workflows(&self) -> Result<Vec<CallKey>, RecordsError> {
        let keys = self.tree.scan_prefix(STANDINGS).keys();
        let found = keys.map(|key| Ok(workflow_in(STANDINGS, &key.map_err(RecordsError::Read)?)));
        Ok(found.collect::<Result<Vec<_>, RecordsError>>()?.into_iter().flatten().collect())
    }

    /// Forgets a workflow that is over, with its history.
    pub(crate) async fn forget_workflow(&self, workflow: CallKey) -> Result<(), RecordsError> {
        let mut write = Write { what: "a workflow's end", ..Write::default() };
        for kind in [STANDINGS, TEXTS, SECRETS, RUNS, RUN_ENTRIES, FIRINGS, NAMES, MOVES] {
            for key in self.tree.scan_prefix(indexed(kind, workflow)).keys() {
                write.batch.remove(key.map_err(RecordsError::Read)?);
            }
        }
        self.writer.write(write).await
    }

    /// Whether a run is known and not over.
    pub(crate) fn is_open_run(&self, key: RunKey) -> Result<bool, RecordsError> {
        self.tree.contains_key(key.bytes(OPEN_RUNS)).map_err(RecordsError::Read)
    }

    /// Forgets the moves of negotiations that were an attempt of a run's, of this name, or any.
    pub(crate) async fn forget_moves(&self, run: RunKey, attempt: Option<&str>) -> Result<(), RecordsError> {
        let mut write = Write { what: "a negotiation's end", ..Write::default() };
        let moves = attempt.map_or_else(|| run.number.to_be_bytes().to_vec(), |attempt| run.moves(attempt).to_vec());
        self.remove_moves_of(&mut write, &[indexed(&[], run.workflow), moves].concat())?;
        self.writer.write(write).await
    }

    async fn put_value(&self, what: &'static str, key: Vec<u8>, value: &impl Serialize) -> Result<(), RecordsError> {
        let mut write = Write { what, ..Write::default() };
        let value = self.encode(&key, value)?;
        write.batch.insert(key, value);
        self.writer.write(write).await
    }

    fn enter_run(&self, write: &mut Write, key: RunKey, run: &RunRecord) -> Result<(), RecordsError> {
        let run_key = key.bytes(RUNS);
        let value = self.encode(&run_key, run)?;
        write.batch.insert(run_key, value);
        let entry_key = key.bytes(RUN_ENTRIES);
        let value = self.encode(&entry_key, &run.entry)?;
        write.batch.insert(entry_key, value);
        match run.entry.status {
            RunStatus::Queued | RunStatus::Running => write.batch.insert(key.bytes(OPEN_RUNS), &[]),
            RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled | RunStatus::Skipped => {
                write.batch.remove(key.bytes(OPEN_RUNS));
            }
        }
        Ok(())
    }

    /// Runs that are not over stay, however old.
    fn prune_runs(&self, write: &mut Write, key: RunKey) -> Result<(), RecordsError> {
        let first_kept = key.number.saturating_sub(WORKFLOW_RUNS_KEPT_MAX);
        let end = RunKey { number: first_kept + 1, ..key }.bytes(RUNS);
        for found in self.tree.range(indexed(RUNS, key.workflow)..end).keys() {
            let found = found.map_err(RecordsError::Read)?;
            let Some(run) = RunKey::of(RUNS, &found) else { continue };
            if !self.is_open_run(run)? {
                write.batch.remove(found);
                write.batch.remove(run.bytes(RUN_ENTRIES));
            }
        }
        Ok(())
    }

    /// Makes the entries of runs, and the numbers of names, for records of before there were these.
    pub(super) fn index_workflows(&self) -> Result<(), RecordsError> {
        if self.tree.contains_key(INDEXED_KEY).map_err(RecordsError::Read)? {
            return Ok(());
        }
        for entry in self.tree.scan_prefix(RUNS) {
            let (key, run) = entry.map_err(RecordsError::Read)?;
            match (RunKey::of(RUNS, &key), self.vault.decode::<RunRecord>(&key, &run)) {
                (Some(key), Ok(run)) => {
                    let key = key.bytes(RUN_ENTRIES);
                    let value = self.encode(&key, &run.entry)?;
                    self.tree.insert(key, value).map_err(RecordsError::Write)?;
                }
                (None, Ok(_)) => {}
                (_, Err(error)) => tracing::error!(error = %crate::error_chain(&error), "a run is passed over"),
            }
        }
        self.number_names()?;
        self.write_now(INDEXED_KEY, &true)
    }
}

pub(super) fn workflow_in(kind: &[u8], key: &[u8]) -> Option<CallKey> {
    Some(CallKey { service: number_in(kind, key, 0)?, call: number_in(kind, key, 1)? })
}

/// The number at this place behind what a key begins with.
pub(super) fn number_in(kind: &[u8], key: &[u8], place: usize) -> Option<u64> {
    let at = kind.len() + place * size_of::<u64>();
    Some(u64::from_be_bytes(key.get(at..at + size_of::<u64>())?.try_into().ok()?))
}

fn text_key(workflow: CallKey, hash: B256) -> Vec<u8> {
    [indexed(TEXTS, workflow).as_slice(), hash.as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use sandbox_fleet::children::ChildName;
    use sandbox_fleet::fakes::sandbox;
    use sandbox_fleet::negotiation::Finished;
    use sandbox_protocol::agent::negotiation::Move;
    use sandbox_protocol::limits::MOVE_ID_BYTES_MAX;
    use sandbox_protocol::workflow::Cause;
    use sandbox_protocol::{Failure, FailureCode, SandboxId};

    use super::super::MovePlace;
    use super::*;

    const WORKFLOW: CallKey = CallKey { service: 1, call: 2 };

    fn record(number: u64, status: RunStatus) -> RunRecord {
        let cause = Cause::Manual { call: number };
        let entry = RunEntry { number, cause, status, fired_ms: 5, started_ms: None, ended_ms: None, reason: None };
        RunRecord { entry, epoch: 0, body: Value::Null, state: None }
    }

    impl Records {
        /// Makes the records what they were before there were entries of runs and numbers of names.
        pub(in super::super) fn forget_indexes(&self) {
            for kind in [RUN_ENTRIES, NAMES, INDEXED_KEY] {
                for key in self.tree.scan_prefix(kind).keys() {
                    self.tree.remove(key.unwrap()).unwrap();
                }
            }
        }
    }

    async fn fire(records: &Records, number: u64, status: RunStatus, name: Option<&str>) {
        let standing = Standing { last_run: number, ..Standing::default() };
        let key = RunKey { workflow: WORKFLOW, number };
        let run = record(number, status);
        let names = Names::of_word(name.map(str::to_owned).into_iter().collect());
        records.fire(Firing { key, run: &run, standing: &standing, names: &names }).await.unwrap();
    }

    #[tokio::test]
    async fn a_firing_is_known_by_its_name_and_its_run_is_open_until_it_is_over_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open(dir.path()).unwrap();
            fire(&records, 1, RunStatus::Queued, Some("call-7")).await;
            fire(&records, 2, RunStatus::Skipped, None).await;
        }
        let (records, _guard) = Records::open(dir.path()).unwrap();
        assert_eq!(records.fired(WORKFLOW, "call-7").unwrap(), Some(1));
        assert_eq!(records.fired(WORKFLOW, "call-8").unwrap(), None);
        assert_eq!(records.fired(CallKey { call: 3, ..WORKFLOW }, "call-7").unwrap(), None);
        let first = RunKey { workflow: WORKFLOW, number: 1 };
        assert_eq!(records.open_runs().unwrap(), [first]);
        assert_eq!(records.workflow_standing(WORKFLOW).unwrap().unwrap().last_run, 2);
        records.put_run(first, &record(1, RunStatus::Succeeded)).await.unwrap();
        assert_eq!(records.open_runs().unwrap(), []);
        let numbers =
            |before| records.runs(WORKFLOW, before, 9).unwrap().iter().map(|run| run.number).collect::<Vec<_>>();
        assert_eq!((numbers(u64::MAX), numbers(2)), (vec![2, 1], vec![1]));
    }

    #[tokio::test]
    async fn moves_of_an_attempt_go_alone_and_those_of_a_run_together() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let run = |number| RunKey { workflow: WORKFLOW, number };
        let one = Move { move_id: "m1".into(), content: "buy".into() };
        let finished = Finished::failed(&one, Failure::new(FailureCode::Engine, "why"));
        let place = |number, attempt| MovePlace { call: WORKFLOW, inputs_hash: run(number).moves(attempt), index: 0 };
        let all = [place(1, "a-1"), place(1, "a-2"), place(1, "b-1"), place(2, "a-1")];
        for place in all {
            records.finish_move(place, &finished).await.unwrap();
        }
        let left = || all.map(|place| records.finished_move(place).unwrap().is_some());
        records.forget_moves(run(1), Some("a-1")).await.unwrap();
        assert_eq!(left(), [false, true, true, true]);
        records.forget_moves(run(1), None).await.unwrap();
        assert_eq!(left(), [false, false, false, true]);
    }

    #[test]
    fn a_sandbox_is_its_runs_whether_its_own_or_one_of_its_negotiations() {
        let run = |number| RunKey { workflow: WORKFLOW, number };
        let child = |name: &str| Sandbox {
            id: SandboxId { origin: WORKFLOW, slot: 3 },
            child: Some(ChildName::parse(name).unwrap()),
            ..sandbox(1)
        };
        let scope = run(12).scope("wf-1-2-12-a-1");
        assert_ne!(scope, run(12).scope("wf-1-2-12-a-2"));
        assert_eq!(RunKey::of_child(&child(&run(12).child_name())), Some(run(12)));
        assert_eq!(RunKey::of_child(&child(&format!("{scope}-m1"))), Some(run(12)));
        assert!(run(12).is_own(&child("run-12")) && !run(12).is_own(&child(&format!("{scope}-m1"))));
        assert_eq!(RunKey::of_child(&child("negotiate-abc-m1")), None);
        let longest = RunKey { number: u64::MAX, ..run(0) }.scope("a") + "-" + &"m".repeat(MOVE_ID_BYTES_MAX);
        assert!(ChildName::parse(&longest).is_ok());
    }

    #[tokio::test]
    async fn so_many_runs_are_kept_and_one_that_goes_on_is_kept_however_old() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        fire(&records, 1, RunStatus::Running, None).await;
        for number in 2..=WORKFLOW_RUNS_KEPT_MAX + 3 {
            fire(&records, number, RunStatus::Skipped, None).await;
        }
        let runs = records.runs(WORKFLOW, u64::MAX, usize::MAX).unwrap();
        let numbers: Vec<u64> = runs.iter().map(|run| run.number).collect();
        assert_eq!((numbers.len() as u64, numbers.last()), (WORKFLOW_RUNS_KEPT_MAX + 1, Some(&1)));
        assert!(!numbers.contains(&3) && numbers.contains(&4));
    }

    #[tokio::test]
    async fn a_list_reads_no_whole_run_and_has_those_of_before_there_were_entries() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open(dir.path()).unwrap();
            fire(&records, 1, RunStatus::Skipped, None).await;
            fire(&records, 2, RunStatus::Running, None).await;
            let listed = records.runs(WORKFLOW, u64::MAX, 9).unwrap();
            assert_eq!(records.run_entry(RunKey { workflow: WORKFLOW, number: 2 }).unwrap(), listed.first().cloned());
            // A run that cannot be read is told of all the same: nobody tried.
            let garbled = RunKey { workflow: WORKFLOW, number: 1 }.bytes(RUNS);
            let whole = records.tree.insert(&garbled, b"{".as_slice()).unwrap().unwrap();
            assert_eq!(records.runs(WORKFLOW, u64::MAX, 9).unwrap(), listed);
            records.tree.insert(&garbled, whole).unwrap();
            records.forget_indexes();
            assert_eq!(records.runs(WORKFLOW, u64::MAX, 9).unwrap(), []);
        }
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let numbers: Vec<_> = records.runs(WORKFLOW, u64::MAX, 9).unwrap().iter().map(|run| run.number).collect();
        assert_eq!(numbers, [2, 1]);
    }

    #[tokio::test]
    async fn of_a_workflow_that_is_over_nothing_stays_and_of_others_everything() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let entries = || records.tree.iter().count();
        let before = entries();
        fire(&records, 1, RunStatus::Skipped, Some("call 1")).await;
        records.put_workflow_secret(WORKFLOW, "s").await.unwrap();
        let other = CallKey { call: 3, ..WORKFLOW };
        records.put_workflow_secret(other, "s").await.unwrap();
        assert_eq!(
            (records.known_workflows().unwrap(), records.has_open_runs(WORKFLOW).unwrap()),
            (vec![WORKFLOW], false)
        );
        records.forget_workflow(WORKFLOW).await.unwrap();
        assert_eq!((entries(), records.known_workflows().unwrap()), (before + 1, vec![]));
        assert!(records.workflow_secret(other).unwrap().is_some());
    }

    #[tokio::test]
    async fn texts_and_secrets_are_sealed_and_a_text_is_that_of_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let text = WorkflowText {
            name: "canary".into(),
            workflow_json: "{}".into(),
            sandbox_config_json: r#"{"env_json":"canary"}"#.into(),
        };
        records.put_workflow_text(WORKFLOW, B256::ZERO, &text).await.unwrap();
        records.put_workflow_secret(WORKFLOW, "canary").await.unwrap();
        assert_eq!(records.workflow_text(WORKFLOW, B256::ZERO).unwrap(), Some(text));
        assert_eq!(records.workflow_text(WORKFLOW, B256::repeat_byte(1)).unwrap(), None);
        assert_eq!(records.workflow_secret(WORKFLOW).unwrap().as_deref(), Some("canary"));
        for entry in records.tree.iter() {
            let (_, value) = entry.unwrap();
            assert!(!value.windows(6).any(|bytes| bytes == b"canary"));
        }
    }
}
