//! `workflow`: what is created, what fires it, how it goes. The chain has the last word on a workflow, its operator on runs.

mod create;
mod follow;
mod held;
mod hooks;
mod logs;
mod runs;
mod words;

use std::process::ExitCode;

use sandbox_protocol::CallKey;
use sandbox_protocol::abi::WorkflowCreateResponse;
use sandbox_protocol::session::Scope;
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::requests;
use sandbox_sdk::workflows::WorkflowError;
use sandbox_sdk::{Account, Deployment};
use serde::Serialize;

use self::words::Clock;
use super::call::answer_of;
use super::sandboxes::{answered, decoded, finish, unreadable};
use super::sessions::{Operator, operators, session};
use crate::args::{WhereArgs, WorkflowArgs, WorkflowCommand, WorkflowJobArgs, WorkflowTriggerArgs};
use crate::failure::Failure;
use crate::output::{Output, harmless};
use crate::settings::Settings;

pub(crate) async fn run(command: WorkflowCommand, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        WorkflowCommand::Create(args) => create::create(*args, settings, output).await,
        WorkflowCommand::Ls(place) => held::list(&place, settings, output).await,
        WorkflowCommand::Show(args) => held::show(args.workflow, settings, output).await,
        WorkflowCommand::Trigger(args) => trigger(args, settings, output).await,
        WorkflowCommand::Cancel(args) => cancel(args, settings, output).await,
        WorkflowCommand::Pause(args) => set(args, ("paused", calls::pause_workflow), settings, output).await,
        WorkflowCommand::Resume(args) => set(args, ("active", calls::resume_workflow), settings, output).await,
        WorkflowCommand::Runs(args) => runs::runs(args, settings, output).await,
        WorkflowCommand::Logs(args) => logs::logs(args, settings, output).await,
        WorkflowCommand::CancelRun { workflow, run } => runs::cancel((workflow, run), settings, output).await,
        WorkflowCommand::Secret { workflow, replace } => hooks::secret(workflow, replace, settings, output).await,
        WorkflowCommand::Schema(place) => schema(&place, settings, output).await,
    }
}

/// Runs a workflow now, by job 31, whose answer names the run.
async fn trigger(args: WorkflowTriggerArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let WorkflowJobArgs { workflow, pay, answer } = args.job;
    let request = requests::trigger_workflow(workflow);
    let body = answered(workflow.service, request, (&pay, &answer), (settings, output)).await?;
    let told = answer_of(&body)?;
    if let Some(failure) = Failure::of_answer(told) {
        return Err(failure);
    }
    let response: WorkflowCreateResponse = decoded(told)?;
    output.result(&words::line(&response.status), &body)?;
    if !args.follow {
        return Ok(ExitCode::SUCCESS);
    }
    let number = run_of(&response.status).ok_or_else(unreadable)?;
    follow::follow((workflow, number), settings, output).await
}

/// The number in the status of a triggered workflow, `run <number> <status>`.
fn run_of(status: &str) -> Option<u64> {
    status.strip_prefix("run ")?.split(' ').next()?.parse().ok()
}

async fn cancel(args: WorkflowJobArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let WorkflowJobArgs { workflow, pay, answer } = args;
    let request = requests::cancel_workflow(workflow);
    let body = answered(workflow.service, request, (&pay, &answer), (settings, output)).await?;
    finish(&body, output, |response: WorkflowCreateResponse| format!("{workflow} {}", words::line(&response.status)))
}

#[derive(Serialize)]
struct Set<'a> {
    service: u64,
    workflow: u64,
    status: &'a str,
    transaction: String,
}

/// Pauses or resumes: a call of the contract, which no operator has a say in.
async fn set(
    WorkflowArgs { workflow }: WorkflowArgs,
    (status, call): (&str, fn(&Deployment, CallKey) -> Invocation),
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let mined = account.send(&call(account.deployment(), workflow)).await?;
    let transaction = mined.transaction.to_string();
    let set = Set { service: workflow.service, workflow: workflow.call, status, transaction };
    output.result(&format!("{workflow} {status}"), &set)?;
    Ok(ExitCode::SUCCESS)
}

/// The schema that the first operator gives which is reached.
async fn schema(place: &WhereArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let mut failed = Failure::usage("the service has no operator".into());
    for operator in operators(place, settings, &account).await? {
        let schema = match session(&operator, Scope::WorkflowsRead, (settings, &account)).await {
            Ok(session) => session.workflow_schema().await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        match schema {
            // It is JSON, whoever reads it.
            Ok(schema) => {
                output.streams((harmless(schema.trim_end()) + "\n").as_bytes(), &[])?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(failure) => failed = failure,
        }
    }
    Err(failed)
}

/// Who fires a workflow, by the chain's word.
async fn operator_of(workflow: CallKey, account: &Account) -> Result<Operator, Failure> {
    let chain = account.chain();
    let (row, _) = chain.workflow(workflow).await?.ok_or(WorkflowError::None(workflow))?;
    Ok((row.operator, chain.operator(row.operator).await?.apiUrl))
}

/// A session with it.
async fn session_of(
    workflow: CallKey,
    scope: Scope,
    settings: &Settings,
) -> Result<sandbox_sdk::api::Session, Failure> {
    let account = settings.account().await?;
    let operator = operator_of(workflow, &account).await?;
    session(&operator, scope, (settings, &account)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_triggered_workflow_names_its_run() {
        assert_eq!((run_of("run 3 running"), run_of("run 12 skipped")), (Some(3), Some(12)));
        assert_eq!((run_of("active"), run_of("run x running"), run_of("run ")), (None, None, None));
    }
}
