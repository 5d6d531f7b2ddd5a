//! An execution's whole story, for who wants it in one piece.

use sandbox_protocol::exec::{ByteText, ExecEnd, ExecReply};
use sandbox_protocol::fsp::{Ended, Status, Stream};

use super::error::ExecError;
use super::execution::Execution;
use super::feed::{Event, Told};

/// Exit code of what was killed by the sandbox: that of a shell whose command got SIGKILL.
const KILLED: i32 = 128 + 9;

/// Waits for the end of `execution`. What it told before it was asked for and is not kept any more counts as cut.
///
/// # Errors
/// It has no result.
pub(super) async fn gathered(execution: &Execution) -> Result<ExecReply, ExecError> {
    let mut reader = execution.reader(0);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut last, mut gaps) = (Status::Running, false);
    while let Some(told) = reader.next().await {
        match told {
            Told::Gap { .. } => gaps = true,
            Told::Event { event: Event::Status(status), .. } => last = status,
            Told::Event { event: Event::Output(Stream::Stdout, bytes), .. } => stdout.extend_from_slice(&bytes),
            Told::Event { event: Event::Output(Stream::Stderr, bytes), .. } => stderr.extend_from_slice(&bytes),
            Told::Event { event: Event::Failed(error), .. } => return Err(error),
            Told::Event { event: Event::Result(ended), .. } => {
                return Ok(ExecReply {
                    id: execution.id().to_owned(),
                    ended: end(last),
                    exit_code: exit_code(&ended),
                    stdout: ByteText(stdout),
                    stderr: ByteText(stderr),
                    truncated: gaps || execution.was_cut(),
                    duration_ms: ended.duration_ms,
                });
            }
        }
    }
    Err(ExecError::Lost)
}

const fn end(status: Status) -> ExecEnd {
    match status {
        Status::Running | Status::Completed | Status::Failed => ExecEnd::Exited,
        Status::Timeout => ExecEnd::TimedOut,
        Status::Cancelled => ExecEnd::Cancelled,
        Status::Oom => ExecEnd::OutOfMemory,
    }
}

/// As a shell tells it: 128 + signal for a command that a signal ended.
fn exit_code(ended: &Ended) -> i32 {
    ended.exit_code.or_else(|| ended.signal.map(|signal| 128 + signal)).unwrap_or(KILLED)
}
