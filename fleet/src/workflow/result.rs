//! What came of an attempt at a step.

use sandbox_protocol::abi::TaskResponse;
use sandbox_protocol::agent::{RunFailure, RunReply};
use sandbox_protocol::exec::{ExecEnd, ExecReply};
use sandbox_protocol::limits::WORKFLOW_OUTPUT_BYTES_MAX;
use sandbox_protocol::workflow::body::Kind;
use sandbox_protocol::{Failure, FailureCode};

use super::value::{Outputs, Value};
use crate::request::task_response;

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum StepResult {
    /// It came to an end, and left something.
    Done {
        /// Why it is no success, where it is none.
        failure: Option<Failure>,
        /// What later steps may use of it.
        outputs: Outputs,
        /// Where what it made is to be had.
        artifacts: Vec<String>,
    },
    /// It left nothing.
    Failed(Failure),
    /// It was broken off, as [`Advance::cancel`](super::Advance::cancel) asked.
    BrokenOff,
}

/// Of commands.
const OF_EXECS: [&str; 6] = ["exit_code", "stdout", "stderr", "truncated", "duration_ms", "json"];
/// Of prompts, tasks and negotiations.
const OF_AGENTS: [&str; 10] = [
    "success",
    "result",
    "error",
    "session_id",
    "turns_used",
    "input_tokens",
    "output_tokens",
    "duration_ms",
    "truncated",
    "json",
];
/// Of snapshots.
const OF_SNAPSHOTS: [&str; 2] = ["uri", "size_bytes"];

/// Names of what a step of this kind may leave.
pub(super) const fn outputs_of(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Exec => &OF_EXECS,
        Kind::Prompt | Kind::Task | Kind::Negotiation => &OF_AGENTS,
        Kind::Snapshot => &OF_SNAPSHOTS,
    }
}

impl StepResult {
    /// Of a command: `exit_code`, `stdout`, `stderr`, `truncated`, `duration_ms`, and `json` where its stdout is JSON.
    pub fn exec(reply: ExecReply) -> Self {
        let (stdout, is_out_cut) = kept(&reply.stdout.0);
        let (stderr, is_error_cut) = kept(&reply.stderr.0);
        let mut outputs: Outputs = named([
            ("exit_code", reply.exit_code.into()),
            ("stdout", stdout),
            ("stderr", stderr),
            ("truncated", (reply.truncated || is_out_cut || is_error_cut).into()),
            ("duration_ms", reply.duration_ms.into()),
        ]);
        add_json(&mut outputs, &reply.stdout.0);
        Self::Done { failure: failure_of(&reply), outputs, artifacts: Vec::new() }
    }

    /// Of a prompt or task: `success`, `result`, `error`, `session_id`, `turns_used`, `input_tokens`, `output_tokens`,
    /// `duration_ms`, `truncated`, and `json` where its result is JSON.
    pub fn agent(reply: RunReply) -> Self {
        let code = reply.failure.and_then(RunFailure::code).unwrap_or(FailureCode::NoSuccess);
        Self::response(task_response(reply), code)
    }

    /// Of a snapshot: `uri`, `size_bytes`. The place is its artifact.
    pub fn snapshot(uri: &str, size_bytes: u64) -> Self {
        let outputs = named([("uri", uri.into()), ("size_bytes", size_bytes.into())]);
        Self::Done { failure: None, outputs, artifacts: vec![uri.to_owned()] }
    }

    /// Of a negotiation: as of a task.
    pub fn negotiation(response: TaskResponse) -> Self {
        Self::response(response, FailureCode::NoSuccess)
    }

    fn response(response: TaskResponse, code: FailureCode) -> Self {
        let (result, is_result_cut) = kept(response.result.as_bytes());
        let (error, is_error_cut) = kept(response.error.as_bytes());
        let failure = (!response.success).then(|| {
            let message =
                if response.error.is_empty() { "it came to no end of its own" } else { error_words(&response.error) };
            Failure::new(code, message)
        });
        let mut outputs: Outputs = named([
            ("success", response.success.into()),
            ("result", result),
            ("error", error),
            ("session_id", response.session_id.as_str().into()),
            ("turns_used", u64::from(response.turns_used).into()),
            ("input_tokens", u64::from(response.input_tokens).into()),
            ("output_tokens", u64::from(response.output_tokens).into()),
            ("duration_ms", response.duration_ms.into()),
            ("truncated", (is_result_cut || is_error_cut).into()),
        ]);
        add_json(&mut outputs, response.result.as_bytes());
        Self::Done { failure, outputs, artifacts: Vec::new() }
    }

    /// The same, with what it made besides.
    #[must_use]
    pub fn with_artifacts(self, more: impl IntoIterator<Item = String>) -> Self {
        match self {
            Self::Done { failure, outputs, mut artifacts } => {
                artifacts.extend(more);
                Self::Done { failure, outputs, artifacts }
            }
            Self::Failed(_) | Self::BrokenOff => self,
        }
    }
}

