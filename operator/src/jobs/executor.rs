//! Work in sandboxes, whoever asks for it: jobs, items of batches, steps of workflows.
//!
//! Commands and runs are sent once, under an id of whoever asks. After that the sidecar is only asked for what became of them; when it no
//! longer knows, the answer is `interrupted`, never a second time. What nobody waits for any more is ended.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use futures::future::BoxFuture;
use sandbox_fleet::ports::{Agents, SidecarError, Sidecars, Turns};
use sandbox_fleet::request::{self, Command};
use sandbox_fleet::sandbox::{Instance, Sandbox};
use sandbox_fleet::{Fleet, Unfinished, Visit};
use sandbox_protocol::agent::{RunReply, TaskBody};
use sandbox_protocol::exec::{ByteText, ExecBody, ExecReply};
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use tokio::runtime::Handle;

use crate::limits::{ATTACH_ATTEMPTS_MAX, ATTACH_PAUSE, EXEC_SLACK, RUN_ANSWER_MAX, RUN_SLACK};
use crate::sidecars::outdated;

/// Carries work out. Clones share everything.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) fleet: Fleet,
    pub(crate) sidecars: Arc<dyn Sidecars>,
    pub(crate) agents: Arc<dyn Agents>,
}

/// For whom something is done, and as what.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    /// Whose the sandbox must be.
    pub(crate) owner: Address,
    /// By which the sidecar knows it again.
    pub(crate) id: String,
    /// A former life may have begun it.
    pub(crate) resumed: bool,
}

impl Executor {
    /// Runs a command to its end.
    pub(crate) async fn exec(&self, errand: Errand, command: Command) -> Result<(ExecReply, Instance), Unfinished> {
        let visit = self.fleet.visit(command.sandbox, errand.owner).await?;
        let body = exec_body(&errand, command, &visit.sandbox);
        let bound = Duration::from_millis(body.timeout_ms) + EXEC_SLACK;
        let begun = Begun::command(self.sidecars.clone(), &visit.instance, &errand.id);
        let ask = |may_have_begun: bool| {
            let body = ExecBody { attach_only: body.attach_only || may_have_begun, ..body.clone() };
            self.sidecars.exec(&visit.instance, body)
        };
        let executed = tokio::time::timeout(bound, self.replied(&visit, "command", ask)).await;
        let reply = executed.unwrap_or_else(|_| Err(unreachable()))?;
        begun.over();
        Ok((reply, visit.instance))
    }

    /// Runs a prompt or task to its end.
    pub(crate) async fn run(
        &self,
        errand: Errand,
        turns: Turns,
        asked: request::Errand,
    ) -> Result<(RunReply, Instance), Unfinished> {
        let visit = self.fleet.visit(asked.sandbox, errand.owner).await?;
        let mut body = asked.body(errand.id.clone(), &visit.sandbox.spec);
        body.attach_only = errand.resumed;
        // Twice: it may wait for its turn inside, and for its sidecar to answer.
        let bound = Duration::from_millis(body.timeout_ms) + RUN_SLACK + RUN_SLACK;
        let begun = Begun::run(self.agents.clone(), &visit.instance, &errand.id);
        let ask = |may_have_begun: bool| {
            let body = TaskBody { attach_only: body.attach_only || may_have_begun, ..body.clone() };
            self.agents.run(&visit.instance, turns, body)
        };
        let replied = tokio::time::timeout(bound, self.replied(&visit, "run", ask)).await;
        let reply = replied.unwrap_or_else(|_| Err(unreachable()))?;
        begun.over();
        Ok((reply, visit.instance))
    }

    /// Ends a command that a former life began.
    pub(crate) async fn end_command(&self, errand: &Errand, sandbox: SandboxId) -> Result<(), Unfinished> {
        let visit = self.fleet.visit(sandbox, errand.owner).await?;
        drop(Begun::command(self.sidecars.clone(), &visit.instance, &errand.id));
        Ok(())
    }

    /// The same of a prompt or task.
    pub(crate) async fn end_run(&self, errand: &Errand, sandbox: SandboxId) -> Result<(), Unfinished> {
        let visit = self.fleet.visit(sandbox, errand.owner).await?;
        drop(Begun::run(self.agents.clone(), &visit.instance, &errand.id));
        Ok(())
    }

    /// Asks for the end of a `what` until there is a reply; its caller bounds the time. A sidecar that cannot be reached was sent
    /// nothing and may be on its way up; one that broke off is asked a few times what became of what it `may_have_begun`.
    async fn replied<'a, R>(
        &self,
        visit: &Visit,
        what: &str,
        ask: impl Fn(bool) -> BoxFuture<'a, Result<R, SidecarError>>,
    ) -> Result<R, Failure> {
        let mut broken_off = 0;
        while broken_off < ATTACH_ATTEMPTS_MAX {
            let may_have_begun = broken_off > 0;
            let error = match ask(may_have_begun).await {
                Ok(reply) => return Ok(reply),
                Err(error) => match refusal(error, what) {
                    Refusal::ForGood(failure) => return Err(failure),
                    Refusal::NotSent(error) => error,
                    Refusal::BrokenOff(error) => {
                        broken_off += 1;
                        error
                    }
                },
            };
            self.await_answer(visit.sandbox.id, &*error).await;
        }
        Err(unreachable())
    }

    /// Has a sandbox that does not answer looked after, and gives it a moment.
    async fn await_answer(&self, sandbox: SandboxId, error: &(dyn std::error::Error + Send + Sync)) {
        tracing::debug!(%sandbox, %error, "the sidecar does not answer");
        self.fleet.check(sandbox).await;
        tokio::time::sleep(ATTACH_PAUSE).await;
    }
}

