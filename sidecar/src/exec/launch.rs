//! Turns a request into a process: `/bin/sh -c`, in a clean environment, with its three pipes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Identity;
use super::error::ExecError;
use super::leader::{self, Plan};
use super::request::Request;
use crate::limits::START_MAX;

/// The whole environment of a command that asks for nothing: none of it is the sidecar's own.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("HOME", "/home/agent"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "agent"),
    // What `pip install --user` and the like put there comes first, as it does for a person who logs in.
    ("PATH", "/home/agent/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("SHELL", "/bin/sh"),
    ("USER", "agent"),
];

/// Starts `request` as `identity`, or as the sidecar's own user. The child is the supervisor of the command.
pub(super) async fn launch(
    request: &Request,
    identity: Option<Identity>,
    environment: &BTreeMap<String, String>,
) -> Result<Child, ExecError> {
    start(command(request, environment), &request.directory, identity).await
}

/// Starts `command`, whose three standard streams are pipes or none, in `directory`. The child is its supervisor.
pub(crate) async fn start(command: Command, directory: &Path, identity: Option<Identity>) -> Result<Child, ExecError> {
    begin(command, Plan::new(directory, identity).map_err(reason)?).await
}

/// Starts `command`, whose three standard streams are a terminal, in `directory`. The child is its supervisor, which
/// tells its end to `report` and stays.
pub(crate) async fn start_in_terminal(
    command: Command,
    directory: &Path,
    identity: Option<Identity>,
    report: OwnedFd,
) -> Result<Child, ExecError> {
    begin(command, Plan::new(directory, identity).map_err(reason)?.in_terminal(report)).await
}

async fn begin(mut command: Command, plan: Plan) -> Result<Child, ExecError> {
    plan.apply(&mut command);
    match timeout(START_MAX, spawned(command)?).await {
        Ok(Ok(child)) => child.map_err(reason),
        Ok(Err(_)) => Err(ExecError::Lost),
        Err(_) => Err(ExecError::SlowStart),
    }
}

/// Spawning waits for the exec, which processes of the same user can hold up, so it has a thread of its own; not one of
/// the runtime's, which panics where a sandbox full of processes has none to give.
fn spawned(mut command: Command) -> Result<oneshot::Receiver<io::Result<Child>>, ExecError> {
    let (done, spawned) = oneshot::channel();
    let runtime = Handle::current();
    let thread = thread::Builder::new().name("launch".to_owned());
    thread
        .spawn(move || {
            let _context = runtime.enter();
            if done.send(command.spawn()).is_err() {
                tracing::warn!("a command that started too slowly was dropped");
            }
        })
        .map_err(reason)?;
    Ok(spawned)
}

/// `program` in a clean environment, with nothing of the sidecar's own.
pub(crate) fn clean(program: &str, directory: &Path, environment: &BTreeMap<String, String>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(ENVIRONMENT).envs(environment).env("PWD", directory).kill_on_drop(true);
    command
}

fn command(request: &Request, environment: &BTreeMap<String, String>) -> Command {
    let mut command = clean("/bin/sh", &request.directory, environment);
    command
        .arg("-c")
        .arg(&request.command)
        .envs(&request.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn reason(error: io::Error) -> ExecError {
    if let Some(errno) = leader::directory_errno(&error) {
        return ExecError::Directory(errno);
    }
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN | Errno::ENOMEM) => ExecError::NoRoom,
        Some(Errno::E2BIG) => ExecError::TooLong,
        _ => ExecError::Start(Arc::new(error)),
    }
}
