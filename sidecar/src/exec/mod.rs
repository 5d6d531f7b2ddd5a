//! The execution engine: runs each id once, answers every repeat of it, and ends what it started.
//!
//! [`Engine::begin`] is the one way in. `order` and `request` check, `registry` decides, `run` waits for a place,
//! `launch` and `leader` start, `report`, `memory`, `cgroup` and `tree` watch and end; `output` and `stdin` are a program's pipes,
//! `feed` what is told of it, `clear` tidies up after it. Not here: HTTP, WebSockets, tokens, and any way to run
//! something as the sidecar's own user where the sidecar is root.

mod cgroup;
mod clear;
mod error;
mod execution;
mod feed;
mod language;
mod launch;
mod leader;
mod memory;
mod order;
mod output;
mod registry;
mod reply;
mod report;
mod request;
mod run;
mod stdin;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use nix::unistd::{Gid, Uid};
use sandbox_protocol::events::Happening;
use sandbox_protocol::exec::{ExecBody, ExecReply};
use sandbox_protocol::fsp::{self, Load, Status};
use sandbox_protocol::limits::FSP_RUNNING_MAX;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::cgroup::Delegation;
use self::clear::{Cleared, Clearing};
pub use self::error::ExecError;
pub(crate) use self::execution::of_the_kernel;
pub use self::execution::{Execution, NotRunning, Standing};
use self::feed::Budget;
pub use self::feed::{Event, Keep, Reader, Told};
pub(crate) use self::launch::{Streams, clean, start, start_in_terminal, start_told};
use self::memory::Accounts;
pub use self::order::{Invalid, Limits, Order, OutputLimit, Place};
pub(crate) use self::order::{checked_directory, checked_env, checked_text};
use self::registry::{Admission, Registry};
pub(crate) use self::report::{Record, Reports};
pub use self::request::{Manner, Mode, Named};
use self::run::Surroundings;
pub use self::stdin::NotTaken;
use crate::events::Events;
use crate::limits::LAUNCHES_MAX;

/// Where fresh directories are made unless told otherwise.
const SCRATCH: &str = "/tmp";

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: Uid,
    /// Its only group.
    pub gid: Gid,
}

/// Runs programs. Clones share everything.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    workspace: PathBuf,
    around: Arc<Surroundings>,
    hasher: RandomState,
    registry: Mutex<Registry>,
    budget: Budget,
    executions: TaskTracker,
    /// The tasks that look after all executions, started with the first.
    helpers: OnceLock<()>,
    cleared: Mutex<Option<Cleared>>,
}

/// An execution as [`Engine::begin`] leaves it.
#[derive(Debug, Clone)]
pub struct Begun {
    /// Itself.
    pub execution: Arc<Execution>,
    /// It was not begun by this, but before.
    pub known: bool,
}

impl Engine {
    /// An engine whose commands start in `workspace` and run as `identity`; `None` is the sidecar's own user.
    pub fn new(workspace: impl AsRef<Path>, identity: Option<Identity>) -> Self {
        Self::with_environment(workspace, identity, BTreeMap::new(), Events::new(SystemTime::now()))
    }

    /// The same, with `environment` in the environment of all commands that do not set it themselves, and starts and
    /// ends told to `events`.
    pub fn with_environment(
        workspace: impl AsRef<Path>,
        identity: Option<Identity>,
        environment: BTreeMap<String, String>,
        events: Events,
    ) -> Self {
        Self::build(workspace.as_ref(), identity, environment, (events, None))
    }

    /// The same, with a control group for each execution beneath the one at `groups`.
    ///
    /// # Errors
    /// That one cannot be used.
    pub fn with_groups(
        workspace: impl AsRef<Path>,
        identity: Option<Identity>,
        environment: BTreeMap<String, String>,
        (events, groups): (Events, &Path),
    ) -> io::Result<Self> {
        let delegation = Delegation::at(groups)?;
        Ok(Self::build(workspace.as_ref(), identity, environment, (events, Some(delegation))))
    }

