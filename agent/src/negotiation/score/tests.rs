//! Every way of writing scores, and every way of getting them wrong.

use proptest::prelude::*;

use super::*;

const SOUND: &str =
    r#"{"impact": 8, "feasibility": 9, "risk_adjusted_return": 7, "strategic_alignment": 10, "reasoning": "Why."}"#;

fn check(text: &str, metrics: [u32; 4], way: Way) {
    let (scores, read) = read(text);
    assert_eq!((scores.metrics(), read), (metrics, way), "{text}");
}

fn neutral(text: &str) {
    check(text, [5; 4], Way::Neutral);
}

#[test]
fn an_object_alone_is_read_as_it_was_asked_for() {
    check(SOUND, [8, 9, 7, 10], Way::Strict);
    check(&format!("\n {SOUND}\n"), [8, 9, 7, 10], Way::Strict);
    assert_eq!(read(SOUND).0.reasoning.as_deref(), Some("Why."));
    let bare = r#"{"impact":1,"feasibility":1,"risk_adjusted_return":1,"strategic_alignment":1,"confidence":0.3}"#;
    check(bare, [1; 4], Way::Strict);
    assert_eq!(read(bare).0.reasoning, None);
}

#[test]
fn an_object_in_a_fence_or_between_words_is_found() {
    check(&format!("```json\n{SOUND}\n```"), [8, 9, 7, 10], Way::Fenced);
    check(&format!("My scores {{as asked}}: {SOUND} That is all."), [8, 9, 7, 10], Way::Fenced);
    check(&format!("[{SOUND}]"), [8, 9, 7, 10], Way::Fenced);
    check(&format!(r#"{{"scores": {SOUND}}}"#), [8, 9, 7, 10], Way::Fenced);
    assert_eq!(read(&format!("```\n{SOUND}```")).0.reasoning.as_deref(), Some("Why."));
}

#[test]
fn of_two_objects_the_last_holds() {
    let first = SOUND.replace(": 8", ": 2");
    check(&format!("At first: {first}\nNow: {SOUND}"), [8, 9, 7, 10], Way::Fenced);
}

#[test]
fn scores_are_looked_for_in_so_many_objects() {
    let behind = |braces: usize| format!("{SOUND}{}", "{".repeat(braces));
    check(&behind(NEGOTIATION_SCORE_OBJECTS_MAX - 1), [8, 9, 7, 10], Way::Fenced);
    check(&behind(NEGOTIATION_SCORE_OBJECTS_MAX), [8, 9, 7, 10], Way::ByName);
    neutral(&r#"{"a":"#.repeat(10_000));
}

#[test]
fn numbers_beside_their_names_are_found() {
    let lines = "1. Impact (1-10): 8\n2. **Feasibility**: 9/10\n3. Risk-Adjusted Return = 7 out of 10\n4. Strategic alignment - 10";
    check(lines, [8, 9, 7, 10], Way::ByName);
    check(&SOUND.replace(": 8", r#": "8""#), [8, 9, 7, 10], Way::ByName);
    check(&SOUND.replace(": 8", ": 8.0"), [8, 9, 7, 10], Way::ByName);
    check(&SOUND[..SOUND.len() - 8], [8, 9, 7, 10], Way::ByName);
    check(&SOUND.replace("}", ",}"), [8, 9, 7, 10], Way::ByName);
    check(
        "| impact | 8 |\n| FEASIBILITY | 9 |\n| risk_adjusted_return | 7 |\n| strategic_alignment | 10 |",
        [8, 9, 7, 10],
        Way::ByName,
    );
    check(
        "The impact score is 8, feasibility is 9, risk adjusted return at 7, strategic alignment of 10.",
        [8, 9, 7, 10],
        Way::ByName,
    );
    check(
        "Impact: 3, feasibility: 9, risk-adjusted return: 7, strategic alignment: 10. No, impact: 8.",
        [8, 9, 7, 10],
        Way::ByName,
    );
}

#[test]
fn a_metric_that_is_missing_no_integer_or_out_of_range_fails_every_way() {
    neutral("");
    neutral("I decline.");
    neutral("{}");
    for wrong in ["0", "11", "-3", "7.5", "7,5", "100", "null", "true", r#""high""#, "1e1", "99999999999999999999"] {
        neutral(&SOUND.replace(": 8", &format!(": {wrong}")));
        neutral(&format!("```json\n{}\n```", SOUND.replace(": 9", &format!(": {wrong}"))));
    }
    for name in ["impact", "feasibility", "risk_adjusted_return", "strategic_alignment"] {
        neutral(&SOUND.replace(name, "other"));
    }
}

#[test]
fn a_scale_or_a_sentence_is_no_score() {
    neutral("Impact (1-10), feasibility (1-10), risk-adjusted return (1-10), strategic alignment (1-10)");
    neutral("Impact on 3 markets, feasibility in 2 years, risk-adjusted return after 4, strategic alignment with 5");
    let template =
        r#"{"impact": <int>, "feasibility": <int>, "risk_adjusted_return": <int>, "strategic_alignment": <int>}"#;
    neutral(template);
    check(&format!("{template}\n{SOUND}"), [8, 9, 7, 10], Way::Fenced);
}

#[test]
fn each_way_but_the_one_asked_for_is_counted() {
    let mut ledger = Ledger::default();
    [Way::Strict, Way::Fenced, Way::ByName, Way::ByName, Way::Neutral]
        .into_iter()
        .for_each(|way| way.count(&mut ledger));
    assert_eq!((ledger.scores_from_fence, ledger.scores_by_regex, ledger.scores_neutral), (1, 2, 1));
}

proptest! {
    #[test]
    fn any_text_gives_scores_within_their_bounds(text in "(.|impact|feasibility|risk_adjusted_return|strategic_alignment|[:\"{},0-9.-]){0,60}") {
        let (scores, _) = read(&text);
        prop_assert!(scores.metrics().iter().all(|metric| RANGE.contains(metric)));
        prop_assert!(3 * scores.total() <= 120);
    }

    #[test]
    fn any_numbers_in_the_right_form_are_taken_if_and_only_if_all_are_in_range(metrics in prop::array::uniform4(-2..14_i64)) {
        let [impact, feasibility, risk, alignment] = metrics;
        let text = format!(
            r#"{{"impact": {impact}, "feasibility": {feasibility}, "risk_adjusted_return": {risk}, "strategic_alignment": {alignment}}}"#
        );
        let (scores, way) = read(&text);
        let sound = metrics.iter().all(|metric| (1..=10).contains(metric));
        prop_assert_eq!(way, if sound { Way::Strict } else { Way::Neutral });
        prop_assert_eq!(scores.metrics().map(i64::from), if sound { metrics } else { [5; 4] });
    }
}
