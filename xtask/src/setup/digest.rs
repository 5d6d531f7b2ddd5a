//! Names that follow from content, so that the same image is never built twice and another one never mistaken for it.

use std::fmt::Write;
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// Characters of the digest that a tag carries.
const TAG_CHARACTERS: usize = 12;

/// SHA-256 of a file, in hexadecimal.
pub(super) fn of_file(path: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    io::copy(&mut file, &mut hasher).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hexadecimal(&hasher.finalize()))
}

/// SHA-256 of a text, in hexadecimal.
pub(super) fn of_text(text: &str) -> String {
    hexadecimal(&Sha256::digest(text))
}

/// SHA-256 over a folder's files and links with their names and what may be executed, in hexadecimal.
pub(super) fn of_folder(folder: &Path) -> Result<String> {
    let mut listed = String::new();
    list(folder, Path::new(""), &mut listed)?;
    Ok(of_text(&listed))
}

fn list(folder: &Path, below: &Path, listed: &mut String) -> Result<()> {
    let reading = || format!("cannot read {}", folder.display());
    let mut entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>).with_context(reading)?;
    entries.sort_by_key(DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        let kind = entry.metadata().with_context(reading)?;
        if kind.is_dir() {
            list(&path, &name, listed)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).with_context(reading)?;
            writeln!(listed, "{name:?} -> {target:?}")?;
        } else {
            writeln!(listed, "{name:?} {:o} {}", kind.permissions().mode() & 0o111, of_file(&path)?)?;
        }
    }
    Ok(())
}

/// The tag of something made from `ingredients`. Their order and their borders count.
pub(super) fn tag(ingredients: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for ingredient in ingredients {
        hasher.update((ingredient.len() as u64).to_be_bytes());
        hasher.update(ingredient);
    }
    hexadecimal(&hasher.finalize())[..TAG_CHARACTERS].to_string()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_twelve_characters_that_follow_from_every_ingredient() {
        let tag_of = tag(&["binary", "FROM base", "sha256:1"]);
        assert_eq!(tag_of.len(), 12);
        assert_eq!(tag_of, tag(&["binary", "FROM base", "sha256:1"]));
        assert_ne!(tag_of, tag(&["binary", "FROM base", "sha256:2"]));
        assert_ne!(tag(&["ab", "c"]), tag(&["a", "bc"]));
    }
}
