//! What the process works per job on the road from the chain's word to the outbox: taken in, queued, routed, fenced,
//! carried out, journalled, signed, handed over.
//!
//! Everything is the node's own but what lies behind ports: the chain's node answers from a list, sandboxes and their
//! sidecars exist in memory, and the records lie on a file system whose sync costs nothing.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolValue as _;
use alloy::transports::mock::Asserter;
use async_trait::async_trait;
use blueprint_sdk::runner::config::BlueprintEnvironment;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::fakes::{FakeAgents, FakeWorld, sandbox};
use sandbox_fleet::ports::{Pipe, PortError, SidecarError, Sidecars};
use sandbox_fleet::request::{Menu, Resources};
use sandbox_fleet::sandbox::Instance;
use sandbox_fleet::{Fleet, Keeper};
use sandbox_protocol::exec::{ByteText, ExecBody, ExecEnd, ExecReply};
use sandbox_protocol::{CallKey, Job, SandboxId};
use sandbox_sdk::Account;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{call_for_true, print};
use crate::app::{clock, runner};
use crate::chain::duty::Duty;
use crate::chain::head::Look;
use crate::chain::key::SealKeys;
use crate::chain::mocked;
use crate::chain::outbox::{Outbox, OutboxTask};
use crate::chain::sender::Sender;
use crate::config::KeystoreConfig;
use crate::failpoint::Failpoint;
use crate::intake::Intake;
use crate::jobs::{Conductor, Desk, DeskParts, Executor, Fence, JobQueue, NotHere};
use crate::metrics::Metrics;
use crate::records::{CallRecord, Progress, Records};
use crate::stories::Stories;
use crate::workflows;

const ROUNDS: u64 = 6;
const JOBS: u64 = 1_000;
/// Calls that a block brings.
const BLOCK_JOBS: usize = 100;
/// Places in the queue, of which one customer gets three quarters at most.
const JOBS_AT_ONCE: usize = 100;
const SANDBOXES: u64 = 8;
const SERVICE: u64 = 7;
const BLOCK: u64 = 1_000;

/// The road, with both its ends.
struct Road {
    me: Address,
    answers: Asserter,
    records: Records,
    queue: JobQueue,
    handed_over: OutboxTask,
    _looks: watch::Sender<Look>,
    _heights: watch::Sender<u64>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: `cargo xtask bench route_overhead`"]
async fn route_overhead() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a file system in memory");
    let (records, _guard) = Records::open(dir.path()).unwrap();
    let mut road = Road::new(records).await;
    let mut cpu_ms = Vec::new();
    for round in 0..=ROUNDS {
        let calls = round * JOBS..(round + 1) * JOBS;
        let calls: Vec<_> = calls.map(call).collect();
        road.is_asked_for(&calls);
        let before = worked();
        road.pass(&calls).await;
        let each = (worked() - before).as_secs_f64() * 1_000.0 / calls.len() as f64;
        // The first round warms up.
        if round > 0 {
            cpu_ms.push(each);
        }
    }
    print("cpu_ms", &cpu_ms, &[]);
}

/// CPU time of this process, its own and the kernel's for it.
fn worked() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(us.unsigned_abs())
}

fn owner(sandbox: u64) -> Address {
    Address::repeat_byte(0xc0 + (sandbox % 4) as u8)
}

fn call(number: u64) -> CallRecord {
    let named = number % SANDBOXES;
    let id = SandboxId { origin: CallKey { service: SERVICE, call: named }, slot: 0 };
    call_for_true(CallKey { service: SERVICE, call: SANDBOXES + number }, owner(named), id)
}

