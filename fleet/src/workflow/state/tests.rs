//! What a run does with one workflow or another, told as stories.

use sandbox_protocol::exec::{ByteText, ExecEnd, ExecReply};
use sandbox_protocol::limits::{WORKFLOW_OUTPUT_BYTES_MAX, WORKFLOW_RUN_TIMEOUT_MS_DEFAULT};

use super::*;
use crate::limits::{RENDERED_BYTES_MAX, STEP_GRACE_MS};
use crate::request::Command;

/// When every run here begins.
const T0: u64 = 1_000_000;

/// A run of a workflow of these steps, each `(id, needs, fields)`, at a given time.
struct Story {
    plan: Plan,
    state: RunState,
    now_ms: u64,
}

impl Story {
    fn of(steps: &[(&str, &[&str], &str)]) -> Self {
        Self::with("", steps)
    }

    fn with(frame: &str, steps: &[(&str, &[&str], &str)]) -> Self {
        let step = |(id, needs, rest): &(&str, &[&str], &str)| {
            let with = if rest.contains("\"with\"") { "" } else { r#","kind":"exec","with":{"command":"true"}"# };
            let needs = needs.iter().map(|need| format!("{need:?}")).collect::<Vec<_>>().join(",");
            let rest = if rest.is_empty() { String::new() } else { format!(",{rest}") };
            format!(r#"{{"id":"{id}","needs":[{needs}]{with}{rest}}}"#)
        };
        let steps: Vec<String> = steps.iter().map(step).collect();
        let plan = Plan::parse(&format!(r#"{{"steps":[{}]{frame}}}"#, steps.join(",")), true).unwrap();
        let body = Value::of_bytes(br#"{"who":"world","size":3}"#);
        let trigger = TriggerData { run: 7, cause: Cause::Cron { slot_s: 60 }, body };
        Self { state: RunState::begin(&plan, trigger, T0), plan, now_ms: T0 }
    }

    /// What is begun now, as `id` or, from the second attempt on, `id#attempt`.
    fn starts(&mut self) -> Vec<String> {
        self.advance().start.iter().map(|start| self.named(start.attempt)).collect()
    }

    fn advance(&mut self) -> Advance {
        // What is on disk says the same.
        let kept = serde_json::to_string(&self.state).unwrap();
        self.state = serde_json::from_str(&kept).unwrap();
        self.state.advance(&self.plan, self.now_ms)
    }

    fn named(&self, attempt: Attempt) -> String {
        let id = &self.plan.steps[attempt.step.place()].id;
        if attempt.number == 1 { id.clone() } else { format!("{id}#{}", attempt.number) }
    }

    fn settle(&mut self, id: &str, result: StepResult) {
        let place = self.plan.steps.iter().position(|step| step.id == id).unwrap();
        let attempt = Attempt { step: StepIndex::of(place), number: self.state.steps[place].attempts };
        self.state.settle(&self.plan, attempt, result, self.now_ms);
    }

    fn done(&mut self, id: &str) {
        self.settle(id, StepResult::exec(reply(0, "")));
    }

    fn fails(&mut self, id: &str) {
        self.settle(id, StepResult::exec(reply(1, "")));
    }

    /// Where every step is.
    fn steps(&self) -> String {
        let step = |body: &StepBody| format!("{} {}", body.id, body.status.name());
        self.state.bodies(&self.plan).iter().map(step).collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn ends(&mut self, status: RunStatus, steps: &str) {
        let last = self.advance();
        assert_eq!((last.ended, self.state.status()), (Some(status), status));
        assert_eq!(self.steps(), steps);
        assert!(last.start.is_empty() && last.cancel.is_empty() && last.wake_at_ms.is_none());
        let before = self.state.clone();
        assert_eq!(self.advance().ended, Some(status));
        assert_eq!(self.state, before);
    }
}

fn reply(exit_code: i32, stdout: &str) -> ExecReply {
    ExecReply {
        id: "x".into(),
        ended: ExecEnd::Exited,
        exit_code,
        stdout: ByteText(stdout.into()),
        stderr: ByteText::default(),
        truncated: false,
        duration_ms: 1,
    }
}

fn failed(code: FailureCode) -> StepResult {
    StepResult::Failed(Failure::new(code, "why"))
}

#[test]
fn steps_run_beside_each_other_where_their_needs_allow() {
    let mut run = Story::of(&[("d", &["b", "c"], ""), ("a", &[], ""), ("b", &["a"], ""), ("c", &["a"], "")]);
    assert_eq!(run.starts(), ["a"]);
    assert_eq!(run.starts(), [""; 0]);
    run.done("a");
    assert_eq!(run.starts(), ["b", "c"]);
    run.done("c");
    assert_eq!(run.starts(), [""; 0]);
    run.done("b");
    assert_eq!(run.starts(), ["d"]);
    run.done("d");
    run.ends(RunStatus::Succeeded, "d succeeded, a succeeded, b succeeded, c succeeded");
}

#[test]
fn what_needs_a_failed_step_is_skipped_and_the_rest_goes_on() {
    let mut run = Story::of(&[("a", &[], ""), ("b", &["a"], ""), ("c", &["b"], ""), ("other", &[], "")]);
    assert_eq!(run.starts(), ["a", "other"]);
    run.fails("a");
    assert_eq!(run.advance().ended, None);
    run.done("other");
    run.ends(RunStatus::Failed, "a failed, b skipped, c skipped, other succeeded");
    assert_eq!(run.state.reason(&run.plan).unwrap(), r#"step "a": no_success: exit code 1"#);
}

#[test]
fn a_condition_is_asked_once_its_needs_are_through_whatever_became_of_them() {
    let mut run = Story::of(&[
        ("a", &[], ""),
        ("mend", &["a"], r#""when":"steps.a.status == 'failed' && steps.a.outputs.exit_code == 1""#),
        ("cheer", &["a"], r#""when":"steps.a.status == 'succeeded'""#),
        ("tidy", &["cheer"], r#""when":"always()""#),
        ("after", &["cheer"], ""),
    ]);
    assert_eq!(run.starts(), ["a"]);
    run.fails("a");
    assert_eq!(run.starts(), ["mend", "tidy"]);
    run.done("mend");
    run.done("tidy");
    run.ends(RunStatus::Failed, "a failed, mend succeeded, cheer skipped, tidy succeeded, after skipped");
}

#[test]
fn a_step_that_may_fail_holds_up_nothing() {
    let mut run = Story::of(&[("a", &[], r#""allow_failure":true"#), ("b", &["a"], "")]);
    run.starts();
    run.fails("a");
    assert_eq!(run.starts(), ["b"]);
    run.done("b");
    run.ends(RunStatus::Succeeded, "a failed, b succeeded");
    assert_eq!(run.state.reason(&run.plan), None);
}

#[test]
fn no_more_steps_run_than_may() {
    let mut run = Story::with(r#","concurrency":2"#, &[("a", &[], ""), ("b", &[], ""), ("c", &[], ""), ("d", &[], "")]);
    assert_eq!(run.starts(), ["a", "b"]);
    run.done("b");
    assert_eq!(run.starts(), ["c"]);
    run.done("a");
    run.done("c");
    assert_eq!(run.starts(), ["d"]);
}

#[test]
fn a_failed_attempt_is_followed_by_others_after_growing_pauses() {
    let mut run = Story::of(&[("a", &[], r#""retry":{"max_attempts":3,"backoff_ms":100}"#)]);
    assert_eq!(run.starts(), ["a"]);
    run.fails("a");
    let waiting = run.advance();
    assert_eq!((waiting.start.len(), waiting.wake_at_ms), (0, Some(T0 + 100)));
    assert_eq!(run.steps(), "a retrying");
    run.now_ms = T0 + 99;
    assert_eq!(run.starts(), [""; 0]);
    run.now_ms = T0 + 100;
    assert_eq!(run.starts(), ["a#2"]);
    run.settle("a", failed(FailureCode::SandboxUnreachable));
    assert_eq!(run.advance().wake_at_ms, Some(T0 + 300));
    run.now_ms = T0 + 300;
    assert_eq!(run.starts(), ["a#3"]);
    run.fails("a");
    run.ends(RunStatus::Failed, "a failed");
    assert_eq!(run.state.bodies(&run.plan)[0].attempts, 3);
}

#[test]
fn the_callers_own_mistake_is_not_repeated() {
    let mut run = Story::of(&[("a", &[], r#""retry":{"max_attempts":3}"#)]);
    run.starts();
    run.settle("a", failed(FailureCode::BadRequest));
    run.ends(RunStatus::Failed, "a failed");
}

#[test]
fn late_and_repeated_results_change_nothing() {
    let mut run = Story::of(&[("a", &[], r#""retry":{"max_attempts":2,"backoff_ms":0}"#)]);
    run.starts();
    run.fails("a");
    assert_eq!(run.starts(), ["a#2"]);
    let before = run.state.clone();
    let late = |step, number| (Attempt { step: StepIndex(step), number }, StepResult::exec(reply(0, "late")));
    for (attempt, result) in [late(0, 1), late(0, 3), late(1, 1), late(u32::MAX, 1)] {
        run.state.settle(&run.plan, attempt, result, run.now_ms);
        assert_eq!(run.state, before);
    }
    run.done("a");
    let after = run.state.clone();
    run.fails("a");
    assert_eq!(run.state, after);
}

#[test]
fn a_cancelled_run_begins_nothing_and_ends_once_nothing_runs() {
    let retry = r#""retry":{"max_attempts":2}"#;
    let mut run = Story::of(&[("a", &[], ""), ("b", &[], retry), ("c", &["a"], r#""when":"always()""#)]);
    run.starts();
    run.fails("b");
    run.state.cancel("its owner says so", run.now_ms);
    run.state.cancel("again", run.now_ms);
    assert_eq!(run.steps(), "a running, b cancelled, c cancelled");
    for _ in 0..2 {
        let next = run.advance();
        assert_eq!((next.cancel.len(), next.ended, next.wake_at_ms), (1, None, None));
    }
    run.settle("a", StepResult::BrokenOff);
    run.ends(RunStatus::Cancelled, "a cancelled, b cancelled, c cancelled");
    assert_eq!(run.state.reason(&run.plan).unwrap(), "its owner says so");
    run.state.cancel("too late", run.now_ms);
    assert_eq!(run.state.reason(&run.plan).unwrap(), "its owner says so");
}

#[test]
fn a_run_that_is_over_is_not_cancelled() {
    let mut run = Story::of(&[("a", &[], "")]);
    run.starts();
    run.done("a");
    run.advance();
    run.state.cancel("too late", run.now_ms);
    run.ends(RunStatus::Succeeded, "a succeeded");
}

#[test]
fn a_run_whose_time_is_over_fails_and_breaks_off_what_runs() {
    let mut run = Story::with(r#","timeout_ms":5000"#, &[("a", &[], ""), ("b", &["a"], "")]);
    assert_eq!(run.advance().wake_at_ms, Some(T0 + 5_000));
    run.now_ms = T0 + 4_999;
    assert!(run.advance().cancel.is_empty());
    run.now_ms = T0 + 5_000;
    let over = run.advance();
    assert_eq!((over.cancel.len(), over.ended, over.wake_at_ms), (1, None, None));
    run.settle("a", StepResult::BrokenOff);
    run.ends(RunStatus::Failed, "a cancelled, b cancelled");
    assert_eq!(run.state.reason(&run.plan).unwrap(), "it took longer than 5000 ms");
}

#[test]
fn an_attempt_of_which_nothing_is_heard_is_broken_off_and_may_be_repeated() {
    let retry = r#""timeout_ms":1000,"retry":{"max_attempts":2,"backoff_ms":0}"#;
    let mut run = Story::of(&[("a", &[], retry)]);
    let until_ms = T0 + 1_000 + STEP_GRACE_MS;
    let begun = run.advance();
    assert_eq!((begun.start[0].timeout_ms, begun.wake_at_ms), (1_000, Some(until_ms)));
    run.now_ms = until_ms - 1;
    assert!(run.advance().cancel.is_empty());
    run.now_ms = until_ms;
    let over = run.advance();
    assert_eq!(over.cancel, [begun.start[0].attempt]);
    assert_eq!(over.wake_at_ms, Some(T0 + WORKFLOW_RUN_TIMEOUT_MS_DEFAULT));
    run.settle("a", StepResult::BrokenOff);
    assert_eq!(run.starts(), ["a#2"]);
    run.settle("a", StepResult::BrokenOff);
    run.ends(RunStatus::Failed, "a failed");
    assert_eq!(run.state.reason(&run.plan).unwrap(), r#"step "a": interrupted: it was broken off"#);
}

#[track_caller]
fn command(start: &Start) -> &Command {
    let Action::Exec(command) = &start.action else { panic!("no command") };
    command
}

#[test]
fn outputs_of_steps_and_of_the_trigger_become_inputs() {
    let with = r#""kind":"exec","with":{"command":"cat","env":{"OUT":"${{ steps.a.outputs.json.list[1] }}",
        "WHO":"hello ${{ trigger.body.who }} at ${{ trigger.slot_s }}"},"stdin":"${{ steps.a.outputs.json }} ${{ run.number }}"}"#;
    let ask =
        r#""kind":"task","with":{"prompt":"${{ steps.a.status }}","context":{"size":"${{ trigger.body.size }}"}}"#;
    let mut run = Story::of(&[("a", &[], ""), ("b", &["a"], with), ("c", &["a"], ask)]);
    run.starts();
    run.settle("a", StepResult::exec(reply(0, r#"{"list":["x","y"]}"#)));
    let next = run.advance().start;
    let command = command(&next[0]);
    assert_eq!((command.env["OUT"].as_str(), command.env["WHO"].as_str()), ("y", "hello world at 60"));
    assert_eq!(command.stdin, r#"{"list":["x","y"]} 7"#);
    let Action::Agent { errand, .. } = &next[1].action else { panic!("no task") };
    assert_eq!((errand.prompt.as_str(), errand.context_json.as_str()), ("succeeded", r#"{"size":3}"#));
}

#[test]
fn what_was_running_is_taken_up_again_as_it_was_begun() {
    let with = r#""kind":"exec","with":{"command":"cat","stdin":"${{ steps.a.outputs.stdout }}"},"artifacts":["out"]"#;
    let mut run = Story::of(&[("a", &[], ""), ("b", &["a"], with)]);
    run.starts();
    run.settle("a", StepResult::exec(reply(0, "0.30000000000000004")));
    let begun = run.advance().start;
    assert_eq!((begun[0].artifacts.as_slice(), begun[0].sandbox), (&["out".to_owned()][..], None));
    let mut again: RunState = serde_json::from_str(&serde_json::to_string(&run.state).unwrap()).unwrap();
    assert_eq!(again.take_up(&run.plan, run.now_ms), begun);
    run.done("b");
    assert_eq!(run.state.running(&run.plan), []);
}

#[test]
fn what_was_done_while_nobody_looked_is_asked_for_before_it_is_broken_off() {
    let mut run = Story::of(&[("a", &[], r#""timeout_ms":1000"#)]);
    run.starts();
    run.now_ms += 1_000 + STEP_GRACE_MS;
    assert_eq!(run.state.take_up(&run.plan, run.now_ms).len(), 1);
    run.now_ms += STEP_GRACE_MS - 1;
    assert_eq!(run.advance().cancel, []);
    run.now_ms += 1;
    assert_eq!(run.advance().cancel.len(), 1, "it tells nothing");
}

#[test]
fn a_step_whose_expressions_come_to_nothing_good_fails_and_says_so() {
    let with = r#""kind":"snapshot","with":{"destination":"${{ trigger.body.who }}"},"retry":{"max_attempts":3}"#;
    let mut run = Story::of(&[("a", &[], with), ("b", &["a"], r#""when":"steps.a.status == 'failed'""#)]);
    assert_eq!(run.starts(), ["b"]);
    run.done("b");
    run.ends(RunStatus::Failed, "a failed, b succeeded");
    let reason = run.state.reason(&run.plan).unwrap();
    assert_eq!(reason, r#"step "a": bad_request: destination: give s3://…, ipfs://…, https://… or file://…"#);
}

#[test]
fn expressions_come_to_no_more_than_is_sent() {
    let with = |times: usize| {
        let stdin = "${{ steps.a.outputs.stdout }}".repeat(times);
        format!(r#""kind":"exec","with":{{"command":"cat","stdin":"{stdin}"}}"#)
    };
    let times = RENDERED_BYTES_MAX / WORKFLOW_OUTPUT_BYTES_MAX;
    let (most, more) = (with(times), with(times + 1));
    let mut run = Story::of(&[("a", &[], ""), ("b", &["a"], &most), ("c", &["a"], &more)]);
    run.starts();
    run.settle("a", StepResult::exec(reply(0, &"x".repeat(WORKFLOW_OUTPUT_BYTES_MAX))));
    assert_eq!(run.starts(), ["b"]);
    assert_eq!(run.steps(), "a succeeded, b running, c failed");
}

#[test]
fn a_run_keeps_no_more_than_its_share_of_outputs() {
    let ids: Vec<String> = (0..40).map(|step| format!("s{step}")).collect();
    let steps: Vec<(&str, &[&str], &str)> = ids.iter().map(|id| (id.as_str(), &[][..], "")).collect();
    let mut run = Story::with(r#","concurrency":32"#, &steps);
    let long = "x".repeat(WORKFLOW_OUTPUT_BYTES_MAX);
    while run.advance().ended.is_none() {
        for (place, id) in ids.iter().enumerate() {
            if matches!(run.state.steps[place].phase, StepPhase::Running { .. }) {
                run.settle(id, StepResult::exec(reply(0, &long)));
            }
        }
    }
    let all: usize = run.state.steps.iter().flat_map(|step| step.outputs.values()).map(Value::size_bytes).sum();
    assert!(all <= WORKFLOW_OUTPUTS_BYTES_MAX + ids.len() * 200, "{all}");
    let outputs = |place: usize| &run.state.steps[place].outputs;
    assert_eq!((outputs(0)["stdout"].shown().len(), &outputs(0)["truncated"]), (long.len(), &false.into()));
    let last = outputs(ids.len() - 1);
    assert_eq!((&last["stdout"], &last["truncated"], &last["exit_code"]), (&"".into(), &true.into(), &0.into()));
}

#[test]
fn a_failed_steps_last_words_are_told() {
    let mut run = Story::of(&[("a", &[], "")]);
    run.starts();
    run.settle("a", StepResult::exec(reply(2, "oh")).with_artifacts(["/files/x".to_owned()]));
    let body = &run.state.bodies(&run.plan)[0];
    assert_eq!(body.outputs["stdout"], serde_json::json!("oh"));
    assert_eq!(
        (body.kind.as_str(), body.artifacts.len(), body.started_ms, body.ended_ms),
        ("exec", 1, Some(T0), Some(T0))
    );
    assert_eq!(body.failure.as_ref().unwrap().to_string(), "no_success: exit code 2");
}

#[test]
fn the_version_grows_with_every_change_alone() {
    let mut run = Story::of(&[("a", &[], "")]);
    let mut versions = vec![run.state.version];
    run.advance();
    versions.push(run.state.version);
    run.advance();
    assert_eq!(run.state.version, versions[1]);
    run.done("a");
    versions.push(run.state.version);
    run.advance();
    versions.push(run.state.version);
    assert!(versions.is_sorted_by(|earlier, later| earlier < later), "{versions:?}");
}
