//! `negotiate`: moves that are argued about and scored by a job of their own, seen while it goes on, ranked at its end.

mod table;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use rustix::termios::tcgetwinsize;
use sandbox_protocol::Job;
use sandbox_protocol::agent::RunReply;
use sandbox_protocol::agent::negotiation::{DECISION_MAKERS, Negotiation, NegotiationResult, Scores};
use sandbox_protocol::agent::report::{markdown, ranking};
use sandbox_protocol::http::CallBody;
use sandbox_sdk::answers::{Answers, CallTold};
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::deploy::Asset;
use sandbox_sdk::requests::AgentBuilder;

use self::table::Table;
use super::agents::{confided, context_of_negotiation, ended, proven, reply_of, shown};
use super::call::answer_of;
use super::sandboxes::{awaited, submitted};
use crate::args::{AnswerArgs, NegotiateArgs, answer_within};
use crate::failure::Failure;
use crate::output::{Output, harmless};
use crate::settings::Settings;

/// What an answer of a model is taken to last where nobody knows better, in seconds.
const ANSWER_GUESS_S: u64 = 5;

pub(crate) async fn negotiate(args: NegotiateArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let key = args.model.provider_key_env.as_deref().map(|name| settings.secret(name)).transpose()?;
    let (json, negotiation) = context_of_negotiation(&args, key)?;
    confided(&json, settings)?;
    let asked = format!("Negotiate {} moves of {}.", negotiation.moves.len(), negotiation.ticker);
    let builder = AgentBuilder::task(args.id, asked, 0).context_json(json).model(args.model.model);
    let request = builder.timeout_ms(args.timeout * 1_000).build()?;
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).map_err(|error| unwritable(dir, &error))?;
    }
    let (answers, service) = (settings.answers().await?, args.id.origin.service);
    output.notice(&estimate(&negotiation));
    let cost = answers.account().chain().call_cost(service, Job::Task.id()).await?;
    let asset = Asset::at(answers.account().chain().provider(), cost.asset).await?;
    output.notice(&format!("the job's list price is {}", asset.amount(cost.amount)));
    let job = submitted((service, request), &args.pay, (answers.account(), output)).await?;
    let waits = answer_within(args.within, Some(args.timeout), args.save);
    let body = watched((&answers, &job), Table::new(&negotiation), &waits, output).await?;
    finish(&body, &negotiation, args.out.as_deref(), output)
}

/// What it takes: 6r+1 calls of the model for each move, of which 2r+1 wait for each other.
fn estimate(negotiation: &Negotiation) -> String {
    let (moves, rounds) = (negotiation.moves.len() as u64, u64::from(negotiation.max_rounds));
    let (a_move, stages) = (6 * rounds + 1, 2 * rounds + 1);
    let turns = moves.div_ceil(u64::from(negotiation.concurrency));
    let minutes = (turns * stages * ANSWER_GUESS_S).div_ceil(60);
    format!(
        "{moves} moves, {rounds} rounds each, {} at a time: {} calls of the model, {a_move} a move\n\
         {} answers wait for one another: about {minutes} min at {ANSWER_GUESS_S} s each",
        negotiation.concurrency,
        moves * a_move,
        turns * stages
    )
}

/// The proven answer; what is told until then fills the table, and may fail without harm.
async fn watched(
    (answers, job): (&Answers, &SubmittedJob),
    table: Table,
    waits: &AnswerArgs,
    output: &Output,
) -> Result<CallBody, Failure> {
    let mut board = Board::new(table, output);
    let mut events = answers.follow(job.key);
    let mut answer = std::pin::pin!(awaited(answers, job, waits));
    let mut follows = true;
    loop {
        let told = tokio::select! {
            body = &mut answer => return body,
            told = events.next(), if follows => told,
        };
        match told {
            Ok(Some(CallTold::Event(event))) => board.take(&event.told),
            Ok(Some(CallTold::State(state))) => board.say(&format!("call {} is {state}", job.key)),
            Ok(None) => follows = false,
            Err(error) => {
                follows = false;
                board.say(&format!("nothing more is told until the answer: {error}"));
            }
        }
    }
}

/// The table where a person sees it, drawn anew as it fills; lines everywhere else.
struct Board<'a> {
    table: Table,
    output: &'a Output,
    redraws: bool,
    drawn: bool,
}

impl<'a> Board<'a> {
    fn new(table: Table, output: &'a Output) -> Self {
        // What has left the screen cannot be drawn over.
        let rows = tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_row);
        let redraws = output.is_watched() && table.lines() < usize::from(rows);
        Self { table, output, redraws, drawn: false }
    }

    fn take(&mut self, told: &sandbox_protocol::agent::event::Told) {
        match self.table.take(told) {
            Some(_) if self.redraws => self.draw(None),
            Some(line) => self.output.notice(&line),
            None => {}
        }
    }

    fn say(&mut self, line: &str) {
        if self.redraws { self.draw(Some(line)) } else { self.output.progress(line) }
    }

    /// The table in the place of the one before, below a line that stays.
    fn draw(&mut self, line: Option<&str>) {
        let back = if self.drawn { format!("\x1b[{}A\x1b[J", self.table.lines()) } else { String::new() };
        let line = line.map(|line| format!("{}\n", harmless(line))).unwrap_or_default();
        self.drawn = true;
        eprint!("{back}{line}{}", self.table.text());
    }
}

