//! Promises of a round, kept over a fleet of fakes.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::B256;
use async_trait::async_trait;
use sandbox_fleet::Keeper;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::fakes::{FakeAgents, FakeWorld, OWNER, sandbox};
use sandbox_fleet::ports::{Pipe, PortError, SidecarError, Sidecars};
use sandbox_fleet::request::Resources;
use sandbox_fleet::sandbox::Instance;
use sandbox_protocol::CallKey;
use sandbox_protocol::agent::{RunFailure, RunReply};
use sandbox_protocol::batch::BatchId;
use sandbox_protocol::exec::{ByteText, ExecBody, ExecEnd};
use sandbox_protocol::limits::{BATCH_ENDPOINTS_MAX, BATCH_ITEM_BYTES_MAX, BATCH_ITEM_TEXTS_MAX};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::records::{PartRecord, Records, RecordsGuard, now_ms};
use crate::stories::Stories;

const CALL: CallKey = CallKey { service: 7, call: 9 };

/// Sidecars whose commands end when a test says so.
struct Shells {
    asked: watch::Sender<Vec<ExecBody>>,
    killed: watch::Sender<Vec<String>>,
    /// Exit codes by item, as far as they are known yet.
    ends: watch::Sender<Vec<Option<i32>>>,
}

impl Shells {
    fn new(items: usize) -> Self {
        Self {
            asked: watch::Sender::default(),
            killed: watch::Sender::default(),
            ends: watch::Sender::new(vec![None; items]),
        }
    }

    fn end(&self, item: usize, exit_code: i32) {
        self.ends.send_modify(|ends| ends[item] = Some(exit_code));
    }

    /// The items that were begun or attached to, in order.
    fn asked(&self) -> Vec<(usize, bool)> {
        self.asked.borrow().iter().map(|body| (place(body), body.attach_only)).collect()
    }

    async fn has_asked(&self, count: usize) {
        self.asked.subscribe().wait_for(|asked| asked.len() >= count).await.unwrap();
    }
}

fn place(body: &ExecBody) -> usize {
    body.id.as_ref().unwrap().rsplit('-').next().unwrap().parse().unwrap()
}

#[async_trait]
impl Sidecars for Shells {
    async fn ready(&self, _: &Instance) -> Result<(), PortError> {
        Ok(())
    }

    async fn exec(&self, _: &Instance, body: ExecBody) -> Result<sandbox_protocol::exec::ExecReply, SidecarError> {
        let place = place(&body);
        self.asked.send_modify(|asked| asked.push(body.clone()));
        let mut ends = self.ends.subscribe();
        let exit_code = ends.wait_for(|ends| ends[place].is_some()).await.unwrap()[place].unwrap();
        Ok(ExecReply {
            id: body.id.unwrap_or_default(),
            ended: ExecEnd::Exited,
            exit_code,
            stdout: ByteText(vec![b'x'; BATCH_ITEM_BYTES_MAX + place]),
            stderr: ByteText::default(),
            truncated: false,
            duration_ms: 5,
        })
    }

    async fn kill(&self, _: &Instance, execution: &str) -> Result<(), SidecarError> {
        self.killed.send_modify(|killed| killed.push(execution.to_owned()));
        Ok(())
    }

    async fn connect(&self, _: &Instance) -> Result<Box<dyn Pipe>, SidecarError> {
        Err(SidecarError::NotSent("nothing speaks HTTP here".into()))
    }
}

/// A sandbox, and where rounds of items in it are played.
struct Arena {
    round: Round,
    shells: Arc<Shells>,
    agents: Arc<FakeAgents>,
    _kept: (RecordsGuard, TempDir, AbortOnDropHandle<()>),
}

