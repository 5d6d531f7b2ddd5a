//! Promises of workflows, kept over a fleet of fakes and a chain of which only the answers exist.

use alloy::primitives::B256;
use alloy::signers::local::PrivateKeySigner;
use alloy::transports::mock::Asserter;
use sandbox_fleet::Keeper;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::children::{ChildName, ChildOrder};
use sandbox_fleet::fakes::{FakeAgents, FakeWorld, OWNER, sandbox};
use sandbox_fleet::negotiation::Finished;
use sandbox_fleet::request::Resources;
use sandbox_protocol::agent::negotiation::Move;
use sandbox_protocol::workflow::{RunBody, RunQuery};
use sandbox_protocol::{Failure, FailureCode};
use sandbox_sdk::Account;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use super::steps::Made;
use super::table::{Moment, Row};
use super::*;
use crate::chain::mocked;
use crate::config::KeystoreConfig;
use crate::failpoint::Failpoint;
use crate::jobs::NotHere;
use crate::records::{MovePlace, RecordsGuard, RunKey, WorkflowText};
use crate::stories::Stories;

pub(super) const KEY: CallKey = CallKey { service: 7, call: 20 };
pub(super) const BLOCK: u64 = 100;

/// How the chain is seen, and who sends to it.
pub(crate) struct Sight {
    pub(crate) looks: watch::Receiver<Look>,
    pub(crate) sender: Sender,
}

/// Workflows of an operator that has none, for what is tested beside them.
pub(crate) fn of_nobody(
    (chain, records, key): (&Chain, &Records, &PrivateKeySigner),
    (executor, conductor, snapshots): (Executor, Conductor, Arc<dyn Snapshots>),
    Sight { looks, sender }: Sight,
) -> Workflows {
    let keystore = KeystoreConfig { uri: "unused".into(), password_file: None };
    let parts = Parts {
        chain: chain.clone(),
        records: records.clone(),
        executor,
        conductor,
        snapshots,
        menu: Menu::of("sidecar"),
        seal_keys: SealKeys::of(&keystore, key),
        sender,
        looks,
        head_age_s_max: 0,
        others_head_age_s_max: 0,
        confirmations: 0,
        notices: Notices::default(),
        me: key.address(),
        service: None,
        url: "https://operator.example".into(),
        report_pause: None,
    };
    Workflows::new(parts, CancellationToken::new())
}

/// Workflows, and what they are carried out with.
pub(super) struct Yard {
    pub(super) workflows: Workflows,
    pub(super) records: Records,
    pub(super) world: Arc<FakeWorld>,
    pub(super) agents: Arc<FakeAgents>,
    pub(super) looks: watch::Sender<Look>,
    /// What the node says next.
    pub(super) node: Asserter,
    _kept: (RecordsGuard, AbortOnDropHandle<()>),
}

impl Yard {
    pub(super) async fn new(dir: &TempDir) -> Self {
        Self::with(dir, FakeAgents::default()).await
    }

    /// With these agents in the sandboxes.
    pub(super) async fn with(dir: &TempDir, agents: FakeAgents) -> Self {
        let (records, guard) = Records::open(dir.path()).unwrap();
        let world = Arc::new(FakeWorld::default());
        let resources = Resources { cpu_cores: 100, memory_mb: 1_000_000, disk_gb: 1_000 };
        let capacity = Capacity { sandboxes: 8, sandboxes_each_max: 8, resources, cpu_cores_each_max: 8 };
        let (keeper, fleet) = Keeper::new(capacity, world.ports());
        let keeping = AbortOnDropHandle::new(tokio::spawn(keeper.run(Vec::new(), CancellationToken::new())));
        fleet.create(sandbox(1)).await.unwrap();
        let (key, agents) = (PrivateKeySigner::random(), Arc::new(agents));
        let node = Asserter::new();
        let chain = mocked::chain(&node).await;
        let (looks, looked) = watch::channel(Look::now(BLOCK));
        let sender =
            Sender::start(Account::new(chain.clone(), key.clone()), dir.path().join("lock"), Failpoint::default());
        let executor = Executor { fleet: fleet.clone(), sidecars: world.clone(), agents: agents.clone() };
        let (stories, in_process) = (Stories::default(), Arc::new(NotHere));
        let conductor = Conductor { fleet, agents: agents.clone(), records: records.clone(), stories, in_process };
        let sight = Sight { looks: looked, sender };
        let workflows = of_nobody((&chain, &records, &key), (executor, conductor, world.clone()), sight);
        workflows.0.in_step.send_replace(true);
        Self { workflows, records, world, agents, looks, node, _kept: (guard, keeping) }
    }