fn finish(
    body: &CallBody,
    negotiation: &Negotiation,
    out: Option<&Path>,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let reply: RunReply = reply_of(answer_of(body)?)?;
    match serde_json::from_str::<NegotiationResult>(&reply.result) {
        Ok(result) => {
            if let Some(dir) = out {
                written(dir, negotiation, &result)?;
            }
            output.result(ranked(&result).trim_end(), &result)?;
            output.notice(&remarks(&result));
        }
        // Without success there may be none; the reason follows.
        Err(_) if !reply.success => {}
        Err(error) => return Err(Failure::local(format!("the negotiation's result cannot be read: {error}"))),
    }
    output.notice(&proven(body)?);
    ended(body, &reply)
}

/// One line a move, the best first.
fn ranked(result: &NegotiationResult) -> String {
    let mut text = String::new();
    let ranking = ranking(result);
    let width = ranking.iter().map(|score| score.move_id.len()).max().unwrap_or(0);
    for (index, score) in ranking.iter().enumerate() {
        let of = |name: &&str| {
            score.scores_by_agent.get(*name).map_or_else(|| "-".into(), |s: &Scores| s.total().to_string())
        };
        let by_agent: Vec<_> = DECISION_MAKERS.iter().map(|name| format!("{name} {}", of(name))).collect();
        let (rank, id, total) = (index + 1, &score.move_id, score.total_score);
        text.push_str(&format!("{rank:>2}  {id:width$}  {total:>3}/120  {}\n", by_agent.join("  ")));
    }
    text
}

/// What is to be known besides.
fn remarks(result: &NegotiationResult) -> String {
    let ledger = &result.ledger;
    let errors =
        result.errors.iter().map(|(id, error)| format!("{} did not go to its end: {}", shown(id), shown(error)));
    let warnings = result.warnings.iter().map(|warning| format!("warning: {}", shown(warning)));
    let took = format!(
        "{} calls, {} retries, {} tokens in, {} out; transcript {}",
        ledger.logical_calls,
        ledger.retries,
        ledger.input_tokens,
        ledger.output_tokens,
        shown(&result.transcript_hash)
    );
    errors.chain(warnings).chain([took]).collect::<Vec<_>>().join("\n")
}

fn written(dir: &Path, negotiation: &Negotiation, result: &NegotiationResult) -> Result<(), Failure> {
    let json = format!("{:#}\n", serde_json::json!(result));
    let report = markdown(&negotiation.ticker, &negotiation.moves, result);
    for (name, text) in [("result.json", json), ("report.md", report)] {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| unwritable(&path, &error))?;
    }
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::local(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sandbox_protocol::agent::TaskContext;
    use sandbox_protocol::agent::negotiation::PolicyScore;

    use super::*;

    #[test]
    fn the_estimate_counts_every_call_of_every_move() {
        let moves: Vec<_> = (0..15).map(|n| serde_json::json!({"id": format!("m{n}"), "content": "x"})).collect();
        let json = serde_json::json!({"kind": "negotiation", "ticker": "ACME", "moves": moves});
        let negotiation = TaskContext::parse(&json.to_string()).unwrap().negotiation.unwrap();
        let expected = "15 moves, 10 rounds each, 5 at a time: 915 calls of the model, 61 a move\n\
                        63 answers wait for one another: about 6 min at 5 s each";
        assert_eq!(estimate(&negotiation), expected);
    }

    fn result() -> NegotiationResult {
        let scores = |each| Scores {
            impact: each,
            feasibility: each,
            risk_adjusted_return: each,
            strategic_alignment: each,
            reasoning: None,
        };
        let score = |id: &str, each: u32| PolicyScore {
            move_id: id.into(),
            total_score: 12 * each,
            scores_by_agent: DECISION_MAKERS.map(|name| (name.to_owned(), scores(each))).into(),
        };
        NegotiationResult {
            policy_scores: vec![score("m1", 5), score("long", 10)],
            conversation_logs: Vec::new(),
            errors: BTreeMap::from([("m3".into(), "no\x1b provider".into())]),
            transcript_hash: "ab".into(),
            ledger: Default::default(),
            isolation: BTreeMap::new(),
            warnings: vec!["slow".into()],
        }
    }

    #[test]
    fn the_result_is_ranked_and_remarks_follow() {
        let expected = " 1  long  120/120  D1 40  D2 40  D3 40\n 2  m1     60/120  D1 20  D2 20  D3 20\n";
        assert_eq!(ranked(&result()), expected);
        let expected = "m3 did not go to its end: no provider\nwarning: slow\n\
                        0 calls, 0 retries, 0 tokens in, 0 out; transcript ab";
        assert_eq!(remarks(&result()), expected);
    }

    #[test]
    fn the_result_and_its_report_are_kept() {
        let json = r#"{"kind":"negotiation","ticker":"ACME","moves":[{"id":"m1","content":"x"}]}"#;
        let negotiation = TaskContext::parse(json).unwrap().negotiation.unwrap();
        let dir = tempfile::tempdir().unwrap();
        written(dir.path(), &negotiation, &result()).unwrap();
        let read = fs::read_to_string(dir.path().join("result.json")).unwrap();
        assert_eq!(serde_json::from_str::<NegotiationResult>(&read).unwrap(), result());
        assert!(fs::read_to_string(dir.path().join("report.md")).unwrap().starts_with("# Negotiation: ACME\n"));
    }
}
