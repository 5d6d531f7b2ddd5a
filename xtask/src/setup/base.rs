//! The image that a sandbox's image is built on: Debian bookworm, minimal, with the packages of a variant.
//!
//! Pulled where a registry can be reached, and then the variant's packages are installed by the build on it; made from the
//! machine's own Debian mirror where not, with the packages in it, so that the build needs no network.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::limits::{BOOTSTRAP_MAX, IMAGE_MAX, PULL_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;
use crate::setup::variant::Variant;
use crate::setup::{digest, system};

const UPSTREAM: &str = "debian:bookworm-slim";
const RELEASE: &str = "bookworm";
/// Where the release's packages come from, security updates among them.
const SUITES: [&str; 3] = ["bookworm", "bookworm-updates", "bookworm-security"];
/// What apt and dpkg are told is kept in the image, so it holds for whatever is installed there later. Licences stay.
const OPTIONS: [&str; 7] = [
    // Without the package that moves an older system's folders, which brings all of Perl.
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    "--include=usr-is-merged",
    "--aptopt=APT::Install-Recommends \"false\"",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
];

/// An image to build on.
pub(super) struct Base {
    pub image: &'static str,
    /// It has the packages of the variant.
    complete: bool,
}

impl Base {
    /// The network that a build on it needs.
    pub(super) fn network(&self) -> &'static str {
        if self.complete { "none" } else { "host" }
    }
}

/// Leaves with the base of `variant` present.
pub(super) fn make(place: &Place, variant: Variant) -> Result<Base> {
    let packages = variant.packages(place)?.join(",");
    let recipe = digest::tag(&[RELEASE, &packages, &OPTIONS.join(" ")]);
    let made = format!("agent-sandbox-base:{recipe}");
    let pulled = id(place, &made).is_none() && (id(place, UPSTREAM).is_some() || pull(place));
    if id(place, &made).is_none() && !pulled {
        let packed = place.cached(&format!("base-{}-{recipe}.tar", variant.name()));
        if !packed.exists() {
            bootstrap(place, &packages, &packed)?;
        }
        let mut import = place.program("docker");
        import.args(["import", "--change", "CMD [\"/bin/bash\"]"]).arg(&packed).arg(&made);
        run::step("base image: docker import", &mut import, IMAGE_MAX, &place.log("base-import"))?;
    }
    let found = if pulled { UPSTREAM } else { &made };
    run::output(place.program("docker").args(["tag", found, variant.base()]), QUESTION_MAX)?;
    Ok(Base { image: variant.base(), complete: !pulled })
}

/// The content id of an image, where it exists.
pub(super) fn id(place: &Place, image: &str) -> Option<String> {
    let mut inspect = place.program("docker");
    inspect.args(["image", "inspect", "--format", "{{.Id}}", image]);
    run::output(&mut inspect, QUESTION_MAX).ok().map(|id| id.trim().to_string())
}

fn pull(place: &Place) -> bool {
    let mut pull = place.program("docker");
    pull.args(["pull", "--quiet", UPSTREAM]);
    run::step("base image: docker pull", &mut pull, PULL_MAX, &place.log("base-pull")).is_ok()
}

/// Packs Debian's smallest system with `packages`; the name appears only when the file is whole.
fn bootstrap(place: &Place, packages: &str, packed: &Path) -> Result<()> {
    if !run::on_path("mmdebstrap") {
        bail!(
            "no registry answers, and without mmdebstrap the image cannot be made; on Debian: {}",
            system::install_command(&["mmdebstrap"])
        );
    }
    let partial = partial(packed);
    let mut command = place.program("mmdebstrap");
    command.args(["--variant=minbase", "--format=tar", "--skip=output/dev"]).args(OPTIONS);
    command.arg(format!("--include={packages}")).arg(RELEASE).arg(&partial);
    // Without any it takes Debian's own mirrors.
    command.args(sources(place));
    if let Some(proxy) = proxy(place) {
        command.env("http_proxy", proxy);
    }
    let done = run::step("base image: mmdebstrap", &mut command, BOOTSTRAP_MAX, &place.log("base-bootstrap"));
    if done.is_err() {
        fs::remove_file(&partial).ok();
    }
    done.and_then(|()| fs::rename(&partial, packed).context("cannot keep the packed image"))
}

fn partial(packed: &Path) -> PathBuf {
    packed.with_extension(format!("{}.partial", std::process::id()))
}

/// The release's sources as this machine's apt has them, as lines of a source list.
fn sources(place: &Place) -> Vec<String> {
    let mut ask = place.program("apt-get");
    ask.args(["indextargets", "--format", "$(CODENAME)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)", "Created-By: Packages"]);
    run::output(&mut ask, QUESTION_MAX).map(|targets| select(&targets)).unwrap_or_default()
}

/// The first address that offers `main` of each suite; none at all where the release itself is not among them. The code
/// name is known only once the lists were fetched, and the suite as configured may be a word such as `stable`; either
/// will do.
fn select(targets: &str) -> Vec<String> {
    let address = |suite: &str| {
        targets.lines().find_map(|line| match line.split('|').collect::<Vec<_>>()[..] {
            [code, configured, "main", address] if code == suite || configured == suite => Some(address),
            _ => None,
        })
    };
    if address(RELEASE).is_none() {
        return Vec::new();
    }
    SUITES.iter().filter_map(|suite| Some(format!("deb {} {suite} main", address(suite)?))).collect()
}

/// The proxy this machine's apt goes through, which mmdebstrap would not know of.
fn proxy(place: &Place) -> Option<String> {
    let mut ask = place.program("apt-config");
    ask.args(["shell", "PROXY", "Acquire::http::Proxy"]);
    let answer = run::output(&mut ask, QUESTION_MAX).ok()?;
    let proxy = answer.trim().strip_prefix("PROXY='")?.strip_suffix('\'')?;
    (!proxy.is_empty() && proxy != "DIRECT").then(|| proxy.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_come_from_where_this_machine_takes_the_release_and_its_updates() {
        let security = "bookworm-security|bookworm-security|main|http://b/";
        assert_eq!(
            select(&format!("{security}\nbookworm|stable|contrib|http://c/\nbookworm|stable|main|http://a/")),
            ["deb http://a/ bookworm main", "deb http://b/ bookworm-security main"]
        );
        assert_eq!(select("|bookworm|main|http://a/"), ["deb http://a/ bookworm main"]);
        assert_eq!(select(security), Vec::<String>::new());
        assert_eq!(select("noble|noble|main|http://a/"), Vec::<String>::new());
    }
}
