//! Files as the sidecar sees them: a worker that is the agent, started when it is needed and ended when it is not.
//!
//! The worker is this program once more, told [`Served`]. It resolves, reads and writes as the agent, and holds nothing
//! that the agent may not have. Whoever ends it, an agent's process or the kernel, ends the requests that it has in
//! hand; the next one starts another.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_protocol::limits::FILES_RUNNING_MAX;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::handover::{hand_over, taken};
use crate::exec::{self, ExecError, Identity};
use crate::limits::{FILES_END_MAX, FILES_WORKERS_TRIED_MAX, TOLD_BYTES_MAX};

/// What the worker serves.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Served {
    /// The workspace.
    #[arg(long)]
    pub workspace: PathBuf,
    /// The agent's home.
    #[arg(long)]
    pub home: PathBuf,
}

/// What files are served from, and by whom.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The sidecar's program.
    pub program: PathBuf,
    /// What is served.
    pub served: Served,
    /// Who the worker runs as; `None` is the sidecar's own user.
    pub identity: Option<Identity>,
    /// Time without a request after which the worker is ended.
    pub idle_max: Duration,
    /// Time that the worker has to answer a request that it has in full, and to go on with an answer.
    pub answer_max: Duration,
    /// Ends what is under way.
    pub stop: CancellationToken,
}

