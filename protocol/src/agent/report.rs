//! A negotiation's result for people: ranked, and as a Markdown document.
//!
//! Models wrote the words in it, so what they said stands in quotes and cells that it cannot leave.

use std::fmt::Write as _;

use super::negotiation::{DECISION_MAKERS, METRICS, Move, NegotiationResult, PolicyScore, Scores};

/// The moves that have a score, the best first; equals as they were given.
pub fn ranking(result: &NegotiationResult) -> Vec<&PolicyScore> {
    let mut ranked: Vec<_> = result.policy_scores.iter().filter(|score| !score.scores_by_agent.is_empty()).collect();
    ranked.sort_by_key(|score| std::cmp::Reverse(score.total_score));
    ranked
}

/// The document: ranking, scores with their reasons, what went wrong, what it took, and the transcript's hash.
pub fn markdown(ticker: &str, moves: &[Move], result: &NegotiationResult) -> String {
    let mut text = format!("# Negotiation: {}\n", cell(ticker));
    section(&mut text, "Ranking", |text| ranks(text, moves, result));
    for score in ranking(result) {
        section(&mut text, &format!("Move {}", cell(&score.move_id)), |text| one(text, moves, (score, result)));
    }
    if !result.errors.is_empty() {
        section(&mut text, "Errors", |text| {
            for (id, error) in &result.errors {
                line(text, &format!("- **{}**: {}", cell(id), cell(error)));
            }
        });
    }
    if !result.warnings.is_empty() {
        section(&mut text, "Warnings", |text| {
            for warning in &result.warnings {
                line(text, &format!("- {}", cell(warning)));
            }
        });
    }
    section(&mut text, "Ledger", |text| ledger(text, result));
    section(&mut text, "Transcript", |text| line(text, &format!("SHA-256: `{}`", code(&result.transcript_hash))));
    text
}

fn ranks(text: &mut String, moves: &[Move], result: &NegotiationResult) {
    line(text, &format!("| Rank | Move | Score | {} | Proposal |", DECISION_MAKERS.join(" | ")));
    line(text, &format!("|---:|---|---:|{}---|", "---:|".repeat(DECISION_MAKERS.len())));
    for (index, score) in ranking(result).into_iter().enumerate() {
        let by_agent: Vec<_> = DECISION_MAKERS.iter().map(|name| total(score.scores_by_agent.get(*name))).collect();
        let (rank, id, total) = (index + 1, cell(&score.move_id), score.total_score);
        let proposal = cell(&excerpt(content(moves, &score.move_id)));
        line(text, &format!("| {rank} | {id} | {total} / 120 | {} | {proposal} |", by_agent.join(" | ")));
    }
    for unscored in moves.iter().filter(|one| !is_scored(result, &one.move_id)) {
        let none = " – |".repeat(DECISION_MAKERS.len());
        line(
            text,
            &format!("| – | {} | not scored |{none} {} |", cell(&unscored.move_id), cell(&excerpt(&unscored.content))),
        );
    }
}

/// A move with the scores of each decision maker.
fn one(text: &mut String, moves: &[Move], (score, result): (&PolicyScore, &NegotiationResult)) {
    quote(text, content(moves, &score.move_id));
    line(text, &format!("\n**{} / 120**", score.total_score));
    if let Some(isolation) = result.isolation.get(&score.move_id) {
        line(text, &format!("\nIsolation: `{}`", code(isolation)));
    }
    line(text, &format!("\n| | {} | total |", METRICS.map(|metric| metric.replace('_', " ")).join(" | ")));
    line(text, &format!("|---|{}", "---:|".repeat(METRICS.len() + 1)));
    for (name, scores) in &score.scores_by_agent {
        let Scores { impact, feasibility, risk_adjusted_return, strategic_alignment, .. } = scores;
        let numbers = format!("{impact} | {feasibility} | {risk_adjusted_return} | {strategic_alignment}");
        line(text, &format!("| {} | {numbers} | {} |", cell(name), scores.total()));
    }
    for (name, scores) in &score.scores_by_agent {
        if let Some(reasoning) = &scores.reasoning {
            line(text, &format!("\n{}:\n", cell(name)));
            quote(text, reasoning);
        }
    }
}

fn ledger(text: &mut String, result: &NegotiationResult) {
    let ledger = &result.ledger;
    line(text, "| | |\n|---|---:|");
    let rows = [
        ("Calls", u64::from(ledger.logical_calls)),
        ("Retries", ledger.retries.into()),
        ("Summaries", ledger.summaries.into()),
        ("Failed calls", ledger.failed_calls.into()),
        ("Scores from a fenced block", ledger.scores_from_fence.into()),
        ("Scores read number by number", ledger.scores_by_regex.into()),
        ("Scores unread, counted as 5", ledger.scores_neutral.into()),
        ("Input tokens", ledger.input_tokens),
        ("Output tokens", ledger.output_tokens),
    ];
    for (name, number) in rows {
        line(text, &format!("| {name} | {number} |"));
    }
    if let Some(cost) = ledger.cost_micro_usd {
        line(text, &format!("| Cost | {} |", usd(cost)));
    }
}

