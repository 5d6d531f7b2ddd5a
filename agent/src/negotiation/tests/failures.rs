//! What is reported when calls fail, time is over, or nobody wants the report.

use std::time::Duration;

use sandbox_protocol::agent::negotiation::{Scores, plan};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fakes::{Hall, Kept, answered, brief, usual};
use crate::limits::NEGOTIATION_ANSWER_BYTES_MAX;
use crate::model::{Answer, ModelError};

/// A model that fails in the calls that are chosen.
fn failing(chosen: impl Fn(usize, &str) -> bool + Send + Sync + 'static) -> Hall {
    Hall::with(move |asked| match chosen(asked.number, &asked.label) {
        true => Err(ModelError::Failed { status: 503 }),
        false => Ok(answered(&usual(&asked.label))),
    })
}

#[tokio::test]
async fn a_failure_in_any_call_leaves_a_report_of_what_was_completed() {
    let labels = {
        let hall = Hall::new();
        hall.debate(&brief(10)).await;
        hall.labels()
    };
    assert_eq!(labels.len(), plan(10).calls as usize);
    for (failed, label) in labels.iter().enumerate() {
        let hall = failing(move |number, _| number == failed);
        let report = hall.debate(&brief(10)).await;
        // The opening is call 0, each round's stages follow in threes.
        let stages_before = failed.div_ceil(3);
        let rounds = (stages_before / 2).min(10) as u32;
        assert_eq!(report.rounds, rounds, "{failed}: {label}");
        let error = report.error.unwrap();
        assert!(error.ends_with("the provider failed with status 503"), "{failed}: {error}");
        let words: Vec<&str> = label.split(' ').collect();
        let place = match words[..] {
            ["opening"] => "round 1, critic: ".to_owned(),
            ["critique", maker, round] => format!("round {round}, critic to {maker}: "),
            ["defence", maker, round] => format!("round {round}, {maker}: "),
            _ => format!("scoring, {}: ", words[1]),
        };
        assert!(error.starts_with(&place), "{failed}: {error}");
        assert_eq!((report.ledger.failed_calls, report.ledger.logical_calls as usize), (1, hall.asked().len()));
        let entries: usize = report.logs.all().iter().map(|log| log.len()).sum();
        let answered = hall.asked().len()
            - 1
            - if failed == 0 {
                0
            } else if failed < 58 {
                3
            } else {
                2
            };
        assert_eq!(entries, if failed == 0 { 0 } else { answered + 2 }, "the opening is in three logs");
        assert_eq!(hall.told("sandbox_failed").len(), 1);
        let neutral = if failed == 0 { 3 } else { u32::from(failed >= 58) };
        assert_eq!(report.ledger.scores_neutral, neutral, "{failed}");
        assert_eq!(hall.told("sandbox_scored").len(), usize::from(failed > 0));
        assert!((12..=120).contains(&report.score.total_score));
    }
}

#[tokio::test]
async fn scores_after_a_failure_name_the_rounds_that_were_completed() {
    let hall = failing(|_, label| label == "defence D2 3");
    let report = hall.debate(&brief(10)).await;
    assert_eq!((report.rounds, report.score.total_score), (2, 98));
    let scoring: Vec<_> = hall.asked().into_iter().filter(|asked| asked.label.starts_with("scoring")).collect();
    let named = |user: &str, words: &str| user.contains(&format!("You have just completed {words} of negotiation"));
    assert!(named(&scoring[0].user, "3 rounds"), "D1 has answered in the third");
    assert!(named(&scoring[1].user, "2 rounds"), "D2 has not");
    assert_eq!(report.logs.all().map(<[_]>::len), [6, 5, 6]);
}

#[tokio::test]
async fn one_decision_maker_without_a_score_counts_as_neutral_and_is_named() {
    let hall = failing(|_, label| label == "scoring D2");
    let report = hall.debate(&brief(2)).await;
    assert_eq!(report.score.scores_by_agent["D2"], Scores::neutral());
    assert_eq!(report.score.total_score, 32 + 20 + 34);
    assert_eq!(report.error.as_deref(), Some("scoring, D2: the provider failed with status 503"));
    assert_eq!((report.ledger.scores_neutral, report.rounds), (1, 2));
}

#[tokio::test]
async fn a_provider_that_always_fails_is_asked_once_and_leaves_the_neutral_score() {
    let hall = failing(|_, _| true);
    let report = hall.debate(&brief(10)).await;
    assert_eq!((hall.asked().len(), report.score.total_score, report.rounds), (1, 60, 0));
    assert_eq!((report.ledger.scores_neutral, report.ledger.logical_calls), (3, 1));
    assert!(hall.told("sandbox_scored").is_empty());
}

