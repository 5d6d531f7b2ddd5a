//! The variants of the sandbox image: how they are called and what is in them.

use std::fs;

use anyhow::{Context, Result};

use crate::place::Place;

/// A kind of sandbox image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// A shell and Debian's minimum, made in a moment: what the tests use.
    Slim,
    /// With the tools that agents and people expect.
    Full,
}

impl Variant {
    /// The word that names it: a label of the image, the folder of what it holds.
    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Slim => "slim",
            Variant::Full => "full",
        }
    }

    /// The image that sandboxes start from.
    pub(super) fn image(self) -> &'static str {
        match self {
            Variant::Slim => "agent-sandbox-sidecar:dev",
            Variant::Full => "agent-sandbox-sidecar:full",
        }
    }

    /// The image below it, where that was made here.
    pub(super) fn base(self) -> &'static str {
        match self {
            Variant::Slim => "agent-sandbox-base:bookworm",
            Variant::Full => "agent-sandbox-base:bookworm-full",
        }
    }

    /// The file with its Debian packages.
    pub(super) fn packages_file(self) -> String {
        format!("docker/{}/packages", self.name())
    }

    /// Its Debian packages besides the minimum.
    pub(super) fn packages(self, place: &Place) -> Result<Vec<String>> {
        let file = self.packages_file();
        let text = fs::read_to_string(place.at(&file)).with_context(|| format!("cannot read {file}"))?;
        Ok(listed(&text))
    }
}

fn listed(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_the_lines_that_are_no_comment() {
        assert_eq!(listed("# tools\ncurl\n\n  git  \n"), ["curl", "git"]);
    }
}