impl Arena {
    async fn of(items: usize, at_once: usize, aggregation: Aggregation) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (records, guard) = Records::open(dir.path()).unwrap();
        let world = Arc::new(FakeWorld::default());
        let resources = Resources { cpu_cores: 100, memory_mb: 1_000_000, disk_gb: 1_000 };
        let capacity = Capacity { sandboxes: 9, sandboxes_each_max: 9, resources, cpu_cores_each_max: 8 };
        let (keeper, fleet) = Keeper::new(capacity, world.ports());
        let keeping = AbortOnDropHandle::new(tokio::spawn(keeper.run(Vec::new(), CancellationToken::new())));
        fleet.create(sandbox(1)).await.unwrap();
        let item = |index| PartItem { index, sandbox: Some(sandbox(1).id), refused: None };
        let part = PartRecord {
            call: CALL,
            job: 22,
            owner: OWNER,
            inputs_hash: B256::ZERO,
            batch: BatchId::of_call(CALL),
            aggregation: Some(aggregation),
            begun_ms: now_ms(),
            items: (0..).take(items).map(item).collect(),
            end: None,
        };
        let (part, _) = records.begin_part(part).await.unwrap();
        let (shells, agents) = (Arc::new(Shells::new(items)), Arc::new(FakeAgents::default()));
        let stories = Stories::default();
        stories.begin(CALL, 1, 0);
        let round = Round {
            executor: Executor { fleet, sidecars: shells.clone(), agents: agents.clone() },
            ledger: Ledger { records, stories, part },
            deed: Deed::Command(command()),
            aggregation,
            execution: "call-7-9-00".into(),
            at_once,
            until: Instant::now() + Duration::from_secs(600),
        };
        Self { round, shells, agents, _kept: (guard, dir, keeping) }
    }

    fn on_record(&self) -> Vec<ItemReport> {
        self.round.ledger.records.part_items(&self.round.ledger.part).unwrap()
    }

    async fn play(&self) -> (Vec<ItemState>, Upshot) {
        self.play_until(pending()).await
    }

    async fn play_until(&self, won: impl Future<Output = ()>) -> (Vec<ItemState>, Upshot) {
        let (items, upshot) = self.round.play(self.on_record(), won).await.unwrap();
        assert_eq!(self.on_record(), items, "what is answered is on disk");
        (items.iter().map(|item| item.state).collect(), upshot)
    }

    async fn killed(&self, items: &[u32]) {
        let mut expected: Vec<String> = items.iter().map(|item| format!("call-7-9-00-{item}")).collect();
        expected.sort_unstable();
        let mut killed = self.shells.killed.subscribe();
        let killed = killed.wait_for(|killed| killed.len() >= expected.len()).await.unwrap();
        let mut found = killed.clone();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}

fn command() -> Command {
    let request = sandbox_protocol::abi::ExecRequest {
        sidecar_endpoint: "sbx-7-9-0".into(),
        command: "true".into(),
        ..Default::default()
    };
    request::command(request).unwrap()
}

use ItemState::{Cancelled, Failed, Succeeded};

#[tokio::test]
async fn one_after_the_other_waits_for_the_end_of_each_and_side_by_side_for_none() {
    let arena = Arena::of(3, 1, Aggregation::All).await;
    let (ended, ()) = tokio::join!(arena.play(), async {
        for place in 0..3 {
            arena.shells.has_asked(place + 1).await;
            assert_eq!(arena.shells.asked().len(), place + 1);
            arena.shells.end(place, i32::from(place == 1));
        }
    });
    assert_eq!(ended, (vec![Succeeded, Failed, Succeeded], Upshot::Done));
    let arena = Arena::of(3, 2, Aggregation::All).await;
    let (ended, ()) = tokio::join!(arena.play(), async {
        arena.shells.has_asked(2).await;
        arena.shells.end(1, 0);
        arena.shells.has_asked(3).await;
        [0, 2].into_iter().for_each(|place| arena.shells.end(place, 0));
    });
    assert_eq!(ended, (vec![Succeeded; 3], Upshot::Done));
    assert!(arena.shells.killed.borrow().is_empty());
}

