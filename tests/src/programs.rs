//! Programs of this workspace, built beside the one that runs, and those of others that a chain takes.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use sandbox_sdk::devchain::Tools;

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

/// The chain's tools. Cargo takes two seconds to say where they are, so a process asks once.
///
/// # Errors
/// They are not installed.
pub fn tools() -> Result<Tools> {
    static TOOLS: Mutex<Option<Tools>> = Mutex::new(None);
    let mut known = TOOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tools) = known.as_ref() {
        return Ok(tools.clone());
    }
    let found = Tools::find().context("the chain's tools")?;
    *known = Some(found.clone());
    Ok(found)
}