fn named<const N: usize>(outputs: [(&str, Value); N]) -> Outputs {
    outputs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn kept(bytes: &[u8]) -> (Value, bool) {
    Value::of_text(bytes, WORKFLOW_OUTPUT_BYTES_MAX)
}

/// As much of an error as a failure repeats; all of it is among the outputs.
fn error_words(error: &str) -> &str {
    &error[..error.floor_char_boundary(ERROR_BYTES)]
}

const ERROR_BYTES: usize = 512;

fn add_json(outputs: &mut Outputs, bytes: &[u8]) {
    let json = Value::of_json(bytes, WORKFLOW_OUTPUT_BYTES_MAX);
    outputs.extend(json.map(|json| ("json".to_owned(), json)));
}

fn failure_of(reply: &ExecReply) -> Option<Failure> {
    let failed = |code, message: &str| Some(Failure::new(code, message));
    match reply.ended {
        ExecEnd::TimedOut => failed(FailureCode::Timeout, "it ran longer than it may"),
        ExecEnd::OutOfMemory => failed(FailureCode::MemoryLimit, "it used up the memory that it may have"),
        ExecEnd::Exited | ExecEnd::Cancelled if reply.exit_code == 0 => None,
        ExecEnd::Exited if reply.truncated => failed(FailureCode::OutputLimit, "it wrote more than is kept"),
        ExecEnd::Exited | ExecEnd::Cancelled => {
            failed(FailureCode::NoSuccess, &format!("exit code {}", reply.exit_code))
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::exec::ByteText;

    use super::*;

    fn exec(change: impl FnOnce(&mut ExecReply)) -> (Option<String>, Outputs) {
        let mut reply = ExecReply {
            id: "x".into(),
            ended: ExecEnd::Exited,
            exit_code: 0,
            stdout: ByteText(b"out".into()),
            stderr: ByteText::default(),
            truncated: false,
            duration_ms: 7,
        };
        change(&mut reply);
        parts(StepResult::exec(reply))
    }

    #[track_caller]
    fn parts(result: StepResult) -> (Option<String>, Outputs) {
        let StepResult::Done { failure, outputs, .. } = result else { panic!("it left nothing") };
        (failure.map(|failure| failure.to_string()), outputs)
    }

    #[test]
    fn a_command_succeeds_with_exit_code_0_alone() {
        assert_eq!(exec(|_| {}).0, None);
        let why = |change: &dyn Fn(&mut ExecReply)| exec(change).0.unwrap();
        assert_eq!(why(&|reply| reply.exit_code = 3), "no_success: exit code 3");
        assert!(why(&|reply| reply.ended = ExecEnd::TimedOut).starts_with("timeout: "));
        assert!(why(&|reply| reply.ended = ExecEnd::OutOfMemory).starts_with("memory_limit: "));
        assert!(why(&|reply| (reply.exit_code, reply.truncated) = (137, true)).starts_with("output_limit: "));
    }

    #[test]
    fn a_commands_outputs_are_those_that_expressions_may_name() {
        let (_, outputs) = exec(|reply| reply.stdout = ByteText(b" {\"a\": [1]}\n".into()));
        assert!(outputs.keys().all(|name| OF_EXECS.contains(&name.as_str())) && outputs.len() == OF_EXECS.len());
        assert_eq!(outputs["json"].key("a").item(0), &1.into());
        assert_eq!(outputs["duration_ms"], 7_u64.into());
        assert_eq!(exec(|_| {}).1.get("json"), None);
    }

    #[test]
    fn an_output_is_cut_where_it_is_longer_than_is_kept() {
        let of = |bytes: usize| exec(|reply| reply.stdout = ByteText(vec![b'1'; bytes])).1;
        let long = |outputs: &Outputs| outputs["stdout"].shown().len();
        let (whole, cut) = (of(WORKFLOW_OUTPUT_BYTES_MAX), of(WORKFLOW_OUTPUT_BYTES_MAX + 1));
        assert_eq!((long(&whole), &whole["truncated"]), (WORKFLOW_OUTPUT_BYTES_MAX, &false.into()));
        assert_eq!((long(&cut), &cut["truncated"]), (WORKFLOW_OUTPUT_BYTES_MAX, &true.into()));
        let text = |bytes: usize| exec(|reply| reply.stdout = ByteText(format!("\"{}\"", "x".repeat(bytes)).into())).1;
        assert!(text(WORKFLOW_OUTPUT_BYTES_MAX - 2).contains_key("json"));
        assert!(!text(WORKFLOW_OUTPUT_BYTES_MAX - 1).contains_key("json"));
    }

    #[test]
    fn a_task_succeeds_if_its_agent_says_so() {
        let reply = RunReply {
            success: true,
            result: "[1]".into(),
            session_id: "s".into(),
            turns_used: 2,
            ..RunReply::default()
        };
        let (failure, outputs) = parts(StepResult::agent(reply.clone()));
        assert!(failure.is_none() && outputs.len() == OF_AGENTS.len());
        assert!(outputs.keys().all(|name| OF_AGENTS.contains(&name.as_str())));
        assert_eq!((&outputs["json"].item(0).json(), outputs["session_id"].shown()), (&"1".to_owned(), "s".into()));
        let refused = RunReply {
            success: false,
            error: "no such profile".into(),
            failure: Some(RunFailure::UnknownProfile),
            ..reply.clone()
        };
        assert_eq!(parts(StepResult::agent(refused)).0.unwrap(), "unknown_profile: no such profile");
        let tired = RunReply { success: false, failure: Some(RunFailure::TurnLimit), ..reply };
        assert_eq!(parts(StepResult::agent(tired)).0.unwrap(), "no_success: it came to no end of its own");
    }

    #[test]
    fn a_snapshots_place_is_its_artifact() {
        let result = StepResult::snapshot("s3://b/k", 9).with_artifacts(["more".to_owned()]);
        let StepResult::Done { failure: None, outputs, artifacts } = result else { panic!("no success") };
        assert_eq!(artifacts, ["s3://b/k", "more"]);
        assert!(
            outputs.keys().all(|name| OF_SNAPSHOTS.contains(&name.as_str())) && outputs.len() == OF_SNAPSHOTS.len()
        );
    }
}
