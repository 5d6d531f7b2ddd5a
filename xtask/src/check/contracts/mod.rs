//! The Solidity side: build, tests, style; and what of a build can be judged without running it.

mod gas;
mod layout;
mod sizes;
mod slither;
mod sources;

use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use self::sources::Sources;
use crate::limits::PART_MAX;
use crate::place::Place;
use crate::report::Done;
use crate::{run, setup};

/// What a comparison found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    /// One line or more for the table of the whole run.
    summaries: Vec<String>,
    /// What is wrong; nothing is, when there are none.
    faults: Vec<String>,
}

/// Builds the contracts, runs their tests, compares the gas that those recorded, and judges sizes and storage.
pub(super) fn test(place: &Place) -> Result<Done> {
    if !stream(&mut forge(place, &["build"])?)?.success {
        return Ok(Done::plain(false));
    }
    let tested = stream(&mut gas::recording(place)?)?;
    let mut verdicts = Vec::new();
    if tested.success {
        verdicts.push(gas::judge(&gas::committed(place)?, &gas::recorded(place)?));
    }
    let sources = Sources::compile(place)?;
    verdicts.push(sizes::judge(&sources));
    verdicts.push(layout::judge(&sources));

    let faults: Vec<String> = verdicts.iter().flat_map(|verdict| verdict.faults.clone()).collect();
    faults.iter().for_each(|fault| println!("error: {fault}"));
    let summaries = tested.kept.into_iter().chain(verdicts.into_iter().flat_map(|verdict| verdict.summaries));
    Ok(Done::with(tested.success && faults.is_empty(), summaries.collect()))
}

/// `cargo xtask gas`: what the tests record becomes what is committed.
pub(super) fn take_over_gas(place: &Place) -> Result<ExitCode> {
    setup::tools(place)?;
    if !stream(&mut gas::recording(place)?)?.success {
        bail!("the tests fail, so nothing is taken over");
    }
    gas::take_over(place)?;
    Ok(ExitCode::SUCCESS)
}

/// Slither's detectors over the sources.
pub(super) fn slither(place: &Place) -> Result<Done> {
    slither::check(place)
}

/// Formatting and lints.
pub(super) fn style(place: &Place) -> Result<Done> {
    let formatted = stream(&mut forge(place, &["fmt", "--check"])?)?.success;
    let linted = stream(&mut forge(place, &["lint"])?)?.success;
    Ok(Done::plain(formatted && linted))
}

fn forge(place: &Place, arguments: &[&str]) -> Result<Command> {
    let mut forge = place.program(place.foundry("forge")?);
    forge.args(arguments);
    Ok(forge)
}

fn stream(forge: &mut Command) -> Result<run::Streamed> {
    run::stream(forge, PART_MAX, is_summary)
}

/// Forge's last line: `Ran 3 test suites in 1.20s (…): 40 tests passed, 0 failed, 0 skipped (40 total tests)`.
fn is_summary(line: &str) -> bool {
    line.starts_with("Ran ") && line.contains(" test suites in ")
}
