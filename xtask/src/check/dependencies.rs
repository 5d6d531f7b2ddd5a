//! Licences, bans, sources and known vulnerabilities of what we link, by `deny.toml`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::limits::{ADVISORIES_MAX, PART_MAX, TOOL_BUILD_MAX};
use crate::place::Place;
use crate::report::{Done, Outcome};
use crate::run;

/// Pinned like every other tool: another version may want another deny.toml.
const VERSION: &str = "0.20.2";

/// Runs cargo-deny. What could not be checked is said to be unchecked, never passed.
pub(super) fn check(place: &Place) -> Result<Done> {
    let tool = match tool(place) {
        Ok(tool) => tool,
        Err(error) => return Ok(not_run(format!("no cargo-deny: {error:#}"))),
    };
    let deny = |arguments: &[&str]| {
        let mut command = place.program(&tool);
        command.args(arguments);
        command
    };
    if !passes(&mut deny(&["--offline", "check", "licenses", "bans", "sources"]))? {
        return Ok(Done::plain(false));
    }
    if !run::succeeds(&mut deny(&["fetch", "db"]), ADVISORIES_MAX) {
        return Ok(not_run("licences, bans and sources passed; the advisory database cannot be reached".to_string()));
    }
    passes(&mut deny(&["--offline", "check", "advisories"])).map(Done::plain)
}

fn not_run(why: String) -> Done {
    Done { outcome: Outcome::NotRun(why), summaries: Vec::new() }
}

fn passes(command: &mut Command) -> Result<bool> {
    Ok(run::stream(command, PART_MAX, |_| false)?.success)
}

/// The pinned cargo-deny, compiled once into the cache.
fn tool(place: &Place) -> Result<PathBuf> {
    let folder = place.cached(&format!("tools/cargo-deny-{VERSION}"));
    let file = folder.join("bin/cargo-deny");
    if !file.is_file() {
        let mut cargo = place.cargo(&["install", "cargo-deny", "--locked", "--no-default-features"]);
        // Its own target directory, or it would hold up every other build.
        cargo.args(["--version", VERSION, "--root"]).arg(&folder).env_remove("CARGO_TARGET_DIR");
        run::step("cargo install cargo-deny", &mut cargo, TOOL_BUILD_MAX, &place.log("cargo-deny"))
            .context("it does not install")?;
    }
    Ok(file)
}