#[tokio::test]
async fn retries_are_counted_apart() {
    let hall = Hall::with(|asked| {
        let retries = if asked.label == "critique D1 2" { 3 } else { 0 };
        Ok(Answer { retries, ..answered(&usual(&asked.label)) })
    });
    let ledger = hall.debate(&brief(2)).await.ledger;
    assert_eq!((ledger.logical_calls, ledger.retries, ledger.failed_calls), (13, 3, 0));
}

#[tokio::test]
async fn an_answer_without_words_is_told_and_the_debate_goes_on() {
    let hall = Hall::with(|asked| match asked.label.as_str() {
        "defence D3 1" => Ok(answered(" \n")),
        label => Ok(answered(&usual(label))),
    });
    let report = hall.debate(&brief(2)).await;
    assert_eq!((report.rounds, report.error), (2, None));
    assert_eq!(report.warnings, ["round 1, D3: the model said nothing"]);
}

#[tokio::test]
async fn an_answer_is_kept_up_to_its_bound() {
    for (bytes, is_cut) in [(NEGOTIATION_ANSWER_BYTES_MAX, false), (NEGOTIATION_ANSWER_BYTES_MAX + 1, true)] {
        let hall = Hall::with(move |asked| match asked.label.as_str() {
            "opening" => Ok(answered(&"x".repeat(bytes))),
            label => Ok(answered(&usual(label))),
        });
        let content = hall.debate(&brief(1)).await.logs.i1.swap_remove(0).content;
        assert_eq!(content.ends_with("... (1 more bytes)"), is_cut);
        assert_eq!(content.trim_end_matches("... (1 more bytes)").len(), NEGOTIATION_ANSWER_BYTES_MAX);
    }
}

/// A room in which nobody wants the report any more from the call of this label on.
fn cancelled_in(chosen: &'static str) -> Hall {
    let cancel = CancellationToken::new();
    let mut hall = Hall::with({
        let cancel = cancel.clone();
        move |asked| {
            if asked.label == chosen {
                cancel.cancel();
            }
            Ok(answered(&usual(&asked.label)))
        }
    });
    hall.cancel = cancel;
    hall
}

#[tokio::test]
async fn a_cancelled_debate_ends_at_once_with_what_was_said() {
    let hall = cancelled_in("critique D2 2");
    let report = hall.debate(&brief(10)).await;
    assert_eq!(report.error.as_deref(), Some("cancelled with 1 of 10 rounds completed"));
    assert_eq!((report.rounds, report.score.total_score, report.ledger.scores_neutral), (1, 60, 3));
    assert_eq!((hall.asked().len(), report.logs.all().map(<[_]>::len)), (6, [3, 3, 2]));
    assert_eq!((hall.told("sandbox_scored").len(), hall.told("sandbox_failed").len()), (0, 1));
}

#[tokio::test]
async fn scores_that_were_given_before_a_cancellation_are_kept() {
    let hall = cancelled_in("scoring D1");
    let report = hall.debate(&brief(2)).await;
    assert_eq!(report.error.as_deref(), Some("cancelled with 2 of 2 rounds completed"));
    assert_eq!((report.score.total_score, report.ledger.scores_neutral), (32 + 20 + 20, 2));
    assert_eq!((hall.told("sandbox_scored").len(), hall.told("sandbox_failed").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn rounds_that_leave_no_time_for_scores_are_not_begun() {
    let mut hall = Hall::new().slow(Duration::from_secs(1));
    hall.deadline = Some(Instant::now() + Duration::from_millis(7_500));
    let begun = Instant::now();
    let report = hall.debate(&brief(10)).await;
    // Three rounds are six seconds; a fourth and scores would be nine.
    assert_eq!((report.rounds, report.score.total_score, begun.elapsed().as_secs()), (3, 98, 7));
    assert_eq!(report.error.as_deref(), Some("out of time with 3 of 10 rounds completed"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_ends_with_the_time() {
    let mut hall = Hall::new().slow(Duration::from_secs(100));
    hall.deadline = Some(Instant::now() + Duration::from_secs(150));
    let begun = Instant::now();
    let report = hall.debate(&brief(10)).await;
    assert_eq!(begun.elapsed().as_secs(), 150);
    assert_eq!((report.rounds, report.score.total_score, report.ledger.scores_neutral), (0, 60, 3));
    assert_eq!(report.logs.all().map(<[_]>::len), [1, 1, 1]);
}

#[tokio::test]
async fn calls_that_cannot_be_recorded_are_told_and_the_debate_goes_on() {
    let hall = Hall::new().keeping(Kept { fails: true, ..Kept::default() });
    let report = hall.debate(&brief(1)).await;
    assert_eq!((report.rounds, report.score.total_score, report.warnings.len()), (1, 98, 8));
    assert!(report.warnings.contains(&"the record of calls is broken off; a restart may make calls again".into()));
    assert_eq!(
        report.warnings[0],
        "round 1, critic: the record of calls is broken off; a restart would make the call again"
    );
}
