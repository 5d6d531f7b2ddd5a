//! Names that follow from content, so that the same image is never built twice and another one never mistaken for it.

use std::fs::File;
use std::io;
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
