//! Job 10: a shell command in a sandbox.
//!
//! A command is sent once. After that the sidecar is only asked for what became of it, by its id; when the sidecar no
//! longer knows, the answer is `interrupted`, never a second run.

use std::time::Duration;

use alloy::sol_types::SolValue;
use sandbox_fleet::ports::SidecarError;
use sandbox_fleet::request::{Command, command};
use sandbox_fleet::sandbox::{Instance, Sandbox};
use sandbox_fleet::{Unfinished, Visit};
use sandbox_protocol::abi::ExecResponse;
use sandbox_protocol::exec::{ByteText, ExecBody, ExecEnd, ExecReply};
use sandbox_protocol::{Failure, FailureCode};

use super::{JobCall, Work};
use crate::limits::{ATTACH_ATTEMPTS_MAX, ATTACH_PAUSE, EXEC_SLACK};
use crate::sidecars::outdated;

/// Runs the command.
pub(super) async fn exec(call: JobCall) -> Result<Work, Unfinished> {
    let command = command(call.request()?)?;
    call.is_of(command.sandbox);
    let visit = call.parts().fleet.visit(command.sandbox, call.caller).await?;
    let body = body(call.execution.clone(), command, &visit.sandbox, call.resumed);
    let bound = Duration::from_millis(body.timeout_ms) + EXEC_SLACK;
    let carried_out = tokio::time::timeout(bound, carried_out(&call, &visit, body)).await;
    let reply = carried_out.unwrap_or_else(|_| Err(unreachable()))?;
    Ok(work(reply, visit.instance))
}

fn body(id: String, command: Command, sandbox: &Sandbox, attach_only: bool) -> ExecBody {
    let mut env = sandbox.spec.env.clone();
    env.extend(command.env);
    ExecBody {
        id: Some(id),
        command: command.line,
        cwd: command.cwd,
        env,
        stdin: ByteText(command.stdin.into_bytes()),
        timeout_ms: command.timeout_ms,
        attach_only,
        detach: false,
    }
}

/// Asks until there is a reply; its caller bounds the time. A sidecar that cannot be reached was sent nothing and may be on
/// its way up; one that broke off is asked a few times what became of the command.
async fn carried_out(call: &JobCall, visit: &Visit, mut body: ExecBody) -> Result<ExecReply, Failure> {
    let mut broken_off = 0;
    while broken_off < ATTACH_ATTEMPTS_MAX {
        let error = match call.parts().sidecars.exec(&visit.instance, body.clone()).await {
            Ok(reply) => return Ok(reply),
            Err(SidecarError::Lost) => {
                return Err(Failure::new(FailureCode::Interrupted, "the command may have run; its result is lost"));
            }
            Err(SidecarError::Refused(message)) => return Err(Failure::new(FailureCode::BadRequest, message)),
            Err(SidecarError::NotOffered(failure)) => return Err(failure),
            Err(SidecarError::Outdated) => return Err(outdated()),
            Err(SidecarError::Busy) => {
                return Err(Failure::new(FailureCode::SandboxBusy, "too many commands run in the sandbox"));
            }
            Err(SidecarError::NotSent(error)) => error,
            Err(SidecarError::Unreachable(error)) => {
                body.attach_only = true;
                broken_off += 1;
                error
            }
        };
        tracing::debug!(sandbox = %visit.sandbox.id, %error, "the sidecar does not answer");
        call.parts().fleet.check(visit.sandbox.id).await;
        tokio::time::sleep(ATTACH_PAUSE).await;
    }
    Err(unreachable())
}

fn unreachable() -> Failure {
    Failure::new(FailureCode::SandboxUnreachable, "the sandbox does not answer")
}

fn work(reply: ExecReply, instance: Instance) -> Work {
    let limit = match (reply.ended, reply.truncated) {
        (ExecEnd::TimedOut, _) => Some(FailureCode::Timeout),
        (ExecEnd::OutOfMemory, _) => Some(FailureCode::MemoryLimit),
        (ExecEnd::Exited, true) => Some(FailureCode::OutputLimit),
        // One that somebody ended in the sandbox has ended as a command that is killed.
        (ExecEnd::Exited | ExecEnd::Cancelled, _) => None,
    };
    let response = ExecResponse {
        exit_code: reply.exit_code,
        stdout: reply.stdout.0.into(),
        stderr: reply.stderr.0.into(),
        truncated: reply.truncated,
        duration_ms: reply.duration_ms,
    };
    Work { limit, response: response.abi_encode(), ..Work::done(&(), Some(instance)) }
}
