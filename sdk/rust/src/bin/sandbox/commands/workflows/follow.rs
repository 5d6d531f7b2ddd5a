//! A run as it goes on: a table of its steps where a person looks on, a line for each change everywhere else.

use std::process::ExitCode;

use rustix::termios::tcgetwinsize;
use sandbox_protocol::CallKey;
use sandbox_protocol::session::Scope;
use sandbox_protocol::workflow::{RunBody, RunStatus, StepBody};
use tokio::signal::unix::SignalKind;

use super::{Clock, session_of, words};
use crate::commands::streams::heard;
use crate::failure::{Exit, Failure};
use crate::output::{Output, harmless};
use crate::settings::Settings;

/// Follows a run to its end, and ends as it does.
pub(super) async fn follow(
    (workflow, number): (CallKey, u64),
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let session = session_of(workflow, Scope::WorkflowsRead, settings).await?;
    let mut interrupt = heard(SignalKind::interrupt())?;
    let mut changes = session.follow_workflow_run(workflow, number);
    let mut board = Board::new(output);
    let last = loop {
        let change = tokio::select! {
            change = changes.next() => change?,
            _ = interrupt.recv() => return Err(left(workflow, number)),
        };
        let Some(body) = change else { return Err(Failure::local("the run ended without a word".into())) };
        board.take(&body)?;
        if body.run.status.is_final() {
            break body;
        }
    };
    if !output.is_json() {
        output.result(&format!("run {number} {}", last.run.status.name()), &last)?;
    }
    ended(&last)
}

/// Whoever only looks on leaves the run as it is.
fn left(workflow: CallKey, number: u64) -> Failure {
    let message = format!("the run goes on; see it with `sandbox workflow runs {workflow} {number} --follow`");
    Failure { exit: Exit::Interrupted, code: "interrupted".into(), message, retryable: false }
}

fn ended(body: &RunBody) -> Result<ExitCode, Failure> {
    let status = body.run.status;
    if status == RunStatus::Succeeded {
        return Ok(ExitCode::SUCCESS);
    }
    let why = body.run.reason.as_deref().map(|reason| format!(": {}", words::line(reason))).unwrap_or_default();
    let word = if status == RunStatus::Failed { "failed" } else { "did not come to its end" };
    let message = format!("run {} {word}{why}", body.run.number);
    Err(Failure { exit: Exit::Unsuccessful, code: format!("run_{}", status.name()), message, retryable: false })
}

/// What was shown of a run.
struct Board<'a> {
    output: &'a Output,
    /// The rows and columns of the terminal; nothing where there is none.
    rows: usize,
    columns: usize,
    /// Lines of the table that stand on it.
    drawn: usize,
    before: Option<RunBody>,
}

impl<'a> Board<'a> {
    fn new(output: &'a Output) -> Self {
        let size = tcgetwinsize(std::io::stderr()).map(|size| (size.ws_row, size.ws_col)).ok();
        let (rows, columns) = size.filter(|_| output.is_watched()).unwrap_or_default();
        Self { output, rows: rows.into(), columns: columns.into(), drawn: 0, before: None }
    }

    fn take(&mut self, body: &RunBody) -> Result<(), Failure> {
        if self.output.is_json() {
            return self.output.result("", body);
        }
        let table = table(body, &Clock::here());
        // What has left the screen cannot be drawn over.
        if table.len() < self.rows {
            self.draw(&table);
        } else {
            let lines = changes(self.before.as_ref(), body);
            lines.iter().for_each(|line| self.output.notice(line));
        }
        self.before = Some(body.clone());
        Ok(())
    }

    fn draw(&mut self, table: &[String]) {
        let back = if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        self.drawn = table.len();
        // A line that wraps would be two, and one too few would be drawn over.
        let cut = |line: &String| line.chars().take(self.columns).collect::<String>();
        eprintln!("{back}{}", table.iter().map(cut).collect::<Vec<_>>().join("\n"));
    }
}

fn table(body: &RunBody, clock: &Clock) -> Vec<String> {
    let rows: Vec<_> = body.steps.iter().map(|step| words::step(step, clock)).collect();
    let head = format!("run {} {}, {}", body.run.number, body.run.status.name(), words::cause(&body.run.cause, clock));
    std::iter::once(head).chain(words::table(&rows)).collect()
}

