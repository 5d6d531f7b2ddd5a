//! The one place that wires: builds every part, hands each what it needs, and ends them in order.

mod firing;
mod runner;

use std::error::Error;
use std::sync::{Arc, Mutex};

use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;
use async_trait::async_trait;
use blueprint_producers_extra::cron::CronJob;
use blueprint_sdk::runner::config::BlueprintEnvironment;
use blueprint_sdk::runner::error::RunnerError;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::ports::Sidecars;
use sandbox_fleet::sandbox::Sandbox;
use sandbox_fleet::{Fleet, Keeper, Ports};
use sandbox_sdk::chain::{Mined, Nonces, Patience};
use sandbox_sdk::{Account, Chain};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::firing::fired;
use self::runner::environment;
pub(crate) use self::runner::{NoClock, clock, runner};
use crate::api::{self, Api, Door, NoHost, QuoteParts, TlsError};
use crate::chain::admittance::Admittance;
use crate::chain::approvals::Approvals;
use crate::chain::connect::{self, FindError};
use crate::chain::counted::Questions;
use crate::chain::duty::Duty;
use crate::chain::head::{self, Head, Look};
use crate::chain::key::{self, KeyError, SealKeys};
use crate::chain::notices::Notices;
use crate::chain::outbox::Outbox;
use crate::chain::reconciler::Reconciler;
use crate::chain::registration::{self, RegistrationError};
use crate::chain::sender::Sender;
use crate::chain::source::Source;
use crate::chain::sweep::Sweep;
use crate::chain::until_answered;
use crate::config::Config;
use crate::debates::OwnProcess;
use crate::docker::{Census, DiskError, Disks, DockerContainers, Upkeep};
use crate::intake::Intake;
use crate::jobs::{Desk, DeskParts, Fence, JobQueue};
use crate::limits::{
    FEE_BUMP_AFTER, FINISH_TIMEOUT, HEAD_AGE_S_MAX, MINED_WITHIN, POOL_EMPTY_TIMEOUT, TRANSACTION_GAS_MAX,
};
use crate::metrics::Metrics;
use crate::operations::Operations;
use crate::outside::{OutsideError, Proxy, Stores};
use crate::places::{Places, TooDeep};
use crate::records::{Records, RecordsError, Vault};
use crate::sidecars::SocketSidecars;
use crate::ssh::{Front, FrontError, LettingIn, SshOffer};
use crate::stories::Stories;
use crate::workflows::Workflows;

