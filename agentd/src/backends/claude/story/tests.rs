//! Lines that the program said, and what is made of them.

use sandbox_protocol::agent::{ProviderKind, Secret};

use super::*;
use crate::backends::desk::Kept;
use crate::backends::tally::Failure;

const TOOL: &str = include_str!("recorded/tool.jsonl");
const TURNS: &str = include_str!("recorded/turns.jsonl");
const FAILED: &str = include_str!("recorded/failed.jsonl");

fn story(policies: &[(&str, Policy)]) -> ClaudeStory {
    let access = Access {
        kind: ProviderKind::Anthropic,
        base_url: "http://model/v1".into(),
        key: Some(Secret::new("k")),
        model: "m".into(),
        context_tokens: 1,
        is_operators: false,
        price: None,
    };
    let mut profile = Profile::named("p");
    profile.approvals.tools = policies.iter().map(|(name, policy)| ((*name).to_owned(), *policy)).collect();
    ClaudeStory::new(access, profile)
}

fn heard(story: &mut ClaudeStory, lines: &str) -> (Vec<String>, Vec<Step>) {
    let desk = Kept::new();
    let steps = lines.lines().map(|line| story.out(line, &desk)).filter(|step| *step != Step::GoOn).collect();
    (desk.shown(), steps)
}

#[test]
fn a_run_is_told_as_it_was() {
    let mut story = story(&[]);
    let (told, steps) = heard(&mut story, TOOL);
    assert_eq!(
        told,
        [
            "message I will write.",
            "tool_call toolu_1 Write",
            "usage 100 7",
            "tool_result toolu_1 Write false",
            "message Hello there.",
            "usage 200 14",
        ]
    );
    assert!(matches!(&steps[..], [Step::Say(_), Step::Close]), "{steps:?}");
    let tally = story.into_tally();
    assert_eq!((tally.turns, tally.result.as_str(), tally.cost_micro_usd), (2, "Hello there.", None));
    assert!(tally.failure.is_none() && tally.session.is_some());
}

#[test]
fn a_question_is_answered_by_the_profile_or_its_customer() {
    let asked = |policy| {
        let (_, mut steps) = heard(&mut story(&[("write", policy)]), TOOL);
        steps.swap_remove(0)
    };
    let says = |step: Step, word: &str| matches!(step, Step::Say(text) if text.contains(word) && text.ends_with('\n'));
    assert!(
        says(asked(Policy::Allow), r#""behavior":"allow""#) && says(asked(Policy::Allow), r#""content":"hello\n""#)
    );
    assert!(says(asked(Policy::Deny), r#""behavior":"deny""#));
    let Step::Ask { request, call } = asked(Policy::Ask) else { panic!("the customer is not asked") };
    assert_eq!((call.name.as_str(), call.id.as_str(), request.len()), ("Write", "toolu_1", 36));
}

#[test]
fn the_last_line_tells_why_it_ended() {
    let failure = |lines: &str| {
        let mut story = story(&[]);
        heard(&mut story, lines);
        story.into_tally().failure
    };
    assert_eq!(failure(TURNS).unwrap().0, RunFailure::TurnLimit);
    let (reason, words): Failure = failure(FAILED).unwrap();
    assert!(
        reason == RunFailure::ProviderFailed && words.starts_with("the provider failed with status 500"),
        "{words}"
    );
    let long =
        r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":400,"result":"Prompt is too long"}"#;
    assert_eq!(failure(long).unwrap().0, RunFailure::ContextOverflow);
    let dear = r#"{"type":"result","subtype":"error_max_budget_usd","is_error":true}"#;
    assert_eq!(failure(dear).unwrap().0, RunFailure::CostLimit);
    let other = r#"{"type":"result","subtype":"error_during_execution","is_error":true}"#;
    assert_eq!(failure(other).unwrap().0, RunFailure::Internal);
}

#[test]
fn a_key_that_is_not_accepted_is_not_tried_again() {
    let (_, steps) = heard(&mut story(&[]), r#"{"type":"system","subtype":"api_retry","error_status":401}"#);
    assert!(matches!(&steps[..], [Step::Stop((RunFailure::ProviderRefused, _))]), "{steps:?}");
    let (told, steps) = heard(&mut story(&[]), r#"{"type":"system","subtype":"api_retry","error_status":529}"#);
    assert_eq!(
        (told, steps),
        (vec!["warning the provider failed with status 529 and is asked again".to_owned()], vec![])
    );
}

#[test]
fn a_price_counts_only_where_it_is_known() {
    let closing = |basis: &str| {
        let line = format!(
            r#"{{"type":"result","subtype":"success","result":"","total_cost_usd":0.5,"modelUsage":{{"m":{{"costBasis":"{basis}"}}}}}}"#
        );
        let mut story = story(&[]);
        heard(&mut story, &line);
        story.into_tally().cost_micro_usd
    };
    assert_eq!((closing("list"), closing("unknown")), (Some(500_000), None));
}

#[test]
fn what_is_unknown_is_passed_over_and_what_is_malformed_is_told() {
    let unknown = r#"{"type":"weather"}"#;
    assert_eq!(heard(&mut story(&[]), unknown), (vec![], vec![]));
    let question = r#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback"}}"#;
    assert!(matches!(&heard(&mut story(&[]), question).1[..], [Step::Say(text)] if text.contains("error")));
    for malformed in ["{", "[]", r#"{"type":"assistant"}"#] {
        let (told, steps) = heard(&mut story(&[]), malformed);
        assert!(told.len() == 1 && told[0].starts_with("warning") && steps.is_empty(), "{told:?}");
    }
}
