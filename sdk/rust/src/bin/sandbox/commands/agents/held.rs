//! `runs`, `sessions`: what a sandbox remembers of its agent's work.

use std::process::ExitCode;

use sandbox_protocol::agent::{RunKind, RunState, RunSummary, SessionSummary};
use sandbox_protocol::session::Scope;
use serde::Serialize;

use super::follow::{Approvals, Role, follow, seen};
use super::tell::{end, shown};
use crate::args::{RunsArgs, SessionsArgs};
use crate::commands::sessions::inside;
use crate::failure::Failure;
use crate::output::{Output, harmless};
use crate::settings::Settings;

#[derive(Serialize)]
struct Deleted<'a> {
    id: &'a str,
}

pub(crate) async fn runs(args: RunsArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let inside = inside(args.id, Scope::SandboxesExec, settings).await?;
    let Some(run) = args.run else {
        let runs = inside.runs().await?;
        let lines: Vec<_> = runs.iter().map(line).collect();
        output.result(&lines.join("\n"), &runs)?;
        return Ok(ExitCode::SUCCESS);
    };
    if args.follow {
        let events = inside.follow_run(&run, 0);
        let reply = follow((&inside, events), Role::Watcher, Approvals::new(args.approvals), output).await?;
        return seen(reply.as_ref());
    }
    let summary = if args.cancel { inside.cancel_run(&run).await? } else { inside.run(&run).await? };
    output.result(&text(&summary), &summary)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn sessions(args: SessionsArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let inside = inside(args.id, Scope::SandboxesExec, settings).await?;
    if let Some(id) = &args.delete {
        inside.delete_session(id).await?;
        output.result(id, &Deleted { id })?;
        return Ok(ExitCode::SUCCESS);
    }
    let sessions = inside.sessions().await?;
    let lines: Vec<_> = sessions.iter().map(session).collect();
    output.result(&lines.join("\n"), &sessions)?;
    Ok(ExitCode::SUCCESS)
}

fn line(run: &RunSummary) -> String {
    let session = if run.session_id.is_empty() { String::new() } else { format!("  session {}", run.session_id) };
    format!("{}  {}  {}{session}", harmless(&run.id), kind(run.kind), state(run))
}

fn session(session: &SessionSummary) -> String {
    format!("{}  {}  {} messages", harmless(&session.id), harmless(&session.backend), session.messages)
}

const fn kind(kind: RunKind) -> &'static str {
    match kind {
        RunKind::Prompt => "prompt",
        RunKind::Task => "task",
        RunKind::Negotiation => "negotiation",
    }
}

fn state(run: &RunSummary) -> String {
    match (run.state, &run.reply, &run.report) {
        (RunState::Queued, ..) => "waiting".into(),
        (RunState::Running, ..) => "running".into(),
        (RunState::Ended, Some(reply), _) if reply.success => "done".into(),
        (RunState::Ended, Some(reply), _) => format!("failed: {}", shown(&reply.error)),
        (RunState::Ended, None, Some(report)) => format!("scored {} of 120", report.score.total_score),
        (RunState::Ended, None, None) => "ended".into(),
    }
}

fn text(run: &RunSummary) -> String {
    let mut text = format!("run      {}\nkind     {}\nstate    {}", harmless(&run.id), kind(run.kind), state(run));
    if let Some(reply) = &run.reply {
        text.push_str(&format!("\ntook     {}\nresult   {}", end(reply), harmless(&reply.result)));
    }
    text
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::agent::RunReply;

    use super::*;

    #[test]
    fn a_run_says_where_it_stands() {
        let run = |state, reply: Option<RunReply>| RunSummary {
            id: "r".into(),
            kind: RunKind::Task,
            state,
            session_id: "s".into(),
            reply,
            report: None,
            last_seq: 1,
        };
        assert_eq!(line(&run(RunState::Queued, None)), "r  task  waiting  session s");
        assert_eq!(line(&run(RunState::Running, None)), "r  task  running  session s");
        let done = RunReply { success: true, result: "fine".into(), ..RunReply::default() };
        assert!(text(&run(RunState::Ended, Some(done.clone()))).ends_with("\nresult   fine"));
        let failed = RunReply { success: false, error: "too\nlate".into(), ..done };
        assert_eq!(line(&run(RunState::Ended, Some(failed))), "r  task  failed: too late  session s");
    }
}