#[tokio::test]
async fn the_first_success_ends_the_commands_of_the_others() {
    let arena = Arena::of(4, 3, Aggregation::FirstSuccess).await;
    let (ended, ()) = tokio::join!(arena.play(), async {
        arena.shells.has_asked(3).await;
        arena.shells.end(1, 0);
    });
    assert_eq!(ended, (vec![Cancelled, Succeeded, Cancelled, Cancelled], Upshot::Done));
    arena.killed(&[0, 2]).await;
    assert_eq!(arena.shells.asked().len(), 3, "the fourth was never begun");
    let why = arena.on_record()[3].failure.clone().unwrap();
    assert_eq!(why.to_string(), "cancelled: another item of the batch had succeeded");
}

#[tokio::test]
async fn a_success_elsewhere_ends_what_runs_and_no_success_anywhere_is_none() {
    let arena = Arena::of(2, 2, Aggregation::FirstSuccess).await;
    let (ended, ()) = {
        let (won, winning) = tokio::sync::oneshot::channel::<()>();
        let winning = async {
            winning.await.unwrap();
        };
        tokio::join!(arena.play_until(winning), async {
            arena.shells.has_asked(2).await;
            won.send(()).unwrap();
        })
    };
    assert_eq!(ended, (vec![Cancelled; 2], Upshot::Done));
    arena.killed(&[0, 1]).await;
    let arena = Arena::of(2, 2, Aggregation::FirstSuccess).await;
    (0..2).for_each(|place| arena.shells.end(place, 9));
    assert_eq!(arena.play().await, (vec![Failed; 2], Upshot::NoSuccess));
}

