//! Jobs 11 and 12: a prompt and a task for the agent in a sandbox. A negotiation is a task, too, and [conducted](super::negotiation).

use alloy::sol_types::SolValue as _;
use sandbox_fleet::Unfinished;
use sandbox_fleet::ports::Turns;
use sandbox_fleet::request::{self, Errand, ErrandKind};
use sandbox_fleet::sandbox::Instance;
use sandbox_protocol::abi::TaskResponse;
use sandbox_protocol::agent::{RunFailure, RunReply};
use sandbox_protocol::{Failure, FailureCode};

use super::{JobCall, Work, executor, negotiation};

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
        ErrandKind::Negotiation(_) => negotiation::negotiate(call, errand).await,
    }
}

async fn run(call: JobCall, turns: Turns, errand: Errand) -> Result<Work, Unfinished> {
    call.is_of(errand.sandbox);
    let order = executor::Errand { owner: call.caller, id: call.execution.clone(), resumed: call.resumed };
    let (reply, instance) = call.parts().executor().run(order, turns, errand).await?;
    Ok(work(reply, instance)?)
}

/// What a run that ended comes to: the response, and the limit of the caller's that it ran into. A prompt's response has the same fields
/// as a task's.
pub(super) fn response(reply: RunReply) -> Result<(TaskResponse, Option<FailureCode>), Failure> {
    let limit = match reply.failure.and_then(RunFailure::code) {
        Some(code) if !code.keeps_response() => return Err(Failure::new(code, reply.error)),
        limit => limit,
    };
    Ok((request::task_response(reply), limit))
}

fn work(reply: RunReply, instance: Instance) -> Result<Work, Failure> {
    let (response, limit) = response(reply)?;
    Ok(Work { limit, response: response.abi_encode(), ..Work::done(&(), Some(instance)) })
}

#[cfg(test)]
mod tests {
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
}
