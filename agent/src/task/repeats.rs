//! Finds an agent that goes in circles: the same calls with the same outcomes, and nothing new between them.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use crate::limits::REPEATS_MAX;

type Fingerprint = [u8; 32];

/// Calls and their outcomes so far.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    seen: BTreeSet<Fingerprint>,
    /// How often each came since there was something new.
    times: BTreeMap<Fingerprint, u32>,
}

/// What to do about an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// The model is told.
    Tell,
    /// It was told, and went on.
    End,
}

impl Repeats {
    pub(super) fn note(&mut self, tool: &str, arguments: &str, outcome: &str) -> Verdict {
        let fingerprint = fingerprint([tool, arguments, outcome]);
        if self.seen.insert(fingerprint) {
            self.times.clear();
        }
        let times = self.times.entry(fingerprint).or_default();
        *times += 1;
        match *times {
            REPEATS_MAX => Verdict::Tell,
            times if times > REPEATS_MAX => Verdict::End,
            _ => Verdict::Fine,
        }
    }
}

/// Each part with its length before it, so that no two lists of parts are the same text.
fn fingerprint(parts: [&str; 3]) -> Fingerprint {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A letter is a call, its case the outcome.
    fn check(calls: &str, expected: &str) {
        let mut repeats = Repeats::default();
        let verdicts = calls.chars().map(|call| {
            let arguments = call.to_ascii_lowercase().to_string();
            match repeats.note("t", &arguments, if call.is_uppercase() { "up" } else { "down" }) {
                Verdict::Fine => '.',
                Verdict::Tell => 't',
                Verdict::End => 'e',
            }
        });
        assert_eq!(verdicts.collect::<String>(), expected, "{calls}");
    }

    #[test]
    fn the_third_of_the_same_is_told_and_the_fourth_ends() {
        check("aaaa", "..te");
        check("aaA", "...");
        check("aab", "...");
    }

    #[test]
    fn circles_of_several_calls_are_found() {
        check("ababab", ".....t");
        check("abcabcabcabc", "........ttte");
    }

    #[test]
    fn something_new_begins_the_count_anew() {
        check("aabaac", "......");
        check("aabaaa", ".....t");
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(fingerprint(["a", "b", "c"]), fingerprint(["ab", "", "c"]));
    }
}
