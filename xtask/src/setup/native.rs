//! `.cargo/native.toml`: the native libraries of this machine that save compiling them.
//!
//! `.cargo/config.toml` includes it, so that a plain `cargo build` builds exactly what xtask builds.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::limits::QUESTION_MAX;
use crate::place::Place;
use crate::run;

/// The oldest RocksDB that has every function the SDK's bindings name.
const ROCKSDB_OLDEST: (u32, u32) = (7, 8);

/// Writes the file when its content has changed.
pub(super) fn write(place: &Place) -> Result<()> {
    let path = place.at(".cargo/native.toml");
    let content = content(rocksdb(place));
    if fs::read_to_string(&path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn content(rocksdb: Option<PathBuf>) -> String {
    let mut text =
        "# Written by `cargo xtask setup`: what this machine has, so that it need not be compiled.\n".to_string();
    if let Some(folder) = rocksdb {
        text.push_str(&format!("[env]\nROCKSDB_LIB_DIR = \"{}\"\n", folder.display()));
    }
    text
}

/// The folder of Debian's RocksDB, where there is one that fits.
fn rocksdb(place: &Place) -> Option<PathBuf> {
    let mut query = place.program("dpkg-query");
    query.args(["--show", "--showformat", "${Version}", "librocksdb-dev"]);
    let version = run::output(&mut query, QUESTION_MAX).ok()?;
    let mut triplet = place.program("sh");
    triplet.args(["-c", "dpkg-architecture -qDEB_HOST_MULTIARCH || cc -print-multiarch"]);
    let triplet = run::output(&mut triplet, QUESTION_MAX).ok()?;
    let folder = PathBuf::from("/usr/lib").join(triplet.trim());
    (parse(&version)? >= ROCKSDB_OLDEST && folder.join("librocksdb.so").exists()).then_some(folder)
}

/// Major and minor of a Debian version such as `7.8.3-2`.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|character: char| !character.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_there_is_named_and_one_that_is_not_leaves_no_entry() {
        assert!(content(Some("/usr/lib/x".into())).ends_with("[env]\nROCKSDB_LIB_DIR = \"/usr/lib/x\"\n"));
        assert!(!content(None).contains("env"));
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(parse("7.8.3-2"), Some((7, 8)));
        assert!(parse("6.11.4-3").is_some_and(|version| version < ROCKSDB_OLDEST));
        assert!(parse("10.2.1").is_some_and(|version| version >= ROCKSDB_OLDEST));
        assert_eq!(parse("unknown"), None);
    }
}
