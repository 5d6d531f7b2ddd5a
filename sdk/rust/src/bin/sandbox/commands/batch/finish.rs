//! What a batch came to: its table, who is silent or lies, where its answers are kept, and how the program ends.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use sandbox_sdk::batches::{Merged, PartStanding, State};

use super::table;
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// Prints it all; what is missing of it is this run's failure.
pub(super) fn finish(
    merged: &Merged,
    unsent: usize,
    save: Option<&Path>,
    output: &Output,
) -> Result<ExitCode, Failure> {
    if let Some(dir) = save {
        kept(merged, dir)?;
    }
    output.result(&table::of_merged(merged), merged)?;
    for (standing, sentence) in [("lying", "lies"), ("silent", "is silent"), ("withheld", "withholds its answer")] {
        for part in merged.of_standing(standing) {
            output.notice(&accusation(part, sentence));
        }
    }
    match failure(merged, unsent) {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn accusation(part: &PartStanding, sentence: &str) -> String {
    let why = part.why.as_deref().map(|why| format!(": {}", super::table::one_line(why))).unwrap_or_default();
    format!("operator {} {sentence}{why}", part.operator)
}

/// Why a batch is no success, the gravest reason first.
fn failure(merged: &Merged, unsent: usize) -> Option<Failure> {
    if merged.is_success && unsent == 0 {
        return None;
    }
    let count = |states: &[State]| states.iter().map(|state| merged.count(*state)).sum::<usize>();
    let all = merged.items.len();
    let most = merged.majority.as_ref().filter(|_| merged.majority_holds == Some(false));
    let agreeing = most.map_or(0, |most| most.items.len());
    let reasons = [
        (count(&[State::Disproved]), Exit::Unproven, "unproven", "have answers that do not hold"),
        (count(&[State::Silent, State::Withheld, State::Unreported]), Exit::Operator, "silent", "have no answer"),
        (count(&[State::Pending]), Exit::Unavailable, "pending", "have no answer yet"),
        (agreeing, Exit::Unsuccessful, "no_majority", "gave the most frequent answer, which is no majority"),
        (count(&[State::Failed, State::Cancelled]), Exit::Unsuccessful, "unsuccessful", "ended without success"),
    ];
    let found = reasons.into_iter().find(|(items, ..)| *items != 0);
    let (exit, code, message) = match found {
        Some((items, exit, code, what)) => (exit, code, format!("{items} of {all} items {what}")),
        None => (Exit::Unavailable, "unsent", format!("{unsent} operators have not been given their part")),
    };
    let retryable = exit == Exit::Unavailable;
    Some(Failure { exit, code: code.into(), message, retryable })
}

/// Each proven answer in a file of its own.
fn kept(merged: &Merged, dir: &Path) -> Result<(), Failure> {
    let unwritable =
        |path: &Path, error: std::io::Error| Failure::local(format!("cannot write {}: {error}", path.display()));
    fs::create_dir_all(dir).map_err(|error| unwritable(dir, error))?;
    for answer in &merged.answers {
        let receipt = &answer.receipt.receipt;
        let path = dir.join(format!("{}-{}-{}.json", receipt.service, receipt.call, receipt.operator));
        let text = format!("{:#}\n", serde_json::json!(answer));
        fs::write(&path, text).map_err(|error| unwritable(&path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Address;
    use sandbox_protocol::batch::Majority;
    use sandbox_sdk::batches::Item;

    use super::*;

    /// What is wrong where items are in these states and the first of them gave the most frequent answer.
    fn wrong(states: &[State], holds: bool) -> Option<(Exit, String)> {
        let item = |(place, state): (u32, &State)| Item {
            item: place,
            call: 1,
            index: place,
            sandbox: None,
            operator: Address::ZERO,
            state: *state,
            failure: None,
            exec: None,
            task: None,
        };
        let merged = Merged {
            batch_id: "b".parse().unwrap(),
            is_over: true,
            is_success: holds,
            items: (0..).zip(states).map(item).collect(),
            parts: Vec::new(),
            winner: None,
            majority: Some(Majority { answer: "yes".into(), items: vec![0], of: 1, tied: false }),
            majority_holds: Some(holds),
            answers: Vec::new(),
        };
        failure(&merged, 0).map(|failure| (failure.exit, failure.message))
    }

    #[test]
    fn a_majority_that_does_not_hold_ends_the_program_by_what_keeps_it_from_that() {
        use State as S;
        let ends =
            |states: &[State], exit, message: &str| assert_eq!(wrong(states, false), Some((exit, message.into())));
        let message = "1 of 2 items gave the most frequent answer, which is no majority";
        ends(&[S::Succeeded, S::Succeeded], Exit::Unsuccessful, message);
        ends(&[S::Succeeded, S::Failed], Exit::Unsuccessful, message);
        ends(&[S::Succeeded, S::Silent], Exit::Operator, "1 of 2 items have no answer");
        ends(&[S::Succeeded, S::Pending], Exit::Unavailable, "1 of 2 items have no answer yet");
        ends(&[S::Succeeded, S::Disproved], Exit::Unproven, "1 of 2 items have answers that do not hold");
        assert_eq!(wrong(&[S::Succeeded, S::Silent], true), None, "what holds needs nobody else");
    }
}