/// An amount of millionths of a US dollar.
pub fn usd(micro: u64) -> String {
    format!("${}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

fn is_scored(result: &NegotiationResult, id: &str) -> bool {
    ranking(result).iter().any(|score| score.move_id == id)
}

fn content<'a>(moves: &'a [Move], id: &str) -> &'a str {
    moves.iter().find(|one| one.move_id == id).map_or("", |one| one.content.as_str())
}

fn total(scores: Option<&Scores>) -> String {
    scores.map_or_else(|| "–".into(), |scores| scores.total().to_string())
}

/// The beginning of a text, in one line.
fn excerpt(text: &str) -> String {
    const LETTERS: usize = 80;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// A text that stays in its line and cell, and is no markup.
fn cell(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        if "\\`*_[]<>|#".contains(letter) {
            safe.push('\\');
        }
        safe.push(letter);
    }
    safe
}

fn code(text: &str) -> String {
    text.chars().filter(|letter| *letter != '`' && !letter.is_control()).collect()
}

/// A text of many lines, each of which says that it is one's words, and shows no images or HTML.
fn quote(text: &mut String, said: &str) {
    for said in said.lines() {
        line(text, format!("> {}", cell(said)).trim_end());
    }
}

fn section(text: &mut String, title: &str, body: impl FnOnce(&mut String)) {
    line(text, &format!("\n## {title}\n"));
    body(text);
}

fn line(text: &mut String, line: &str) {
    // Writing to a text does not fail.
    let _written = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::agent::negotiation::Ledger;

    fn scores(each: u32, reasoning: &str) -> Scores {
        Scores {
            impact: each,
            feasibility: each,
            risk_adjusted_return: each,
            strategic_alignment: each,
            reasoning: (!reasoning.is_empty()).then(|| reasoning.to_owned()),
        }
    }

    fn score(id: &str, each: [u32; 3], reasoning: &str) -> PolicyScore {
        let agents = DECISION_MAKERS.into_iter().zip(each);
        let scores_by_agent: BTreeMap<_, _> =
            agents.map(|(name, each)| (name.to_owned(), scores(each, reasoning))).collect();
        let total_score = scores_by_agent.values().map(Scores::total).sum();
        PolicyScore { move_id: id.into(), total_score, scores_by_agent }
    }

    fn result() -> NegotiationResult {
        let unscored = PolicyScore { move_id: "m3".into(), total_score: 0, scores_by_agent: BTreeMap::new() };
        NegotiationResult {
            policy_scores: vec![
                score("m1", [5, 6, 7], ""),
                score("m2", [9, 8, 9], "Strong.\n| # <b>not</b> a row"),
                unscored,
            ],
            conversation_logs: Vec::new(),
            errors: BTreeMap::from([("m3".into(), "its provider\nfailed".into())]),
            transcript_hash: "ab12".into(),
            ledger: Ledger { logical_calls: 122, retries: 2, cost_micro_usd: Some(1_250_000), ..Ledger::default() },
            isolation: BTreeMap::from([("m2".into(), "runc".into())]),
            warnings: vec!["one ran *outside*".into()],
        }
    }

    fn moves() -> Vec<Move> {
        let content = |id: &str| format!("Do {id} | now\nand more");
        ["m1", "m2", "m3"].map(|id| Move { move_id: id.into(), content: content(id) }).into()
    }

    #[test]
    fn the_best_comes_first_and_equals_stay_as_they_were_given() {
        let mut result = result();
        let ids = |result: &NegotiationResult| -> Vec<String> {
            ranking(result).into_iter().map(|score| score.move_id.clone()).collect()
        };
        assert_eq!(ids(&result), ["m2", "m1"], "what has no score has no rank");
        result.policy_scores = vec![score("b", [5; 3], ""), score("a", [5; 3], ""), score("c", [6; 3], "")];
        assert_eq!(ids(&result), ["c", "b", "a"]);
    }

    #[test]
    fn the_document_is_as_it_was() {
        assert_eq!(markdown("ACME", &moves(), &result()), include_str!("report.golden.md"));
    }

    #[test]
    fn what_a_model_said_stays_in_its_quote() {
        let text = markdown("ACME", &moves(), &result());
        assert!(text.contains("> \\| \\# \\<b\\>not\\</b\\> a row"), "{text}");
        assert!(text.lines().all(|line| !line.starts_with("| # ")));
    }

    #[test]
    fn a_long_proposal_is_cut_between_letters() {
        assert_eq!(excerpt(&"ä".repeat(80)), "ä".repeat(80));
        assert_eq!(excerpt(&"ä".repeat(81)), format!("{}…", "ä".repeat(80)));
        assert_eq!(usd(1_250_000), "$1.250000");
    }
}
