//! The result of a negotiation for people: a report in Markdown, ranked.
//!
//! The models' words in it are escaped: they make no table, link or picture of their own.

use std::fmt::Write;

use super::{DECISION_MAKERS, NegotiationResult, PolicyScore, Scores};
use crate::limits::REASON_CHARS_MAX;

/// Moves by their scores, the best first, each with its rank from 1 on. Equal scores share a rank and keep the order in which
/// the moves were given.
pub fn ranking(result: &NegotiationResult) -> Vec<(usize, &PolicyScore)> {
    let mut sorted: Vec<&PolicyScore> = result.policy_scores.iter().collect();
    sorted.sort_by_key(|score| std::cmp::Reverse(score.total_score));
    let rank = |score: &PolicyScore| 1 + sorted.iter().filter(|other| other.total_score > score.total_score).count();
    sorted.iter().map(|score| (rank(score), *score)).collect()
}

/// The report.
pub fn markdown(ticker: &str, result: &NegotiationResult) -> String {
    let mut report = format!("# Negotiation: {}\n\n", escaped(ticker));
    let ranked = ranking(result);
    ranked_table(&mut report, &ranked, result);
    for (_, score) in &ranked {
        one_move(&mut report, score, result);
    }
    ledger(&mut report, result);
    if !result.warnings.is_empty() {
        report.push_str("\n## Warnings\n\n");
        result.warnings.iter().for_each(|warning| line(&mut report, &format!("- {}", escaped(warning))));
    }
    report
}

fn ranked_table(report: &mut String, ranked: &[(usize, &PolicyScore)], result: &NegotiationResult) {
    line(report, "| Rank | Move | Score of 120 | D1 | D2 | D3 | |");
    line(report, "|---:|---|---:|---:|---:|---:|---|");
    for (rank, score) in ranked {
        let of = |maker: &str| score.scores_by_agent.get(maker).map_or("–".to_owned(), |one| one.total().to_string());
        let [d1, d2, d3] = DECISION_MAKERS.map(of);
        let note = if result.errors.contains_key(&score.move_id) { "incomplete" } else { "" };
        let (id, total) = (escaped(&score.move_id), score.total_score);
        line(report, &format!("| {rank} | {id} | {total} | {d1} | {d2} | {d3} | {note} |"));
    }
}

fn one_move(report: &mut String, score: &PolicyScore, result: &NegotiationResult) {
    line(report, &format!("\n## {}: {} of 120\n", escaped(&score.move_id), score.total_score));
    if let Some(error) = result.errors.get(&score.move_id) {
        line(report, &format!("Incomplete: {}\n", escaped(error)));
    }
    line(
        report,
        "| | Impact | Feasibility | Risk-adjusted return | Strategic alignment | Score of 40 | Reason |\n\
         |---|---:|---:|---:|---:|---:|---|",
    );
    for (maker, scores) in &score.scores_by_agent {
        let Scores { impact, feasibility, risk_adjusted_return, strategic_alignment, reasoning } = scores;
        let reason = escaped(&shortened(reasoning.as_deref().unwrap_or_default()));
        let metrics = format!("{impact} | {feasibility} | {risk_adjusted_return} | {strategic_alignment}");
        line(report, &format!("| {} | {metrics} | {} | {reason} |", escaped(maker), scores.total()));
    }
}

fn ledger(report: &mut String, result: &NegotiationResult) {
    let ledger = &result.ledger;
    line(report, "\n## Calls and tokens\n\n| | |\n|---|---:|");
    let rows = [
        ("Calls", u64::from(ledger.logical_calls)),
        ("Retries", ledger.retries.into()),
        ("Summaries", ledger.summaries.into()),
        ("Failed calls", ledger.failed_calls.into()),
        ("Scores read from between other words", ledger.scores_from_fence.into()),
        ("Scores found number by number", ledger.scores_by_regex.into()),
        ("Scores that count as neutral", ledger.scores_neutral.into()),
        ("Tokens sent", ledger.input_tokens),
        ("Tokens answered", ledger.output_tokens),
    ];
    rows.iter().for_each(|(name, count)| line(report, &format!("| {name} | {count} |")));
    if let Some(cost) = ledger.cost_micro_usd {
        line(report, &format!("| Cost in US dollars | {}.{:06} |", cost / 1_000_000, cost % 1_000_000));
    }
    line(report, &format!("\nSHA-256 of the transcripts: `{}`", escaped(&result.transcript_hash)));
}

fn line(report: &mut String, text: &str) {
    // Writing to a text cannot fail.
    writeln!(report, "{text}").ok();
}

/// In one line and within its bound.
fn shortened(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// As Markdown shows it literally, in one line.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '|' | '[' | ']' | '(' | ')' | '!' | '*' | '_' | '`' | '#' | '~' | '>' => {
                safe.push('\\');
                safe.push(letter);
            }
            letter if letter.is_control() => safe.push(' '),
            letter => safe.push(letter),
        }
    }
    safe
}
