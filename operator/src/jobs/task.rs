//! Jobs 11 and 12: a prompt and a task for the agent in a sandbox. A negotiation is a task, too, and [conducted](super::negotiation).
//!
//! A run is sent once, under the call's own id. After that the sidecar is only asked for what became of it; when it no
//! longer knows, the answer is `interrupted`, never a second run. A run whose call ends without it is cancelled.

use std::sync::Arc;
use std::time::Duration;

use alloy::sol_types::SolValue as _;
use sandbox_fleet::ports::{Agents, SidecarError, Turns};
use sandbox_fleet::request::{self, Errand, ErrandKind};
use sandbox_fleet::sandbox::Instance;
use sandbox_fleet::{Unfinished, Visit};
use sandbox_protocol::abi::TaskResponse;
use sandbox_protocol::agent::{RunFailure, RunReply, TaskBody};
use sandbox_protocol::{Failure, FailureCode};
use tokio::runtime::Handle;

use super::{JobCall, Work, negotiation};
use crate::limits::{ATTACH_ATTEMPTS_MAX, ATTACH_PAUSE, RUN_ANSWER_MAX, RUN_SLACK};
use crate::sidecars::outdated;

/// Has one turn taken.
pub(super) async fn prompt(call: JobCall) -> Result<Work, Unfinished> {
    let errand = request::prompt(call.request()?)?;
    run(call, Turns::One, errand).await
}

/// Has a task done, or a negotiation held.
pub(super) async fn task(call: JobCall) -> Result<Work, Unfinished> {
    let errand = request::task(call.request()?)?;
    match &errand.kind {
        ErrandKind::Prompt | ErrandKind::Task => run(call, Turns::Many, errand).await,
        ErrandKind::Negotiation(negotiation) => negotiation::negotiate(call, negotiation.clone(), errand).await,
    }
}

async fn run(call: JobCall, turns: Turns, errand: Errand) -> Result<Work, Unfinished> {
    call.is_of(errand.sandbox);
    let visit = call.parts().fleet.visit(errand.sandbox, call.caller).await?;
    let mut body = errand.body(call.execution.clone(), &visit.sandbox.spec);
    body.attach_only = call.resumed;
    // Twice: it may wait for its turn inside, and for its sidecar to answer.
    let bound = Duration::from_millis(body.timeout_ms) + RUN_SLACK + RUN_SLACK;
    let running = Running::new(call.parts().conductor.agents.clone(), &visit.instance, &call.execution);
    let replied = tokio::time::timeout(bound, replied(&call, &visit, turns, body)).await;
    let reply = replied.unwrap_or_else(|_| Err(unreachable()))?;
    running.over();
    Ok(work(reply, visit.instance)?)
}

