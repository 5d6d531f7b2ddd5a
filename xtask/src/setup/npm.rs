//! The pinned Solidity tools and agents of package-lock.json.
//!
//! Install scripts stay off: the platform's binary comes as a package of its own and needs none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::limits::NPM_MAX;
use crate::place::Place;
use crate::run;

/// The agents that are pinned, by their program's place below `node_modules`; for one platform only.
pub(super) const OPENCODE: &str = "opencode-linux-x64-baseline/bin/opencode";
const CLAUDE: &str = "@anthropic-ai/claude-code-linux-x64/claude";

#[derive(Deserialize)]
struct Lock {
    packages: BTreeMap<String, Locked>,
}

#[derive(Deserialize)]
struct Locked {
    #[serde(default)]
    version: String,
    integrity: Option<String>,
    #[serde(default)]
    optional: bool,
}

/// The program `opencode` and its version; `None` on a platform that it is not pinned for.
pub(super) fn opencode(place: &Place) -> Result<Option<(PathBuf, String)>> {
    if !agents_are_pinned() {
        return Ok(None);
    }
    let (package, _) = OPENCODE.split_once('/').context("no package")?;
    let lock = read(&place.at("package-lock.json"))?;
    let locked =
        lock.packages.get(&format!("node_modules/{package}")).context("opencode is not in package-lock.json")?;
    Ok(Some((place.at("node_modules").join(OPENCODE), locked.version.clone())))
}

const fn agents_are_pinned() -> bool {
    cfg!(all(target_os = "linux", target_arch = "x86_64"))
}

/// Runs npm when node_modules is not what the lock file says.
pub(super) fn install(place: &Place) -> Result<()> {
    let wanted = read(&place.at("package-lock.json"))?;
    if ready(place, &wanted) {
        return Ok(());
    }
    // `ci` refuses a lock file made where the registry lacked another platform's packages. `install` takes it, leaves
    // it as it is, and is held to it by the comparison below.
    if let Err(error) = npm_with(place, &["ci"]) {
        eprintln!("  note: {error:#}");
        npm_with(place, &["install", "--no-save"])?;
    }
    if !ready(place, &wanted) {
        bail!("npm ended well, but node_modules is not what package-lock.json says");
    }
    Ok(())
}

fn npm_with(place: &Place, arguments: &[&str]) -> Result<()> {
    let mut npm = place.program("npm");
    npm.args(arguments).args(["--ignore-scripts", "--no-audit", "--no-fund"]);
    run::step(&format!("npm {}", arguments.join(" ")), &mut npm, NPM_MAX, &place.log("npm"))
}

fn ready(place: &Place, wanted: &Lock) -> bool {
    // npm keeps this file as its own note of what it installed.
    let installed = read(&place.at("node_modules/.package-lock.json"));
    let forge = place.foundry("forge").is_ok_and(|forge| forge.is_file());
    let agents = [OPENCODE, CLAUDE].iter().all(|agent| place.at("node_modules").join(agent).is_file());
    forge && (agents || !agents_are_pinned()) && installed.is_ok_and(|installed| matches(wanted, &installed))
}

fn read(path: &Path) -> Result<Lock> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no lock file of npm's", path.display()))
}

/// Everything installed is as locked, and nothing is missing but what another platform needs.
fn matches(wanted: &Lock, installed: &Lock) -> bool {
    let as_locked = installed
        .packages
        .iter()
        .all(|(path, package)| wanted.packages.get(path).is_some_and(|locked| locked.integrity == package.integrity));
    let complete = wanted.packages.iter().all(|(path, locked)| {
        // The entry without a path is the root: it is not installed.
        path.is_empty() || locked.optional || installed.packages.contains_key(path)
    });
    as_locked && complete
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(packages: &[(&str, &str, bool)]) -> Lock {
        let entry = |&(path, integrity, optional): &(&str, &str, bool)| {
            (path.to_string(), Locked { version: String::new(), integrity: Some(integrity.to_string()), optional })
        };
        Lock { packages: packages.iter().map(entry).collect() }
    }

    #[test]
    fn only_another_platforms_package_may_be_missing() {
        let wanted = lock(&[("", "", false), ("a", "1", false), ("b-darwin", "2", true)]);
        assert!(matches(&wanted, &lock(&[("a", "1", false)])));
        assert!(!matches(&wanted, &lock(&[("b-darwin", "2", true)])));
    }

    #[test]
    fn another_content_or_an_extra_package_is_a_mismatch() {
        let wanted = lock(&[("a", "1", false)]);
        assert!(!matches(&wanted, &lock(&[("a", "other", false)])));
        assert!(!matches(&wanted, &lock(&[("a", "1", false), ("b", "2", false)])));
    }
}
