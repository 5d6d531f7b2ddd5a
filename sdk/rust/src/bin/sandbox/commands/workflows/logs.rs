//! `workflow logs`: what the steps of a run wrote and answered, each where it was written.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use sandbox_protocol::session::Scope;
use sandbox_protocol::workflow::StepBody;

use super::{Clock, session_of, words};
use crate::args::WorkflowLogsArgs;
use crate::failure::Failure;
use crate::output::{Output, harmless};
use crate::settings::Settings;

/// Outputs that are written to stdout: of a command, of an agent, of a snapshot.
const TO_STDOUT: [&str; 3] = ["stdout", "result", "uri"];
/// Outputs that are written to stderr.
const TO_STDERR: [&str; 2] = ["stderr", "error"];

pub(super) async fn logs(args: WorkflowLogsArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let session = session_of(args.workflow, Scope::WorkflowsRead, settings).await?;
    let body = session.workflow_run(args.workflow, args.run).await?;
    let steps = chosen(&body.steps, args.step.as_deref())?;
    if output.is_json() {
        output.result("", &steps)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (clock, mute) = (Clock::here(), Mute { stderr: std::io::stderr().is_terminal(), stdout: output.is_live() });
    for step in steps {
        if args.step.is_none() {
            output.aside(&format!("== {}\n", words::table(&[words::step(step, &clock)]).join("")));
        }
        output.streams(&joined(step, &TO_STDOUT, mute.stdout), &joined(step, &TO_STDERR, mute.stderr))?;
        for artifact in &step.artifacts {
            output.aside(&format!("made {}\n", words::line(artifact)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a person reads, whose terminal nobody else may steer.
#[derive(Clone, Copy)]
struct Mute {
    stdout: bool,
    stderr: bool,
}

fn chosen<'a>(steps: &'a [StepBody], id: Option<&str>) -> Result<Vec<&'a StepBody>, Failure> {
    let Some(id) = id else { return Ok(steps.iter().collect()) };
    let found = steps.iter().find(|step| step.id == id);
    let unknown = || {
        let ids: Vec<_> = steps.iter().map(|step| words::line(&step.id)).collect();
        Failure::usage(format!("the run has no step {id:?}; it has {}", ids.join(", ")))
    };
    Ok(vec![found.ok_or_else(unknown)?])
}

/// These outputs of a step, each with a line's end behind it.
fn joined(step: &StepBody, names: &[&str], is_muted: bool) -> Vec<u8> {
    let mut text = String::new();
    for name in names {
        let Some(output) = step.outputs.get(*name).and_then(|output| output.as_str()) else { continue };
        text.push_str(output);
        if !output.is_empty() && !output.ends_with('\n') {
            text.push('\n');
        }
    }
    if is_muted { harmless(&text) } else { text }.into_bytes()
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::workflow::StepStatus;

    use super::*;

    fn step(id: &str, outputs: &[(&str, &str)]) -> StepBody {
        let outputs = outputs.iter().map(|(name, text)| ((*name).to_owned(), (*text).into())).collect();
        StepBody {
            id: id.into(),
            kind: "exec".into(),
            status: StepStatus::Succeeded,
            attempts: 1,
            started_ms: None,
            ended_ms: None,
            failure: None,
            outputs,
            artifacts: Vec::new(),
        }
    }

    #[test]
    fn streams_are_told_apart_and_a_terminal_obeys_none_of_them() {
        let step = step("a", &[("stdout", "red\u{1b}[31m"), ("stderr", "warned\n"), ("exit_code", "0")]);
        assert_eq!(joined(&step, &TO_STDOUT, false), b"red\x1b[31m\n");
        assert_eq!(joined(&step, &TO_STDOUT, true), b"red[31m\n");
        assert_eq!(joined(&step, &TO_STDERR, true), b"warned\n");
    }

    #[test]
    fn a_step_that_is_not_there_is_told_with_those_that_are() {
        let steps = [step("a", &[]), step("b", &[])];
        assert_eq!(chosen(&steps, None).unwrap().len(), 2);
        assert_eq!(chosen(&steps, Some("b")).unwrap()[0].id, "b");
        assert_eq!(chosen(&steps, Some("c")).unwrap_err().to_string(), "the run has no step \"c\"; it has a, b");
    }
}
