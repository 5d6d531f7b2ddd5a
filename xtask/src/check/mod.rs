//! `test` and `ci`: the parts, and in what order.
//!
//! A part that fails does not stop the others, except that nothing is built on a machine that could not be set up.

mod contracts;
mod crates;
mod dependencies;

use std::process::ExitCode;

use anyhow::Result;

use crate::limits::BUILD_MAX;
use crate::place::Place;
use crate::report::{Done, Report};
use crate::{run, setup, tidy};

/// Contracts and the light crates.
pub(crate) fn quick(place: &Place) -> Result<ExitCode> {
    let mut report = Report::default();
    if report.part("set-up", || setup::tools(place).map(|()| Done::plain(true))) {
        report.part("contracts", || contracts::test(place));
        report.part("light crates", || crates::light(place));
    }
    Ok(report.finish())
}

/// Everything that can be tested.
pub(crate) fn test(place: &Place) -> Result<ExitCode> {
    let mut report = Report::default();
    if report.part("set-up", || setup::everything(place).map(|()| Done::plain(true))) {
        tests(place, &mut report);
    }
    Ok(report.finish())
}

/// What is left out everywhere else, since it takes long.
pub(crate) fn long(place: &Place) -> Result<ExitCode> {
    let mut report = Report::default();
    if report.part("set-up", || setup::everything(place).map(|()| Done::plain(true)))
        && report.part("binaries", || crates::binaries(place))
    {
        report.part("long suite", || crates::long(place));
    }
    Ok(report.finish())
}

/// Slither alone, as one runs it between two edits of a contract.
pub(crate) fn slither(place: &Place) -> Result<ExitCode> {
    let mut report = Report::default();
    if report.part("set-up", || setup::tools(place).map(|()| Done::plain(true))) {
        report.part("slither", || contracts::slither(place));
    }
    Ok(report.finish())
}

/// Takes over what the contracts' tests record of gas.
pub(crate) fn gas(place: &Place) -> Result<ExitCode> {
    contracts::take_over_gas(place)
}

/// What has to be green before a merge.
pub(crate) fn ci(place: &Place) -> Result<ExitCode> {
    let mut report = Report::default();
    if report.part("set-up", || setup::everything(place).map(|()| Done::plain(true))) {
        report.part("format", || cargo(place, &["fmt", "--all", "--check"]));
        let clippy = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
        report.part("clippy", || cargo(place, &clippy));
        report.part("tidy", || tidy::check(place).map(Done::plain));
        tests(place, &mut report);
        report.part("contract style", || contracts::style(place));
        report.part("slither", || contracts::slither(place));
        report.part("dependencies", || dependencies::check(place));
    }
    Ok(report.finish())
}

fn tests(place: &Place, report: &mut Report) {
    report.part("contracts", || contracts::test(place));
    if report.part("binaries", || crates::binaries(place)) {
        report.part("crates", || crates::units(place));
        report.part("documents", || crates::documents(place));
        report.part("full image", || setup::full(place).map(|()| Done::plain(true)));
        report.part("end to end", || crates::end_to_end(place));
    }
}

fn cargo(place: &Place, arguments: &[&str]) -> Result<Done> {
    run::stream(&mut place.cargo(arguments), BUILD_MAX, |_| false).map(|streamed| Done::plain(streamed.success))
}
