//! Turns an order into a process: in a clean environment, with its three pipes and a supervisor that tells its end.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use sandbox_protocol::limits::FSP_CPU_SHARES_DEFAULT;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Identity;
use super::error::ExecError;
use super::language::{self, PATH};
use super::leader::{self, Fresh, Plan, Trouble};
use super::order::{Order, Place, is_in_a_file};
use super::report::Reports;
use crate::limits::{NICENESS_MAX, START_MAX};

/// The whole environment of a command that asks for nothing: none of it is the sidecar's own.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("HOME", "/home/agent"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "agent"),
    ("PATH", PATH),
    ("SHELL", "/bin/sh"),
    ("USER", "agent"),
];

/// How much less of the processor one step of niceness gives.
const NICE_STEP: f64 = 1.25;

/// An order's process.
pub(super) struct Launched {
    /// Its supervisor.
    pub(super) child: Child,
    /// What that tells.
    pub(super) reports: Reports,
}

/// Whom and where orders are run for.
pub(super) struct Setting<'a> {
    pub(super) identity: Option<Identity>,
    /// In the environment of every command.
    pub(super) environment: &'a BTreeMap<String, String>,
    /// The directory to be made for an order that wants a fresh one.
    pub(super) fresh: PathBuf,
    /// By what the kernel's control groups take the process in.
    pub(super) groups: Vec<OwnedFd>,
}

/// Starts `order`.
pub(super) async fn launch(order: &Order, setting: Setting<'_>) -> Result<Launched, ExecError> {
    let directory = match &order.place {
        Place::Fresh => &setting.fresh,
        Place::In(directory) => directory,
    };
    let mut command = command(order, directory, setting.environment)?;
    let (reports, writing) = Reports::pipe().map_err(reason)?;
    let mut plan = Plan::new(directory, setting.identity).map_err(reason)?;
    plan.reports(writing);
    plan.nice(niceness(order.limits.cpu_shares));
    plan.groups(setting.groups);
    if order.place == Place::Fresh {
        plan.fresh(Fresh { file: file(order, directory)? });
    }
    plan.apply(&mut command);
    Ok(Launched { child: spawned(command).await?, reports })
}

/// Starts `command`, whose three standard streams are pipes or none, in `directory`. The child is its supervisor.
pub(crate) async fn start(
    mut command: Command,
    directory: &Path,
    identity: Option<Identity>,
) -> Result<Child, ExecError> {
    Plan::new(directory, identity).map_err(reason)?.apply(&mut command);
    spawned(command).await
}

/// Starts `command`, whose three standard streams are a terminal, in `directory`. The child is its supervisor, which
/// tells its end and stays as long as anything is left.
pub(crate) async fn start_in_terminal(
    mut command: Command,
    directory: &Path,
    identity: Option<Identity>,
) -> Result<(Child, Reports), ExecError> {
    let (reports, writing) = Reports::pipe().map_err(reason)?;
    let mut plan = Plan::new(directory, identity).map_err(reason)?;
    plan.reports(writing);
    plan.in_terminal();
    plan.stays();
    plan.apply(&mut command);
    Ok((spawned(command).await?, reports))
}

/// What a command's three standard streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    /// Pipes, or none.
    Pipes,
    /// A terminal, which is to be its own.
    Terminal,
}

/// Starts `command` in `directory`. The child is its supervisor, which tells its end and ends with it: what it leaves
/// running goes on.
pub(crate) async fn start_told(
    mut command: Command,
    directory: &Path,
    identity: Option<Identity>,
    streams: Streams,
) -> Result<(Child, Reports), ExecError> {
    let (reports, writing) = Reports::pipe().map_err(reason)?;
    let mut plan = Plan::new(directory, identity).map_err(reason)?;
    plan.reports(writing);
    if streams == Streams::Terminal {
        plan.in_terminal();
    }
    plan.apply(&mut command);
    Ok((spawned(command).await?, reports))
}

async fn spawned(command: Command) -> Result<Child, ExecError> {
    match timeout(START_MAX, spawning(command)?).await {
        Ok(Ok(child)) => child.map_err(reason),
        Ok(Err(_)) => Err(ExecError::Lost),
        Err(_) => Err(ExecError::SlowStart),
    }
}

/// Spawning waits for the exec, which processes of the same user can hold up, so it has a thread of its own; not one of
/// the runtime's, which panics where a sandbox full of processes has none to give.
fn spawning(mut command: Command) -> Result<oneshot::Receiver<io::Result<Child>>, ExecError> {
    let (done, spawned) = oneshot::channel();
    let runtime = Handle::current();
    let thread = thread::Builder::new().name("launch".to_owned());
    thread
        .spawn(move || {
            let _context = runtime.enter();
            let child = command.spawn();
            // With it goes this process's end of the pipe that the supervisor reports by.
            drop(command);
            if done.send(child).is_err() {
                tracing::warn!("a command that started too slowly was dropped");
            }
        })
        .map_err(reason)?;
    Ok(spawned)
}

/// `program` in a clean environment, with nothing of the sidecar's own.
pub(crate) fn clean(program: impl AsRef<OsStr>, directory: &Path, environment: &BTreeMap<String, String>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(ENVIRONMENT).envs(environment).env("PWD", directory).kill_on_drop(true);
    command
}

fn command(order: &Order, directory: &Path, environment: &BTreeMap<String, String>) -> Result<Command, ExecError> {
    let inline = (!is_in_a_file(&order.code, order.language, &order.place)).then_some(order.code.as_str());
    let (program, arguments) =
        language::command(order.language, inline).ok_or(ExecError::NoLanguage(order.language))?;
    let mut command = clean(program, directory, environment);
    command.args(arguments).envs(language::environment(order.language).iter().copied());
    if order.place == Place::Fresh {
        command.env("HOME", directory).env("TMPDIR", directory);
    }
    command.envs(&order.env).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

fn file(order: &Order, directory: &Path) -> Result<Option<(CString, Vec<u8>)>, ExecError> {
    if !is_in_a_file(&order.code, order.language, &order.place) {
        return Ok(None);
    }
    let path = directory.join(language::file(order.language));
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| reason(error.into()))?;
    Ok(Some((path, order.code.clone().into_bytes())))
}

/// Weights below the default as niceness, which is what a process may give itself; those above it take a control group.
fn niceness(cpu_shares: u64) -> i32 {
    let ratio = FSP_CPU_SHARES_DEFAULT as f64 / cpu_shares.max(1) as f64;
    ratio.log(NICE_STEP).round().clamp(0.0, f64::from(NICENESS_MAX)) as i32
}

fn reason(error: io::Error) -> ExecError {
    match leader::trouble(&error) {
        Some(Trouble::Directory(errno)) => return ExecError::Directory(errno),
        Some(Trouble::Fresh(Errno::ENOSPC | Errno::EDQUOT | Errno::ENOMEM)) => return ExecError::NoRoom,
        Some(Trouble::Fresh(errno)) => return ExecError::Start(Arc::new(errno.into())),
        None => {}
    }
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN) => ExecError::NoRoom,
        Some(Errno::ENOMEM) => ExecError::NoMemory,
        Some(Errno::E2BIG) => ExecError::TooLong,
        _ => ExecError::Start(Arc::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_weight_is_not_nice_and_the_least_is_as_nice_as_can_be() {
        for (shares, nice) in [(512, 0), (1_024, 0), (262_144, 0), (410, 1), (256, 3), (2, 19)] {
            assert_eq!(niceness(shares), nice, "{shares}");
        }
    }
}