/// A line for whatever is not as it was.
fn changes(before: Option<&RunBody>, now: &RunBody) -> Vec<String> {
    let mut lines = Vec::new();
    if before.map(|before| before.run.status) != Some(now.run.status) && !now.run.status.is_final() {
        lines.push(format!("run {} {}", now.run.number, now.run.status.name()));
    }
    for step in &now.steps {
        let old = before.and_then(|before| before.steps.iter().find(|old| old.id == step.id));
        let was = |step: &StepBody| (step.status, step.attempts);
        if old.map(was) != Some(was(step)) && step.attempts + u32::from(step.status.is_final()) > 0 {
            lines.push(told(step));
        }
    }
    lines
}

fn told(step: &StepBody) -> String {
    let attempt = if step.attempts > 1 { format!(", attempt {}", step.attempts) } else { String::new() };
    let why = step.failure.as_ref().map(|failure| format!(": {}", words::line(&failure.to_string())));
    format!("{} {}{attempt}{}", harmless(&step.id), step.status.name(), why.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::workflow::{Cause, RunEntry, StepStatus};
    use sandbox_protocol::{Failure as Reason, FailureCode};

    use super::super::words::tests::clock;
    use super::*;

    fn step(id: &str, status: StepStatus, attempts: u32) -> StepBody {
        StepBody {
            id: id.into(),
            kind: "exec".into(),
            status,
            attempts,
            started_ms: (attempts > 0).then_some(1_000),
            ended_ms: status.is_final().then_some(2_500),
            failure: (status == StepStatus::Retrying).then(|| Reason::new(FailureCode::Timeout, "late")),
            outputs: Default::default(),
            artifacts: Vec::new(),
        }
    }

    fn body(status: RunStatus, steps: Vec<StepBody>) -> RunBody {
        let run = RunEntry {
            number: 3,
            cause: Cause::Manual { call: 9 },
            status,
            fired_ms: 1_000,
            started_ms: Some(1_000),
            ended_ms: None,
            reason: Some("step b\u{1b} failed".into()),
        };
        RunBody { run, version: 1, sandbox: None, steps }
    }

    #[test]
    fn each_change_is_told_once_and_what_waits_not_at_all() {
        let (waiting, running) = (step("b", StepStatus::Waiting, 0), step("a", StepStatus::Running, 1));
        let first = body(RunStatus::Running, vec![running.clone(), waiting.clone()]);
        assert_eq!(changes(None, &first), ["run 3 running", "a running"]);
        assert_eq!(changes(Some(&first), &first), Vec::<String>::new());
        let retried = body(RunStatus::Running, vec![step("a", StepStatus::Retrying, 1), waiting]);
        assert_eq!(changes(Some(&first), &retried), ["a retrying: timeout: late"]);
        let again = step("a", StepStatus::Running, 2);
        let last = body(RunStatus::Failed, vec![again, step("b", StepStatus::Skipped, 0)]);
        assert_eq!(changes(Some(&retried), &last), ["a running, attempt 2", "b skipped"]);
    }

    #[test]
    fn the_table_has_a_line_for_each_step() {
        let steps = vec![step("build", StepStatus::Succeeded, 1), step("b", StepStatus::Running, 2)];
        let expected =
            ["run 3 running, by call 9", "build  exec  succeeded  1.5 s", "b      exec  running           attempt 2"];
        assert_eq!(table(&body(RunStatus::Running, steps), &clock("UTC")), expected);
    }

    #[test]
    fn the_program_ends_as_the_run_does() {
        assert!(ended(&body(RunStatus::Succeeded, Vec::new())).is_ok());
        let exit = |status| {
            let failure = ended(&body(status, Vec::new())).unwrap_err();
            (failure.exit, failure.code, failure.message)
        };
        let expected = (Exit::Unsuccessful, "run_failed".to_owned(), "run 3 failed: step b failed".to_owned());
        assert_eq!(exit(RunStatus::Failed), expected);
        assert_eq!(exit(RunStatus::Skipped).2, "run 3 did not come to its end: step b failed");
        assert_eq!(exit(RunStatus::Cancelled).1, "run_cancelled");
    }
}
