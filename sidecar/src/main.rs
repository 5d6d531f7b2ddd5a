//! The sidecar's life: read what it is told, open the doors, serve, stop under a deadline.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use nix::sys::signal::SigSet;
use nix::unistd::geteuid;
use sandbox_process::logging::{self, Format};
use sandbox_process::signals;
use sandbox_process::source::{self, Environment};
use sandbox_protocol::egress::EGRESS_PORT;
use sandbox_protocol::events::Happening;
use sandbox_protocol::limits::PTY_KEEP_S;
use sandbox_sidecar::agents::{self, Agents};
use sandbox_sidecar::archive::Job;
use sandbox_sidecar::channel::{self, Channels, OpenSocket};
use sandbox_sidecar::config::{Config, Doors};
use sandbox_sidecar::events::Events;
use sandbox_sidecar::exec::{Engine, Identity};
use sandbox_sidecar::files::{self, Files};
use sandbox_sidecar::fsp::Sessions;
use sandbox_sidecar::http::{
    Served, SocketFile, Streams, Token, Upgraded, doorway, open_port, open_socket, router, worker,
};
use sandbox_sidecar::limits::{FILES_ANSWER_MAX, FILES_IDLE_MAX, STOP_MAX};
use sandbox_sidecar::pty::{self, Terminals};
use sandbox_sidecar::sftp;
use sandbox_sidecar::snapshot::{self, Settings, Snapshots};
use sandbox_sidecar::tunnel::Tunnels;
use sandbox_sidecar::{egress, first, healthcheck};
use tokio::net::UnixListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The server inside every sandbox. Settings come from the environment: SIDECAR_PORT, SIDECAR_SOCKET,
/// SIDECAR_AUTH_TOKEN, SIDECAR_EGRESS_SOCKET, SIDECAR_CGROUP, AGENT_WORKSPACE_ROOT, AGENT_HOME, AGENT_UID, AGENT_GID,
/// STORAGE_PATH; of agents and models those that `sandbox-agentd` reads.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Ask the running sidecar whether it answers, instead of being one.
    #[arg(long)]
    healthcheck: bool,
    #[command(subcommand)]
    work: Option<Work>,
}

/// What this program does as the agent, when the sidecar starts it once more.
#[derive(Debug, clap::Subcommand)]
enum Work {
    #[command(flatten)]
    Archive(Job),
    /// Serve the agent's files to the sidecar.
    #[command(hide = true)]
    ServeFiles(files::Served),
    /// Open a Unix socket for the sidecar.
    #[command(hide = true)]
    OpenSocket(OpenSocket),
    /// Serve the agent's files to an SFTP client on stdin and stdout.
    #[command(hide = true)]
    ServeSftp(sftp::Served),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.work {
        Some(Work::Archive(job)) => return job.run(),
        Some(Work::ServeFiles(served)) => {
            return worker::run(&served).map_or_else(|error| failed(&error.into()), |()| ExitCode::SUCCESS);
        }
        Some(Work::OpenSocket(opening)) => return opening.run(),
        Some(Work::ServeSftp(served)) => {
            logging::start(Format::Text, "info");
            return serve_sftp(&served).map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS);
        }
        None => {}
    }
    logging::start(Format::Text, "info");
    let ended = if arguments.healthcheck {
        check_health()
    } else if first::is_first() {
        return first::run().unwrap_or_else(|error| failed(&error.into()));
    } else {
        live()
    };
    ended.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

fn failed(error: &anyhow::Error) -> ExitCode {
    tracing::error!("{error:#}");
    ExitCode::FAILURE
}

fn serve_sftp(served: &sftp::Served) -> Result<()> {
    Ok(sftp::run(served, source::optional(&Environment, "HOME")?)?)
}

fn check_health() -> Result<()> {
    healthcheck::run(&Doors::read(&Environment)?).context("the sidecar is not healthy")
}

