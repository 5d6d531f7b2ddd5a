//! Ending a program together with everything it started.
//!
//! A process group of its own would do the same, but a group does not hear Ctrl-C at the terminal, so children stay in
//! ours and are found by their parents instead.

use std::fs;
use std::process::Command;

/// Kills `root` and all that descends from it.
pub(super) fn kill(root: u32) {
    let doomed: Vec<String> = descendants(root, &processes()).iter().map(u32::to_string).collect();
    // Whoever is gone already needs no killing.
    Command::new("kill").arg("-KILL").args(doomed).status().ok();
}

/// Every process with its parent.
fn processes() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((pid, parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
        })
        .collect()
}

/// The parent in a line of `/proc/<pid>/stat`; the name in parentheses may itself hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn descendants(root: u32, processes: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let mother = found[next];
        found.extend(processes.iter().filter(|(_, parent)| *parent == mother).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grandchildren_are_found_and_strangers_are_not() {
        assert_eq!(descendants(10, &[(11, 10), (12, 11), (13, 1), (14, 13)]), [10, 11, 12]);
    }

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(parent("42 (a) b) S 7 42 42"), Some(7));
    }
}
