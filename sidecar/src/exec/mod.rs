//! The execution engine: runs each id once, answers every repeat of it, and ends what it started.
//!
//! [`Engine::execute`] is the one way in. `request` checks, `registry` decides, `launch` and `leader` start, `execution`
//! waits, `output` keeps, `tree` kills. Not here: HTTP, tokens, and any way to run something as the sidecar's own user
//! where the sidecar is root.

mod error;
mod execution;
mod launch;
mod leader;
mod output;
mod registry;
mod request;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::unistd::{Gid, Uid};
use sandbox_protocol::exec::{ExecBody, ExecReply};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::error::ExecError;
use self::execution::Surroundings;
pub(crate) use self::launch::{clean, start, start_in_terminal};
use self::registry::{Admission, Awaited, Ending, Registry};
pub use self::request::{Invalid, Named, Request};
pub(crate) use self::request::{checked_directory, checked_env, checked_text};

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: Uid,
    /// Its only group.
    pub gid: Gid,
}

/// Runs commands. Clones share everything.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    workspace: PathBuf,
    around: Surroundings,
    hasher: RandomState,
    registry: Mutex<Registry>,
    executions: TaskTracker,
}

impl Engine {
    /// An engine whose commands start in `workspace` and run as `identity`; `None` is the sidecar's own user.
    pub fn new(workspace: impl AsRef<Path>, identity: Option<Identity>) -> Self {
        Self::with_environment(workspace, identity, BTreeMap::new())
    }

    /// The same, with `environment` in the environment of all commands that do not set it themselves.
    pub fn with_environment(
        workspace: impl AsRef<Path>,
        identity: Option<Identity>,
        environment: BTreeMap<String, String>,
    ) -> Self {
        let environment = Arc::new(environment);
        let around =
            Surroundings { identity, environment, stop: CancellationToken::new(), readers: TaskTracker::new() };
        let shared = Shared {
            workspace: workspace.as_ref().to_owned(),
            around,
            hasher: RandomState::new(),
            registry: Mutex::default(),
            executions: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The reply to `body`: of the execution it starts, or of the one that its id already names. The execution goes on
    /// where the caller stops waiting.
    ///
    /// # Errors
    /// [`ExecError`], the same for all who wait for one execution.
    pub async fn execute(&self, body: ExecBody) -> Result<Arc<ExecReply>, ExecError> {
        let Named { id, mode, request } = Named::parse(body, &self.shared.workspace)?;
        let id = id.unwrap_or_else(new_id);
        let fingerprint = request.fingerprint(&self.shared.hasher);
        let admission = self.shared.registry().admit(&id, fingerprint, mode)?;
        match admission {
            Admission::Finished(reply) => Ok(reply),
            Admission::Running(awaited) => ending(awaited).await,
            Admission::Start(publish) => ending(self.start(id, request, publish)).await,
        }
    }

    /// How many executions run.
    pub fn running(&self) -> usize {
        self.shared.registry().running()
    }

    /// Refuses new executions, ends the running ones with all that they started, and returns when they have ended.
    /// What commands that ended by themselves left running is not touched.
    pub async fn stop(&self) {
        self.shared.registry().close();
        self.shared.around.stop.cancel();
        self.shared.executions.close();
        self.shared.executions.wait().await;
        self.shared.around.readers.close();
        self.shared.around.readers.wait().await;
    }

    fn start(&self, id: String, request: Request, publish: watch::Sender<Option<Ending>>) -> Awaited {
        let awaited = publish.subscribe();
        let mut place = Place { shared: Arc::clone(&self.shared), id, publish, ending: Err(ExecError::Lost) };
        self.shared.executions.spawn(async move {
            let ending = execution::run(&place.id, request, &place.shared.around).await;
            place.conclude(ending);
        });
        awaited
    }
}

impl Shared {
    /// No code panics while it holds the lock, so what a poisoned one guards is whole.
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a running execution. Dropping it, however that comes about, tells everyone its ending.
struct Place {
    shared: Arc<Shared>,
    id: String,
    publish: watch::Sender<Option<Ending>>,
    ending: Ending,
}

impl Place {
    fn conclude(&mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = &self.ending {
            tracing::warn!(id = self.id, error = error as &dyn std::error::Error, "an execution has no reply");
        }
        self.shared.registry().finish(&self.id, &self.ending);
        self.publish.send_replace(Some(self.ending.clone()));
    }
}

async fn ending(mut awaited: Awaited) -> Ending {
    let told = awaited.wait_for(Option::is_some).await;
    told.ok().and_then(|ending| ending.clone()).unwrap_or(Err(ExecError::Lost))
}

fn new_id() -> String {
    format!("exec-{:032x}", rand::random::<u128>())
}
