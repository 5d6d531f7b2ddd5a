//! The one place that wires: builds every part, hands each what it needs, and ends them in order.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;
use blueprint_sdk::JobCall;
use blueprint_sdk::runner::BlueprintRunner;
use blueprint_sdk::runner::config::{BlueprintEnvironment, ProtocolSettings};
use blueprint_sdk::runner::tangle::config::TangleProtocolSettings;
use blueprint_sdk::tangle::extract::{CallId, ServiceId};
use futures::StreamExt as _;
use sandbox_fleet::ports::Containers;
use sandbox_fleet::{Fleet, Keeper};
use sandbox_sdk::chain::{Nonces, Patience};
use sandbox_sdk::{Account, Chain};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Api, QuoteParts};
use crate::chain::approvals::Approvals;
use crate::chain::connect::{self, FindError};
use crate::chain::duty::Duty;
use crate::chain::head::{self, Head};
use crate::chain::intake::Intake;
use crate::chain::key::{self, KeyError};
use crate::chain::outbox::Outbox;
use crate::chain::reconciler::Reconciler;
use crate::chain::registration::{self, RegistrationError};
use crate::chain::sender::Sender;
use crate::chain::source::Source;
use crate::chain::sweep::Sweep;
use crate::chain::until_answered;
use crate::config::Config;
use crate::docker::DockerContainers;
use crate::jobs::{self, Desk, DeskParts, Fence, JobQueue, Ticket};
use crate::limits::{FEE_BUMP_AFTER, FINISH_TIMEOUT, HEAD_AGE_S_MAX, MINED_WITHIN, TRANSACTION_GAS_MAX};
use crate::metrics::Metrics;
use crate::places::{Places, TooDeep};
use crate::records::{Records, RecordsError};
use crate::sidecars::SocketSidecars;

