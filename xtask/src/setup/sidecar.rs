//! The sidecar and the agents' process beside it as static files, and what is compiled into them.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::limits::{BUILD_MAX, METADATA_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;

/// The sidecar's name.
pub(super) const BINARY: &str = "sandbox-sidecar";
/// Both programs; each is the name of its package as well.
pub(super) const BINARIES: [&str; 2] = [BINARY, "sandbox-agentd"];

/// Compiles both so that they run in any image, whatever libraries that has; the directory that they are in.
pub(super) fn build(place: &Place) -> Result<PathBuf> {
    let triple = host(place)?;
    let mut cargo = place.cargo(&["build", "--profile", "sidecar", "--target", &triple]);
    cargo.args(BINARIES.iter().flat_map(|name| ["--package", name, "--bin", name]));
    // By target, because procedural macros cannot be static; and the general variable would win over this one.
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", triple.to_uppercase().replace('-', "_"));
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env(flags, "-C target-feature=+crt-static");
    run::step("sidecar: cargo build", &mut cargo, BUILD_MAX, &place.log("sidecar-build"))?;
    Ok(place.workspace()?.target_directory.join(triple).join("sidecar"))
}

/// The crates compiled into them, as lines `name vVERSION|LICENCE`.
pub(super) fn crates(place: &Place) -> Result<String> {
    let triple = host(place)?;
    let mut tree = place.cargo(&["tree", "--target", &triple, "--edges", "normal,no-proc-macro"]);
    tree.args(BINARIES.iter().flat_map(|name| ["--package", name]));
    run::output(tree.args(["--prefix", "none", "--format", "{p}|{l}"]), METADATA_MAX)
}

fn host(place: &Place) -> Result<String> {
    let version = run::output(place.program("rustc").arg("-vV"), QUESTION_MAX)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_string())
}
