//! Programs of this workspace, built beside the one that runs.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The built program `name`, in the directory of the running one or, for a test, the one above.
///
/// # Errors
/// It is not built.
pub fn program(name: &str) -> Result<PathBuf> {
    let running = std::env::current_exe().context("no path of the running program")?;
    let found = running.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file());
    let missing = || format!("{name} is not built beside {}; `cargo xtask test` builds it", running.display());
    let path = found.with_context(missing)?;
    ensure!(path.is_absolute(), "{} is not absolute", path.display());
    Ok(path)
}
