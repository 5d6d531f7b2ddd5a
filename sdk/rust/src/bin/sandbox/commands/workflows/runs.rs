//! `workflow runs`, `workflow cancel-run`.

use std::process::ExitCode;

use sandbox_protocol::CallKey;
use sandbox_protocol::session::Scope;
use sandbox_protocol::workflow::{RunBody, RunsPage, RunsQuery};

use super::follow::follow;
use super::{Clock, session_of, words};
use crate::args::WorkflowRunsArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

pub(super) async fn runs(args: WorkflowRunsArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let workflow = args.workflow;
    if let (Some(number), true) = (args.run, args.follow) {
        return follow((workflow, number), settings, output).await;
    }
    let session = session_of(workflow, Scope::WorkflowsRead, settings).await?;
    match args.run {
        Some(number) => {
            let body = session.workflow_run(workflow, number).await?;
            output.result(&text(&body, &Clock::here()), &body)?;
        }
        None => {
            let query = RunsQuery { cursor: args.before, limit: args.limit };
            let page = session.workflow_runs(workflow, &query).await?;
            output.result(&list(&page, &Clock::here()), &page)?;
            if let Some(next) = page.next {
                output.notice(&format!("there are more: --before {next}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn cancel(
    (workflow, number): (CallKey, u64),
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let session = session_of(workflow, Scope::WorkflowsWrite, settings).await?;
    let body = session.cancel_workflow_run(workflow, number).await?;
    output.result(&format!("run {} {}", body.run.number, body.run.status.name()), &body)?;
    Ok(ExitCode::SUCCESS)
}

fn list(page: &RunsPage, clock: &Clock) -> String {
    let rows: Vec<_> = page.runs.iter().map(|run| words::run(run, clock)).collect();
    words::table(&rows).join("\n")
}

/// A run with its steps.
fn text(body: &RunBody, clock: &Clock) -> String {
    let run = &body.run;
    let mut lines = vec![
        format!("run      {}", run.number),
        format!("state    {}", run.status.name()),
        format!("fired    {}, {}", clock.instant_ms(run.fired_ms), words::cause(&run.cause, clock)),
    ];
    lines.extend(clock.took(run.started_ms, run.ended_ms).map(|took| format!("took     {took}")));
    lines.extend(run.reason.as_deref().map(|reason| format!("reason   {}", words::line(reason))));
    lines.extend(body.sandbox.map(|sandbox| format!("sandbox  {sandbox}")));
    let rows: Vec<_> = body.steps.iter().map(|step| words::step(step, clock)).collect();
    lines.extend(words::table(&rows));
    lines.join("\n")
}