#[tokio::test]
async fn another_life_repeats_nothing_that_ended_and_attaches_to_what_runs() {
    let arena = Arena::of(3, 3, Aggregation::All).await;
    {
        let mut former = std::pin::pin!(arena.round.play(Vec::new(), pending()));
        arena.shells.end(0, 0);
        let ended = || arena.on_record().iter().any(|item| item.state == Succeeded);
        while !ended() || arena.shells.asked().len() < 3 {
            assert!(futures::poll!(former.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    arena.shells.asked.send_modify(Vec::clear);
    (0..3).for_each(|place| arena.shells.end(place, 0));
    assert_eq!(arena.play().await, (vec![Succeeded; 3], Upshot::Done));
    assert_eq!(arena.shells.asked(), [(1, true), (2, true)]);
    assert_eq!(arena.play().await, (vec![Succeeded; 3], Upshot::Done));
    assert_eq!(arena.shells.asked().len(), 2, "all had ended");
}

#[tokio::test]
async fn another_life_that_needs_no_more_items_ends_those_that_the_former_began() {
    let arena = Arena::of(3, 3, Aggregation::FirstSuccess).await;
    let left = [bare(0, None, Succeeded), bare(1, None, ItemState::Running)];
    arena.round.ledger.note(&left).await.unwrap();
    assert_eq!(arena.play().await, (vec![Succeeded, Cancelled, Cancelled], Upshot::Done));
    arena.killed(&[1]).await;
    assert!(arena.shells.asked().is_empty(), "nothing was begun or attached to");
}

#[tokio::test]
async fn what_has_not_ended_in_time_has_failed_and_its_command_is_gone() {
    let arena = Arena::of(4, 2, Aggregation::Majority).await;
    arena.shells.end(0, 0);
    let ((ended, upshot), ()) = tokio::join!(arena.play(), async {
        arena.shells.has_asked(3).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(600)).await;
    });
    assert_eq!((ended, upshot), (vec![Succeeded, Failed, Failed, Failed], Upshot::Done));
    arena.killed(&[1, 2]).await;
    let why = arena.on_record()[3].failure.clone().unwrap();
    assert_eq!(why.code, FailureCode::Timeout);
}

#[tokio::test]
async fn an_item_keeps_so_much_of_what_was_written_and_says_so() {
    let arena = Arena::of(2, 2, Aggregation::All).await;
    (0..2).for_each(|place| arena.shells.end(place, 0));
    arena.play().await;
    let kept: Vec<_> = arena.on_record().into_iter().map(|item| item.exec.unwrap()).collect();
    assert_eq!(kept.iter().map(|exec| exec.stdout.0.len()).collect::<Vec<_>>(), [BATCH_ITEM_BYTES_MAX; 2]);
    assert_eq!(kept.iter().map(|exec| exec.truncated).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn as_many_items_as_there_may_be_keep_no_more_together_than_a_part_may() {
    let arena = Arena::of(BATCH_ENDPOINTS_MAX, 32, Aggregation::All).await;
    (0..BATCH_ENDPOINTS_MAX).for_each(|place| arena.shells.end(place, 0));
    arena.play().await;
    let kept: Vec<_> = arena.on_record().into_iter().map(|item| item.exec.unwrap()).collect();
    let length: usize = kept.iter().map(|exec| exec.stdout.0.len()).sum();
    assert!(kept.iter().all(|exec| exec.truncated && exec.stdout.0.len() == kept[0].stdout.0.len()));
    assert_eq!(length, BATCH_PART_BYTES_MAX / BATCH_ITEM_TEXTS_MAX, "the other half is for what they complain of");
}

#[tokio::test]
async fn what_cannot_be_carried_out_fails_by_itself_and_every_step_is_told() {
    let mut arena = Arena::of(3, 1, Aggregation::All).await;
    arena.round.ledger.part.items[0].refused = Some(bad("no id"));
    arena.round.ledger.part.items[1].sandbox = Some(sandbox(2).id);
    arena.shells.end(2, 0);
    assert_eq!(arena.play().await, (vec![Failed, Failed, Succeeded], Upshot::Done));
    let codes: Vec<_> = arena.on_record().into_iter().map(|item| item.failure.map(|failure| failure.code)).collect();
    assert_eq!(codes, [Some(FailureCode::BadRequest), Some(FailureCode::SandboxLost), None]);
    let told = arena.round.ledger.stories.after(CALL, 0);
    let told: Vec<String> =
        told.into_iter().map(|event| serde_json::to_value(event.told).unwrap().to_string()).collect();
    assert_eq!(told.len(), 5, "{told:?}");
    assert!(told[0].contains("failed") && told[1].contains("running") && told[4].contains("succeeded"), "{told:?}");
}

#[tokio::test]
async fn tasks_succeed_by_the_agents_own_word() {
    let mut arena = Arena::of(3, 1, Aggregation::All).await;
    let task = sandbox_protocol::abi::TaskRequest {
        sidecar_endpoint: "sbx-7-9-0".into(),
        prompt: "do".into(),
        ..Default::default()
    };
    arena.round.deed = Deed::Task(request::task(task).unwrap());
    let reply = |failure: Option<RunFailure>| RunReply {
        id: "r1".into(),
        success: failure.is_none(),
        result: "words".into(),
        error: failure.map(|_| "why".to_owned()).unwrap_or_default(),
        failure,
        trace_id: "t1".into(),
        turns_used: 3,
        duration_ms: 4,
        input_tokens: 5,
        output_tokens: 6,
        cost_micro_usd: None,
        session_id: "s1".into(),
    };
    for answer in [None, Some(RunFailure::Timeout), Some(RunFailure::ProviderRefused)] {
        arena.agents.answer_next(Ok(reply(answer)));
    }
    assert_eq!(arena.play().await, (vec![Succeeded, Failed, Failed], Upshot::Done));
    let items = arena.on_record();
    assert_eq!(items[0].task.as_ref().map(|task| (task.success, task.result.as_str())), Some((true, "words")));
    assert_eq!(items[1].failure.as_ref().map(|failure| failure.code), Some(FailureCode::Timeout));
    assert!(items[1].task.is_some() && items[2].task.is_none());
    assert_eq!(items[2].failure.as_ref().map(|failure| failure.code), Some(FailureCode::ProviderRefused));
    let ids: Vec<_> = arena.agents.asked().into_iter().filter_map(|body| body.id).collect();
    assert_eq!(ids, ["call-7-9-00-0", "call-7-9-00-1", "call-7-9-00-2"]);
}
