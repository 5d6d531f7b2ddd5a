//! Hands demo, devnet and bench over to the test crate's `devkit`, with everything it starts built first.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::limits::BUILD_MAX;
use crate::place::Place;
use crate::{run, setup};

/// Builds every binary of the workspace: operator, `sandbox`, sidecar, devkit.
///
/// Always the whole workspace: a smaller set of packages would unify other features and compile the SDK's hundreds of
/// dependencies a second time. And always with `--examples`, of which a bench needs one: it makes cargo count the features
/// of test dependencies, as `cargo test` does, so that the two share every artefact.
pub(crate) const BINARIES: [&str; 4] = ["build", "--workspace", "--bins", "--examples"];

/// What is measured is built as it ships.
const OPTIMISED: [&str; 2] = ["--config", ".cargo/optimised.toml"];

/// Sets up, builds, and becomes `devkit <task> <arguments>`, so that Ctrl-C and the exit code are its own.
pub(crate) fn delegate(place: &Place, task: &str, arguments: &[OsString]) -> Result<ExitCode> {
    setup::everything(place)?;
    let manner: &[&str] = if task == "bench" { &OPTIMISED } else { &[] };
    if !run::stream(&mut place.cargo(&[&BINARIES, manner].concat()), BUILD_MAX, |_| false)?.success {
        bail!("the binaries do not build");
    }
    let devkit = place.workspace()?.target_directory.join("debug/devkit");
    let error = place.program(&devkit).arg(task).args(arguments).stdin(std::process::Stdio::inherit()).exec();
    Err(error).with_context(|| format!("cannot start {}", devkit.display()))
}