/// Asks until there is a reply; its caller bounds the time. A sidecar that cannot be reached was sent nothing and may be on
/// its way up; one that broke off is asked a few times what became of the run.
async fn replied(call: &JobCall, visit: &Visit, turns: Turns, mut body: TaskBody) -> Result<RunReply, Failure> {
    let mut broken_off = 0;
    while broken_off < ATTACH_ATTEMPTS_MAX {
        let error = match call.parts().conductor.agents.run(&visit.instance, turns, body.clone()).await {
            Ok(reply) => return Ok(reply),
            Err(error) => match refusal(error) {
                Refusal::ForGood(failure) => return Err(failure),
                Refusal::NotSent(error) => error,
                Refusal::BrokenOff(error) => {
                    body.attach_only = true;
                    broken_off += 1;
                    error
                }
            },
        };
        tracing::debug!(sandbox = %visit.sandbox.id, %error, "the sidecar does not answer");
        call.parts().fleet.check(visit.sandbox.id).await;
        tokio::time::sleep(ATTACH_PAUSE).await;
    }
    Err(unreachable())
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

/// What an error of a sidecar's means for a run.
pub(super) fn refusal(error: SidecarError) -> Refusal {
    Refusal::ForGood(match error {
        SidecarError::Lost => {
            Failure::new(FailureCode::Interrupted, "the run may have done something; its result is lost")
        }
        SidecarError::Refused(message) => Failure::new(FailureCode::BadRequest, message),
        SidecarError::Outdated => outdated(),
        SidecarError::Busy => Failure::new(FailureCode::SandboxBusy, "too many runs wait in the sandbox"),
        SidecarError::NotOffered(failure) => failure,
        SidecarError::NotSent(error) => return Refusal::NotSent(error),
        SidecarError::Unreachable(error) => return Refusal::BrokenOff(error),
    })
}

pub(super) fn unreachable() -> Failure {
    Failure::new(FailureCode::SandboxUnreachable, "the sandbox does not answer")
}

/// The work of a run that ended. A prompt's response has the same fields as a task's, and is encoded alike.
fn work(reply: RunReply, instance: Instance) -> Result<Work, Failure> {
    let limit = match reply.failure.and_then(RunFailure::code) {
        Some(code) if !code.keeps_response() => return Err(Failure::new(code, reply.error)),
        limit => limit,
    };
    let response = TaskResponse {
        success: reply.success && reply.failure.is_none(),
        result: reply.result,
        error: reply.error,
        trace_id: reply.trace_id,
        turns_used: reply.turns_used,
        duration_ms: reply.duration_ms,
        input_tokens: reply.input_tokens,
        output_tokens: reply.output_tokens,
        session_id: reply.session_id,
    };
    Ok(Work { limit, response: response.abi_encode(), ..Work::done(&(), Some(instance)) })
}

/// A run that nobody may wait for any more: dropped before it is over, it is cancelled.
pub(super) struct Running {
    agents: Arc<dyn Agents>,
    instance: Instance,
    run: String,
    is_over: bool,
}

impl Running {
    /// The run of that id.
    pub(super) fn new(agents: Arc<dyn Agents>, instance: &Instance, run: &str) -> Self {
        Self { agents, instance: instance.clone(), run: run.to_owned(), is_over: false }
    }

    /// It has come to its own end.
    pub(super) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // When the process itself ends there is nobody to cancel it, and its next life goes on with it.
        let Some(handle) = Handle::try_current().ok().filter(|_| !self.is_over) else { return };
        let (agents, instance, run) = (self.agents.clone(), self.instance.clone(), self.run.clone());
        drop(handle.spawn(async move {
            match tokio::time::timeout(RUN_ANSWER_MAX, agents.cancel(&instance, &run)).await {
                Ok(Ok(())) => tracing::info!(run, "a run whose call has ended is cancelled"),
                Ok(Err(error)) => tracing::debug!(run, %error, "a run could not be cancelled"),
                Err(_) => tracing::debug!(run, "a run could not be cancelled in time"),
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use sandbox_fleet::fakes::FakeAgents;
    use sandbox_protocol::Outcome;
    use sandbox_protocol::abi::PromptResponse;

    use super::*;

    fn reply(failure: Option<RunFailure>) -> RunReply {
        RunReply {
            id: "r1".into(),
            success: failure.is_none(),
            result: "words".into(),
            error: failure.map(|_| "why".to_owned()).unwrap_or_default(),
            failure,
            trace_id: "t1".into(),
            turns_used: 3,
            duration_ms: 4,
            input_tokens: 5,
            output_tokens: 6,
            cost_micro_usd: None,
            session_id: "s1".into(),
        }
    }

    #[test]
    fn a_response_says_what_the_run_said() {
        let done = work(reply(None), Instance::default()).ok().unwrap();
        let response = TaskResponse::abi_decode(&done.response).unwrap();
        assert_eq!((response.success, response.result.as_str(), response.error.as_str()), (true, "words", ""));
        assert_eq!((response.trace_id.as_str(), response.session_id.as_str()), ("t1", "s1"));
        assert_eq!((response.turns_used, response.duration_ms), (3, 4));
        assert_eq!((response.input_tokens, response.output_tokens, done.limit), (5, 6, None));
        let prompted = PromptResponse::abi_decode(&done.response).unwrap();
        assert_eq!((prompted.result, prompted.session_id), ("words".into(), "s1".into()));
    }

    #[test]
    fn every_end_of_a_run_is_done_a_limit_or_a_failure() {
        use RunFailure as F;
        for failure in [F::TurnLimit, F::CostLimit, F::Loop, F::Cancelled, F::ProviderFailed, F::ContextOverflow] {
            let done = work(reply(Some(failure)), Instance::default()).ok().unwrap();
            let response = TaskResponse::abi_decode(&done.response).unwrap();
            assert_eq!((response.success, response.error.as_str(), done.limit), (false, "why", None), "{failure:?}");
        }
        let late = work(reply(Some(F::Timeout)), Instance::default()).ok().unwrap();
        assert_eq!(late.limit, Some(FailureCode::Timeout));
        assert_eq!(TaskResponse::abi_decode(&late.response).unwrap().result, "words", "what there is is kept");
        for (failure, outcome) in [
            (F::ProviderRefused, Outcome::Caller),
            (F::UnknownBackend, Outcome::Caller),
            (F::UnknownProfile, Outcome::Caller),
            (F::BadRequest, Outcome::Caller),
            (F::OperatorKeyRefused, Outcome::Operator),
            (F::Interrupted, Outcome::Operator),
            (F::Internal, Outcome::Operator),
        ] {
            let failed = work(reply(Some(failure)), Instance::default()).err().unwrap();
            assert_eq!((failed.code.outcome(), failed.message.as_str()), (outcome, "why"), "{failure:?}");
        }
    }

    #[test]
    fn a_sidecar_is_asked_again_only_where_that_is_no_second_run() {
        let for_good = |error| match refusal(error) {
            Refusal::ForGood(failure) => failure.code,
            Refusal::NotSent(_) | Refusal::BrokenOff(_) => panic!("asked again"),
        };
        assert_eq!(for_good(SidecarError::Lost), FailureCode::Interrupted);
        assert_eq!(for_good(SidecarError::Outdated), FailureCode::Unsupported);
        assert_eq!(for_good(SidecarError::Busy), FailureCode::SandboxBusy);
        assert_eq!(for_good(SidecarError::Refused(String::new())), FailureCode::BadRequest);
        assert!(matches!(refusal(SidecarError::NotSent("x".into())), Refusal::NotSent(_)));
        assert!(matches!(refusal(SidecarError::Unreachable("x".into())), Refusal::BrokenOff(_)));
    }

    #[tokio::test]
    async fn a_run_that_is_not_waited_for_any_more_is_cancelled_and_one_that_is_over_is_not() {
        let agents = Arc::new(FakeAgents::default());
        Running::new(agents.clone(), &Instance::default(), "r1").over();
        drop(Running::new(agents.clone(), &Instance::default(), "r2"));
        while agents.cancelled().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(agents.cancelled(), ["r2"]);
    }
}
