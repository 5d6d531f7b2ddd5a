//! Programs as children of the test: the port's adapter for where there is no sidecar.

use std::collections::BTreeMap;
use std::process::Stdio;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox_agentd::backends::{Ended, Heard, Launch, Program, ProgramError, Programs};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

const PIECE_BYTES: usize = 64 * 1024;

/// Name of the variable by which what a program starts is found, wherever it went.
const MARK: &str = "STARTED_BY_TEST";

/// Starts programs, and ends each with all that it started, as a sidecar does.
pub(crate) struct LocalPrograms {
    /// Added to every program's environment, which is otherwise clean.
    env: BTreeMap<String, String>,
    /// A variable that no other test's programs have.
    mark: String,
}

struct Running {
    child: Child,
    mark: String,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl LocalPrograms {
    /// Programs with this environment.
    pub(crate) fn with(env: BTreeMap<String, String>) -> Self {
        Self { env, mark: format!("{MARK}={:032x}", rand::random::<u128>()) }
    }

    /// What is left of all that was started, by their command lines. Every process has the mark in its environment.
    pub(crate) fn alive(&self) -> Vec<String> {
        marked(&self.mark).into_iter().map(|(_, line)| line).collect()
    }
}

#[async_trait]
impl Programs for LocalPrograms {
    async fn start(&self, launch: Launch) -> Result<Box<dyn Program>, ProgramError> {
        let Launch { id: _, argv, env, cwd, time_max: _ } = launch;
        let mut command = Command::new(&argv[0]);
        let mark = self.mark.as_str();
        let (name, value) = mark.split_once('=').unwrap();
        command.args(&argv[1..]).env_clear().envs(&self.env).envs(env).env(name, value).current_dir(cwd);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ProgramError::Missing,
            _ => ProgramError::Start(Box::new(error)),
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Box::new(Running { child, mark: mark.to_owned(), stdin, stdout, stderr }))
    }

    async fn end(&self, _id: &str) -> Result<(), ProgramError> {
        end_all(&self.mark);
        Ok(())
    }
}

#[async_trait]
impl Program for Running {
    async fn next(&mut self) -> Result<Heard, ProgramError> {
        while self.stdout.is_some() || self.stderr.is_some() {
            let heard = tokio::select! {
                bytes = piece(&mut self.stdout) => bytes.map(Heard::Out),
                bytes = piece(&mut self.stderr) => bytes.map(Heard::Err),
            };
            if let Some(heard) = heard {
                return Ok(heard);
            }
        }
        let status = self.child.wait().await.map_err(|error| ProgramError::Lost(Box::new(error)))?;
        Ok(Heard::Ended(Ended { exit_code: status.code(), out_of_memory: false }))
    }

    async fn say(&mut self, text: Bytes, is_last: bool) -> Result<(), ProgramError> {
        if let Some(stdin) = &mut self.stdin {
            stdin.write_all(&text).await.map_err(|error| ProgramError::Lost(Box::new(error)))?;
        }
        if is_last {
            self.stdin = None;
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), ProgramError> {
        end_all(&self.mark);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            end_all(&self.mark);
        }
    }
}

/// Processes with this in their environment: their ids and command lines. One that has ended has no environment.
fn marked(mark: &str) -> Vec<(Pid, String)> {
    let process = |entry: std::fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let environ = std::fs::read(entry.path().join("environ")).ok()?;
        environ.split(|byte| *byte == 0).find(|variable| *variable == mark.as_bytes())?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((Pid::from_raw(pid), String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter_map(process).collect()
}

/// Ends them until none is left: one that is ended may have started another just before.
fn end_all(mark: &str) {
    for (pid, _) in std::iter::from_fn(|| Some(marked(mark))).take_while(|found| !found.is_empty()).flatten() {
        kill(pid, Signal::SIGKILL).unwrap_or_default();
    }
}

/// What comes next; the stream is gone at its end, and one that is gone says nothing.
async fn piece<R: AsyncRead + Unpin>(stream: &mut Option<R>) -> Option<Bytes> {
    let Some(open) = stream else { return std::future::pending().await };
    let mut bytes = BytesMut::with_capacity(PIECE_BYTES);
    match open.read_buf(&mut bytes).await {
        Ok(0) | Err(_) => {
            *stream = None;
            None
        }
        Ok(_) => Some(bytes.freeze()),
    }
}
