//! Jobs 21 and 22: a task, or a command, in many sandboxes.

use std::future::pending;

use alloy::sol_types::SolValue as _;
use sandbox_fleet::Unfinished;
use sandbox_fleet::batch::{Upshot, majority};
use sandbox_fleet::request::{self, ErrandKind, command};
use sandbox_protocol::abi::{
    BatchExecRequest, BatchExecResponse, BatchTaskRequest, BatchTaskResponse, ExecRequest, ExecResponse, TaskRequest,
    TaskResponse,
};
use sandbox_protocol::batch::{Aggregation, BatchId, ELSEWHERE, ItemReport, ItemState, Majority, NOT_RUN};
use sandbox_protocol::{Failure, FailureCode, Job, Outcome, SandboxId};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::Part;
use tokio::time::Instant;

use super::divide::own_items;
use super::round::{Deed, Round};
use super::siblings::{InCommon, Siblings};
use super::{Ledger, bad};
use crate::jobs::{DeskParts, JobCall, Work, terms};
use crate::limits::{BATCH_ITEMS_AT_ONCE_MAX, BATCH_WIND_UP};
use crate::records::{PartRecord, now_ms};

/// What a call asks for, apart from what is to be done.
struct Asked {
    job: Job,
    batch: BatchId,
    endpoints: Vec<String>,
    is_parallel: bool,
    aggregation: Aggregation,
}

/// Runs one command in many sandboxes.
pub(in crate::jobs) async fn exec(call: JobCall) -> Result<Work, Unfinished> {
    let request: BatchExecRequest = call.request()?;
    let asked = Asked {
        job: Job::BatchExec,
        batch: batch_id(&request.batch_id, &call)?,
        endpoints: request.sidecar_endpoints,
        is_parallel: request.parallel,
        aggregation: aggregation(&request.aggregation)?,
    };
    let command = command(ExecRequest {
        sidecar_endpoint: nowhere(&call),
        command: request.command,
        cwd: request.cwd,
        env_json: request.env_json,
        timeout_ms: request.timeout_ms,
        ..ExecRequest::default()
    })?;
    let (items, upshot) = carried_out(&call, &asked, Deed::Command(command)).await?;
    let results = exec_results(asked.endpoints.len(), &items);
    let (succeeded, failed) = counts(&items);
    let response = BatchExecResponse { batch_id: asked.batch.to_string(), results, succeeded, failed };
    Ok(work(response.abi_encode(), upshot))
}

/// Has one task done in many sandboxes.
pub(in crate::jobs) async fn task(call: JobCall) -> Result<Work, Unfinished> {
    let request: BatchTaskRequest = call.request()?;
    let asked = Asked {
        job: Job::BatchTask,
        batch: batch_id(&request.batch_id, &call)?,
        endpoints: request.sidecar_endpoints,
        is_parallel: request.parallel,
        aggregation: aggregation(&request.aggregation)?,
    };
    let errand = request::task(TaskRequest {
        sidecar_endpoint: nowhere(&call),
        prompt: request.prompt,
        ..TaskRequest::default()
    })?;
    debug_assert!(matches!(errand.kind, ErrandKind::Task), "there is no context that would make it anything else");
    let (items, upshot) = carried_out(&call, &asked, Deed::Task(errand)).await?;
    let results = task_results(asked.endpoints.len(), &items);
    let (succeeded, failed) = counts(&items);
    let response = BatchTaskResponse { batch_id: asked.batch.to_string(), results, succeeded, failed };
    Ok(work(response.abi_encode(), upshot))
}

fn batch_id(text: &str, call: &JobCall) -> Result<BatchId, Failure> {
    BatchId::asked(text, call.key).map_err(|error| bad(error.to_string()))
}

fn aggregation(text: &str) -> Result<Aggregation, Failure> {
    text.parse().map_err(|error| bad(format!("aggregation: {error}")))
}

/// A sandbox that is none: what is read of a request for one sandbox is carried out in others.
fn nowhere(call: &JobCall) -> String {
    SandboxId { origin: call.key, slot: 0 }.to_string()
}

/// This operator's items at their end.
async fn carried_out(call: &JobCall, asked: &Asked, deed: Deed) -> Result<(Vec<ItemReport>, Upshot), Unfinished> {
    let until = Instant::now() + terms::work_within(asked.job).saturating_sub(BATCH_WIND_UP);
    let part = PartRecord {
        call: call.key,
        job: call.job,
        owner: call.caller,
        inputs_hash: call.inputs_hash,
        batch: asked.batch.clone(),
        aggregation: Some(asked.aggregation),
        begun_ms: now_ms(),
        items: own_items(call, &asked.endpoints, until).await?,
        end: None,
    };
    let (ledger, known) = Ledger::begin(call, part).await?;
    let round = Round {
        executor: call.parts().executor(),
        ledger,
        deed,
        aggregation: asked.aggregation,
        execution: call.execution.clone(),
        at_once: if asked.is_parallel { BATCH_ITEMS_AT_ONCE_MAX } else { 1 },
        until,
    };
    let (items, upshot) = round.play(known, won_elsewhere(call, asked)).await?;
    round.ledger.end(majority_of(asked.aggregation, &items)).await?;
    Ok((items, upshot))
}