/// Why the node does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// The state directory.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The socket directory.
    #[error(transparent)]
    Places(#[from] TooDeep),
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
    /// The counters.
    #[error("cannot set up metrics")]
    Metrics(#[from] prometheus::Error),
    /// What reads the chain.
    #[error("reading the chain ended")]
    Reader(#[source] tokio::task::JoinError),
    /// What keeps the sandboxes.
    #[error("the sandbox keeper ended")]
    Keeper,
    /// The blueprint runner.
    #[error("the blueprint runner ended")]
    Runner(#[source] blueprint_sdk::runner::error::RunnerError),
}

/// Registers the account with its offer, unless that is done.
pub(crate) async fn register(config: &Config) -> Result<(), NodeError> {
    let key = key::load(&config.keystore_uri)?;
    let chain = connect::find(&config.chain).await?;
    let sender = Sender::start(account(config, &chain, &key), key::lock_path(&config.keystore_uri));
    Ok(registration::ensure(&chain, &sender, &key, &config.offer).await?)
}

/// Runs the node until `stop`.
pub(crate) async fn run(config: Config, stop: CancellationToken) -> Result<(), NodeError> {
    if config.register_only {
        return tokio::select! {
            registered = register(&config) => registered,
            () = stop.cancelled() => Ok(()),
        };
    }
    let (records, records_guard) = Records::open(&config.data_dir)?;
    let listener = TcpListener::bind(config.api_listen).await.map_err(NodeError::Listen)?;
    let key = key::load(&config.keystore_uri)?;
    let starting = tokio::select! {
        started = Node::start(config, key, records, listener, stop.clone()) => started,
        () = stop.cancelled() => return Ok(()),
    };
    let ended = match starting {
        Ok(node) => node.run(stop.clone()).await,
        Err(error) => Err(error),
    };
    stop.cancel();
    drop(records_guard);
    ended
}

/// A node whose parts stand.
struct Node {
    desk: Arc<Desk>,
    env: BlueprintEnvironment,
    queue: JobQueue,
    reading: JoinHandle<Result<(), RecordsError>>,
    outbox: Outbox,
    keeping: Keeping,
    records_failed: CancellationToken,
}

/// The sandbox keeper's task. It ends after the work in hand, which needs it.
struct Keeping {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Node {
    async fn start(
        config: Config,
        key: PrivateKeySigner,
        records: Records,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> Result<Self, NodeError> {
        let chain = connect::find(&config.chain).await?;
        let deployment = chain.deployment();
        let me = key.address();
        records.bind(&format!(
            "operator {me} of blueprint {} at {} on chain {}",
            deployment.blueprint_id, deployment.manager, deployment.chain_id
        ))?;
        tracing::info!(operator = %me, chain = deployment.chain_id, node = connect::host_of(&deployment.rpc_url), "connected");

        let sender = Sender::start(account(&config, &chain, &key), key::lock_path(&config.keystore_uri));
        registration::ensure(&chain, &sender, &key, &config.offer).await?;
        let places = Places::new(&config.run_dir, deployment.core, records.state_id()?)?;
        let containers = containers(&config, &places).await;
        let sidecars = Arc::new(SocketSidecars::new(places));
        let Head { height: head, looks } = head::follow(chain.clone(), config.chain.ws_url.clone(), stop.clone()).await;
        let metrics = Metrics::new()?;

        let (keeper, fleet) =
            Keeper::new(config.offer.capacity, containers, sidecars.clone(), Arc::new(records.clone()));
        let keeper_stop = CancellationToken::new();
        let keeper = tokio::spawn(keeper.run(records.sandboxes()?, keeper_stop.clone()));
        let keeping = Keeping { task: keeper, stop: keeper_stop };
        let records_failed = records.failed();
        let depth = (head.clone(), confirmations(&config, &chain));
        let (outbox, outbox_task) = Outbox::new(chain.clone(), records.clone(), sender.clone(), depth);
        tokio::spawn(outbox_task.run());

        let reader = Reader { chain: chain.clone(), records: records.clone(), fleet: fleet.clone(), sender, me };
        let queue = JobQueue::new(config.chain.jobs_concurrent);
        let heads = Head { height: head.clone(), looks: looks.clone() };
        let reading = reader.start(&config, (outbox.clone(), queue.clone()), heads, stop.clone());
        let head_age_s_max = config.chain.head_age_s_max.unwrap_or(if is_local(&chain) { 0 } else { HEAD_AGE_S_MAX });
        let fence = Fence { duty: Duty::new(chain.clone(), me), looks, head_age_s_max };

        let quotes = QuoteParts {
            chain: chain.clone(),
            key: key.clone(),
            fleet: fleet.clone(),
            images: config.engine.images.clone(),
            offer: config.offer.clone(),
            service: config.chain.service,
        };
        let api = Api {
            chain: chain.clone(),
            records: records.clone(),
            fleet: fleet.clone(),
            head: head.clone(),
            metrics: metrics.clone(),
            me,
            quoting: api::quoting(quotes),
            stop: stop.clone(),
        };
        serve_api(listener, api);

        let env = environment(&config, &chain);
        let desk = Desk::new(DeskParts {
            chain,
            key,
            records,
            fleet,
            sidecars,
            images: config.engine.images,
            api_url: config.offer.api_url,
            head,
            fence,
            queue: queue.clone(),
            metrics,
        });
        Ok(Self { desk, env, queue, reading, outbox, keeping, records_failed })
    }

    /// The stock runner between our source and our outbox, until `stop`; then the work in hand is finished.
    async fn run(self, stop: CancellationToken) -> Result<(), NodeError> {
        let Self { desk, env, queue, reading, outbox, mut keeping, records_failed } = self;
        let calls = queue.stream().map(|ticket| Ok::<_, Infallible>(job_call(&ticket)));
        let runner = BlueprintRunner::builder(Unregistered, env)
            .router(jobs::router(desk.clone()))
            .producer(Box::pin(calls))
            .consumer(outbox)
            .run();
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
        if tokio::time::timeout(FINISH_TIMEOUT, desk.finish()).await.is_err() {
            // Their keeper stays up to the last: without it they would be answered as failed.
            tracing::warn!("calls in hand are left for the next start");
            return ended;
        }
        keeping.stop.cancel();
        if !keeping.task.is_finished() && tokio::time::timeout(FINISH_TIMEOUT, keeping.task).await.is_err() {
            tracing::warn!("the sandbox keeper did not end in time");
        }
        ended
    }
}

/// What reads the chain and approves.
struct Reader {
    chain: Chain,
    records: Records,
    fleet: Fleet,
    sender: Sender,
    me: Address,
}

impl Reader {
    /// Starts reading; the calls that are due go into the queue. The task ends before `stop` only by an error.
    fn start(
        self,
        config: &Config,
        (outbox, queue): (Outbox, JobQueue),
        head: Head,
        stop: CancellationToken,
    ) -> JoinHandle<Result<(), RecordsError>> {
        let Self { chain, records, fleet, sender, me } = self;
        let reconciler = Reconciler {
            chain: chain.clone(),
            records: records.clone(),
            fleet: fleet.clone(),
            sender: sender.clone(),
            me,
        };
        tokio::spawn(reconciler.run(stop.clone()));
        let offer = config.offer.clone();
        let approvals = Approvals { chain: chain.clone(), sender, fleet: fleet.clone(), offer, me };
        tokio::spawn(approvals.run(head.height, stop.clone()));

        let intake = Arc::new(Intake {
            chain: chain.clone(),
            records: records.clone(),
            fleet: fleet.clone(),
            outbox: outbox.clone(),
            queue,
            duty: Duty::new(chain.clone(), me),
            service: config.chain.service,
            services: Mutex::default(),
        });
        let sweep = Sweep { chain: chain.clone(), records: records.clone(), intake: intake.clone() };
        tokio::spawn(sweep.run(stop.clone()));
        let confirmations = confirmations(config, &chain);
        let source = Source { chain, records, fleet, outbox, intake, confirmations };
        tokio::spawn(source.run(head.looks, stop))
    }
}

/// The runner neither registers nor exits after it: that is done before it starts.
struct Unregistered;

impl blueprint_sdk::runner::BlueprintConfig for Unregistered {
    async fn requires_registration(
        &self,
        _: &BlueprintEnvironment,
    ) -> Result<bool, blueprint_sdk::runner::error::RunnerError> {
        Ok(false)
    }

    fn should_exit_after_registration(&self) -> bool {
        false
    }
}

/// Waits for the engine: one that is down is no reason to end.
async fn containers(config: &Config, places: &Places) -> Arc<dyn Containers> {
    let engine = &config.engine;
    let connect = || DockerContainers::connect(&engine.host, places.clone(), engine.runtime.clone());
    Arc::new(until_answered("container engine", connect).await)
}

fn serve_api(listener: TcpListener, api: Api) {
    tokio::spawn(async move {
        if let Err(error) = api::serve(listener, Arc::new(api)).await {
            tracing::error!(%error, "the API ended");
        }
    });
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

/// The operator's account. Its key is this process's alone, or shared by turns.
fn account(config: &Config, chain: &Chain, key: &PrivateKeySigner) -> Account {
    let patience = Patience { bump_after: FEE_BUMP_AFTER, fee_max: config.chain.fee_max };
    let account = Account::new(chain.clone(), key.clone()).mined_within(MINED_WITHIN);
    account.manner(Nonces::Heal, patience, Some(TRANSACTION_GAS_MAX))
}

/// What the SDK's runner wants to know. Without the Blueprint Manager's socket it must not look for the manager, which is
/// what it calls test mode.
fn environment(config: &Config, chain: &Chain) -> BlueprintEnvironment {
    let deployment = chain.deployment();
    let mut env = BlueprintEnvironment::default();
    env.http_rpc_endpoint = deployment.rpc_url.clone();
    env.keystore_uri = config.keystore_uri.clone();
    env.data_dir = config.data_dir.clone();
    env.bridge_socket_path = config.bridge_socket.clone();
    env.test_mode = config.bridge_socket.is_none();
    env.protocol_settings = ProtocolSettings::Tangle(TangleProtocolSettings {
        blueprint_id: deployment.blueprint_id,
        service_id: config.chain.service,
        tangle_contract: deployment.core,
        ..TangleProtocolSettings::default()
    });
    env
}

/// A recorded call in the SDK's form. The inputs stay in the record, which is what handlers read.
fn job_call(ticket: &Ticket) -> JobCall {
    let mut call = JobCall::new(ticket.job, bytes::Bytes::new());
    call.metadata_mut().insert(CallId::METADATA_KEY, ticket.key.call);
    call.metadata_mut().insert(ServiceId::METADATA_KEY, ticket.key.service);
    call
}