/// Why a request has no worker.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// As many requests run as may.
    #[error("as many requests about files run as may")]
    Full,
    /// The sidecar is ending.
    #[error("the sidecar is ending")]
    Ending,
    /// The worker could not be started.
    #[error(transparent)]
    Start(#[from] ExecError),
    /// The worker was ended before it could be asked, or takes nothing.
    #[error("the worker was ended")]
    Lost(#[source] std::io::Error),
}

/// Hands out connections to the worker. Clones share everything.
#[derive(Debug, Clone)]
pub struct Files {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    places: Arc<Semaphore>,
    /// The one worker; starting one takes the lock.
    worker: tokio::sync::Mutex<Option<Worker>>,
    used: Mutex<Instant>,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Worker {
    channel: UnixStream,
    /// Cancelled when the process is no more, or is to be no more.
    gone: CancellationToken,
}

/// A connection to the worker.
#[derive(Debug)]
pub struct Connection {
    /// HTTP/1 is spoken here.
    pub stream: UnixStream,
    /// Held as long as the request.
    pub place: Held,
}

/// A request's place, and its word that the worker is needed.
#[derive(Debug)]
pub struct Held {
    shared: Arc<Shared>,
    gone: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

impl Held {
    /// Time after which the worker, which does not go on, is to be [ended](Self::end_worker).
    pub fn answer_max(&self) -> Duration {
        self.shared.settings.answer_max
    }

    /// Ends the worker, which does not do its work.
    pub fn end_worker(&self) {
        self.gone.cancel();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.shared.used() = Instant::now();
    }
}

impl Shared {
    /// Nothing panics while it holds the lock.
    fn used(&self) -> MutexGuard<'_, Instant> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// No worker runs yet.
    pub fn new(settings: Settings) -> Self {
        let shared = Shared {
            settings,
            places: Arc::new(Semaphore::new(FILES_RUNNING_MAX)),
            worker: tokio::sync::Mutex::default(),
            used: Mutex::new(Instant::now()),
            tasks: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A connection to the worker, which is started where there is none.
    ///
    /// # Errors
    /// [`KeeperError`]; nothing was asked.
    pub async fn connect(&self) -> Result<Connection, KeeperError> {
        let shared = &self.shared;
        if shared.settings.stop.is_cancelled() {
            return Err(KeeperError::Ending);
        }
        let permit = Arc::clone(&shared.places).try_acquire_owned().map_err(|_| KeeperError::Full)?;
        for _ in 0..FILES_WORKERS_TRIED_MAX {
            let (stream, gone) = self.handed().await?;
            match timeout(shared.settings.answer_max, taken(stream)).await {
                Ok(Ok(stream)) => {
                    return Ok(Connection {
                        stream,
                        place: Held { shared: Arc::clone(shared), gone, _permit: permit },
                    });
                }
                // It was killed so lately that nobody was told.
                Ok(Err(_)) => gone.cancel(),
                Err(late) => {
                    gone.cancel();
                    return Err(KeeperError::Lost(late.into()));
                }
            }
        }
        Err(KeeperError::Lost(ErrorKind::ConnectionReset.into()))
    }

    /// A connection that the worker was given, and may have taken.
    async fn handed(&self) -> Result<(UnixStream, CancellationToken), KeeperError> {
        let mut worker = self.shared.worker.lock().await;
        let handed = worker.as_ref().filter(|worker| !worker.gone.is_cancelled()).map(Worker::connect);
        match handed {
            Some(Ok(connected)) => Ok(connected),
            Some(Err(_)) | None => worker.insert(self.start().await?).connect().map_err(KeeperError::Lost),
        }
    }

    /// Returns when, after the signal to stop, no worker is left.
    pub async fn stopped(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    async fn start(&self) -> Result<Worker, KeeperError> {
        let Settings { program, served, identity, stop, .. } = &self.shared.settings;
        let (own, other) = StdUnixStream::pair().map_err(KeeperError::Lost)?;
        let mut command = Command::new(program);
        command
            .arg0("sandbox-sidecar")
            .arg("serve-files")
            .arg("--workspace")
            .arg(&served.workspace)
            .arg("--home")
            .arg(&served.home)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = exec::start(command, Path::new("/"), *identity).await?;
        own.set_nonblocking(true).and_then(|()| UnixStream::from_std(own)).map_err(KeeperError::Lost).map(|channel| {
            let gone = CancellationToken::new();
            let files = self.clone();
            let (told, stop) = (gone.clone(), stop.clone());
            self.shared.tasks.spawn(async move { files.keep(child, told, stop).await });
            Worker { channel, gone }
        })
    }

    /// Waits for the end of a worker, or brings it about.
    async fn keep(&self, mut child: Child, gone: CancellationToken, stop: CancellationToken) {
        let stderr = child.stderr.take();
        let ended = tokio::select! {
            status = child.wait() => Some(status),
            () = gone.cancelled() => None,
            () = stop.cancelled() => None,
            () = self.idle(&gone) => timeout(FILES_END_MAX, child.wait()).await.ok(),
        };
        gone.cancel();
        match ended {
            Some(Ok(status)) if status.success() => {}
            Some(_) => {
                let mut text = Vec::new();
                if let Some(stderr) = stderr {
                    stderr.take(TOLD_BYTES_MAX).read_to_end(&mut text).await.ok();
                }
                tracing::warn!(status = ?ended, told = %String::from_utf8_lossy(&text), "a worker for files was ended");
            }
            None => {
                if let Err(error) = child.kill().await {
                    tracing::warn!(%error, "a worker for files was not killed");
                }
            }
        }
    }

    /// Returns when the worker has had nothing to do for so long, and its channel is closed: it ends by itself then.
    async fn idle(&self, gone: &CancellationToken) {
        let Settings { idle_max, .. } = self.shared.settings;
        loop {
            let due = *self.shared.used() + idle_max;
            sleep_until(due).await;
            let mut worker = self.shared.worker.lock().await;
            let unused = self.shared.places.available_permits() == FILES_RUNNING_MAX;
            if unused && *self.shared.used() + idle_max <= Instant::now() {
                gone.cancel();
                *worker = None;
                return;
            }
            if !unused {
                *self.shared.used() = Instant::now();
            }
        }
    }
}

impl Worker {
    fn connect(&self) -> std::io::Result<(UnixStream, CancellationToken)> {
        hand_over(&self.channel).map(|stream| (stream, self.gone.clone()))
    }
}