fn exec_body(errand: &Errand, command: Command, sandbox: &Sandbox) -> ExecBody {
    let mut env = sandbox.spec.env.clone();
    env.extend(command.env);
    ExecBody {
        id: Some(errand.id.clone()),
        command: command.line,
        cwd: command.cwd,
        env,
        stdin: ByteText(command.stdin.into_bytes()),
        timeout_ms: command.timeout_ms,
        attach_only: errand.resumed,
        detach: false,
    }
}

/// What a sidecar that did not answer means.
pub(super) enum Refusal {
    /// Asking again would not help.
    ForGood(Failure),
    /// It was sent nothing.
    NotSent(Box<dyn std::error::Error + Send + Sync>),
    /// It may have begun.
    BrokenOff(Box<dyn std::error::Error + Send + Sync>),
}

/// What an error of a sidecar's means for a `what`: a command or a run.
pub(super) fn refusal(error: SidecarError, what: &str) -> Refusal {
    Refusal::ForGood(match error {
        SidecarError::Lost => {
            let message = format!("the {what} may have done something; its result is lost");
            Failure::new(FailureCode::Interrupted, message)
        }
        SidecarError::Refused(message) => Failure::new(FailureCode::BadRequest, message),
        SidecarError::Outdated => outdated(),
        SidecarError::Busy => Failure::new(FailureCode::SandboxBusy, format!("too many {what}s in the sandbox")),
        SidecarError::NotOffered(failure) => failure,
        SidecarError::NotSent(error) => return Refusal::NotSent(error),
        SidecarError::Unreachable(error) => return Refusal::BrokenOff(error),
    })
}

pub(super) fn unreachable() -> Failure {
    Failure::new(FailureCode::SandboxUnreachable, "the sandbox does not answer")
}

/// Something in a sandbox that nobody may wait for any more: dropped before it is over, it is ended.
pub(super) struct Begun {
    what: What,
    instance: Instance,
    id: String,
    is_over: bool,
}

#[derive(Clone)]
enum What {
    Command(Arc<dyn Sidecars>),
    Run(Arc<dyn Agents>),
}

impl Begun {
    /// The command of that id.
    fn command(sidecars: Arc<dyn Sidecars>, instance: &Instance, id: &str) -> Self {
        Self { what: What::Command(sidecars), instance: instance.clone(), id: id.to_owned(), is_over: false }
    }

    /// The run of that id.
    pub(super) fn run(agents: Arc<dyn Agents>, instance: &Instance, id: &str) -> Self {
        Self { what: What::Run(agents), instance: instance.clone(), id: id.to_owned(), is_over: false }
    }

    /// It has come to its own end.
    pub(super) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // When the process itself ends there is nobody to end it, and its next life goes on with it.
        let Some(handle) = Handle::try_current().ok().filter(|_| !self.is_over) else { return };
        let (what, instance, id) = (self.what.clone(), self.instance.clone(), self.id.clone());
        drop(handle.spawn(async move {
            let ending = async {
                match what {
                    What::Command(sidecars) => sidecars.kill(&instance, &id).await,
                    What::Run(agents) => agents.cancel(&instance, &id).await,
                }
            };
            match tokio::time::timeout(RUN_ANSWER_MAX, ending).await {
                Ok(Ok(())) => tracing::info!(id, "ended, since nobody waits for it any more"),
                Ok(Err(error)) => tracing::debug!(id, %error, "could not be ended"),
                Err(_) => tracing::debug!(id, "could not be ended in time"),
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use sandbox_fleet::fakes::{FakeAgents, FakeWorld};

    use super::*;

    #[test]
    fn a_sidecar_is_asked_again_only_where_that_is_no_second_run() {
        let for_good = |error| match refusal(error, "run") {
            Refusal::ForGood(failure) => failure.code,
            Refusal::NotSent(_) | Refusal::BrokenOff(_) => panic!("asked again"),
        };
        assert_eq!(for_good(SidecarError::Lost), FailureCode::Interrupted);
        assert_eq!(for_good(SidecarError::Outdated), FailureCode::Unsupported);
        assert_eq!(for_good(SidecarError::Busy), FailureCode::SandboxBusy);
        assert_eq!(for_good(SidecarError::Refused(String::new())), FailureCode::BadRequest);
        assert!(matches!(refusal(SidecarError::NotSent("x".into()), "run"), Refusal::NotSent(_)));
        assert!(matches!(refusal(SidecarError::Unreachable("x".into()), "run"), Refusal::BrokenOff(_)));
    }

    #[tokio::test]
    async fn a_run_that_is_not_waited_for_any_more_is_cancelled_and_one_that_is_over_is_not() {
        let agents = Arc::new(FakeAgents::default());
        Begun::run(agents.clone(), &Instance::default(), "r1").over();
        drop(Begun::run(agents.clone(), &Instance::default(), "r2"));
        while agents.cancelled().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(agents.cancelled(), ["r2"]);
    }

    #[tokio::test]
    async fn a_command_that_is_not_waited_for_any_more_is_killed_and_one_that_is_over_is_not() {
        let world = Arc::new(FakeWorld::default());
        Begun::command(world.clone(), &Instance::default(), "c1").over();
        drop(Begun::command(world.clone(), &Instance::default(), "c2"));
        while world.killed().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.killed(), ["c2"]);
    }
}
