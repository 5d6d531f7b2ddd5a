//! What is read of a body, how it is refused, and the schema that says so in public.

use super::*;
use crate::limits::{WORKFLOW_BODY_BYTES_MAX, WORKFLOW_STEPS_MAX};

#[track_caller]
fn refused(json: &str, expected: &str) {
    assert_eq!(Body::parse(json).unwrap_err().to_string(), format!("workflow_json: {expected}"), "{json}");
}

fn step(rest: &str) -> String {
    format!(r#"{{"steps":[{{"id":"a",{rest}}}]}}"#)
}

#[test]
fn one_task_needs_no_more_than_its_words() {
    let Ok(Body::Single(task)) =
        Body::parse(r#"{"sidecar_url":"https://o.example/sandboxes/sbx-1-2-0","prompt":"do"}"#)
    else {
        panic!("no task")
    };
    assert_eq!(task.sidecar_url.as_deref(), Some("https://o.example/sandboxes/sbx-1-2-0"));
    assert_eq!((task.prompt.as_str(), task.max_turns, task.context), ("do", 0, None));
}

#[test]
fn a_step_is_read_by_its_kind() {
    let json = r#"{"sandbox_id":"sbx-1-2-0","concurrency":2,"steps":[
        {"id":"build","kind":"exec","with":{"command":"make","env":{"A":"1"}},"retry":{"max_attempts":2}},
        {"id":"keep","kind":"snapshot","with":{},"needs":["build"],"when":"always()","allow_failure":true}]}"#;
    let Ok(Body::Steps(steps)) = Body::parse(json) else { panic!("no steps") };
    assert_eq!((steps.concurrency, steps.timeout_ms, steps.steps.len()), (Some(2), None, 2));
    let [build, keep] = &steps.steps[..] else { panic!("not two") };
    assert_eq!((build.work.kind().name(), keep.work.kind()), ("exec", Kind::Snapshot));
    assert_eq!(build.retry, Some(Retry { max_attempts: 2, backoff_ms: WORKFLOW_BACKOFF_MS_DEFAULT }));
    let kept =
        SnapshotWith { sandbox_id: None, destination: String::new(), include_workspace: true, include_state: false };
    assert_eq!((&keep.work, keep.allow_failure), (&Work::Snapshot(kept), true));
}

#[test]
fn what_is_wrong_is_named_with_its_step_and_field() {
    refused("[]", "not an object");
    refused("{}", "missing field `prompt`");
    refused(r#"{"prompt":1}"#, "prompt: invalid type: integer `1`, expected a string");
    refused(r#"{"prompt":"a","sandbox_id":"x"}"#, r#"sandbox_id: not a sandbox id: "x" (sbx-<service>-<call>-<slot>)"#);
    refused(r#"{"steps":{}}"#, "steps: not a list");
    refused(r#"{"steps":[]}"#, "steps: 1 to 64");
    refused(r#"{"steps":[{}],"timeout_ms":-1}"#, "timeout_ms: invalid value: integer `-1`, expected u64");
    refused(r#"{"steps":[{"kind":"exec"}]}"#, "steps[0]: missing field `id`");
    refused(r#"{"steps":[3]}"#, "steps[0]: invalid type: integer `3`, expected struct StepWords");
    let kinds = "unknown variant `run`, expected one of `exec`, `prompt`, `task`, `snapshot`, `negotiation`";
    refused(&step(r#""kind":"run""#), &format!(r#"step "a": kind: {kinds}"#));
    refused(&step(r#""kind":"exec""#), r#"step "a": missing field `with`"#);
    refused(&step(r#""kind":"exec","with":{}"#), r#"step "a": with: missing field `command`"#);
    refused(
        &step(r#""kind":"exec","with":{"command":"x","env":{"A":1}}"#),
        r#"step "a": with: env.A: invalid type: integer `1`, expected a string"#,
    );
    refused(
        &step(r#""kind":"exec","retry":{"max_attempts":1,"jitter":2}"#),
        r#"step "a": retry.jitter: unknown field `jitter`, expected `max_attempts` or `backoff_ms`"#,
    );
}

#[test]
fn nothing_unknown_is_passed_over() {
    for json in [
        r#"{"prompt":"a","colour":"red"}"#.to_owned(),
        r#"{"steps":[{"id":"a","kind":"exec","with":{"command":"x"}}],"colour":"red"}"#.to_owned(),
        step(r#""kind":"exec","with":{"command":"x"},"colour":"red""#),
        step(r#""kind":"exec","with":{"command":"x","colour":"red"}"#),
        step(r#""kind":"prompt","with":{"prompt":"x","max_turns":1}"#),
        step(r#""kind":"task","with":{"prompt":"x","colour":"red"}"#),
        step(r#""kind":"snapshot","with":{"colour":"red"}"#),
        step(r#""kind":"negotiation","with":{"context":{},"prompt":"x"}"#),
    ] {
        let message = Body::parse(&json).unwrap_err().to_string();
        assert!(message.contains("unknown field"), "{json}: {message}");
    }
}

#[test]
fn a_body_has_a_length_and_a_number_of_steps() {
    let long = |bytes: usize| format!(r#"{{"prompt":"{}"}}"#, "x".repeat(bytes - r#"{"prompt":""}"#.len()));
    assert!(Body::parse(&long(WORKFLOW_BODY_BYTES_MAX)).is_ok());
    refused(&long(WORKFLOW_BODY_BYTES_MAX + 1), &format!("longer than {WORKFLOW_BODY_BYTES_MAX} bytes"));
    let many = |steps: usize| {
        let steps: Vec<String> =
            (0..steps).map(|step| format!(r#"{{"id":"s{step}","kind":"snapshot","with":{{}}}}"#)).collect();
        format!(r#"{{"steps":[{}]}}"#, steps.join(","))
    };
    assert!(Body::parse(&many(WORKFLOW_STEPS_MAX)).is_ok());
    refused(&many(WORKFLOW_STEPS_MAX + 1), "steps: 1 to 64");
}

#[cfg(feature = "schema")]
#[test]
fn the_schema_is_the_one_that_is_published() {
    let found = schema();
    assert!(found == include_str!("schema.golden.json"), "body/schema.golden.json is to be:\n{found}");
}
