//! `workflow ls`, `workflow show`: what the chain says, with what operators tell beside it.

use std::process::ExitCode;

use sandbox_protocol::CallKey;
use sandbox_protocol::sealed::is_sealed;
use sandbox_protocol::session::Scope;
use sandbox_protocol::workflow::{RunEntry, RunsQuery};
use sandbox_sdk::Account;
use sandbox_sdk::api::{ApiError, Session};
use sandbox_sdk::limits::WORKFLOW_RUNS_SHOWN;
use sandbox_sdk::workflows::{Answer, Definition, HeldWorkflow, Origin, Told, WorkflowError};
use serde::Serialize;
use serde_json::Value;

use super::{Clock, words};
use crate::args::WhereArgs;
use crate::commands::sessions::{Operator, operators, session};
use crate::failure::{Exit, Failure};
use crate::output::{Output, harmless};
use crate::settings::Settings;

pub(super) async fn list(place: &WhereArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let mut told = Vec::new();
    for operator in operators(place, settings, &account).await? {
        let asked = match opened(&operator, (settings, &account)).await? {
            Ok(session) => session.workflows().await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = &asked {
            output.notice(&format!("operator {} tells nothing, of paused workflows neither: {failure}", operator.0));
        }
        let answer = asked.map_or_else(|failure| Answer::None { why: failure.to_string() }, Answer::Workflows);
        told.push(Told { operator: operator.0, answer });
    }
    let held = account.chain().workflows_of(account.address(), &told).await?;
    let clock = Clock::here();
    let rows: Vec<_> = held.iter().map(|workflow| row(workflow, &clock)).collect();
    output.result(&words::table(&rows).join("\n"), &held)?;
    Ok(ExitCode::SUCCESS)
}

/// A session, or why the operator opens none; what is wrong on this side ends the command.
async fn opened(operator: &Operator, access: (&Settings, &Account)) -> Result<Result<Session, Failure>, Failure> {
    match session(operator, Scope::WorkflowsRead, access).await {
        Err(failure) if matches!(failure.exit, Exit::Usage | Exit::Local) => Err(failure),
        asked => Ok(asked),
    }
}

fn row(held: &HeldWorkflow, clock: &Clock) -> Vec<String> {
    let next = held.next_slot_s.map(|second| format!("next {}", clock.instant(second))).unwrap_or_default();
    let last = held.last_run.as_ref().map(|run| format!("run {} {}", run.number, run.status.name()));
    let problem = held.problem.as_deref().map(|problem| format!("! {}", words::line(problem))).unwrap_or_default();
    vec![
        held.key().to_string(),
        words::line(&held.name),
        held.status.name().to_owned(),
        words::trigger(&held.trigger, &held.trigger_config),
        next,
        last.unwrap_or_default(),
        problem,
    ]
}

/// What programs are told of a workflow.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    held: HeldWorkflow,
    /// As its owner created it; text where it is no JSON.
    workflow_json: Value,
    /// Likewise; sealed where its owner sealed it.
    sandbox_config_json: Value,
    /// `row` or `log`: where the chain has it.
    origin: &'static str,
    runs: Vec<RunEntry>,
}

pub(super) async fn show(workflow: CallKey, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let definition = account.chain().workflow_definition(workflow).await?;
    let address = definition.row.operator;
    let operator = (address, account.chain().operator(address).await?.apiUrl);
    let (told, runs) = match opened(&operator, (settings, &account)).await? {
        Ok(session) => asked(&session, &operator, workflow).await,
        Err(failure) => (Told { operator: address, answer: Answer::None { why: failure.to_string() } }, Vec::new()),
    };
    let held = HeldWorkflow::new(&definition.row, Some(&told)).ok_or(WorkflowError::None(workflow))?;
    let shown = Shown {
        held: HeldWorkflow { name: definition.request.name.clone(), ..held },
        workflow_json: json(&definition.request.workflow_json),
        sandbox_config_json: json(&definition.request.sandbox_config_json),
        origin: if definition.origin == Origin::Row { "row" } else { "log" },
        runs,
    };
    output.result(&text(&shown, &operator, &definition, &Clock::here()), &shown)?;
    Ok(ExitCode::SUCCESS)
}

/// What its operator tells of a workflow, and its last runs.
async fn asked(session: &Session, operator: &Operator, workflow: CallKey) -> (Told, Vec<RunEntry>) {
    let answer = match session.workflow(workflow).await {
        Ok(entry) => Answer::Workflows(vec![entry]),
        Err(ApiError::Refused { status: 404, .. }) => Answer::Workflows(Vec::new()),
        Err(error) => Answer::None { why: Failure::from(error).to_string() },
    };
    let query = RunsQuery { limit: WORKFLOW_RUNS_SHOWN, ..RunsQuery::default() };
    // Why there are none is told by the entry, which was asked of the same operator.
    let runs = session.workflow_runs(workflow, &query).await.map(|page| page.runs).unwrap_or_default();
    (Told { operator: operator.0, answer }, runs)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn text(shown: &Shown, operator: &Operator, definition: &Definition, clock: &Clock) -> String {
    let Shown { held, workflow_json, runs, .. } = shown;
    let mut lines = vec![
        format!("workflow   {}", held.key()),
        format!("name       {}", words::line(&held.name)),
        format!("state      {}", held.status.name()),
        format!("owner      {}", held.owner),
        format!("operator   {} at {}", operator.0, words::line(&operator.1)),
        format!("fires      {}", words::trigger(&held.trigger, &held.trigger_config)),
    ];
    if held.epoch > 0 {
        lines.push(format!("moved      {} times, each to another operator", held.epoch));
    }
    lines.extend(held.next_slot_s.map(|second| format!("next       {}", clock.instant(second))));
    let on_chain = held.last_triggered_s.and_then(|second| i64::try_from(second).ok());
    lines.extend(on_chain.map(|second| format!("fired      {}, the last that is on chain", clock.instant(second))));
    lines.extend(held.problem.as_deref().map(|problem| format!("problem    {}", words::line(problem))));
    lines.push(format!("sandbox    {}", sandbox(&definition.request.sandbox_config_json)));
    let origin = match definition.origin {
        Origin::Row => "stored by the contract".to_owned(),
        Origin::Log => format!("from the log of block {}", definition.row.bodyBlock),
    };
    lines.push(format!("body       {origin}; its hash holds"));
    lines.push(harmless(&format!("{workflow_json:#}")));
    if !runs.is_empty() {
        lines.push("runs".to_owned());
        let rows: Vec<_> = runs.iter().map(|run| words::run(run, clock)).collect();
        lines.extend(words::table(&rows).into_iter().map(|line| format!("  {line}")));
    }
    lines.join("\n")
}

fn sandbox(config: &str) -> String {
    match config {
        "" => "none of each run's own".to_owned(),
        sealed if is_sealed(sealed) => "one of each run's own, sealed".to_owned(),
        config => format!("one of each run's own: {}", harmless(config)),
    }
}