/// Ends when another operator's part of the batch is known to have a success, where one is enough.
async fn won_elsewhere(call: &JobCall, asked: &Asked) {
    let known = call.parts().records.call(call.key);
    let (Aggregation::FirstSuccess, Ok(Some(known))) = (asked.aggregation, known) else {
        return pending().await;
    };
    let DeskParts { chain, key, head, .. } = call.parts();
    let common = InCommon { job: asked.job, caller: call.caller, batch: asked.batch.clone() };
    let (mut siblings, mut head) = (Siblings::of(call.key, common, known.block), head.clone());
    loop {
        let newest = *head.borrow_and_update();
        if has_winner(&siblings.parts(chain, newest).await, key.address()) {
            return;
        }
        if head.changed().await.is_err() {
            return pending().await;
        }
    }
}

fn has_winner(parts: &[Part], me: alloy::primitives::Address) -> bool {
    parts.iter().any(|part| part.operator != me && part.answered && part.outcome == Outcome::Done.id())
}

/// What most successful items answered, where that is asked for.
fn majority_of(aggregation: Aggregation, items: &[ItemReport]) -> Option<Majority> {
    let successful = items.iter().filter(|item| item.state == ItemState::Succeeded);
    let answers: Vec<(u32, String)> = successful
        .filter_map(|item| match (&item.exec, &item.task) {
            (Some(exec), _) => Some((item.index, String::from_utf8_lossy(&exec.stdout.0).into_owned())),
            (None, Some(task)) => Some((item.index, task.result.clone())),
            (None, None) => None,
        })
        .collect();
    let answers = answers.iter().map(|(index, answer)| (*index, answer.as_str()));
    if aggregation == Aggregation::Majority { majority(answers) } else { None }
}

/// How many of this operator's items succeeded, and how many did not.
fn counts(items: &[ItemReport]) -> (u32, u32) {
    let succeeded = items.iter().filter(|item| item.state == ItemState::Succeeded).count();
    let failed = items.len() - succeeded;
    (u32::try_from(succeeded).unwrap_or(u32::MAX), u32::try_from(failed).unwrap_or(u32::MAX))
}

fn work(response: Vec<u8>, upshot: Upshot) -> Work {
    let limit = match upshot {
        Upshot::Done => None,
        Upshot::NoSuccess => Some(FailureCode::NoSuccess),
    };
    Work { limit, response, ..Work::done(&(), None) }
}

/// A result for each endpoint of the call: of another operator's nothing but that.
fn exec_results(endpoints: usize, items: &[ItemReport]) -> Vec<ExecResponse> {
    let not_run =
        |why: String| ExecResponse { exit_code: NOT_RUN, stderr: why.into_bytes().into(), ..Default::default() };
    let result = |item: &ItemReport| match &item.exec {
        Some(exec) => ExecResponse {
            exit_code: exec.exit_code,
            stdout: exec.stdout.0.clone().into(),
            stderr: exec.stderr.0.clone().into(),
            truncated: exec.truncated,
            duration_ms: exec.duration_ms,
        },
        None => not_run(why(item)),
    };
    aligned(endpoints, items, result, || not_run(ELSEWHERE.to_owned()))
}

/// The same of tasks.
fn task_results(endpoints: usize, items: &[ItemReport]) -> Vec<TaskResponse> {
    let not_run = |error: String| TaskResponse { success: false, error, ..Default::default() };
    let result = |item: &ItemReport| match &item.task {
        Some(task) => TaskResponse {
            success: task.success,
            result: task.result.clone(),
            error: task.error.clone(),
            trace_id: task.trace_id.clone(),
            turns_used: task.turns_used,
            duration_ms: task.duration_ms,
            input_tokens: task.input_tokens,
            output_tokens: task.output_tokens,
            session_id: task.session_id.clone(),
        },
        None => not_run(why(item)),
    };
    aligned(endpoints, items, result, || not_run(ELSEWHERE.to_owned()))
}

fn aligned<T>(
    endpoints: usize,
    items: &[ItemReport],
    own: impl Fn(&ItemReport) -> T,
    elsewhere: impl Fn() -> T,
) -> Vec<T> {
    let mut results: Vec<T> = (0..endpoints).map(|_| elsewhere()).collect();
    for item in items {
        if let Some(result) = usize::try_from(item.index).ok().and_then(|index| results.get_mut(index)) {
            *result = own(item);
        }
    }
    results
}

fn why(item: &ItemReport) -> String {
    item.failure.as_ref().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests;
