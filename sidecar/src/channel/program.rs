//! Turns what is asked for into a process with pipes or a terminal, and a supervisor that tells its end.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::fcntl::OFlag;
use nix::sys::signal::killpg;
use nix::unistd::{Pid, Uid, pipe2};
use rustix::termios::Winsize;
use sandbox_protocol::channel::{Program as Wish, Start, Terminal, TerminalSize};
use sandbox_protocol::exec::ByteText;
use sandbox_protocol::fsp::Signal;
use sandbox_protocol::limits::{EXEC_COMMAND_BYTES_MAX, PTY_COLS_MAX, PTY_ROWS_MAX};
use sandbox_protocol::pty::OpenQuery;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};

use super::error::ChannelError;
use super::{Settings, modes};
use crate::exec::{ExecError, Invalid, Record, Reports, Streams, checked_env, clean, of_the_kernel, start_told};
use crate::pty::{Tty, checked_term, open_pair};

/// Where users have their shells.
const USERS: &str = "/etc/passwd";
/// Shells of those who have none there, the best first; all sandboxes have the last.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];
/// Shells that are none.
const NO_SHELLS: [&str; 2] = ["nologin", "false"];

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) supervisor: Child,
    pub(super) reports: Reports,
    pub(super) ends: Ends,
    /// Its process group.
    pub(super) leader: Pid,
}

/// Our ends of a program's streams.
#[derive(Debug)]
pub(super) enum Ends {
    /// Stdin until it is taken, to be ended by itself.
    Pipes {
        stdin: Option<Sender>,
        stdout: Receiver,
        stderr: Receiver,
    },
    Terminal(Tty),
}

impl Program {
    /// Starts what `start` says.
    pub(super) async fn start(start: Start, settings: &Settings) -> Result<Self, ChannelError> {
        let env = checked_env(start.env)?;
        let mut command = command(start.program, settings)?;
        command.env("SHELL", &settings.shell).envs(env);
        let (ends, streams) = match start.terminal {
            None => (piped(&mut command).map_err(ChannelError::Streams)?, Streams::Pipes),
            Some(terminal) => (in_terminal(&mut command, terminal)?, Streams::Terminal),
        };
        let (supervisor, mut reports) = start_told(command, &settings.workspace, settings.identity, streams).await?;
        match reports.next().await {
            Some(Record::Begun { leader }) => Ok(Self { supervisor, reports, ends, leader: Pid::from_raw(leader) }),
            Some(Record::Ended { .. } | Record::Over { .. }) | None => Err(ExecError::Lost.into()),
        }
    }

    /// Its supervisor's process, as long as nobody has waited for that.
    pub(super) fn root(&self) -> Option<Pid> {
        self.supervisor.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
    }
}

/// What an operator can do to a program besides reading and writing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Control<'a> {
    leader: Pid,
    ends: &'a Ends,
}

impl Ends {
    /// Where a program without a terminal is written to: dropped, it is at its end.
    pub(super) fn take_stdin(&mut self) -> Option<Sender> {
        match self {
            Self::Pipes { stdin, .. } => stdin.take(),
            Self::Terminal(_) => None,
        }
    }
}

impl<'a> Control<'a> {
    pub(super) fn new(leader: Pid, ends: &'a Ends) -> Self {
        Self { leader, ends }
    }

    /// Signals its process group, or the one in its terminal's foreground.
    pub(super) fn signal(self, signal: Signal) {
        let signal = of_the_kernel(signal);
        match self.ends {
            Ends::Terminal(tty) => tty.signal(signal),
            Ends::Pipes { .. } => {
                if let Err(errno) = killpg(self.leader, signal) {
                    tracing::debug!(leader = %self.leader, %signal, %errno, "a program was not signalled");
                }
            }
        }
    }

    /// Gives its terminal a size, where it has one.
    pub(super) fn resize(self, wanted: TerminalSize) {
        if let Ends::Terminal(tty) = self.ends
            && let Err(error) = tty.resize(size(wanted))
        {
            tracing::warn!(%error, "a terminal was not resized");
        }
    }
}

fn command(wish: Wish, settings: &Settings) -> Result<Command, ChannelError> {
    let Settings { shell, workspace, environment, .. } = settings;
    let name = shell.file_name().unwrap_or(shell.as_os_str());
    Ok(match wish {
        Wish::Shell => {
            let mut dashed = OsString::from("-");
            dashed.push(name);
            let mut command = clean(shell, workspace, environment);
            command.arg0(dashed);
            command
        }
        Wish::Command { command: ByteText(bytes) } => {
            let mut command = clean(shell, workspace, environment);
            command.arg0(name).arg("-c").arg(checked_command(&bytes)?);
            command
        }
        Wish::Sftp => {
            let mut command = clean(&settings.program, workspace, environment);
            command.arg0("sandbox-sftp").arg("serve-sftp").arg("--workspace").arg(workspace);
            command
        }
    })
}