/// Why the node does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// The state directory.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The socket directory.
    #[error(transparent)]
    Places(#[from] TooDeep),
    /// The sandboxes' disks.
    #[error(transparent)]
    Disks(#[from] DiskError),
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The blueprint.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The registration.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The API's port.
    #[error("cannot listen on API_LISTEN")]
    Listen(#[source] std::io::Error),
    /// The SSH gateway.
    #[error(transparent)]
    Ssh(#[from] FrontError),
    /// The way out of the sandboxes.
    #[error(transparent)]
    Outside(#[from] OutsideError),
    /// The API's certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The API's own URL.
    #[error(transparent)]
    Url(#[from] NoHost),
    /// The counters.
    #[error("cannot set up metrics")]
    Metrics(#[from] prometheus::Error),
    /// What reads the chain.
    #[error("reading the chain ended")]
    Reader(#[source] tokio::task::JoinError),
    /// The clock of workflows.
    #[error(transparent)]
    Clock(#[from] NoClock),
    /// What keeps the sandboxes.
    #[error("the sandbox keeper ended")]
    Keeper,
    /// The blueprint runner.
    #[error("the blueprint runner ended")]
    Runner(#[source] RunnerError),
}

/// Registers the account with its offer, or publishes a changed one; gives the transaction, where it took one.
pub(crate) async fn register(config: &Config) -> Result<Option<Mined>, NodeError> {
    let key = key::load(&config.keystore)?;
    let chain = connect::find(&config.chain, &Questions::new()?).await?;
    let sender = sender(config, &chain, &key);
    Ok(publish(config, &chain, &sender, &key).await?.0)
}

/// Publishes the account's offer with its seal key, unless it is published already; gives the transaction, where it took
/// one, and whether the operator is paused by its own word.
async fn publish(
    config: &Config,
    chain: &Chain,
    sender: &Sender,
    key: &PrivateKeySigner,
) -> Result<(Option<Mined>, bool), NodeError> {
    let seal_key = SealKeys::of(&config.keystore, key).current()?.public();
    Ok(registration::ensure(chain, sender, key, &registration::profile(&config.offer, seal_key)).await?)
}

/// Runs the node until `stop`.
pub(crate) async fn run(config: Config, stop: CancellationToken) -> Result<(), NodeError> {
    if config.register_only {
        return tokio::select! {
            registered = register(&config) => registered.map(drop),
            () = stop.cancelled() => Ok(()),
        };
    }
    let key = key::load(&config.keystore)?;
    let (records, records_guard) = Records::open_mortal(&config.data_dir, Vault::of(&key), config.failpoint.clone())?;
    let listener = TcpListener::bind(config.api_listen).await.map_err(NodeError::Listen)?;
    let front = Front::open(config.ssh.as_ref(), &config.data_dir).await?;
    let door = Door::new(listener, config.api.clone(), stop.clone())?;
    let starting = tokio::select! {
        started = Node::start(config, key, records, (&door, front), stop.clone()) => started,
        () = stop.cancelled() => return Ok(()),
    };
    let ended = match starting {
        Ok(node) => node.run(stop.clone()).await,
        Err(error) => Err(error),
    };
    stop.cancel();
    door.closed().await;
    drop(records_guard);
    ended
}

/// A node whose parts stand.
struct Node {
    desk: Arc<Desk>,
    env: BlueprintEnvironment,
    queue: JobQueue,
    clock: CronJob,
    reading: JoinHandle<Result<(), RecordsError>>,
    outbox: Outbox,
    /// The SSH gateway, where there is one.
    letting_in: Option<LettingIn>,
    keeping: Keeping,
    upkeep: Keeping,
    records_failed: CancellationToken,
}

/// A task that ends after the work in hand, which needs it: the sandbox keeper's, and the upkeep of the host.
struct Keeping {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Node {
    async fn start(
        config: Config,
        key: PrivateKeySigner,
        records: Records,
        (door, front): (&Door, Option<Front>),
        stop: CancellationToken,
    ) -> Result<Self, NodeError> {
        let metrics = Metrics::new()?;
        let chain = connect::find(&config.chain, &metrics.questions()).await?;
        let me = key.address();
        bind(&records, &chain, me)?;
        let sender = sender(&config, &chain, &key);
        let intake = Intake::new(publish(&config, &chain, &sender, &key).await?.1);
        let places = Places::new(&config.run_dir, chain.deployment().core, records.state_id()?)?;
        let containers = containers(&config, &places).await?;
        let sidecars = Arc::new(SocketSidecars::new(places.clone()));
        let head = head::follow(chain.clone(), config.chain.ws_url.clone(), stop.clone()).await;
        let height = head.height.clone();
        let proxy = Arc::new(Proxy::new(&config.outside, places)?);
        let in_process = Arc::new(OwnProcess::new(proxy.clone(), config.data_dir.clone(), &config.agents.settings));
        let snapshots = Arc::new(Stores::new(&config.outside, sidecars.clone())?);
        let ports = ports(&containers, &sidecars, &proxy, &snapshots, &records);
        let (fleet, keeping) = keep(config.offer.capacity, ports, &records)?;
        let upkeep = keep_host(containers.clone(), (&fleet, &records), sidecars.clone(), config.offer.capacity);
        let records_failed = records.failed();
        let outbox = send_off(&config, &chain, (&records, &sender), height.clone());
        let operations = Operations {
            chain: chain.clone(),
            records: records.clone(),
            fleet: fleet.clone(),
            sender,
            intake: intake.clone(),
            metrics: metrics.clone(),
            containers,
            proxy,
            stories: Stories::default(),
            notices: Notices::default(),
            me,
            in_process,
        };
        operations.clone().start(&config, height.clone(), &stop);
        let (ssh, letting_in) = operations.let_in(front, sidecars.clone(), &stop)?;
        let queue = JobQueue::new(config.chain.jobs_concurrent);
        let fence = fence(&config, &chain, me, head.looks.clone());
        let workflows = fired(operations.clone(), &config, &key, (&snapshots, &sidecars), (&fence, &stop));
        let reading = read(operations.clone(), &config, (outbox.clone(), queue.clone()), (head, &fence), stop);
        let inside = (&snapshots, &sidecars, &ssh);
        door.open(served(operations.clone(), &config, &key, (height.clone(), &workflows), inside))?;
        let (clock, env) = (clock(&config.workflows.tick).await?, environment(&config, &chain));
        let desk = Desk::new(DeskParts {
            chain,
            seal_keys: SealKeys::of(&config.keystore, &key),
            key,
            records,
            fleet,
            conductor: operations.conductor(sidecars.clone()),
            workflows,
            sidecars,
            snapshots,
            menu: config.engine.menu,
            api_url: config.offer.api_url,
            ssh,
            head: height,
            fence,
            queue: queue.clone(),
            metrics,
            intake,
        });
        Ok(Self { desk, env, queue, clock, reading, outbox, letting_in, keeping, upkeep, records_failed })
    }

    /// The stock runner between our source and our outbox, until `stop`; then the work in hand is finished.
    async fn run(self, stop: CancellationToken) -> Result<(), NodeError> {
        let Self { desk, env, queue, clock, reading, outbox, letting_in, mut keeping, upkeep, records_failed } = self;
        let runner = runner(env, (&queue, clock), desk.clone(), outbox);
        tracing::info!("serving");
        let ended = tokio::select! {
            ended = runner => ended.map_err(NodeError::Runner),
            // The store takes no more writes in this life; the next one resumes from what it holds.
            () = records_failed.cancelled() => Err(NodeError::Records(RecordsError::Failed)),
            ended = reading => ended.map_err(NodeError::Reader)?.map_err(NodeError::Records),
            _ = &mut keeping.task => Err(NodeError::Keeper),
            () = stop.cancelled() => Ok(()),
        };
        stop.cancel();
        upkeep.stop.cancel();
        let leaving = async {
            if let Some(letting_in) = letting_in {
                letting_in.ended().await;
            }
        };
        let finishing = async { tokio::join!(desk.finish(), leaving) };
        if tokio::time::timeout(FINISH_TIMEOUT, finishing).await.is_err() {
            // Their keeper stays up to the last: without it they would be answered as failed.
            tracing::warn!("calls in hand are left for the next start");
            return ended;
        }
        keeping.stop.cancel();
        if !keeping.task.is_finished() && tokio::time::timeout(FINISH_TIMEOUT, keeping.task).await.is_err() {
            tracing::warn!("the sandbox keeper did not end in time");
        }
        if tokio::time::timeout(POOL_EMPTY_TIMEOUT, upkeep.task).await.is_err() {
            tracing::warn!("the pool is left for the next start to empty");
        }
        ended
    }
}

/// Makes sure that the records are of this operator on this chain.
fn bind(records: &Records, chain: &Chain, me: Address) -> Result<(), RecordsError> {
    let deployment = chain.deployment();
    records.bind(&format!(
        "operator {me} of blueprint {} at {} on chain {}",
        deployment.blueprint_id, deployment.manager, deployment.chain_id
    ))?;
    tracing::info!(operator = %me, chain = deployment.chain_id, node = connect::host_of(&deployment.rpc_url), "connected");
    Ok(())
}

/// How the fleet acts.
fn ports(
    containers: &Arc<DockerContainers>,
    sidecars: &Arc<SocketSidecars>,
    proxy: &Arc<Proxy>,
    snapshots: &Arc<Stores>,
    records: &Records,
) -> Ports {
    Ports {
        containers: containers.clone(),
        sidecars: sidecars.clone(),
        egress: proxy.clone(),
        snapshots: snapshots.clone(),
        sandboxes: Arc::new(records.clone()),
    }
}

/// Starts the sandbox keeper where a former life left it.
fn keep(capacity: Capacity, ports: Ports, records: &Records) -> Result<(Fleet, Keeping), RecordsError> {
    let (keeper, fleet) = Keeper::new(capacity, ports);
    let stop = CancellationToken::new();
    let task = tokio::spawn(keeper.run(records.sandboxes()?, stop.clone()));
    Ok((fleet, Keeping { task, stop }))
}

/// Starts what brings answers onto the chain.
fn send_off(
    config: &Config,
    chain: &Chain,
    (records, sender): (&Records, &Sender),
    height: watch::Receiver<u64>,
) -> Outbox {
    let depth = (height, confirmations(config, chain));
    let (outbox, task) = Outbox::new(chain.clone(), records.clone(), sender.clone(), depth);
    tokio::spawn(task.run());
    outbox
}

/// What the API answers from.
fn served(
    parts: Operations,
    config: &Config,
    key: &PrivateKeySigner,
    (head, workflows): (watch::Receiver<u64>, &Workflows),
    (snapshots, sidecars, ssh): (&Arc<Stores>, &Arc<SocketSidecars>, &Option<SshOffer>),
) -> Api {
    let Operations { chain, records, fleet, metrics, stories, me, .. } = parts;
    let quoting = api::quoting(quotes(config, &chain, key, &fleet));
    let url = config.offer.api_url.clone();
    let (snapshots, sidecars, ssh) = (snapshots.clone(), sidecars.clone(), ssh.clone());
    let workflows = workflows.clone();
    Api { chain, records, fleet, head, metrics, me, url, quoting, snapshots, sidecars, ssh, stories, workflows }
}

/// What quotes are made with.
fn quotes(config: &Config, chain: &Chain, key: &PrivateKeySigner, fleet: &Fleet) -> QuoteParts {
    QuoteParts {
        chain: chain.clone(),
        key: key.clone(),
        fleet: fleet.clone(),
        seal_keys: SealKeys::of(&config.keystore, key),
        menu: config.engine.menu.clone(),
        offer: config.offer.clone(),
        service: config.chain.service,
    }
}

/// Starts what reads the chain and approves; the calls that are due go into the queue. The task ends before it is told to
/// only by an error.
fn read(
    parts: Operations,
    config: &Config,
    (outbox, queue): (Outbox, JobQueue),
    (head, fence): (Head, &Fence),
    stop: CancellationToken,
) -> JoinHandle<Result<(), RecordsError>> {
    let Operations { chain, records, fleet, sender, intake, notices, me, .. } = parts;
    let reconciler =
        Reconciler { chain: chain.clone(), records: records.clone(), fleet: fleet.clone(), sender: sender.clone(), me };
    tokio::spawn(reconciler.run(stop.clone()));
    let (offer, policy) = (config.offer.clone(), config.policy.clone());
    let approvals = Approvals { chain: chain.clone(), sender, fleet: fleet.clone(), offer, policy, intake, me };
    tokio::spawn(approvals.run(head.height, stop.clone()));

    let admittance = Arc::new(Admittance {
        chain: chain.clone(),
        records: records.clone(),
        fleet: fleet.clone(),
        outbox: outbox.clone(),
        queue,
        duty: fence.duty.clone(),
        notices,
        service: config.chain.service,
        services: Mutex::default(),
    });
    let sweep = Sweep { chain: chain.clone(), records: records.clone(), admittance: admittance.clone() };
    tokio::spawn(sweep.run(stop.clone()));
    let confirmations = confirmations(config, &chain);
    let source = Source { chain, records, fleet, outbox, admittance, confirmations };
    tokio::spawn(source.run(head.looks, stop))
}

/// What is looked at before an effect begins.
fn fence(config: &Config, chain: &Chain, me: Address, looks: watch::Receiver<Look>) -> Fence {
    let head_age_s_max = config.chain.head_age_s_max.unwrap_or(if is_local(chain) { 0 } else { HEAD_AGE_S_MAX });
    Fence { duty: Duty::new(chain.clone(), me, looks.clone()), looks, head_age_s_max }
}

/// Waits for the engine: one that is down is no reason to end.
async fn containers(config: &Config, places: &Places) -> Result<Arc<DockerContainers>, DiskError> {
    let failpoint = config.failpoint.clone();
    let disks = Disks::open(&config.data_dir, config.engine.disk_quota, failpoint.clone()).await?;
    let connect = || DockerContainers::connect(&config.engine, places.clone(), disks.clone(), failpoint.clone());
    Ok(Arc::new(until_answered("container engine", connect).await))
}

/// Starts to keep the pool filled and the host swept.
fn keep_host(
    containers: Arc<DockerContainers>,
    (fleet, records): (&Fleet, &Records),
    sidecars: Arc<dyn Sidecars>,
    capacity: Capacity,
) -> Keeping {
    let stop = CancellationToken::new();
    let owners = Owners { fleet: fleet.clone(), records: records.clone() };
    let upkeep = Upkeep { census: Arc::new(owners), sidecars, capacity };
    Keeping { task: tokio::spawn(containers.keep(upkeep, stop.clone())), stop }
}

/// Whose the things in the engine are: the keeper knows the sandboxes, the records how much they know.
struct Owners {
    fleet: Fleet,
    records: Records,
}

#[async_trait]
impl Census for Owners {
    async fn living(&self) -> Result<Vec<Sandbox>, Box<dyn Error + Send + Sync>> {
        Ok(self.fleet.living().await?)
    }

    async fn is_whole(&self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        Ok(!self.records.are_restored()?)
    }
}

/// Local chains make a block per transaction, so there nothing ever gains a second confirmation by itself.
fn confirmations(config: &Config, chain: &Chain) -> u64 {
    config.chain.confirmations.unwrap_or(if is_local(chain) { 0 } else { 2 })
}

/// Whether this is a developer's chain, which makes blocks only when there is cause.
fn is_local(chain: &Chain) -> bool {
    const LOCAL: [u64; 2] = [31_337, 1_337];
    LOCAL.contains(&chain.deployment().chain_id)
}

/// The one who sends for the operator.
fn sender(config: &Config, chain: &Chain, key: &PrivateKeySigner) -> Sender {
    Sender::start(account(config, chain, key), key::lock_path(&config.keystore), config.failpoint.clone())
}

/// The operator's account. Its key is this process's alone, or shared by turns.
fn account(config: &Config, chain: &Chain, key: &PrivateKeySigner) -> Account {
    let patience = Patience { bump_after: FEE_BUMP_AFTER, fee_max: config.chain.fee_max };
    let account = Account::new(chain.clone(), key.clone()).mined_within(MINED_WITHIN);
    account.manner(Nonces::Heal, patience, Some(TRANSACTION_GAS_MAX))
}
