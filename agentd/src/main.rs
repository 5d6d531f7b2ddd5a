//! The process's life: read what it is told, take up what was left, serve, stop when its sidecar is gone.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use sandbox_agent::provider::{HttpSettings, http_client};
use sandbox_agentd::backend::Backend;
use sandbox_agentd::backends::{self, ClaudeAgent, FspPrograms, Opencode};
use sandbox_agentd::config::Config;
use sandbox_agentd::debates::Debates;
use sandbox_agentd::hands::Sidecar;
use sandbox_agentd::http::doorway;
use sandbox_agentd::limits::{ALONE_MAX, STOP_MAX};
use sandbox_agentd::native::{self, Native};
use sandbox_agentd::runs::{Runs, Settings};
use sandbox_process::logging::{self, Format};
use sandbox_process::signals;
use sandbox_process::source::Environment;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixListener;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// In the storage: held by the one process that works on it.
const LOCK: &str = "agentd.lock";

fn main() -> ExitCode {
    // Its library for providers warns of every empty piece of an answer.
    logging::start(Format::Text, "info,genai=error");
    match live() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn live() -> Result<()> {
    let config = Config::read(&Environment)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<()> {
    let stop = signals::shutdown()?;
    tokio::spawn(with_sidecar(stop.clone()));
    let _alone = alone(config.storage.join(LOCK)).await?;
    // Whatever is there was another process's, which is gone.
    match std::fs::remove_file(&config.socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context("AGENTD_SOCKET"),
        Ok(()) | Err(_) => {}
    }
    let runs = Runs::open(settings(&config, &stop)?).context("STORAGE_PATH")?;
    let listener = UnixListener::bind(&config.socket).context("AGENTD_SOCKET")?;
    let doorway = doorway(runs.clone(), stop.clone());
    doorway.serve(listener);
    // The one word that the sidecar waits for.
    writeln!(std::io::stdout(), "ready").context("nobody waits for this process")?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "serving");
    stop.cancelled().await;
    let stopped = timeout(STOP_MAX, async { tokio::join!(runs.stopped(), doorway.closed()) });
    stopped.await.map(drop).context("did not stop in time")
}

fn settings(config: &Config, stop: &CancellationToken) -> Result<Settings> {
    let http = http_client(&HttpSettings { proxy: config.proxy.clone(), ..HttpSettings::default() });
    let http = http.context("AGENTD_PROXY")?;
    let sidecar = Sidecar::new(config.sidecar.clone(), config.token.clone());
    let native = Native::new(native::Settings {
        sidecar: sidecar.clone(),
        http: http.clone(),
        providers: config.providers.clone(),
        sessions: config.storage.join("sessions"),
        runs: config.storage.join("runs"),
    });
    let programs = Arc::new(FspPrograms::new(sidecar.pool().clone()));
    let of = |program: &str| backends::Settings {
        program: program.to_owned(),
        home: config.home.clone(),
        workspace: config.workspace.clone(),
        storage: config.storage.clone(),
        own: config.providers.clone(),
    };
    let backends: Vec<Arc<dyn Backend>> = vec![
        Arc::new(native),
        Arc::new(Opencode::new(programs.clone(), of("opencode"))),
        Arc::new(ClaudeAgent::new(programs, of("claude"))),
    ];
    Ok(Settings {
        storage: config.storage.clone(),
        backends,
        negotiator: Arc::new(Debates::new(http, config.providers.clone(), sidecar)),
        profiles: config.profiles.clone(),
        backend_default: config.backend.clone(),
        profile_default: config.profile.clone(),
        stop: stop.clone(),
    })
}

/// Waits until no other process works on this storage: one whose sidecar was killed may be about to end. The lock holds as
/// long as the file.
async fn alone(path: PathBuf) -> Result<File> {
    let locking = spawn_blocking(move || {
        let file = File::create(path)?;
        file.lock()?;
        Ok::<_, std::io::Error>(file)
    });
    timeout(ALONE_MAX, locking).await.context("another process works on this storage")??.context("STORAGE_PATH")
}

/// The sidecar holds the other end of stdin: when that is closed, it is gone.
async fn with_sidecar(stop: CancellationToken) {
    let mut word = [0; 1];
    while matches!(tokio::io::stdin().read(&mut word).await, Ok(1..)) {}
    stop.cancel();
}