fn live() -> Result<()> {
    // Whoever started this process may have left signals blocked; `first` does.
    SigSet::empty().thread_set_mask()?;
    let config = Config::read(&Environment)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<()> {
    let workspace = &config.workspace;
    let found = fs::metadata(workspace).with_context(|| format!("AGENT_WORKSPACE_ROOT={}", workspace.display()))?;
    ensure!(found.is_dir(), "AGENT_WORKSPACE_ROOT={}: is no directory", workspace.display());
    let stop = signals::shutdown()?;
    let identity = identity(config.agent);
    let events = Events::new(SystemTime::now());
    let engine = engine(&config, identity, events.clone())?;
    let snapshots = Snapshots::new(Settings {
        program: snapshot::own_program(),
        workspace: workspace.clone(),
        home: config.home.clone(),
        identity,
        stop: stop.clone(),
    });
    if let Err(error) = snapshots.recover().await {
        tracing::error!(error = &error as &dyn std::error::Error, "a broken restore was not cleared up");
    }
    let files = files(&config, identity, &stop);
    let way_out = way_out(config.egress.clone(), &stop).await?;
    let streams = streams(&config, identity, events, &stop);
    let sessions = Sessions::new(engine.clone());
    let token = token(config.token.clone())?;
    let inner = inner_door(&config);
    let agents = match inner {
        Some(_) => agents(&config, &token, &stop)?,
        None => None,
    };
    let served = Served {
        agents: agents.clone(),
        engine: engine.clone(),
        sessions,
        files: files.clone(),
        snapshots: snapshots.clone(),
        streams: streams.clone(),
    };
    let router = router(served, token);
    let doorway = doorway(router, stop.clone());
    let _inner = inner.map(|(listener, file)| {
        doorway.serve(listener);
        file
    });
    let socket = match &config.doors.socket {
        Some(path) => {
            let (listener, file) = open_socket(path).with_context(|| format!("SIDECAR_SOCKET={}", path.display()))?;
            doorway.serve(listener);
            Some(file)
        }
        None => None,
    };
    if let Some(port) = config.doors.port {
        doorway.serve(open_port(port).await.with_context(|| format!("SIDECAR_PORT={port}"))?);
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?config.doors, workspace = %workspace.display(), "serving");
    stop.cancelled().await;
    drop(socket);
    let stopped = timeout(STOP_MAX, async {
        if let Some(agents) = &agents {
            agents.stop().await;
        }
        tokio::join!(engine.stop(), snapshots.stopped(), files.stopped(), streams.stop(), doorway.closed());
        way_out.wait().await;
    });
    stopped.await.context("did not stop in time")
}

/// Who serves the agent's files.
fn files(config: &Config, identity: Option<Identity>, stop: &CancellationToken) -> Files {
    Files::new(files::Settings {
        program: snapshot::own_program(),
        served: files::Served { workspace: config.workspace.clone(), home: config.home.clone() },
        identity,
        idle_max: FILES_IDLE_MAX,
        answer_max: FILES_ANSWER_MAX,
        stop: stop.clone(),
    })
}

/// What runs programs, each in a control group of its own where one was handed over.
fn engine(config: &Config, identity: Option<Identity>, events: Events) -> Result<Engine> {
    let (workspace, environment) = (&config.workspace, config.environment());
    match &config.cgroup {
        None => Ok(Engine::with_environment(workspace, identity, environment, events)),
        Some(groups) => Engine::with_groups(workspace, identity, environment, (events, groups.as_path()))
            .with_context(|| format!("SIDECAR_CGROUP={}", groups.display())),
    }
}

/// Terminals, tunnels, channels and events. Nobody is let in through a tunnel, or out of a channel, to where the sidecar itself listens.
fn streams(config: &Config, identity: Option<Identity>, events: Events, stop: &CancellationToken) -> Streams {
    events.publish(Happening::SidecarStarted { version: env!("CARGO_PKG_VERSION").to_owned() });
    let settings = pty::Settings {
        workspace: config.workspace.clone(),
        identity,
        environment: config.environment(),
        keep: Duration::from_secs(PTY_KEEP_S),
    };
    let reserved: BTreeSet<u16> = [EGRESS_PORT].into_iter().chain(config.doors.port).collect();
    let channels = channel::Settings {
        program: snapshot::own_program(),
        workspace: config.workspace.clone(),
        identity,
        environment: config.environment(),
        shell: channel::login_shell(identity.map_or_else(geteuid, |identity| identity.uid)),
        reserved: reserved.clone(),
        bounds: channel::Bounds::default(),
    };
    Streams {
        terminals: Terminals::new(settings, events.clone()),
        tunnels: Tunnels::new(reserved.clone()),
        channels: Channels::new(channels),
        events,
        upgraded: Upgraded::new(stop.clone()),
    }
}

/// The door for who does language-model work. A sidecar whose storage cannot be used does everything else.
fn inner_door(config: &Config) -> Option<(UnixListener, SocketFile)> {
    let storage = config.storage.as_ref()?;
    match open_socket(&agents::own_socket(storage)) {
        Ok(door) => Some(door),
        Err(error) => {
            tracing::warn!(storage = %storage.display(), %error, "STORAGE_PATH cannot be used: there are no agents");
            None
        }
    }
}

/// Who does language-model work, where there is storage for it.
fn agents(config: &Config, token: &Token, stop: &CancellationToken) -> Result<Option<Agents>> {
    let Some(storage) = &config.storage else { return Ok(None) };
    let proxy = config.egress.is_some().then(egress::address);
    Ok(Some(Agents::new(agents::Settings {
        program: agents::program().context("the place of this program")?,
        storage: storage.clone(),
        token: token.clone(),
        workspace: config.workspace.clone(),
        home: config.home.clone(),
        proxy,
        passed: config.agents.clone(),
        stop: stop.clone(),
    })))
}

/// Opens the door out, where there is something behind it.
async fn way_out(proxy: Option<PathBuf>, stop: &CancellationToken) -> Result<TaskTracker> {
    let tasks = TaskTracker::new();
    if let Some(proxy) = proxy {
        let listener = egress::open().await.context("SIDECAR_EGRESS_SOCKET: cannot listen for commands")?;
        tasks.spawn(egress::serve(listener, proxy, stop.clone()));
    }
    tasks.close();
    Ok(tasks)
}

/// Who commands run as: the agent, where this process is root and so may choose.
fn identity(agent: Identity) -> Option<Identity> {
    let own = geteuid();
    if own.is_root() {
        return Some(agent);
    }
    tracing::warn!(uid = %own, "not root: commands run as this user too and can reach the sidecar's token");
    None
}

/// The token that was given, or a new one, told once.
#[allow(clippy::print_stdout)] // the only way by which a new token reaches its owner
fn token(given: Option<Token>) -> Result<Token> {
    if let Some(token) = given {
        return Ok(token);
    }
    let token = Token::random().context("cannot make a token")?;
    println!("SIDECAR_AUTH_TOKEN={}", token.reveal());
    Ok(token)
}
