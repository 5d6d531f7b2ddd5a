//! One execution, from its start to its reply.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;
use sandbox_protocol::exec::{ByteText, ExecEnd, ExecReply};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::ExecError;
use super::launch::launch;
use super::output::{Kept, gather};
use super::registry::Ending;
use super::request::Request;
use super::{Identity, tree};
use crate::limits::DRAIN_MAX;

/// What an execution needs besides its request.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    /// Who commands run as; `None` is the sidecar's own user.
    pub(super) identity: Option<Identity>,
    /// In the environment of every command.
    pub(super) environment: Arc<BTreeMap<String, String>>,
    /// Cancelled when the sidecar ends.
    pub(super) stop: CancellationToken,
    /// Holds the tasks that read pipes.
    pub(super) readers: TaskTracker,
}

/// Why waiting for a command ended.
enum Cause {
    Exited,
    TimedOut,
    Stopped,
}

/// Runs `request` under `id`.
pub(super) async fn run(id: &str, request: Request, around: &Surroundings) -> Ending {
    let begun = Instant::now();
    let mut child = launch(&request, around.identity, &around.environment).await?;
    let output = Output::of(&mut child, around);
    if let Some(pipe) = child.stdin.take() {
        around.spawn(feed(pipe, request.stdin));
    }
    let (cause, status) = watch(&mut child, request.timeout, &around.stop).await?;
    let (stdout, stderr) = output.kept().await;
    let ended = match cause {
        Cause::Exited => ExecEnd::Exited,
        Cause::TimedOut => ExecEnd::TimedOut,
        Cause::Stopped => return Err(ExecError::Interrupted),
    };
    Ok(Arc::new(ExecReply {
        id: id.to_owned(),
        ended,
        exit_code: exit_code(status),
        truncated: stdout.truncated || stderr.truncated,
        stdout: ByteText(stdout.bytes),
        stderr: ByteText(stderr.bytes),
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    }))
}

/// Waits until the command has ended, or ends it with all that it started.
async fn watch(child: &mut Child, time: Duration, stop: &CancellationToken) -> Result<(Cause, ExitStatus), ExecError> {
    let cause = tokio::select! {
        biased;
        status = child.wait() => return Ok((Cause::Exited, status.map_err(|_| ExecError::Lost)?)),
        () = stop.cancelled() => Cause::Stopped,
        () = sleep(time) => Cause::TimedOut,
    };
    // An id is there as long as nobody has waited for the child to its end.
    if let Some(supervisor) = child.id().and_then(|id| i32::try_from(id).ok())
        && let Err(undead) = tree::end(Pid::from_raw(supervisor)).await
    {
        tracing::warn!(supervisor, %undead, "a command left processes behind");
    }
    Ok((cause, child.wait().await.map_err(|_| ExecError::Lost)?))
}

/// Supervisors end with their command's code; one that was killed itself speaks for its command.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(i32::MAX)
}

/// Writes all of it, or as much as the command takes.
async fn feed(mut pipe: ChildStdin, bytes: Vec<u8>) {
    if let Err(error) = pipe.write_all(&bytes).await {
        tracing::debug!(%error, "a command did not take all of its stdin");
    }
}

impl Surroundings {
    /// A task that lives until it is done or the sidecar ends.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.readers.spawn(async move { stop.run_until_cancelled(task).await });
    }
}

/// The two streams that a command writes.
struct Output {
    stdout: oneshot::Receiver<Kept>,
    stderr: oneshot::Receiver<Kept>,
    enough: CancellationToken,
}

impl Output {
    fn of(child: &mut Child, around: &Surroundings) -> Self {
        let enough = CancellationToken::new();
        let (to_stdout, stdout) = oneshot::channel();
        let (to_stderr, stderr) = oneshot::channel();
        if let Some(pipe) = child.stdout.take() {
            around.spawn(gather(pipe, enough.clone(), to_stdout));
        }
        if let Some(pipe) = child.stderr.take() {
            around.spawn(gather(pipe, enough.clone(), to_stderr));
        }
        Self { stdout, stderr, enough }
    }

    /// What was written, with little patience for background processes that keep the pipes open.
    async fn kept(self) -> (Kept, Kept) {
        let mut both = Box::pin(async { tokio::join!(self.stdout, self.stderr) });
        let (stdout, stderr) = match timeout(DRAIN_MAX, &mut both).await {
            Ok(both) => both,
            Err(_) => {
                self.enough.cancel();
                both.await
            }
        };
        (stdout.unwrap_or_default(), stderr.unwrap_or_default())
    }
}