    /// Has a workflow as the chain would, with this text and trigger.
    pub(super) async fn have(
        &self,
        body: &serde_json::Value,
        sandbox_config_json: &str,
        trigger: (&'static str, &str),
    ) {
        self.have_as(KEY, (body, sandbox_config_json), trigger).await;
    }

    /// The same under this key.
    pub(super) async fn have_as(
        &self,
        key: CallKey,
        (body, sandbox_config_json): (&serde_json::Value, &str),
        (kind, config): (&'static str, &str),
    ) {
        let hash = B256::repeat_byte(9);
        let text = WorkflowText {
            name: "n".into(),
            workflow_json: body.to_string(),
            sandbox_config_json: sandbox_config_json.into(),
        };
        self.records.put_workflow_text(key, hash, &text).await.unwrap();
        let row = Row {
            owner: OWNER,
            epoch: 0,
            kind,
            config: config.into(),
            body_hash: hash,
            last_triggered_s: 0,
            is_paused: false,
        };
        let known = self.records.workflow_standing(key).unwrap();
        let standing = row.standing(known, Moment { now_s: now_s() - 10, block: BLOCK, handover_s: 0 });
        self.workflows.0.table().enter(key, row, standing, now_s() - 10);
    }

    /// Sandboxes that runs or their steps have.
    fn children(&self) -> usize {
        self.world.containers().into_iter().filter(|id| id.origin == KEY).count()
    }

    async fn until(&self, there: impl Fn(&Self) -> bool) {
        while !there(self) {
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn ended(&self, number: u64) -> RunBody {
        let key = RunKey { workflow: KEY, number };
        let mut after = 0;
        loop {
            let body = self.workflows.run_body(key, OWNER, RunQuery { wait: 60, after }).await.unwrap();
            if body.run.status.is_final() {
                return body;
            }
            after = body.version;
        }
    }
}

pub(super) fn steps(ids: &[(&str, &[&str])]) -> serde_json::Value {
    let step = |(id, needs): &(&str, &[&str])| json!({"id": id, "kind": "exec", "needs": needs, "with": {"command": format!("echo {id}")}});
    json!({"sandbox_id": "sbx-7-1-0", "steps": ids.iter().map(step).collect::<Vec<_>>()})
}

#[tokio::test]
async fn a_run_does_its_steps_and_a_repeat_of_what_fired_it_is_the_same_run() {
    let dir = tempfile::tempdir().unwrap();
    let yard = Yard::new(&dir).await;
    yard.have(&steps(&[("a", &[]), ("b", &["a"])]), "", ("manual", "")).await;
    let (number, status) = yard.workflows.trigger(KEY, 31).await.unwrap();
    assert_eq!((number, status), (1, RunStatus::Running));
    let body = yard.ended(1).await;
    assert_eq!(body.run.status, RunStatus::Succeeded, "{body:?}");
    // The fake sidecar answers with the command that it was given.
    assert_eq!(body.steps[1].outputs["stdout"], json!("echo b"));
    assert_eq!(yard.workflows.trigger(KEY, 31).await.unwrap(), (1, RunStatus::Succeeded));
    assert_eq!(yard.workflows.trigger(KEY, 32).await.unwrap().0, 2);
}

#[tokio::test]
async fn a_run_that_cannot_have_its_sandbox_fails_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let yard = Yard::new(&dir).await;
    let mut body = steps(&[("a", &[])]);
    body.as_object_mut().unwrap().remove("sandbox_id");
    yard.have(&body, r#"{"memory_mb":64}"#, ("manual", "")).await;
    yard.world.fail_next([sandbox_protocol::FailureCode::ImageMissing; 2]);
    yard.workflows.trigger(KEY, 31).await.unwrap();
    let failed = yard.ended(1).await;
    assert_eq!(failed.run.status, RunStatus::Failed);
    assert!(failed.run.reason.unwrap().starts_with("no sandbox for the run"));
    yard.workflows.trigger(KEY, 32).await.unwrap();
    assert_eq!(yard.ended(2).await.run.status, RunStatus::Succeeded);
    assert_eq!(yard.world.containers().len(), 1, "only the one that is no run's");
}

#[tokio::test]
async fn the_clock_fires_on_a_fresh_sight_of_the_chain_only_and_an_instant_once_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let body = steps(&[("a", &[])]);
    let every_second = ("cron", r#"{"cron":"* * * * * *","catch_up":"latest"}"#);
    let yard = Yard::new(&dir).await;
    yard.have(&body, "", every_second).await;
    yard.workflows.0.in_step.send_replace(false);
    yard.workflows.tick().await;
    let told = yard.workflows.list(OWNER, (None, 9)).await;
    assert!(matches!(told, Err(WorkflowError::Blind(_))));
    assert_eq!(yard.records.runs(KEY, u64::MAX, 9).unwrap(), [], "the table is not what the chain says yet");
    yard.workflows.0.in_step.send_replace(true);
    yard.workflows.tick().await;
    assert_eq!(yard.records.runs(KEY, u64::MAX, 9).unwrap(), [], "the chain was not read");
    yard.records.take_in(&[], BLOCK + 1).await.unwrap();
    yard.looks.send_modify(|look| look.block.number = BLOCK + 1_000);
    yard.workflows.tick().await;
    assert_eq!(yard.records.runs(KEY, u64::MAX, 9).unwrap(), [], "it was read no further than long ago");
    yard.looks.send_modify(|look| look.block.number = BLOCK);
    yard.workflows.tick().await;
    let last = yard.ended(1).await.run;
    let Cause::Cron { slot_s: before } = last.cause else { panic!("{last:?}") };
    // As another life has it: what was fired is on disk.
    assert!(yard.workflows.0.table().leave(KEY).is_some());
    yard.have(&body, "", every_second).await;
    while yard.records.runs(KEY, u64::MAX, 9).unwrap().len() < 2 {
        yard.looks.send_replace(Look::now(BLOCK));
        yard.workflows.tick().await;
        tokio::task::yield_now().await;
    }
    let Cause::Cron { slot_s: after } = yard.ended(2).await.run.cause else { panic!("not by the clock") };
    assert!(after > before, "{before} was fired again");
}

#[tokio::test]
async fn what_is_queued_runs_after_the_others_and_a_workflow_that_is_over_runs_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let yard = Yard::new(&dir).await;
    yard.have(&steps(&[("a", &[])]), "", ("manual", r#"{"overlap":"queue"}"#)).await;
    for call in 1..=3 {
        yard.workflows.trigger(KEY, call).await.unwrap();
    }
    for number in 1..=3 {
        assert_eq!(yard.ended(number).await.run.status, RunStatus::Succeeded);
    }
    yard.workflows.cancel(KEY).await;
    assert!(matches!(yard.workflows.show(KEY, OWNER).await, Err(WorkflowError::Unknown)));
}

/// A workflow that has one move argued about.
fn negotiation() -> serde_json::Value {
    let context = json!({"ticker": "ABC", "moves": [{"move_id": "m1", "content": "buy"}], "max_rounds": 1});
    json!({"sandbox_id": "sbx-7-1-0", "steps": [{"id": "argue", "kind": "negotiation", "with": {"context": context}}]})
}

#[tokio::test]
async fn runs_that_argue_about_the_same_move_at_a_time_do_so_in_sandboxes_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let yard = Yard::with(&dir, FakeAgents::slow()).await;
    yard.have(&negotiation(), "", ("manual", r#"{"overlap":"allow"}"#)).await;
    for call in 1..=2 {
        yard.workflows.trigger(KEY, call).await.unwrap();
    }
    yard.until(|yard| yard.agents.begun().len() == 2).await;
    assert_eq!(yard.children(), 2);
    yard.agents.let_end(1);
    yard.until(|yard| yard.children() == 1).await;
    yard.agents.let_end(1);
    for number in 1..=2 {
        let body = yard.ended(number).await;
        assert_eq!(body.run.status, RunStatus::Succeeded, "{body:?}");
    }
    yard.until(|yard| yard.children() == 0).await;
}

#[tokio::test]
async fn a_run_that_is_given_up_leaves_no_sandbox_of_a_negotiation() {
    let dir = tempfile::tempdir().unwrap();
    let yard = Yard::with(&dir, FakeAgents::slow()).await;
    yard.have(&negotiation(), "", ("manual", "")).await;
    yard.workflows.trigger(KEY, 1).await.unwrap();
    yard.until(|yard| yard.agents.begun().len() == 1).await;
    yard.workflows.cancel(KEY).await;
    yard.until(|yard| yard.children() == 0 && !yard.agents.cancelled().is_empty()).await;
}

#[tokio::test]
async fn a_negotiation_that_is_broken_off_leaves_nothing_and_takes_nothing_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let yard = Yard::new(&dir).await;
    let (shared, key) = (yard.workflows.0.clone(), RunKey { workflow: KEY, number: 1 });
    let one = Move { move_id: "m1".into(), content: "buy".into() };
    let finished = Finished::failed(&one, Failure::new(FailureCode::Engine, "why"));
    let place = |attempt| MovePlace { call: KEY, inputs_hash: key.moves(attempt), index: 0 };
    for attempt in ["argue-1", "argue-11"] {
        let name = ChildName::parse(&format!("{}-m1", key.scope(attempt))).unwrap();
        let order = ChildOrder { parent: KEY, name, owner: OWNER, spec: sandbox(1).spec, expires_at_block: None };
        shared.parts.conductor.fleet.create_child(order).await.unwrap();
        yard.records.finish_move(place(attempt), &finished).await.unwrap();
    }
    let is_kept = |yard: &Yard, attempt| yard.records.finished_move(place(attempt)).unwrap().is_some();
    drop(Made::of(shared, key, "argue-1"));
    yard.until(|yard| yard.children() == 1 && !is_kept(yard, "argue-1")).await;
    assert!(is_kept(&yard, "argue-11"));
}

#[tokio::test]
async fn a_strangers_workflow_does_not_exist() {
    let dir = tempfile::tempdir().unwrap();
    let yard = Yard::new(&dir).await;
    yard.have(&steps(&[("a", &[])]), "", ("webhook", "")).await;
    let stranger = Address::repeat_byte(0xee);
    assert_eq!(yard.workflows.list(OWNER, (None, 9)).await.unwrap().0.len(), 1);
    assert_eq!(yard.workflows.list(stranger, (None, 9)).await.unwrap().0.len(), 0);
    assert!(matches!(yard.workflows.secret(KEY, stranger, false).await, Err(WorkflowError::Unknown)));
    let first = yard.workflows.secret(KEY, OWNER, false).await.unwrap();
    assert_eq!(yard.workflows.secret(KEY, OWNER, false).await.unwrap(), first);
    assert_ne!(yard.workflows.secret(KEY, OWNER, true).await.unwrap().secret, first.secret);
}
