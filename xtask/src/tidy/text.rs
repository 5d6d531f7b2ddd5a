//! What must not stand in any file, whatever its language: this machine's paths, registries' hosts, history.

use crate::tidy::Finding;

// Written in halves, so that this file keeps its own rule.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
const HOSTS: [&str; 10] = [
    concat!("docker", ".io/"),
    concat!("registry-1.", "docker"),
    concat!("ghcr", ".io"),
    concat!("quay", ".io"),
    concat!("gcr", ".io"),
    concat!("deb.", "debian.org"),
    concat!("archive.", "ubuntu.com"),
    concat!("crates", ".io"),
    concat!("registry.", "npmjs.org"),
    concat!("pypi", ".org"),
];
/// Words with which a comment tells history, which git holds, or puts off work, which an issue holds.
const HISTORY: [&str; 6] = [
    concat!("previously", ","),
    "used to be ",
    "was renamed",
    "refactored",
    concat!("fix", "me"),
    concat!("to", "do:"),
];
const COMMENTED: [&str; 5] = [".rs", ".sol", ".toml", ".js", ".Dockerfile"];
/// Written by tools, or data: not ours to word.
const WRITTEN_BY_TOOLS: [&str; 5] = [".lock", "package-lock.json", ".json", "LICENSE-APACHE", "LICENSE-MIT"];
/// Production lines of a contract.
const CONTRACT_LINES: usize = 500;

pub(super) fn check(path: &str, content: &str) -> Vec<Finding> {
    if WRITTEN_BY_TOOLS.iter().any(|end| path.ends_with(end)) {
        return Vec::new();
    }
    let commented = COMMENTED.iter().any(|end| path.ends_with(end));
    let per_line = content.lines().enumerate().flat_map(|(index, line)| {
        let messages = [machine_path(line), host(line), if commented { history(line) } else { None }];
        messages.into_iter().flatten().map(move |message| (index + 1, message))
    });
    let findings = per_line.chain(contract_length(path, content));
    findings.map(|(line, message)| Finding { path: path.to_string(), line, message }).collect()
}

fn machine_path(line: &str) -> Option<String> {
    let word = MACHINE_PATHS.iter().find(|word| begins_in(line, word))?;
    Some(format!("`{word}` is a path of one machine: derive it from the checkout, the cache or the configuration"))
}

/// Whether an absolute path beginning with `word` stands in the line; `a/home/b` is none.
fn begins_in(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|character| !character.is_alphanumeric() && !"_-.})>~*".contains(character))
    })
}

fn host(line: &str) -> Option<String> {
    let word = HOSTS.iter().find(|word| line.contains(**word))?;
    Some(format!(
        "`{word}` names a registry: ask the machine's own configuration; in an example write `registry.example`"
    ))
}

fn history(line: &str) -> Option<String> {
    let comment = line.trim_start();
    let is_comment = comment.starts_with("//") || comment.starts_with("# ") || comment.starts_with("* ");
    let lower = comment.to_lowercase();
    let word = HISTORY.iter().find(|word| is_comment && lower.contains(**word))?;
    Some(format!("`{}` tells history or puts off work: say why the code is as it is", word.trim()))
}

fn contract_length(path: &str, content: &str) -> Option<(usize, String)> {
    let lines = content.lines().count();
    let too_long = path.starts_with("contracts/src/") && path.ends_with(".sol") && lines > CONTRACT_LINES;
    too_long.then(|| (1, format!("{lines} lines, at most {CONTRACT_LINES}: move the stateless part into a library")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, line: &str) -> usize {
        check(path, line).len()
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_relative_one_is_not() {
        assert_eq!(count("a.md", concat!("see /wo", "rk/main")), 1);
        assert_eq!(count("a.md", concat!("\"/ro", "ot/.cache\"")), 1);
        assert_eq!(count("a.md", "the sandbox's own /home/agent"), 0);
        assert_eq!(count("a.md", concat!("${HOME}/ro", "ot/x, net/wo", "rk/x")), 0);
    }

    #[test]
    fn registries_are_found_outside_lock_files() {
        assert_eq!(count("a.rs", concat!("FROM ghcr", ".io/x")), 1);
        assert_eq!(count("package-lock.json", concat!("https://registry.", "npmjs.org/x")), 0);
        assert_eq!(count("a.rs", "[patch.crates-io] docker.io"), 0);
    }

    #[test]
    fn history_is_found_in_comments_only() {
        assert_eq!(count("a.rs", concat!("// Fix", "me: slow")), 1);
        assert_eq!(count("a.rs", concat!("let fix", "me = 1;")), 0);
        assert_eq!(count("a.md", concat!("// Fix", "me")), 0);
    }

    #[test]
    fn a_long_contract_is_found() {
        assert_eq!(count("contracts/src/A.sol", &"x\n".repeat(501)), 1);
        assert_eq!(count("contracts/test/A.t.sol", &"x\n".repeat(501)), 0);
    }
}
