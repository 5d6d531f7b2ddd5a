//! Programs as executions of the sidecar: shell code that becomes the program, in the agent's environment.
//!
//! An execution of somebody who waits may last five minutes, and a task lasts longer: so one is started detached and then
//! attached to. What nobody is attached to goes on by itself; dropping a program therefore cancels its execution.

use async_trait::async_trait;
use bytes::Bytes;
use sandbox_fsp::{Control, Event, Execution, FspError, Lease, Place, Pool};
use sandbox_protocol::fsp::{ErrorCode, Execute, Extension, Extra, Language, Limits, Status, Stream};

use super::{Ended, Heard, Launch, Program, ProgramError, Programs};
use crate::backends::limits::PROGRAM_OUTPUT_BYTES_MAX;

/// What the pool of [`FspPrograms`] must want of the sandbox.
pub const PROGRAM_EXTENSIONS: [Extension; 5] =
    [Extension::Replay, Extension::Credit, Extension::Binary, Extension::Stdin, Extension::Cwd];

/// Starts programs through the sidecar.
#[derive(Debug, Clone)]
pub struct FspPrograms {
    pool: Pool,
}

/// An execution that is a program.
struct Running {
    execution: Execution,
    control: Control,
    status: Option<Status>,
    over: bool,
    /// Its connection, kept for as long as it is needed.
    _lease: Lease,
}

impl FspPrograms {
    /// Programs of the sandbox that the pool leads to, whose endpoint wants [`PROGRAM_EXTENSIONS`].
    pub fn new(pool: Pool) -> Self {
        Self { pool }
    }
}

#[async_trait]
impl Programs for FspPrograms {
    async fn start(&self, launch: Launch) -> Result<Box<dyn Program>, ProgramError> {
        let (id, request) = (launch.id.clone(), request(launch));
        let limit_ms = request.limits.timeout_ms;
        // On one connection it would have to be waited for the end of the first telling.
        let (first, lease) = (self.lease().await?, self.lease().await?);
        let mut started = first.execute(request).await.map_err(not_started)?;
        while started.next().await.map_err(not_started)?.is_some() {}
        drop(first);
        let execution = lease.attach(&id, Place::default(), Some(limit_ms)).await.map_err(lost)?;
        let control = execution.control();
        Ok(Box::new(Running { execution, control, status: None, over: false, _lease: lease }))
    }

    async fn end(&self, id: &str) -> Result<(), ProgramError> {
        // One that the sandbox does not know has ended.
        self.lease().await?.cancel(id).await.map_err(lost)
    }
}

impl FspPrograms {
    async fn lease(&self) -> Result<Lease, ProgramError> {
        self.pool.checkout().await.map_err(not_started)
    }
}

#[async_trait]
impl Program for Running {
    async fn next(&mut self) -> Result<Heard, ProgramError> {
        loop {
            match self.execution.next().await {
                Ok(Some(Event::Output(Stream::Stdout, bytes))) => return Ok(Heard::Out(bytes)),
                Ok(Some(Event::Output(Stream::Stderr, bytes))) => return Ok(Heard::Err(bytes)),
                Ok(Some(Event::Status(status))) => self.status = Some(status),
                Ok(Some(Event::Ended(ended))) => {
                    self.over = true;
                    let out_of_memory = self.status == Some(Status::Oom);
                    return Ok(Heard::Ended(Ended { exit_code: ended.exit_code, out_of_memory }));
                }
                // Lines with a hole in them are no lines.
                Ok(Some(Event::Gap { .. } | Event::Detached) | None) => return Err(lost(FspError::Ended)),
                Ok(Some(Event::Ack)) => {}
                Err(error) => return Err(lost(error)),
            }
        }
    }

    async fn say(&mut self, text: Bytes, is_last: bool) -> Result<(), ProgramError> {
        self.control.stdin(text, is_last).await.map_err(lost)
    }

    async fn end(&mut self) -> Result<(), ProgramError> {
        self.control.cancel().await.map_err(lost)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let control = self.control.clone();
        // Without a runtime this process is at its end, and the sidecar ends what its connections left.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { control.cancel().await.unwrap_or_default() });
        }
    }
}

fn request(launch: Launch) -> Execute {
    let Launch { id, argv, env, cwd, time_max } = launch;
    let words: Vec<_> = argv.iter().map(|word| quoted(word)).collect();
    let timeout_ms = u64::try_from(time_max.as_millis()).unwrap_or(u64::MAX).max(1);
    Execute {
        id,
        language: Language::Shell,
        code: format!("exec {}", words.join(" ")),
        stdin: None,
        env,
        limits: Limits { timeout_ms, memory_mb: 0, max_output_bytes: PROGRAM_OUTPUT_BYTES_MAX, ..Limits::default() },
        extra: Extra {
            cwd: Some(cwd.to_string_lossy().into_owned()),
            stream_stdin: true,
            detach: true,
            credit_bytes: None,
        },
    }
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn not_started(error: FspError) -> ProgramError {
    match error {
        FspError::PoolExhausted { .. }
        | FspError::TooMany
        | FspError::Server { code: ErrorCode::SandboxOverloaded, .. } => ProgramError::Busy(Box::new(error)),
        error => ProgramError::Start(Box::new(error)),
    }
}

fn lost(error: FspError) -> ProgramError {
    ProgramError::Lost(Box::new(error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    #[test]
    fn words_reach_the_program_as_they_are() {
        let argv = ["a b", "$(id)", "it's", ""].map(str::to_owned).to_vec();
        let launch =
            Launch { id: "i".into(), argv, env: BTreeMap::new(), cwd: "/w".into(), time_max: Duration::from_secs(400) };
        let request = request(launch);
        assert_eq!(request.code, r"exec 'a b' '$(id)' 'it'\''s' ''");
        assert_eq!((request.limits.timeout_ms, request.limits.memory_mb, request.extra.detach), (400_000, 0, true));
    }
}
