//! Job 10: a shell command in a sandbox.

use alloy::sol_types::SolValue;
use sandbox_fleet::Unfinished;
use sandbox_fleet::request::command;
use sandbox_fleet::sandbox::Instance;
use sandbox_protocol::FailureCode;
use sandbox_protocol::abi::ExecResponse;
use sandbox_protocol::exec::{ExecEnd, ExecReply};

use super::executor::Errand;
use super::{JobCall, Work};

/// Runs the command.
pub(super) async fn exec(call: JobCall) -> Result<Work, Unfinished> {
    let command = command(call.request()?)?;
    call.is_of(command.sandbox);
    let errand = Errand { owner: call.caller, id: call.execution.clone(), resumed: call.resumed };
    let (reply, instance) = call.parts().executor().exec(errand, command).await?;
    Ok(work(reply, instance))
}

/// The limit of the caller's that a command ran into.
pub(super) const fn limit(reply: &ExecReply) -> Option<FailureCode> {
    match (reply.ended, reply.truncated) {
        (ExecEnd::TimedOut, _) => Some(FailureCode::Timeout),
        (ExecEnd::OutOfMemory, _) => Some(FailureCode::MemoryLimit),
        (ExecEnd::Exited, true) => Some(FailureCode::OutputLimit),
        // One that somebody ended in the sandbox has ended as a command that is killed.
        (ExecEnd::Exited | ExecEnd::Cancelled, _) => None,
    }
}

fn work(reply: ExecReply, instance: Instance) -> Work {
    let limit = limit(&reply);
    let response = ExecResponse {
        exit_code: reply.exit_code,
        stdout: reply.stdout.0.into(),
        stderr: reply.stderr.0.into(),
        truncated: reply.truncated,
        duration_ms: reply.duration_ms,
    };
    Work { limit, response: response.abi_encode(), ..Work::done(&(), Some(instance)) }
}