/// Bytes that a process can be given as an argument.
fn checked_command(bytes: &[u8]) -> Result<&OsStr, Invalid> {
    let field = "command";
    if bytes.len() > EXEC_COMMAND_BYTES_MAX {
        return Err(Invalid::TooLong { field, bytes: bytes.len(), bytes_max: EXEC_COMMAND_BYTES_MAX });
    }
    if bytes.contains(&0) { Err(Invalid::Nul { field }) } else { Ok(OsStr::from_bytes(bytes)) }
}

fn piped(command: &mut Command) -> io::Result<Ends> {
    let (stdin, ours_in) = pipe2(OFlag::O_CLOEXEC)?;
    let (ours_out, stdout) = pipe2(OFlag::O_CLOEXEC)?;
    let (ours_err, stderr) = pipe2(OFlag::O_CLOEXEC)?;
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    Ok(Ends::Pipes {
        stdin: Some(Sender::from_owned_fd(ours_in)?),
        stdout: Receiver::from_owned_fd(ours_out)?,
        stderr: Receiver::from_owned_fd(ours_err)?,
    })
}

fn in_terminal(command: &mut Command, wanted: Terminal) -> Result<Ends, ChannelError> {
    // Who has no terminal's name has none to give.
    if !wanted.term.is_empty() {
        command.env("TERM", checked_term(wanted.term).map_err(|_| ChannelError::Term)?);
    }
    let mut opened = || -> io::Result<(Tty, OwnedFd)> {
        let (tty, theirs) = open_pair(size(wanted.size))?;
        modes::apply(&theirs, &wanted.modes)?;
        let (stdin, stdout) = (theirs.try_clone()?, theirs.try_clone()?);
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout));
        Ok((tty, theirs))
    };
    let (tty, theirs) = opened().map_err(ChannelError::Streams)?;
    command.stderr(Stdio::from(theirs));
    Ok(Ends::Terminal(tty))
}

/// A size that a terminal can have: where nothing is given the default, and at most the bound.
pub(super) fn size(wanted: TerminalSize) -> Winsize {
    let default = OpenQuery::default();
    let sized = |wanted: u16, default: u16, max: u16| if wanted == 0 { default } else { wanted.min(max) };
    Winsize {
        ws_row: sized(wanted.rows, default.rows, PTY_ROWS_MAX),
        ws_col: sized(wanted.cols, default.cols, PTY_COLS_MAX),
        ws_xpixel: wanted.width_px,
        ws_ypixel: wanted.height_px,
    }
}

/// The shell of `user`: what the sandbox's list of users says, or else the best there is. The list is read, not asked
/// for: what libraries would do for that is an image's to say.
pub fn login_shell(user: Uid) -> PathBuf {
    let users = std::fs::read_to_string(USERS).unwrap_or_default();
    let listed = listed_shell(&users, user).filter(|shell| Path::new(shell).exists());
    let best = || SHELLS.into_iter().find(|shell| Path::new(shell).exists()).unwrap_or(SHELLS[1]);
    PathBuf::from(listed.unwrap_or_else(best))
}

/// Reads lines of `name:password:user:group:about:home:shell`.
fn listed_shell(users: &str, user: Uid) -> Option<&str> {
    let of_the_user = |line: &str| line.split(':').nth(2) == Some(&*user.to_string());
    let shell = users.lines().find(|line| of_the_user(line))?.split(':').nth(6)?.trim();
    let name = Path::new(shell).file_name()?.to_str()?;
    (shell.starts_with('/') && !NO_SHELLS.contains(&name)).then_some(shell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listed_shell_is_taken_where_it_is_one() {
        let users = "root:x:0:0::/root:/bin/zsh\nagent:x:1000:1000:A:/home/agent:/bin/bash\nno:x:7:7::/:/usr/sbin/nologin\nbare:x:8:8::/:\nshort:x:9";
        for (user, shell) in
            [(0, Some("/bin/zsh")), (1000, Some("/bin/bash")), (7, None), (8, None), (9, None), (10, None)]
        {
            assert_eq!(listed_shell(users, Uid::from_raw(user)), shell, "{user}");
        }
        assert!(login_shell(Uid::from_raw(4_000_000_000)).exists());
    }

    #[test]
    fn a_size_of_nought_is_the_default_and_one_that_is_too_large_the_largest() {
        let sized = |cols, rows| {
            let size = size(TerminalSize { cols, rows, width_px: 640, height_px: 480 });
            (size.ws_col, size.ws_row, size.ws_xpixel, size.ws_ypixel)
        };
        assert_eq!(sized(0, 0), (80, 24, 640, 480));
        assert_eq!(sized(PTY_COLS_MAX, PTY_ROWS_MAX), (PTY_COLS_MAX, PTY_ROWS_MAX, 640, 480));
        assert_eq!(sized(PTY_COLS_MAX + 1, u16::MAX), (PTY_COLS_MAX, PTY_ROWS_MAX, 640, 480));
    }

    #[test]
    fn a_command_is_any_bytes_but_nul_up_to_its_bound() {
        assert!(checked_command(b"ls \xff\xfe").is_ok() && checked_command(b"a\0b").is_err());
        assert!(checked_command(&[b'x'; EXEC_COMMAND_BYTES_MAX]).is_ok());
        assert!(checked_command(&[b'x'; EXEC_COMMAND_BYTES_MAX + 1]).is_err());
    }
}
