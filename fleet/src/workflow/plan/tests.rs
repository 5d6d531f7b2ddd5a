//! Which bodies are plans, and how the others are refused.

use proptest::prelude::*;
use sandbox_protocol::limits::{WORKFLOW_EXPRESSION_BYTES_MAX, WORKFLOW_STEPS_MAX};

use super::*;
use crate::limits::VALUE_DEPTH_MAX;

fn refusal(json: &str) -> String {
    let failure = Plan::parse(json, true).unwrap_err();
    assert_eq!(failure.code, FailureCode::BadRequest, "{json}");
    failure.message
}

#[track_caller]
fn refused(steps: &str, expected: &str) {
    assert_eq!(refusal(&format!(r#"{{"steps":[{steps}]}}"#)), format!("workflow_json: {expected}"), "{steps}");
}

#[track_caller]
fn fine(steps: &str) -> Plan {
    Plan::parse(&format!(r#"{{"steps":[{steps}]}}"#), true).unwrap_or_else(|failure| panic!("{steps}: {failure}"))
}

/// A command with these fields besides.
fn exec(id: &str, rest: &str) -> String {
    format!(r#"{{"id":"{id}","kind":"exec","with":{{"command":"true"}}{rest}}}"#)
}

/// A task with these fields in its `with`.
fn task(with: &str) -> String {
    format!(r#"{{"id":"t","kind":"task","with":{{"prompt":"do"{with}}}}}"#)
}

#[test]
fn one_task_is_a_plan_of_one_step() {
    let plan = Plan::parse(r#"{"sandbox_id":"sbx-1-2-0","prompt":"do","context_json":"{\"a\":1}"}"#, false).unwrap();
    assert_eq!(plan.step_ids().collect::<Vec<_>>(), ["task"]);
    assert_eq!((plan.uses_own_sandbox(), plan.sandboxes().len()), (false, 1));
    let by_url = r#"{"sidecar_url":"https://o.example/sandboxes/sbx-1-2-0","prompt":"do","context":{"a":1}}"#;
    assert_eq!(Plan::parse(by_url, false).unwrap(), plan);
    assert!(Plan::parse(r#"{"prompt":"${{ trigger.body.x }} ${{ run.number }}"}"#, true).unwrap().uses_own_sandbox());
}

#[test]
fn what_is_wrong_with_one_task_is_named_by_its_field() {
    for (json, expected) in [
        (r#"{"prompt":" "}"#, "prompt: empty"),
        (r#"{"prompt":"a","context":{},"context_json":"{}"}"#, "context_json: not beside context"),
        (
            r#"{"prompt":"a","context_json":"[]"}"#,
            "context_json: invalid type: sequence, expected a map at line 1 column 0",
        ),
        (r#"{"prompt":"a","timeout_ms":3300001}"#, "timeout_ms: at most 3300000"),
        (r#"{"prompt":"a","max_turns":201}"#, "max_turns: at most 200"),
        (r#"{"prompt":"${{ steps.a.status }}"}"#, r#"prompt: at letter 5: no step "a""#),
        (r#"{"prompt":"a","model":"${{ run.number }}"}"#, "model: no expressions here"),
        (
            r#"{"prompt":"a","agent":"x","context":{"agent_identifier":"y"}}"#,
            "agent: context.agent_identifier names another",
        ),
    ] {
        assert_eq!(refusal(json), format!("workflow_json: {expected}"), "{json}");
    }
}

#[test]
fn every_step_has_one_sandbox() {
    let sandbox = r#""sandbox_id":"sbx-1-2-0""#;
    let both = "sandbox_id: not beside a sandbox_config_json, which gives each run a sandbox of its own";
    let neither = "sandbox_id: there is none, and the workflow has no sandbox_config_json to make one";
    let named = |own, json: String| Plan::parse(&json, own).map_err(|failure| failure.message);
    let steps = exec("a", "");
    assert_eq!(named(true, format!(r#"{{{sandbox},"prompt":"a"}}"#)), Err(format!("workflow_json: {both}")));
    assert_eq!(named(true, format!(r#"{{{sandbox},"steps":[{steps}]}}"#)), Err(format!("workflow_json: {both}")));
    assert_eq!(named(false, r#"{"prompt":"a"}"#.to_owned()), Err(format!("workflow_json: {neither}")));
    assert_eq!(
        named(false, format!(r#"{{"steps":[{steps}]}}"#)),
        Err(format!(r#"workflow_json: step "a": {neither}"#))
    );
    let twice = format!(r#"{{{sandbox},"sidecar_url":"x/sbx-1-2-0","steps":[{steps}]}}"#);
    assert_eq!(named(false, twice), Err("workflow_json: sidecar_url: not beside sandbox_id".to_owned()));
    let of_its_own = r#"{"id":"b","kind":"exec","with":{"command":"x","sandbox_id":"sbx-3-4-0"}}"#;
    let plan = named(false, format!(r#"{{{sandbox},"steps":[{steps},{of_its_own}]}}"#)).unwrap();
    assert_eq!(plan.sandboxes().iter().map(SandboxId::to_string).collect::<Vec<_>>(), ["sbx-1-2-0", "sbx-3-4-0"]);
    assert!(!named(false, format!(r#"{{"steps":[{of_its_own}]}}"#)).unwrap().uses_own_sandbox());
    assert!(named(true, format!(r#"{{"steps":[{of_its_own},{steps}]}}"#)).unwrap().uses_own_sandbox());
}

#[test]
fn a_graph_has_known_steps_and_no_circle() {
    let two = |left: &str, right: &str| format!("{},{}", exec("a", left), exec("b", right));
    fine(&two(r#","needs":["b"]"#, ""));
    refused(&exec("deploy", r#","needs":["bild"]"#), r#"step "deploy": needs: no step "bild""#);
    refused(&two("", r#","needs":["a","a"]"#), r#"step "b": needs: "a" twice"#);
    refused(&format!("{},{}", exec("a", ""), exec("a", "")), r#"step "a": id: another step has it already"#);
    refused(&exec("a", r#","needs":["a"]"#), r#"step "a": needs: a circle: a needs a"#);
    let circle = [exec("x", r#","needs":["a"]"#), exec("a", r#","needs":["b"]"#), exec("b", r#","needs":["c"]"#)];
    let circle = format!("{},{}", circle.join(","), exec("c", r#","needs":["a"]"#));
    refused(&circle, r#"step "a": needs: a circle: a needs b needs c needs a"#);
}

#[test]
fn a_steps_name_is_short_and_plain() {
    let longest = "x".repeat(WORKFLOW_STEP_ID_BYTES_MAX);
    fine(&exec(&longest, ""));
    let rule = "id: 1 to 40 letters, digits, `_` and `-`, a letter or `_` in front";
    refused(&exec(&format!("{longest}y"), ""), &format!(r#"step "{longest}": {rule}"#));
    for id in ["", "1a", "-a", "a b", "a.b", "ä"] {
        refused(&exec(id, ""), &format!("step {id:?}: {rule}"));
    }
}

#[test]
fn every_bound_holds_on_both_sides() {
    let with =
        |field: &str, value: u64| Plan::parse(&format!(r#"{{"steps":[{}],"{field}":{value}}}"#, exec("a", "")), true);
    let bounds = [("timeout_ms", WORKFLOW_RUN_TIMEOUT_MS_MAX), ("concurrency", u64::from(WORKFLOW_CONCURRENCY_MAX))];
    for (field, most) in bounds {
        assert!(with(field, 1).is_ok() && with(field, most).is_ok());
        for outside in [0, most + 1] {
            let refused = with(field, outside).unwrap_err().message;
            assert_eq!(refused, format!("workflow_json: {field}: 1 to {most}"));
        }
    }
    let retry = |attempts: u32, backoff: u64| {
        exec("a", &format!(r#","retry":{{"max_attempts":{attempts},"backoff_ms":{backoff}}}"#))
    };
    fine(&retry(1, 0));
    fine(&retry(WORKFLOW_ATTEMPTS_MAX, WORKFLOW_BACKOFF_MS_MAX));
    refused(&retry(0, 0), r#"step "a": retry.max_attempts: 1 to 10"#);
    refused(&retry(WORKFLOW_ATTEMPTS_MAX + 1, 0), r#"step "a": retry.max_attempts: 1 to 10"#);
    refused(&retry(1, WORKFLOW_BACKOFF_MS_MAX + 1), r#"step "a": retry.backoff_ms: at most 3600000"#);
    fine(&exec("a", r#","timeout_ms":300000"#));
    refused(&exec("a", r#","timeout_ms":300001"#), r#"step "a": timeout_ms is at most 300000"#);
    let snapshot = |time: u64| format!(r#"{{"id":"a","kind":"snapshot","with":{{}},"timeout_ms":{time}}}"#);
    fine(&snapshot(1_800_000));
    refused(&snapshot(1_800_001), r#"step "a": timeout_ms is at most 1800000"#);
    let artifacts = |count: usize, bytes: usize| {
        exec("a", &format!(r#","artifacts":[{}]"#, vec![format!("\"{}\"", "x".repeat(bytes)); count].join(",")))
    };
    fine(&artifacts(WORKFLOW_ARTIFACTS_MAX, 1));
    fine(&artifacts(1, EXEC_CWD_BYTES_MAX));
    refused(&artifacts(WORKFLOW_ARTIFACTS_MAX + 1, 1), r#"step "a": artifacts: at most 16"#);
    refused(&artifacts(1, EXEC_CWD_BYTES_MAX + 1), r#"step "a": artifacts: 1 to 4095 bytes each, and no NUL"#);
    refused(&artifacts(1, 0), r#"step "a": artifacts: 1 to 4095 bytes each, and no NUL"#);
    let when = |bytes: usize| exec("a", &format!(r#","when":"'{}'""#, "x".repeat(bytes - 2)));
    fine(&when(WORKFLOW_EXPRESSION_BYTES_MAX));
    refused(&when(WORKFLOW_EXPRESSION_BYTES_MAX + 1), r#"step "a": when: at letter 1: longer than 1024 bytes"#);
    let nested =
        |depth: usize| task(&format!(r#","context":{{"a":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1)));
    fine(&nested(VALUE_DEPTH_MAX));
    refused(
        &nested(VALUE_DEPTH_MAX + 1),
        r#"step "t": with.context: more than 48 lists and objects within one another"#,
    );
}

#[test]
fn an_expression_names_only_what_is_known_when_it_is_read() {
    let two = |when: &str| format!("{},{}", exec("a", ""), exec("b", &format!(r#","needs":["a"],"when":"{when}""#)));
    for when in [
        "steps.a.status == 'failed'",
        "steps['a'].outputs.json.deep[0]",
        "steps.a.outputs.exit_code == 0 && trigger.body[0].x",
        "trigger.kind == 'cron' || run.number > 1",
    ] {
        fine(&two(when));
    }
    for (when, expected) in [
        ("steps.c.status", "at letter 1: no step \"c\""),
        ("1 == steps.b.status", "at letter 6: step \"b\" is none that it needs"),
        ("steps.a", "at letter 1: of a step there are steps.a.status and steps.a.outputs.NAME"),
        ("steps.a.outputs", "at letter 1: of a step there are steps.a.status and steps.a.outputs.NAME"),
        ("steps.a.status.x", "at letter 1: of a step there are steps.a.status and steps.a.outputs.NAME"),
        (
            "steps.a.outputs.exitcode",
            "at letter 1: a step of kind exec has the outputs exit_code, stdout, stderr, truncated, duration_ms, json",
        ),
        ("steps", "at letter 1: a step's id is expected: steps.ID.status, steps.ID.outputs.NAME"),
        ("run.id", "at letter 1: of a run there is run.number"),
        ("trigger", "at letter 1: of a trigger there are kind, call, slot_s, delivery, event, body"),
        ("env.HOME", "at letter 1: no `env`; there are steps, trigger and run"),
        ("${{ true }}", "at letter 1: '$' means nothing here"),
    ] {
        refused(&two(when), &format!(r#"step "b": when: {expected}"#));
    }
    // What is needed by what it needs is through as well.
    let through = r#","needs":["b"],"when":"steps.a.status == 'skipped'""#;
    fine(&format!("{},{}", two("true"), exec("c", through)));
}

#[test]
fn no_expression_becomes_a_command() {
    let command = r#"{"id":"a","kind":"exec","with":{"command":"echo ${{ trigger.body.x }}"}}"#;
    let expected = "with.command: an expression would be code there: take it in by env or stdin";
    refused(command, &format!(r#"step "a": {expected}"#));
    let cwd = r#"{"id":"a","kind":"exec","with":{"command":"true","cwd":"${{ trigger.body.x }}"}}"#;
    refused(cwd, r#"step "a": with.cwd: no expressions here"#);
    fine(
        r#"{"id":"a","kind":"exec","with":{"command":"echo $X","env":{"X":"${{ trigger.body.x }}"},"stdin":"${{ run.number }}"}}"#,
    );
}

#[test]
fn what_a_step_does_is_checked_before_there_is_a_run() {
    let with = |kind: &str, with: &str| format!(r#"{{"id":"a","kind":"{kind}","with":{with}}}"#);
    for (step, expected) in [
        (with("exec", r#"{"command":" "}"#), "with: command is empty"),
        (with("exec", r#"{"command":"x","env":{"A-B":"1"}}"#), "with: env: \"A-B\" is no variable name"),
        (with("exec", r#"{"command":"x","env":{"SANDBOX_X":"1"}}"#), "with: env: SANDBOX_X is reserved"),
        (
            with("exec", r#"{"command":"x","env":{"A":"${{"}}"#),
            "with.env.A: at letter 4: a value is expected, not the end",
        ),
        (with("exec", r#"{"command":"x","stdin":"${{ 1"}"#), "with.stdin: at letter 6: `}}` is expected, not the end"),
        (with("prompt", r#"{"prompt":""}"#), "with: prompt: empty"),
        (
            with("prompt", r#"{"prompt":"${{ nope }}"}"#),
            "with.prompt: at letter 5: no `nope`; there are steps, trigger and run",
        ),
        (with("task", r#"{"prompt":"x","max_turns":201}"#), "with: max_turns: at most 200"),
        (with("task", r#"{"prompt":"x","context":{"provider":1}}"#), "with: context: provider: not an object"),
        (
            with("snapshot", r#"{"include_workspace":false}"#),
            "with: include_workspace or include_state: one of them must be true",
        ),
        (
            with("snapshot", r#"{"destination":"ftp://x"}"#),
            "with: destination: give s3://…, ipfs://…, https://… or file://…",
        ),
        (with("negotiation", r#"{"context":{}}"#), "with: context: ticker: missing"),
        (with("negotiation", r#"{"context":{"kind":"x"}}"#), "with: context: kind: the one kind there is: negotiation"),
        (
            with(
                "prompt",
                r#"{"prompt":"x","context":{"kind":"negotiation","ticker":"A","moves":[{"move_id":"m","content":"c"}]}}"#,
            ),
            "with: context: kind: a negotiation is a task, job 12",
        ),
        (
            r#"{"id":"a","kind":"snapshot","with":{},"artifacts":["x"]}"#.to_owned(),
            "artifacts: a snapshot leaves no files",
        ),
    ] {
        refused(&step, &format!(r#"step "a": {expected}"#));
    }
    fine(&with("snapshot", r#"{"destination":"${{ trigger.body.place }}"}"#));
    fine(&with("negotiation", r#"{"context":{"ticker":"A","moves":"${{ trigger.body.moves }}"}}"#));
    fine(&with("prompt", r#"{"prompt":"${{ '' }}","session_id":"${{ trigger.body.session }}"}"#));
}

#[test]
fn as_many_steps_as_may_be_in_one_row_are_a_plan() {
    let step = |place: usize| {
        let rest = format!(r#","needs":["s{}"],"when":"steps.s0.status""#, place.saturating_sub(1));
        exec(&format!("s{place}"), if place == 0 { "" } else { &rest })
    };
    let steps: Vec<String> = (0..WORKFLOW_STEPS_MAX).map(step).collect();
    assert_eq!(fine(&steps.join(",")).step_ids().count(), WORKFLOW_STEPS_MAX);
}

proptest! {
    #[test]
    fn any_text_is_a_plan_or_refused(text in ".{0,200}", place in any::<proptest::sample::Index>()) {
        drop(Plan::parse(&text, true));
        // A good one that was damaged.
        let good = format!(r#"{{"steps":[{},{}]}}"#, exec("a", ""), exec("b", r#","needs":["a"],"when":"steps.a.status""#));
        let mut at = place.index(good.len());
        while !good.is_char_boundary(at) {
            at -= 1;
        }
        let damaged = format!("{}{text}{}", &good[..at], &good[at..]);
        if let Err(failure) = Plan::parse(&damaged, true) {
            prop_assert!(failure.message.starts_with("workflow_json: "));
        }
    }
}