impl Road {
    async fn new(records: Records) -> Self {
        let key = PrivateKeySigner::random();
        let me = key.address();
        let answers = Asserter::new();
        let chain = mocked::chain(&answers).await;
        let (heights, head) = watch::channel(BLOCK);
        let (looks, looked) = watch::channel(Look::now(BLOCK));
        let account = Account::new(chain.clone(), key.clone());
        let sender = Sender::start(account, std::env::temp_dir().join("unused"), Failpoint::default());
        let (outbox, handed_over) = Outbox::new(chain.clone(), records.clone(), sender.clone(), (head.clone(), 0));
        let queue = JobQueue::new(JOBS_AT_ONCE);
        let world = Arc::new(FakeWorld::default());
        let (fleet, keeping) = fleet(&world).await;
        let keystore = KeystoreConfig { uri: "unused".into(), password_file: None };
        let seal_keys = SealKeys::of(&keystore, &key);
        let conductor = Conductor {
            fleet: fleet.clone(),
            agents: Arc::new(FakeAgents::default()),
            records: records.clone(),
            stories: Stories::default(),
            in_process: Arc::new(NotHere),
        };
        let sidecars: Arc<dyn Sidecars> = Arc::new(Ready);
        let executor = Executor { fleet: fleet.clone(), sidecars: sidecars.clone(), agents: conductor.agents.clone() };
        let sight = workflows::Sight { looks: looked.clone(), sender };
        let workflows =
            workflows::of_nobody((&chain, &records, &key), (executor, conductor.clone(), world.clone()), sight);
        let clock = clock("0 0 0 1 1 *").await.unwrap();
        let desk = Desk::new(DeskParts {
            conductor,
            workflows,
            chain: chain.clone(),
            key,
            seal_keys,
            records: records.clone(),
            fleet,
            sidecars,
            snapshots: world,
            menu: Menu::of("sidecar"),
            api_url: "https://operator.example".into(),
            ssh: None,
            head,
            fence: Fence { duty: Duty::new(chain, me, looked.clone()), looks: looked, head_age_s_max: 0 },
            queue: queue.clone(),
            metrics: Metrics::new().unwrap(),
            intake: Intake::new(false),
        });
        let mut env = BlueprintEnvironment::default();
        env.test_mode = true;
        let running = runner(env, (&queue, clock), desk, outbox);
        let running = AbortOnDropHandle::new(tokio::spawn(async { running.await.unwrap() }));
        Self { me, answers, records, queue, handed_over, _looks: looks, _heights: heights, _tasks: [running, keeping] }
    }

    /// What the chain's node will say of each call.
    fn is_asked_for(&self, calls: &[CallRecord]) {
        for call in calls {
            let assignment = mocked::assignment(Job::Exec, self.me, call.caller, BLOCK + 300);
            self.answers.push_success(&Bytes::from(assignment.abi_encode()));
        }
        self._looks.send_replace(Look::now(BLOCK));
    }

    /// Takes the calls in as from blocks, and waits until each is answered and handed over.
    async fn pass(&mut self, calls: &[CallRecord]) {
        for block in calls.chunks(BLOCK_JOBS) {
            let due = self.records.take_in_at(block, BLOCK, B256::ZERO).await.unwrap();
            due.iter().for_each(|call| self.queue.offer(call));
        }
        for _ in calls {
            self.handed_over.noted().await.unwrap();
        }
        let is_answered = |call: &CallRecord| match self.records.call(call.key).unwrap().unwrap().progress {
            Progress::Answered(answer) => answer.failure.is_none(),
            _ => false,
        };
        assert!(calls.iter().all(is_answered), "a call was not carried out");
    }
}

/// Sandboxes of four customers, which run.
async fn fleet(world: &Arc<FakeWorld>) -> (Fleet, AbortOnDropHandle<()>) {
    let resources = Resources { cpu_cores: 64, memory_mb: 65_536, disk_gb: 64 };
    let capacity = Capacity { sandboxes: 64, sandboxes_each_max: 64, resources, cpu_cores_each_max: 64 };
    let (keeper, fleet) = Keeper::new(capacity, world.ports());
    let keeping = tokio::spawn(keeper.run(Vec::new(), CancellationToken::new()));
    for number in 0..SANDBOXES {
        let mut sandbox = sandbox(number);
        sandbox.owner = owner(number);
        fleet.create(sandbox).await.unwrap();
    }
    (fleet, AbortOnDropHandle::new(keeping))
}

/// Sidecars that answer after as long as a command takes, and work nothing.
struct Ready;

#[async_trait]
impl Sidecars for Ready {
    async fn ready(&self, _: &Instance) -> Result<(), PortError> {
        Ok(())
    }

    async fn exec(&self, _: &Instance, body: ExecBody) -> Result<ExecReply, SidecarError> {
        let worked = tokio::time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
        assert!(worked.is_err());
        Ok(ExecReply {
            id: body.id.unwrap_or_default(),
            ended: ExecEnd::Exited,
            exit_code: 0,
            stdout: ByteText::default(),
            stderr: ByteText::default(),
            truncated: false,
            duration_ms: 5,
        })
    }

    async fn kill(&self, _: &Instance, _: &str) -> Result<(), SidecarError> {
        Ok(())
    }

    async fn connect(&self, _: &Instance) -> Result<Box<dyn Pipe>, SidecarError> {
        Err(SidecarError::NotSent("nothing speaks HTTP here".into()))
    }
}
