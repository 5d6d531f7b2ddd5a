//! The Solidity side: build, tests, style.

use anyhow::Result;

use crate::limits::PART_MAX;
use crate::place::Place;
use crate::report::Done;
use crate::run;

/// Builds the contracts and runs their tests.
pub(super) fn test(place: &Place) -> Result<Done> {
    if !forge(place, &["build"])?.success {
        return Ok(Done::plain(false));
    }
    let tested = forge(place, &["test"])?;
    Ok(Done::with(tested.success, tested.kept))
}

/// Formatting and lints.
pub(super) fn style(place: &Place) -> Result<Done> {
    let formatted = forge(place, &["fmt", "--check"])?.success;
    let linted = forge(place, &["lint"])?.success;
    Ok(Done::plain(formatted && linted))
}

fn forge(place: &Place, arguments: &[&str]) -> Result<run::Streamed> {
    run::stream(place.program(place.foundry("forge")?).args(arguments), PART_MAX, is_summary)
}

/// Forge's last line: `Ran 3 test suites in 1.20s (…): 40 tests passed, 0 failed, 0 skipped (40 total tests)`.
fn is_summary(line: &str) -> bool {
    line.starts_with("Ran ") && line.contains(" test suites in ")
}
