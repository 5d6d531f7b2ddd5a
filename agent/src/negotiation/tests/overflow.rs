//! Conversations longer than the model takes.

use sandbox_protocol::agent::negotiation::MoveReport;

use super::super::{Call, Completed, Maker, Outcome};
use super::fakes::{Hall, Kept, answered, brief, tokens, usual};
use crate::model::{Answer, ModelError, Usage};

/// Words of 400 tokens.
fn long(label: &str) -> Answer {
    match label.starts_with("scoring") {
        true => answered(&usual(label)),
        false if label.starts_with("summary") => answered(&format!("Minutes: {label}.")),
        false => answered(&format!("{} {}", usual(label), "word ".repeat(320))),
    }
}

/// A model that takes as many tokens as this, and answers at length.
fn narrow(context_tokens: usize) -> Hall {
    Hall::with(move |asked| match tokens(&asked.system) + tokens(&asked.user) > context_tokens {
        true => Err(ModelError::ContextOverflow),
        false => Ok(long(&asked.label)),
    })
}

fn check_whole(report: &MoveReport, rounds: u32) {
    assert_eq!((report.error.as_deref(), report.rounds, report.score.total_score), (None, rounds, 98));
    assert_eq!(report.logs.all().map(<[_]>::len), [2 * rounds as usize; 3], "logs are never cut");
    assert_eq!((report.ledger.logical_calls, report.ledger.failed_calls), (6 * rounds + 1, 0));
}

#[tokio::test]
async fn rounds_that_do_not_fit_are_cut_to_the_first_a_summary_and_the_last() {
    let mut hall = narrow(5_500);
    hall.context_tokens = Some(5_500);
    let report = hall.debate(&brief(10)).await;
    check_whole(&report, 10);
    assert_eq!(report.ledger.retries, 0, "what is counted beforehand is not refused");
    assert!(report.ledger.summaries > 0);
    assert_eq!(hall.asked().len() as u32, report.ledger.logical_calls + report.ledger.summaries);
    let scoring = hall.asked().into_iter().find(|asked| asked.label == "scoring D1").unwrap();
    let kept = |round: u32| scoring.user.contains(&format!("**[Round {round}] CRITIC:**"));
    assert!([1, 8, 9, 10].into_iter().all(kept), "{}", scoring.user);
    assert!(!kept(2) && scoring.user.contains("] SUMMARY:**\nMinutes: summary "), "{}", scoring.user);
}

#[tokio::test]
async fn a_summary_is_reused_while_it_suffices_and_then_extended() {
    let mut hall = narrow(6_500);
    hall.context_tokens = Some(6_500);
    let report = hall.debate(&brief(20)).await;
    check_whole(&report, 20);
    let summaries: Vec<_> = hall.asked().into_iter().filter(|asked| asked.label.starts_with("summary")).collect();
    assert_eq!(summaries.len() as u32, report.ledger.summaries);
    assert!(summaries.len() < 3 * 15, "one for each round would be {}", 3 * 15);
    for summary in &summaries {
        let through: u32 = summary.label["summary ".len()..].parse().unwrap();
        let first = summary.user.split_once("What was said in rounds ").unwrap().1.split_once(' ').unwrap().0;
        let first: u32 = first.parse().unwrap();
        assert!((first..=through).all(|round| summary.user.contains(&format!("**[Round {round}] CRITIC:**"))));
        let former = format!("**[Rounds 2-{}] SUMMARY:**\nMinutes: summary {}.", first - 1, first - 1);
        assert_eq!(summary.user.contains(&former), first > 2, "{}", summary.user);
    }
}

#[tokio::test]
async fn a_refusal_by_the_provider_cuts_the_conversation_too() {
    let hall = narrow(5_500);
    let report = hall.debate(&brief(10)).await;
    check_whole(&report, 10);
    let refused = hall.asked().len() as u32 - report.ledger.logical_calls - report.ledger.summaries;
    assert!(refused > 0);
    assert_eq!(report.ledger.retries, refused);
}

#[tokio::test]
async fn what_cannot_be_cut_fails_with_its_reason_and_keeps_what_was_said() {
    let mut hall = narrow(2_600);
    hall.context_tokens = Some(2_600);
    let report = hall.debate(&brief(10)).await;
    let error = report.error.unwrap();
    assert!(error.contains("the conversation is longer than the model takes"), "{error}");
    assert!(report.rounds >= 1 && report.ledger.failed_calls > 0);
    let mut hall = narrow(10);
    hall.context_tokens = Some(10);
    let report = hall.debate(&brief(10)).await;
    assert_eq!(report.error.as_deref(), Some("round 1, critic: the conversation is longer than the model takes"));
    assert_eq!((hall.asked().len(), report.score.total_score), (0, 60));
}

#[tokio::test]
async fn a_summary_of_a_former_life_is_not_made_again() {
    let mut hall = narrow(5_500);
    hall.context_tokens = Some(5_500);
    let whole = hall.debate(&brief(6)).await;
    let summary = |maker| Completed {
        call: Call::Summary { maker, through: 3 },
        retries: 0,
        outcome: Outcome::Answered { text: "Minutes of before.".into(), usage: Usage::default() },
    };
    let mut hall = narrow(5_500).keeping(Kept { former: Maker::ALL.map(summary).to_vec(), ..Kept::default() });
    hall.context_tokens = Some(5_500);
    let report = hall.debate(&brief(6)).await;
    check_whole(&report, 6);
    let scoring = hall.asked().into_iter().find(|asked| asked.label == "scoring D2").unwrap();
    assert!(scoring.user.contains("**[Rounds 2-3] SUMMARY:**\nMinutes of before."), "{}", scoring.user);
    assert!(whole.ledger.summaries >= 3, "without it there are some to make");
    assert_eq!(report.ledger.summaries, 3);
    assert!(hall.labels().iter().all(|label| !label.starts_with("summary")));
}
