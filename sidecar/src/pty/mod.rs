//! Terminals: shells of the agent's that people and programs type to, from wherever they are.
//!
//! [`Terminals`] opens, lists and ends them; `terminal` is the life of one, `viewer` a view of it, `screen` decides what
//! viewers are told, `ring` keeps what was shown, `tty` is the kernel's part, `wish` checks. A terminal goes on without
//! viewers for a while, and is remembered for as long after its end. Not here: WebSockets.

mod error;
mod ring;
mod screen;
mod terminal;
mod tty;
mod viewer;
mod wish;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_protocol::events::Happening;
use sandbox_protocol::limits::PTY_TERMINALS_MAX;
use sandbox_protocol::pty::{AttachQuery, OpenQuery, PtyCause, PtyList};
use tokio::process::Command;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::error::PtyError;
pub(crate) use self::screen::Told;
use self::terminal::{Shell, Terminal};
pub(crate) use self::tty::{Tty, open_pair};
pub use self::viewer::Viewer;
use self::wish::Wish;
pub(crate) use self::wish::checked_term;
use crate::events::Events;
use crate::exec::{Identity, clean, start_in_terminal};

/// Shells, the best first; all sandboxes have the last.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

/// What terminals are opened with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where shells start.
    pub workspace: PathBuf,
    /// Who shells run as; `None` is the sidecar's own user.
    pub identity: Option<Identity>,
    /// In the environment of every shell.
    pub environment: BTreeMap<String, String>,
    /// Time that a terminal goes on without a viewer, and that it is remembered after its end.
    pub keep: Duration,
}

/// All terminals of a sandbox. Clones share them.
#[derive(Debug, Clone)]
pub struct Terminals {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    events: Events,
    table: Mutex<Table>,
    /// Nothing is remembered any more.
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// The oldest first.
#[derive(Debug, Default)]
struct Table {
    terminals: Vec<Arc<Terminal>>,
    opening: usize,
    closed: bool,
}

impl Terminals {
    /// None yet. What happens to them is told to `events`.
    pub fn new(settings: Settings, events: Events) -> Self {
        let shared = Shared {
            settings,
            events,
            table: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A new terminal, and its first viewer, who types.
    ///
    /// # Errors
    /// [`PtyError`]; nothing runs.
    pub async fn open(&self, query: OpenQuery) -> Result<Viewer, PtyError> {
        let settings = &self.shared.settings;
        let wish = Wish::parse(query, &settings.workspace)?;
        let place = Place::take(&self.shared)?;
        let (tty, theirs) = open_pair(wish.size).map_err(PtyError::Open)?;
        let command = shell(&wish, theirs, &settings.environment).map_err(PtyError::Open)?;
        let (supervisor, report) = start_in_terminal(command, &wish.directory, settings.identity).await?;
        let terminal = Arc::new(Terminal::new(new_id(), wish.command, tty, wish.size));
        let viewer = Viewer::attach(Arc::clone(&terminal), AttachQuery::default())?;
        let opened = Happening::PtyOpened { id: terminal.id.clone(), cols: wish.size.cols, rows: wish.size.rows };
        self.shared.events.publish(opened);
        place.fill(Arc::clone(&terminal));
        self.shared.keep(terminal, Shell { supervisor, report });
        Ok(viewer)
    }

    /// One more viewer of the terminal `id`.
    ///
    /// # Errors
    /// There is no such terminal, or no place or byte of it for this viewer.
    pub fn attach(&self, id: &str, wish: AttachQuery) -> Result<Viewer, PtyError> {
        Viewer::attach(self.shared.find(id)?, wish)
    }

    /// All that run or are remembered.
    pub fn list(&self) -> PtyList {
        PtyList { ptys: self.shared.table().terminals.iter().map(|terminal| terminal.body()).collect() }
    }

    /// Ends the terminal `id` with all its processes, and forgets it.
    ///
    /// # Errors
    /// There is no such terminal.
    pub async fn delete(&self, id: &str) -> Result<(), PtyError> {
        let terminal = self.shared.find(id)?;
        terminal.close(PtyCause::Deleted);
        terminal.over.cancelled().await;
        self.shared.forget(&terminal);
        Ok(())
    }

    /// Refuses new terminals, ends all there are, and returns when their processes have ended.
    pub async fn stop(&self) {
        {
            let mut table = self.shared.table();
            table.closed = true;
            table.terminals.iter().for_each(|terminal| terminal.close(PtyCause::Stopped));
        }
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl Shared {
    /// No code panics while it holds the lock, so what a poisoned one guards is whole.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &str) -> Result<Arc<Terminal>, PtyError> {
        self.table().terminals.iter().find(|terminal| terminal.id == id).cloned().ok_or(PtyError::Unknown)
    }

    fn forget(&self, gone: &Arc<Terminal>) {
        self.table().terminals.retain(|terminal| !Arc::ptr_eq(terminal, gone));
        gone.forgotten.cancel();
    }

    /// Sees the terminal through its life, and remembers it for a while.
    fn keep(self: &Arc<Self>, terminal: Arc<Terminal>, shell: Shell) {
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            let end = terminal.live(shell, shared.settings.keep).await;
            shared.events.publish(Happening::PtyClosed { id: terminal.id.clone(), end });
            if end.cause == PtyCause::Exited {
                tokio::select! {
                    () = sleep(shared.settings.keep) => {}
                    () = terminal.forgotten.cancelled() => {}
                    () = shared.stop.cancelled() => {}
                }
            }
            shared.forget(&terminal);
        });
    }
}

/// A place among the terminals that is taken while one is being opened.
struct Place<'a> {
    shared: &'a Shared,
}

impl<'a> Place<'a> {
    fn take(shared: &'a Shared) -> Result<Self, PtyError> {
        let mut table = shared.table();
        if table.closed {
            return Err(PtyError::Ending);
        }
        if table.terminals.len() + table.opening >= PTY_TERMINALS_MAX {
            let remembered = table.terminals.iter().position(|terminal| terminal.is_remembered_only());
            table.terminals.remove(remembered.ok_or(PtyError::Full)?).forgotten.cancel();
        }
        table.opening += 1;
        Ok(Self { shared })
    }

    fn fill(self, terminal: Arc<Terminal>) {
        let mut table = self.shared.table();
        if table.closed {
            terminal.close(PtyCause::Stopped);
        }
        table.terminals.push(terminal);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.table().opening -= 1;
    }
}

/// A login shell, or one that runs the wish's command, in the terminal `tty`.
fn shell(wish: &Wish, tty: OwnedFd, environment: &BTreeMap<String, String>) -> std::io::Result<Command> {
    let shell = SHELLS.into_iter().find(|shell| Path::new(shell).exists()).unwrap_or("/bin/sh");
    let mut command = clean(shell, &wish.directory, environment);
    match &wish.command {
        Some(asked) => command.arg("-c").arg(asked),
        None => command.arg("-l"),
    };
    let (stdin, stdout) = (tty.try_clone()?, tty.try_clone()?);
    command.env("SHELL", shell).env("TERM", &wish.term).envs(&wish.env);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(tty));
    Ok(command)
}

fn new_id() -> String {
    format!("pty-{:032x}", rand::random::<u128>())
}
