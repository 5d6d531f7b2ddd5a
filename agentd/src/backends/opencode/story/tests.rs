//! Lines that the program said, and what is made of them.

use std::collections::BTreeMap;

use super::*;
use crate::backends::desk::Kept;
use crate::backends::place::tests::order;

const TOOL: &str = include_str!("recorded/tool.jsonl");
const DENIED: &str = include_str!("recorded/denied.jsonl");
const REFUSED: &str = include_str!("recorded/refused.jsonl");

fn story(change: impl FnOnce(&mut Order)) -> OpencodeStory {
    let mut order = order();
    order.model = "m".to_owned();
    order.env = BTreeMap::from([("MODEL_BASE_URL".to_owned(), "http://model".to_owned())]);
    order.env.insert("MODEL_API_KEY".to_owned(), "k".to_owned());
    change(&mut order);
    OpencodeStory::new(&order, Access::of(&order, &BTreeMap::new()).unwrap())
}

fn heard(story: &mut OpencodeStory, lines: &str) -> (Vec<String>, Option<Failure>) {
    let desk = Kept::new();
    let stopped = lines.lines().find_map(|line| match story.out(line, &desk) {
        Step::Stop(failure) => Some(failure),
        _ => None,
    });
    (desk.shown(), stopped)
}

#[test]
fn a_run_is_told_as_it_was() {
    let mut story = story(|_| {});
    let (told, stopped) = heard(&mut story, TOOL);
    assert_eq!(
        told,
        [
            "reasoning I think so.",
            "message I will write.",
            "tool_call call_1 write",
            "tool_result call_1 write false",
            "usage 100 7",
            "message Hello there.",
            "usage 200 14",
        ]
    );
    let tally = story.into_tally();
    assert_eq!((tally.turns, tally.result.as_str(), tally.cost_micro_usd), (2, "Hello there.", None));
    assert!(stopped.is_none() && tally.session.is_some_and(|session| session.starts_with("ses_")));
}

#[test]
fn a_tool_that_the_model_does_not_have_is_an_error_under_its_own_name() {
    let (told, _) = heard(&mut story(|_| {}), DENIED);
    assert_eq!(told[..2], ["tool_call call_1 bash", "tool_result call_1 bash true"]);
}

#[test]
fn no_turn_more_is_taken_than_may_be() {
    let failure = |turns| heard(&mut story(|order| order.max_turns = turns), TOOL).1.map(|(failure, _)| failure);
    assert_eq!((failure(1), failure(2)), (Some(RunFailure::TurnLimit), None));
}

#[test]
fn a_key_that_is_not_accepted_is_the_customers_or_the_operators() {
    let mut story = story(|_| {});
    let failure = |story: &mut OpencodeStory| heard(story, REFUSED).1.unwrap().0;
    assert_eq!(failure(&mut story), RunFailure::ProviderRefused);
    story.access.is_operators = true;
    assert_eq!(failure(&mut story), RunFailure::OperatorKeyRefused);
}

#[test]
fn errors_have_their_reasons() {
    let said = |name: &str, data: &str| {
        format!(r#"{{"type":"error","sessionID":"s","error":{{"name":"{name}","data":{data}}}}}"#)
    };
    let failure = |line: String| heard(&mut story(|_| {}), &line).1.unwrap();
    let (reason, words) =
        failure(said("APIError", r#"{"message":"no key sk-abcdefghijklmnopqrstuv","statusCode":418}"#));
    assert_eq!(
        (reason, words.as_str()),
        (RunFailure::ProviderFailed, "the provider failed with status 418: no key [redacted]")
    );
    assert_eq!(failure(said("ContextOverflowError", "{}")).0, RunFailure::ContextOverflow);
    assert_eq!(failure(said("UnknownError", "{}")).0, RunFailure::Internal);
}

#[test]
fn what_is_unknown_is_passed_over_and_what_is_malformed_is_told() {
    let unknown = r#"{"type":"weather","sessionID":"s","part":{}}"#;
    assert_eq!(heard(&mut story(|_| {}), unknown), (vec![], None));
    for malformed in ["{", "[]", r#"{"type":"text","sessionID":"s"}"#] {
        let (told, stopped) = heard(&mut story(|_| {}), malformed);
        assert!(told.len() == 1 && told[0].starts_with("warning") && stopped.is_none(), "{told:?}");
    }
}

#[test]
fn a_provider_that_fails_is_not_asked_for_ever() {
    let line = r#"level=ERROR message="stream error" small=false error.error="AI_APICallError: over""#;
    let failed =
        Step::Stop((RunFailure::ProviderFailed, "the provider failed 4 times: AI_APICallError: over".to_owned()));
    let mut story = story(|_| {});
    let mut attempts = |count: u32| (0..count).map(|_| story.err(line)).collect::<Vec<_>>();
    assert!(attempts(PROVIDER_ATTEMPTS_MAX - 1).iter().all(|step| *step == Step::GoOn));
    assert_eq!(attempts(1), [failed]);
    let mut story = self::story(|_| {});
    for _ in 1..PROVIDER_ATTEMPTS_MAX {
        story.err(line);
    }
    heard(&mut story, TOOL);
    assert_eq!(story.err(line), Step::GoOn, "an answer came in between");
    assert_eq!(story.err("level=ERROR message=other"), Step::GoOn);
}
