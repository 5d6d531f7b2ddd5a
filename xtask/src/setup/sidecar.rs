//! The sidecar as a static file, and what is compiled into it.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::limits::{BUILD_MAX, METADATA_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;

/// The program's name.
pub(super) const BINARY: &str = "sandbox-sidecar";

/// Compiles the sidecar so that it runs in any image, whatever libraries that has.
pub(super) fn build(place: &Place) -> Result<PathBuf> {
    let triple = host(place)?;
    let mut cargo =
        place.cargo(&["build", "--profile", "sidecar", "--target", &triple, "--package", BINARY, "--bin", BINARY]);
    // By target, because procedural macros cannot be static; and the general variable would win over this one.
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", triple.to_uppercase().replace('-', "_"));
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env(flags, "-C target-feature=+crt-static");
    run::step("sidecar: cargo build", &mut cargo, BUILD_MAX, &place.log("sidecar-build"))?;
    Ok(place.workspace()?.target_directory.join(triple).join("sidecar").join(BINARY))
}

/// The crates compiled into it, as lines `name vVERSION|LICENCE`.
pub(super) fn crates(place: &Place) -> Result<String> {
    let triple = host(place)?;
    let mut tree = place.cargo(&["tree", "--package", BINARY, "--target", &triple, "--edges", "normal,no-proc-macro"]);
    run::output(tree.args(["--prefix", "none", "--format", "{p}|{l}"]), METADATA_MAX)
}

fn host(place: &Place) -> Result<String> {
    let version = run::output(place.program("rustc").arg("-vV"), QUESTION_MAX)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_string())
}
