//! The Rust side.
//!
//! Every full part selects the whole workspace and narrows by *target*, never by package. Cargo unifies features over the
//! selected packages, so `-p sandbox-operator` and `--workspace` may want two builds of the same eight hundred crates;
//! with one selection there is one build, which clippy's check shares too. The price is that one crate alone is not
//! tested before the rest compiles; [`light`], with a selection of its own, is for that.

use std::time::Duration;

use anyhow::Result;

use crate::devkit::BINARIES;
use crate::limits::{LONG_PART_MAX, PART_MAX};
use crate::place::{Package, Place};
use crate::report::Done;
use crate::run;

/// The crate of the promises to customers; its tests need images and binaries.
const END_TO_END: &str = "sandbox-tests";
/// The crates off the SDK's graph, whose tests run in seconds.
const LIGHT: [&str; 5] = ["sandbox-protocol", "sandbox-process", "sandbox-fleet", "sandbox-sidecar", "xtask"];

/// Builds what the end-to-end tests start.
pub(super) fn binaries(place: &Place) -> Result<Done> {
    cargo(place, &BINARIES)
}

/// Unit and property tests of the light crates.
pub(super) fn light(place: &Place) -> Result<Done> {
    let packages = LIGHT.iter().flat_map(|name| ["--package", name]);
    cargo(place, &["test", "--no-fail-fast"].into_iter().chain(packages).collect::<Vec<_>>())
}

/// Unit, property and golden tests of all crates.
pub(super) fn units(place: &Place) -> Result<Done> {
    let packages = place.workspace()?.packages;
    let tests = packages.iter().filter(|package| package.name != END_TO_END).flat_map(test_targets);
    let mut arguments = vec!["test", "--workspace", "--no-fail-fast", "--lib", "--bins"];
    arguments.extend(tests.flat_map(|name| ["--test", name]));
    cargo(place, &arguments)
}

/// Examples in documentation.
pub(super) fn documents(place: &Place) -> Result<Done> {
    cargo(place, &["test", "--workspace", "--no-fail-fast", "--doc"])
}

/// The promises to customers, over the real chain, engine and clients.
pub(super) fn end_to_end(place: &Place) -> Result<Done> {
    promises(place, &[], PART_MAX)
}

/// Those of them that are ignored because they take long.
pub(super) fn long(place: &Place) -> Result<Done> {
    promises(place, &["--", "--ignored", "--nocapture"], LONG_PART_MAX)
}

fn promises(place: &Place, options: &[&str], bound: Duration) -> Result<Done> {
    let packages = place.workspace()?.packages;
    let tests = packages.iter().filter(|package| package.name == END_TO_END).flat_map(test_targets);
    let mut arguments = vec!["test", "--workspace", "--no-fail-fast"];
    arguments.extend(tests.flat_map(|name| ["--test", name]));
    if arguments.len() == 3 {
        anyhow::bail!("{END_TO_END} has no tests");
    }
    arguments.extend(options);
    bounded(place, &arguments, bound)
}

/// The names of a package's integration tests.
fn test_targets(package: &Package) -> impl Iterator<Item = &str> {
    package.targets.iter().filter(|target| target.kind.iter().any(|kind| kind == "test")).map(|target| &*target.name)
}

fn cargo(place: &Place, arguments: &[&str]) -> Result<Done> {
    bounded(place, arguments, PART_MAX)
}

fn bounded(place: &Place, arguments: &[&str], bound: Duration) -> Result<Done> {
    let streamed = run::stream(&mut place.cargo(arguments), bound, is_summary)?;
    Ok(Done::with(streamed.success, streamed.kept))
}

/// `test result: ok. 12 passed; …`, unless there was nothing to test.
fn is_summary(line: &str) -> bool {
    line.starts_with("test result: ") && !line.contains(" 0 passed; 0 failed; 0 ignored")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_test_binaries_are_left_out_of_the_sum() {
        assert!(is_summary("test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured"));
        assert!(is_summary("test result: FAILED. 0 passed; 1 failed; 0 ignored"));
        assert!(!is_summary("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured"));
        assert!(!is_summary("test lifecycle ... ok"));
    }
}