    fn build(
        workspace: &Path,
        identity: Option<Identity>,
        environment: BTreeMap<String, String>,
        (events, delegation): (Events, Option<Delegation>),
    ) -> Self {
        let (clearing, cleared) = Clearing::new();
        let around = Surroundings {
            identity,
            environment,
            scratch: SCRATCH.into(),
            places: Semaphore::new(FSP_RUNNING_MAX),
            launches: Semaphore::new(LAUNCHES_MAX),
            accounts: Accounts::default(),
            delegation,
            clearing,
            events,
            stop: CancellationToken::new(),
            pumps: TaskTracker::new(),
        };
        let shared = Shared {
            workspace: workspace.to_owned(),
            around: Arc::new(around),
            hasher: RandomState::new(),
            registry: Mutex::default(),
            budget: Budget::default(),
            executions: TaskTracker::new(),
            helpers: OnceLock::new(),
            cleared: Mutex::new(Some(cleared)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Begins an execution under `id`, or finds the one that it already names. It goes on where nobody waits for it.
    ///
    /// # Errors
    /// [`ExecError`]; nothing was begun.
    pub fn begin(&self, id: &str, order: Order, mode: Mode, keep: Keep) -> Result<Begun, ExecError> {
        let shared = &self.shared;
        let fingerprint = order.fingerprint(&shared.hasher);
        let new = || Execution::new(id, fingerprint, &order, keep, shared.budget.clone());
        let admission = shared.registry().admit(id, fingerprint, mode, new)?;
        match admission {
            Admission::Known(execution) => Ok(Begun { execution, known: true }),
            Admission::Start(execution) => {
                self.start(Arc::clone(&execution), order);
                Ok(Begun { execution, known: false })
            }
        }
    }

    /// The order of a protocol message.
    ///
    /// # Errors
    /// The first field that is not what its description demands.
    pub fn order(&self, execute: fsp::Execute) -> Result<Order, Invalid> {
        Order::of_message(execute, &self.shared.workspace)
    }

    /// Begins what `body` asks for, or finds it.
    ///
    /// # Errors
    /// [`ExecError`]; nothing was begun.
    pub fn begin_request(&self, body: ExecBody, manner: Manner) -> Result<Begun, ExecError> {
        let Named { id, mode, order } = Named::parse(body, manner, &self.shared.workspace)?;
        self.begin(&id.unwrap_or_else(new_id), order, mode, Keep::Yes)
    }

    /// The reply to `body`: of the execution it begins, or of the one that its id already names.
    ///
    /// # Errors
    /// [`ExecError`], the same for all who wait for one execution.
    pub async fn execute(&self, body: ExecBody) -> Result<ExecReply, ExecError> {
        reply::gathered(&self.begin_request(body, Manner::Whole)?.execution).await
    }

    /// The execution of an id that runs or is remembered.
    ///
    /// # Errors
    /// [`ExecError::Unknown`].
    pub fn find(&self, id: &str) -> Result<Arc<Execution>, ExecError> {
        self.shared.registry().get(id)
    }

    /// All that live, then all that are remembered, each oldest first.
    pub fn list(&self) -> Vec<Arc<Execution>> {
        self.shared.registry().all()
    }

    /// How many live, and how many of them wait for a place.
    pub fn load(&self) -> Load {
        let living = self.shared.registry().living();
        let active = FSP_RUNNING_MAX.saturating_sub(self.shared.around.places.available_permits()).min(living);
        Load { active_executions: active, queue_depth: living - active }
    }

    /// How many executions live.
    pub fn running(&self) -> usize {
        self.shared.registry().living()
    }

    /// Refuses new executions, ends the running ones with all that they started, and returns when they have ended.
    /// What commands that ended by themselves left running is not touched.
    pub async fn stop(&self) {
        self.shared.registry().close();
        self.shared.around.stop.cancel();
        self.shared.executions.close();
        self.shared.executions.wait().await;
        self.shared.around.pumps.close();
        self.shared.around.pumps.wait().await;
    }

    fn start(&self, execution: Arc<Execution>, order: Order) {
        self.shared.helpers.get_or_init(|| self.shared.start_helpers());
        let ended = Ended { shared: Arc::clone(&self.shared), execution };
        self.shared.executions.spawn(async move {
            run::run(&ended.execution, order, &ended.shared.around).await;
        });
    }
}

impl Shared {
    /// No code panics while it holds the lock, so what a poisoned one guards is whole.
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_helpers(&self) {
        let around = &self.around;
        let (stop, accounts) = (around.stop.clone(), around.accounts.clone());
        around.pumps.spawn(async move { stop.run_until_cancelled(accounts.keep()).await });
        if let Some(cleared) = self.cleared.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let (stop, identity) = (around.stop.clone(), around.identity);
            around.pumps.spawn(async move { stop.run_until_cancelled(cleared.keep(identity)).await });
        }
    }
}

/// Dropping it, however that comes about, has the execution ended for everyone.
struct Ended {
    shared: Arc<Shared>,
    execution: Arc<Execution>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        if self.execution.standing().over_at.is_none() {
            self.execution.tell_error(ExecError::Lost);
        }
        let standing = self.execution.standing();
        if let Some(error) = &standing.error {
            let error: &dyn std::error::Error = error;
            tracing::warn!(id = self.execution.id(), error, "an execution has no result");
        }
        let begun = standing.status.is_some();
        if begun {
            self.shared.around.events.publish(ending(self.execution.id(), &standing));
        }
        self.shared.registry().end(self.execution.id(), begun && self.execution.keep() == Keep::Yes);
    }
}

fn ending(id: &str, standing: &Standing) -> Happening {
    let ended = standing.status.filter(|_| standing.error.is_none()).map_or("error", Status::name);
    let result = standing.ended.as_ref();
    Happening::ExecEnded {
        id: id.to_owned(),
        ended: ended.to_owned(),
        exit_code: result.and_then(|result| result.exit_code),
        duration_ms: result.map_or(0, |result| result.duration_ms),
    }
}

/// A name for an execution whose caller gave none.
pub(crate) fn new_id() -> String {
    format!("exec-{:032x}", rand::random::<u128>())
}
