//! The image that every sandbox starts from: Debian bookworm, minimal.
//!
//! Pulled where a registry can be reached; made from the machine's own Debian mirror where not.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::limits::{DEBOOTSTRAP_MAX, IMAGE_MAX, PULL_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;
use crate::setup::system;

/// The base image by name.
pub(super) const IMAGE: &str = "agent-sandbox-base:bookworm";
const UPSTREAM: &str = "debian:bookworm-slim";
const RELEASE: &str = "bookworm";

/// Leaves with the image present.
pub(super) fn make(place: &Place) -> Result<()> {
    if id(place, IMAGE).is_some() || pull(place) {
        return Ok(());
    }
    let packed = place.cached(&format!("base-{RELEASE}.tar"));
    if !packed.exists() {
        bootstrap(place, &packed)?;
    }
    let mut import = place.program("docker");
    import.args(["import", "--change", "CMD [\"/bin/bash\"]"]).arg(&packed).arg(IMAGE);
    run::step("base image: docker import", &mut import, IMAGE_MAX, &place.log("base-import"))
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
    let pulled = run::step("base image: docker pull", &mut pull, PULL_MAX, &place.log("base-pull")).is_ok();
    pulled && run::succeeds(place.program("docker").args(["tag", UPSTREAM, IMAGE]), QUESTION_MAX)
}

fn bootstrap(place: &Place, packed: &Path) -> Result<()> {
    if !system::is_root() {
        bail!("no registry answers, and only root can make the image from packages (debootstrap)");
    }
    let root = place.cached(&format!("base-{RELEASE}.{}", std::process::id()));
    let made = unpack(place, &root).and_then(|()| pack(place, &root, packed));
    remove(place, &root);
    made
}

/// Debian's smallest system in the folder `root`.
fn unpack(place: &Place, root: &Path) -> Result<()> {
    let mut command = place.program("debootstrap");
    command.args(["--variant=minbase", RELEASE]).arg(root);
    // Without an answer debootstrap takes the mirror that its own script names.
    command.args(mirror(place));
    if let Some(proxy) = proxy(place) {
        command.env("http_proxy", proxy);
    }
    run::step("base image: debootstrap", &mut command, DEBOOTSTRAP_MAX, &place.log("base-debootstrap"))?;
    for folder in ["var/cache/apt/archives", "var/lib/apt/lists"] {
        empty(&root.join(folder))?;
    }
    Ok(())
}

fn empty(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder)
        .and_then(|()| fs::create_dir_all(folder.join("partial")))
        .with_context(|| format!("cannot empty {}", folder.display()))
}

/// Packs `root`; the name appears only when the file is whole.
fn pack(place: &Place, root: &Path, packed: &Path) -> Result<()> {
    let partial = packed.with_extension(format!("{}.partial", std::process::id()));
    let mut tar = place.program("tar");
    tar.args(["--numeric-owner", "--one-file-system", "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*"]);
    tar.arg("-cf").arg(&partial).arg("-C").arg(root).arg(".");
    let done = run::step("base image: tar", &mut tar, IMAGE_MAX, &place.log("base-tar"));
    if done.is_err() {
        fs::remove_file(&partial).ok();
    }
    done.and_then(|()| fs::rename(&partial, packed).context("cannot keep the packed image"))
}

/// Removes a bootstrapped folder. A run that was cut short may have left mounts in it, and they come off first.
fn remove(place: &Place, root: &PathBuf) {
    for mount in ["proc", "sys", "dev"] {
        run::answer(place.program("umount").arg("--lazy").arg(root.join(mount)), QUESTION_MAX);
    }
    if let Err(error) = fs::remove_dir_all(root) {
        eprintln!("  note: {} could not be removed: {error}", root.display());
    }
}

/// The mirror this machine's apt takes the release from.
fn mirror(place: &Place) -> Option<String> {
    let mut ask = place.program("apt-get");
    ask.args(["indextargets", "--format", "$(CODENAME)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)", "Created-By: Packages"]);
    let targets = run::output(&mut ask, QUESTION_MAX).ok()?;
    select(&targets).map(str::to_string)
}

/// The first address that offers `main` of the release. The code name is known only once the lists were fetched, and
/// the release as configured may be a word such as `stable`; either will do.
fn select(targets: &str) -> Option<&str> {
    targets.lines().find_map(|line| match line.split('|').collect::<Vec<_>>()[..] {
        [code, release, "main", address] if code == RELEASE || release == RELEASE => Some(address),
        _ => None,
    })
}

/// The proxy this machine's apt goes through, which debootstrap would not know of.
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
    fn the_mirror_is_that_of_the_release_itself() {
        let security = "bookworm-security|bookworm-security|main|http://b/";
        assert_eq!(
            select(&format!("{security}\nbookworm|stable|contrib|http://c/\nbookworm|stable|main|http://a/")),
            Some("http://a/")
        );
        assert_eq!(select("|bookworm|main|http://a/"), Some("http://a/"));
        assert_eq!(select("noble|noble|main|http://a/"), None);
    }
}
