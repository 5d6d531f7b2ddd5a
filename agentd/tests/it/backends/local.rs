//! Programs as children of the test: the port's adapter for where there is no sidecar.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use sandbox_agentd::backends::{Ended, Heard, Launch, Program, ProgramError, Programs};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

const PIECE_BYTES: usize = 64 * 1024;

/// Starts programs in groups of their own, and remembers the groups.
pub(crate) struct LocalPrograms {
    /// Added to every program's environment, which is otherwise clean.
    env: BTreeMap<String, String>,
    groups: Mutex<BTreeMap<String, Pid>>,
}

struct Running {
    child: Child,
    group: Pid,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl LocalPrograms {
    /// Programs with this environment.
    pub(crate) fn with(env: BTreeMap<String, String>) -> Self {
        Self { env, groups: Mutex::default() }
    }

    /// Whether anything is left of what was started under an id that begins so.
    pub(crate) fn is_alive(&self, id_start: &str) -> bool {
        let groups = self.groups.lock().unwrap();
        groups.iter().any(|(id, group)| id.starts_with(id_start) && killpg(*group, None).is_ok())
    }
}

#[async_trait]
impl Programs for LocalPrograms {
    async fn start(&self, launch: Launch) -> Result<Box<dyn Program>, ProgramError> {
        let Launch { id, argv, env, cwd, time_max: _ } = launch;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).env_clear().envs(&self.env).envs(env).current_dir(cwd).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ProgramError::Missing,
            _ => ProgramError::Start(Box::new(error)),
        })?;
        let group = Pid::from_raw(child.id().unwrap().cast_signed());
        self.groups.lock().unwrap().insert(id, group);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Box::new(Running { child, group, stdin, stdout, stderr }))
    }

    async fn end(&self, id: &str) -> Result<(), ProgramError> {
        if let Some(group) = self.groups.lock().unwrap().get(id) {
            killpg(*group, Signal::SIGKILL).unwrap_or_default();
        }
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
        killpg(self.group, Signal::SIGKILL).map_err(|error| ProgramError::Lost(Box::new(error)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            killpg(self.group, Signal::SIGKILL).unwrap_or_default();
        }
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
