//! What each hook costs, as tests record it with `vm.snapshotValue` and `vm.snapshotGasLastCall`, against what is committed.
//!
//! The comparison is exact, without any tolerance: compiler, chain rules and fuzz seed are pinned, so a figure that differs is
//! a change of the contracts or their tests. Forge's own check is not used: it passes over entries and files that only one
//! side has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Verdict, forge};
use crate::place::Place;

/// The committed figures; `foundry.toml` names the same folder.
const COMMITTED: &str = "contracts/snapshots";
/// Those of one run.
const RECORDED: &str = "contracts/cache/snapshots";

/// Names and figures by group, which is a file each. Forge writes numbers as strings.
type Figures = BTreeMap<String, BTreeMap<String, String>>;

/// All tests, recording into a folder of their own, which is emptied first.
pub(super) fn recording(place: &Place) -> Result<Command> {
    clear(&place.at(RECORDED))?;
    let mut test = forge(place, &["test"])?;
    // Relative: forge drops an absolute folder without a word.
    test.env("FOUNDRY_SNAPSHOTS", RECORDED).env("FORGE_SNAPSHOT_EMIT", "true").env("FORGE_SNAPSHOT_CHECK", "false");
    Ok(test)
}

/// What is in the repository.
pub(super) fn committed(place: &Place) -> Result<Figures> {
    read(&place.at(COMMITTED))
}

/// What the last [`recording`] wrote.
pub(super) fn recorded(place: &Place) -> Result<Figures> {
    read(&place.at(RECORDED))
}

/// Every entry of one side against the other's.
pub(super) fn judge(committed: &Figures, recorded: &Figures) -> Verdict {
    let entries: BTreeSet<(&String, &String)> = entries(committed).chain(entries(recorded)).collect();
    if entries.is_empty() {
        return Verdict { faults: vec!["gas: no test records any".to_string()], ..Verdict::default() };
    }
    let differing = entries.iter().filter_map(|&(group, name)| {
        let figure = |side: &Figures| side.get(group).and_then(|names| names.get(name)).cloned();
        difference(figure(committed), figure(recorded)).map(|what| format!("gas: {group}, {name}: {what}"))
    });
    let faults: Vec<String> = differing.collect();
    let summary = match faults.len() {
        0 => format!("gas: {0} of {0} figures exactly as committed", entries.len()),
        count => format!("gas: {count} of {} figures differ; `cargo xtask gas` takes them over", entries.len()),
    };
    Verdict { summaries: vec![summary], faults }
}

/// Makes what was recorded the committed figures, and says what that changes.
pub(super) fn take_over(place: &Place) -> Result<()> {
    let recorded = recorded(place)?;
    if recorded.is_empty() {
        bail!("no test records gas, so there is nothing to take over");
    }
    let verdict = judge(&committed(place)?, &recorded);
    verdict.faults.iter().for_each(|fault| println!("{fault}"));
    println!("figures changed in {COMMITTED}: {}", verdict.faults.len());
    write(&place.at(COMMITTED), &recorded)
}

fn entries(figures: &Figures) -> impl Iterator<Item = (&String, &String)> {
    figures.iter().flat_map(|(group, names)| names.keys().map(move |name| (group, name)))
}

fn difference(committed: Option<String>, recorded: Option<String>) -> Option<String> {
    match (committed, recorded) {
        (None, None) => None,
        (Some(before), Some(now)) => (before != now).then(|| format!("{before} → {now}{}", share(&before, &now))),
        (Some(before), None) => Some(format!("{before} is committed, and no test records it")),
        (None, Some(now)) => Some(format!("{now} is recorded, and not committed")),
    }
}

/// The change in per cent, where both are figures.
fn share(before: &str, now: &str) -> String {
    match (before.parse::<f64>(), now.parse::<f64>()) {
        (Ok(before), Ok(now)) if before > 0.0 => format!(" ({:+.2} %)", (now / before - 1.0) * 100.0),
        _ => String::new(),
    }
}

fn read(folder: &Path) -> Result<Figures> {
    let files = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Figures::new()),
        files => files.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    let mut figures = Figures::new();
    for file in files {
        let path = file?.path();
        let group = path.file_stem().context("a file without a name")?.to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let names = serde_json::from_str(&text).with_context(|| format!("{} holds no figures", path.display()))?;
        figures.insert(group, names);
    }
    Ok(figures)
}

fn write(folder: &Path, figures: &Figures) -> Result<()> {
    clear(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (group, names) in figures {
        let path = folder.join(format!("{group}.json"));
        let text = serde_json::to_string_pretty(names)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn clear(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("cannot empty {}", folder.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(entries: &[(&str, &str)]) -> Figures {
        let names = entries.iter().map(|(name, figure)| (name.to_string(), figure.to_string())).collect();
        Figures::from([("hooks".to_string(), names)])
    }

    #[test]
    fn equal_figures_pass() {
        let verdict = judge(&figures(&[("create", "200")]), &figures(&[("create", "200")]));
        assert_eq!(verdict.summaries, ["gas: 1 of 1 figures exactly as committed"]);
        assert_eq!(verdict.faults, Vec::<String>::new());
    }

    #[test]
    fn one_gas_more_is_a_fault_and_so_is_an_entry_of_one_side_only() {
        let verdict = judge(
            &figures(&[("create", "200"), ("delete", "9"), ("exec", "7")]),
            &figures(&[("create", "201"), ("resume", "8"), ("exec", "7")]),
        );
        assert_eq!(
            verdict.faults,
            [
                "gas: hooks, create: 200 → 201 (+0.50 %)",
                "gas: hooks, delete: 9 is committed, and no test records it",
                "gas: hooks, resume: 8 is recorded, and not committed",
            ]
        );
        assert_eq!(verdict.summaries, ["gas: 3 of 4 figures differ; `cargo xtask gas` takes them over"]);
    }

    #[test]
    fn to_have_compared_nothing_is_a_fault() {
        assert_eq!(judge(&Figures::new(), &Figures::new()).faults, ["gas: no test records any"]);
    }
}
