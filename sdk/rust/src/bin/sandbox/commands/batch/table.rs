//! Batches as tables: a line for each item. Programs and models chose many of the words, so none may steer the terminal.

use sandbox_protocol::batch::{ItemExec, ItemReport, ItemTask, Majority};
use sandbox_protocol::{Failure, Outcome, SandboxId};
use sandbox_sdk::batches::{LiveBatch, Merged};

use crate::commands::agents::shown;

/// What stands where a thing has no name.
const NONE: &str = "-";

/// A batch whose parts were proven.
pub(super) fn of_merged(merged: &Merged) -> String {
    let rows = merged.items.iter().map(|item| {
        let result = result(item.failure.as_ref(), item.exec.as_ref(), item.task.as_ref());
        [item.item.to_string(), name(item.sandbox), item.operator.to_string(), item.state.name().to_owned(), result]
    });
    let mut text = aligned(rows.collect());
    if let Some(winner) = merged.winner {
        text.push_str(&format!("\nfirst success: item {winner}"));
    }
    if let Some(majority) = &merged.majority {
        let title = if merged.majority_holds == Some(true) { "majority" } else { "no majority; most frequent" };
        text.push_str(&format!("\n{title}: {}", of_majority(majority)));
    }
    text
}

/// A batch as its operators tell of it.
pub(super) fn of_live(live: &LiveBatch) -> String {
    let rows = live.parts.iter().flat_map(|part| {
        part.items.iter().map(|item| {
            let ItemReport { index, sandbox, state, failure, exec, task } = item;
            let place = format!("{}/{index}", part.call);
            let result = result(failure.as_ref(), exec.as_ref(), task.as_ref());
            [place, name(*sandbox), part.operator.to_string(), state.name().to_owned(), result]
        })
    });
    let mut lines = vec![aligned(rows.collect())];
    for part in live.parts.iter().filter(|part| part.left_out > 0) {
        lines.push(format!("call {}: {} items of operator {} are not shown", part.call, part.left_out, part.operator));
    }
    for other in &live.others {
        let standing = match (other.outcome, other.is_silent) {
            (Some(outcome), _) => format!("has answered: {}", word(outcome)),
            (None, true) => "is silent".to_owned(),
            (None, false) => "has not answered yet".to_owned(),
        };
        lines.push(format!("call {}: operator {} {standing}", other.call, other.operator));
    }
    lines
        .extend(live.unheard.iter().map(|one| format!("operator {} tells nothing: {}", one.operator, shown(&one.why))));
    lines.push(format!("batch {} is {}", live.batch_id, live.status.name()));
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

/// A text in one line, which no terminal obeys.
pub(super) fn one_line(text: &str) -> String {
    shown(text)
}

fn of_majority(majority: &Majority) -> String {
    let items: Vec<_> = majority.items.iter().map(u32::to_string).collect();
    let tied = if majority.tied { ", as often as another" } else { "" };
    let (count, of) = (majority.items.len(), majority.of);
    format!("{count} of {of} items that succeeded ({}){tied}: {}", items.join(", "), shown(&majority.answer))
}

/// The head of what came of an item.
fn result(failure: Option<&Failure>, exec: Option<&ItemExec>, task: Option<&ItemTask>) -> String {
    match (failure, exec, task) {
        (Some(failure), ..) => shown(&failure.to_string()),
        (None, Some(exec), _) => {
            let streams = if exec.stdout.0.is_empty() { &exec.stderr } else { &exec.stdout };
            let text = shown(&String::from_utf8_lossy(&streams.0));
            if exec.exit_code == 0 { text } else { format!("({}) {text}", exec.exit_code).trim_end().to_owned() }
        }
        (None, None, Some(task)) => shown(if task.success { &task.result } else { &task.error }),
        (None, None, None) => String::new(),
    }
}

fn name(sandbox: Option<SandboxId>) -> String {
    sandbox.map_or_else(|| NONE.to_owned(), |id| id.to_string())
}

const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Caller => "not done, the caller's matter",
        Outcome::Operator => "not done, the operator's matter",
    }
}

/// Columns as wide as their widest word, but for the last.
fn aligned(rows: Vec<[String; 5]>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |[item, sandbox, operator, state, result]: &[String; 5]| {
        let [a, b, c, d] = widths;
        format!("{item:>a$}  {sandbox:b$}  {operator:c$}  {state:d$}  {result}").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::FailureCode;
    use sandbox_protocol::exec::ByteText;

    use super::*;

    #[test]
    fn the_head_of_a_result_is_one_harmless_line() {
        let exec = |exit_code, stdout: &str, stderr: &str| ItemExec {
            exit_code,
            stdout: ByteText(stdout.into()),
            stderr: ByteText(stderr.into()),
            ..Default::default()
        };
        assert_eq!(result(None, Some(&exec(0, "a\x1b[2J\nb\n", "")), None), "a[2J b");
        assert_eq!(result(None, Some(&exec(7, "", "no\n")), None), "(7) no");
        let task = ItemTask { error: "it\rgave up".into(), ..Default::default() };
        assert_eq!(result(None, None, Some(&task)), "it gave up");
        let failure = sandbox_protocol::Failure::new(FailureCode::Engine, "down");
        assert_eq!(result(Some(&failure), None, None), "engine: down");
    }

    #[test]
    fn columns_are_as_wide_as_their_words() {
        let row = |words: [&str; 5]| words.map(str::to_owned);
        let text = aligned(vec![row(["9", "-", "o", "failed", "x"]), row(["10", "sbx", "o", "succeeded", ""])]);
        assert_eq!(text, " 9  -    o  failed     x\n10  sbx  o  succeeded");
    }
}
