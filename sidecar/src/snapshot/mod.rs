//! Snapshots as the sidecar sees them: one at a time, made and taken by a process that is the agent.
//!
//! The process is this program once more, told its [`Job`]. What it reads and writes is what the agent may; the sidecar
//! passes the bytes on, ends the process when it takes too long or nobody waits any more, and never opens a file of the
//! agent's itself.

mod error;
mod export;
mod worker;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes};
use sandbox_protocol::snapshot::{ExportQuery, RestoreQuery, RestoreReply, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::error::SnapshotError;
pub use self::export::{CutOff, Export};
use self::worker::Worker;
use crate::archive::{Job, Root, Roots, STAGING, Told};
use crate::exec::Identity;
use crate::limits::{RECOVERY_MAX, REFUSED_BODY_MAX, SNAPSHOT_MAX};

/// What snapshots are made of, and by whom.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The sidecar's program.
    pub program: PathBuf,
    /// The workspace.
    pub workspace: PathBuf,
    /// The agent's home.
    pub home: PathBuf,
    /// Who the process runs as; `None` is the sidecar's own user.
    pub identity: Option<Identity>,
    /// Ends what is under way.
    pub stop: CancellationToken,
}

/// Makes and takes snapshots. Clones share everything.
#[derive(Debug, Clone)]
pub struct Snapshots {
    settings: Arc<Settings>,
    one: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Snapshots {
    /// Nothing runs yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings: Arc::new(settings), one: Arc::new(Semaphore::new(1)), tasks: TaskTracker::new() }
    }

    /// An archive of what `query` names, from its first bytes on.
    ///
    /// # Errors
    /// [`SnapshotError`] where there are no first bytes.
    pub async fn export(&self, query: ExportQuery) -> Result<Export, SnapshotError> {
        let Settings { workspace, home, .. } = &*self.settings;
        if !query.workspace && !query.state {
            return Err(SnapshotError::NothingAsked);
        }
        let roots =
            Roots { workspace: query.workspace.then(|| workspace.clone()), state: query.state.then(|| home.clone()) };
        let permit = self.admit()?;
        let worker = self.work(&Job::Export(roots), Stdio::null()).await?;
        export::begin(worker, permit, self.settings.stop.clone(), &self.tasks).await
    }

    /// Puts the archive that `body` is in the place of what is there, or changes nothing. Where the caller stops
    /// waiting after the body's end, it goes on.
    ///
    /// # Errors
    /// [`SnapshotError`]
    pub async fn restore<B>(&self, query: RestoreQuery, mut body: B) -> Result<RestoreReply, SnapshotError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Send,
    {
        let permit = match self.admit() {
            Ok(permit) => permit,
            Err(refused) => {
                read_out(&mut body).await;
                return Err(refused);
            }
        };
        let snapshots = self.clone();
        let taking = self.tasks.spawn(async move {
            let taken = snapshots.take(query.sha256, body).await;
            drop(permit);
            taken
        });
        taking.await.unwrap_or(Err(SnapshotError::Lost))
    }

    /// Ends what an earlier sidecar was taking when it ended.
    ///
    /// # Errors
    /// [`SnapshotError`]; what was left is then still there.
    pub async fn recover(&self) -> Result<(), SnapshotError> {
        let roots = self.roots();
        let left = Root::ALL.iter().filter_map(|root| roots.path(*root)).any(|path| {
            let found = fs::symlink_metadata(path.join(STAGING));
            // Where it cannot be seen from here, the agent looks.
            !found.is_err_and(|error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
        });
        if left { self.recover_roots(roots).await } else { Ok(()) }
    }

    /// Returns when, after the signal to stop, nothing is under way.
    pub async fn stopped(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn admit(&self) -> Result<OwnedSemaphorePermit, SnapshotError> {
        let Settings { workspace, home, stop, .. } = &*self.settings;
        if workspace.starts_with(home) || home.starts_with(workspace) {
            return Err(SnapshotError::Nested);
        }
        if stop.is_cancelled() {
            return Err(SnapshotError::Ending);
        }
        Arc::clone(&self.one).try_acquire_owned().map_err(|_| SnapshotError::Busy)
    }

    fn roots(&self) -> Roots {
        Roots { workspace: Some(self.settings.workspace.clone()), state: Some(self.settings.home.clone()) }
    }

    async fn work(&self, job: &Job, stdin: Stdio) -> Result<Worker, SnapshotError> {
        Worker::start(&self.settings.program, job, self.settings.identity, stdin).await
    }

    async fn recover_roots(&self, roots: Roots) -> Result<(), SnapshotError> {
        let mut worker = self.work(&Job::Recover(roots), Stdio::null()).await?;
        let Ok(told) = timeout(RECOVERY_MAX, worker.end()).await else {
            worker.kill().await;
            return Err(SnapshotError::TooSlow);
        };
        match told? {
            Told::Recovered => Ok(()),
            Told::Exported(_) | Told::Restored(_) | Told::Failed(_) => Err(SnapshotError::Lost),
        }
    }

    async fn take<B>(&self, sha256: Sha256, mut body: B) -> Result<RestoreReply, SnapshotError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let job = Job::Restore { roots: self.roots(), sha256 };
        let mut worker = self.work(&job, Stdio::piped()).await?;
        let deadline = Instant::now() + SNAPSHOT_MAX;
        let fed = tokio::select! {
            fed = feed(&mut worker, &mut body) => fed,
            () = self.settings.stop.cancelled() => Err(SnapshotError::Interrupted),
            () = sleep_until(deadline) => Err(SnapshotError::TooSlow),
        };
        // From the body's end on the old content may be on its way out, so nothing but time ends the process.
        let told = match fed {
            Ok(()) => tokio::time::timeout_at(deadline, worker.end()).await.unwrap_or(Err(SnapshotError::Lost)),
            Err(error) => Err(error),
        };
        let reply = match told {
            Ok(Told::Restored(reply)) => return Ok(reply),
            Ok(Told::Failed(failed)) => Err(SnapshotError::Failed(failed)),
            Ok(Told::Exported(_) | Told::Recovered) => Err(SnapshotError::Lost),
            Err(error) => {
                worker.kill().await;
                if let Err(error) = self.recover_roots(self.roots()).await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a broken restore was not cleared up");
                }
                Err(error)
            }
        };
        read_out(&mut body).await;
        reply
    }
}

/// Takes the rest of a refused body, for a while: one who is still sending may not look for an answer before the end.
async fn read_out(body: &mut (impl Body<Data = Bytes> + Unpin)) {
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    if timeout(REFUSED_BODY_MAX, rest).await.is_err() {
        tracing::debug!("a refused archive was not read to its end");
    }
}

/// Hands `body` on to the process, or as much as it takes: one that has refused the archive takes no more.
async fn feed<B: Body<Data = Bytes> + Unpin>(worker: &mut Worker, body: &mut B) -> Result<(), SnapshotError> {
    let Some(mut stdin) = worker.stdin() else { return Err(SnapshotError::Lost) };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| SnapshotError::CutOff)?;
        let Ok(data) = frame.into_data() else { continue };
        if stdin.write_all(&data).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The running program, also where its file has gone, and for a user who may not enter its directory.
pub fn own_program() -> PathBuf {
    PathBuf::from(OsStr::new("/proc/self/exe"))
}
