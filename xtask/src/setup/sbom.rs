//! The bill of materials of an image, in CycloneDX: Debian's packages, the sidecar, the crates in it, npm, opencode.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::setup::digest;
use crate::setup::sidecar::BINARY;

/// What there is to name.
pub(super) struct Contents<'a> {
    pub image: &'a str,
    pub version: &'a str,
    pub sidecar_sha256: &'a str,
    /// Lines `name|version|architecture`.
    pub debian: &'a str,
    /// Lines `name vVERSION|LICENCE`, some of them repeated.
    pub crates: &'a str,
    pub npm: Option<&'a str>,
    pub opencode: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    bom_format: &'static str,
    spec_version: &'static str,
    serial_number: String,
    version: u32,
    metadata: Metadata<'a>,
    components: Vec<Component>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    component: Subject<'a>,
}

#[derive(Serialize)]
struct Subject<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    version: &'a str,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Component {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    version: String,
    purl: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    licenses: Vec<License>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<Hash>,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct License {
    expression: String,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Hash {
    alg: &'static str,
    content: String,
}

/// The document. The same contents give the same bytes.
pub(super) fn document(contents: &Contents) -> Result<String> {
    let mut components = debian(contents.debian)?;
    components.extend(crates(contents.crates)?);
    components.push(sidecar(contents));
    for (name, version) in [("npm", contents.npm), ("opencode-ai", contents.opencode)] {
        let found =
            version.map(|version| component("application", name, version, &format!("pkg:npm/{name}@{version}")));
        components.extend(found);
    }
    components.sort();
    let listed = serde_json::to_string(&components)?;
    let document = Document {
        bom_format: "CycloneDX",
        spec_version: "1.5",
        serial_number: serial(&digest::of_text(&listed)),
        version: 1,
        metadata: Metadata {
            component: Subject { kind: "container", name: contents.image, version: contents.version },
        },
        components,
    };
    serde_json::to_string_pretty(&document).context("the bill of materials cannot be written")
}

fn debian(lines: &str) -> Result<Vec<Component>> {
    let read = |line: &str| {
        let [name, version, architecture] = line.split('|').collect::<Vec<_>>()[..] else { return None };
        let purl = format!("pkg:deb/debian/{}@{}?arch={architecture}", escaped(name), escaped(version));
        Some(component("library", name, version, &purl))
    };
    lines.lines().map(|line| read(line).with_context(|| format!("no package of Debian's: {line}"))).collect()
}

fn crates(lines: &str) -> Result<BTreeSet<Component>> {
    let read = |line: &str| {
        let (package, licence) = line.split_once('|')?;
        let mut words = package.split_whitespace();
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        let mut found = component("library", name, version, &format!("pkg:cargo/{name}@{}", escaped(version)));
        // cargo marks with a star what it has listed before.
        let licence = licence.trim_end_matches("(*)").trim().replace('/', " OR ");
        found.licenses.extend((!licence.is_empty()).then_some(License { expression: licence }));
        Some(found)
    };
    let lines = lines.lines().filter(|line| !line.starts_with(BINARY) && !line.is_empty());
    lines.map(|line| read(line).with_context(|| format!("no crate: {line}"))).collect()
}

fn sidecar(contents: &Contents) -> Component {
    let mut found =
        component("application", BINARY, contents.version, &format!("pkg:generic/{BINARY}@{}", contents.version));
    found.hashes.push(Hash { alg: "SHA-256", content: contents.sidecar_sha256.to_string() });
    found
}

fn component(kind: &'static str, name: &str, version: &str, purl: &str) -> Component {
    let (name, version, purl) = (name.to_string(), version.to_string(), purl.to_string());
    Component { kind, name, version, purl, licenses: Vec::new(), hashes: Vec::new() }
}

/// The characters of versions that a package URL does not take as they are.
fn escaped(text: &str) -> String {
    text.replace('+', "%2B").replace(':', "%3A")
}

/// A UUID of the free form (version 8), from a digest.
fn serial(digest: &str) -> String {
    let part = |from: usize, to: usize| &digest[from..to];
    format!("urn:uuid:{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(12, 15), part(15, 18), part(18, 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents<'a>(debian: &'a str, crates: &'a str) -> Contents<'a> {
        Contents {
            image: "i:full",
            version: "0.1.0",
            sidecar_sha256: "ab12",
            debian,
            crates,
            npm: Some("10.9.9"),
            opencode: Some("1.18.33"),
        }
    }

    #[test]
    fn everything_in_the_image_is_named_once_with_its_version() {
        let debian = "libc6|2.36-9+deb12u10|amd64\ngit|1:2.39.5|amd64\n";
        let crates = "sandbox-sidecar v0.1.0 (/x)|MIT OR Apache-2.0\nserde v1.0.2|MIT/Apache-2.0\nserde v1.0.2|MIT/Apache-2.0 (*)\n";
        let text = document(&contents(debian, crates)).unwrap();
        assert_eq!(text, document(&contents(debian, crates)).unwrap());
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let purls: Vec<_> =
            found["components"].as_array().unwrap().iter().map(|one| one["purl"].as_str().unwrap()).collect();
        assert_eq!(
            purls,
            [
                "pkg:npm/npm@10.9.9",
                "pkg:npm/opencode-ai@1.18.33",
                "pkg:generic/sandbox-sidecar@0.1.0",
                "pkg:deb/debian/git@1%3A2.39.5?arch=amd64",
                "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64",
                "pkg:cargo/serde@1.0.2",
            ]
        );
        assert_eq!(found["components"][5]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(found["components"][2]["hashes"][0]["content"], "ab12");
    }

    #[test]
    fn a_line_that_names_nothing_stops_the_build() {
        assert!(document(&contents("libc6 2.36\n", "")).is_err());
        assert!(document(&contents("", "serde\n")).is_err());
    }
}
