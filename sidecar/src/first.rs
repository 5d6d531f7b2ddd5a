//! The duties of a container's first process, taken over where no init was asked for: passing signals on, and waiting
//! for processes that nobody else waits for.
//!
//! The sidecar proper runs as its child, so that its own children and those orphans are never mixed up.

use std::io;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Whether this process is the first of its container.
pub fn is_first() -> bool {
    std::process::id() == 1
}

/// Runs this program once more, as a child, and ends with it.
///
/// # Errors
/// The child cannot be started.
pub fn run() -> io::Result<ExitCode> {
    let signals = SigSet::from_iter([
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ]);
    signals.thread_block()?;
    let child = Command::new(std::env::current_exe()?).args(std::env::args_os().skip(1)).spawn()?;
    let child = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    loop {
        match signals.wait()? {
            Signal::SIGCHLD => {
                if let Some(code) = reap(child)? {
                    return Ok(ExitCode::from(code));
                }
            }
            signal => pass_on(child, signal),
        }
    }
}

fn pass_on(child: Pid, signal: Signal) {
    if let Err(errno) = kill(child, signal) {
        tracing::debug!(%signal, %errno, "a signal was not passed on");
    }
}

/// Waits for all that are dead; the exit code of `child`, where it is among them.
fn reap(child: Pid) -> io::Result<Option<u8>> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => {
                return Ok(Some(u8::try_from(code).unwrap_or(u8::MAX)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                return Ok(Some(u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)));
            }
            Ok(WaitStatus::StillAlive) => return Ok(None),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
