//! What kind of machine this is, and Debian's package tools.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::limits::{APT_INSTALL_MAX, APT_LOCK_SECONDS_MAX, APT_UPDATE_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;

/// Whether packages can be installed here: Debian's tools, and the right to use them.
pub(super) fn can_install() -> bool {
    is_debian() && is_root()
}

/// Debian or one of its children.
pub(super) fn is_debian() -> bool {
    Path::new("/etc/debian_version").exists() && run::on_path("apt-get")
}

/// The owner of our own process entry is root.
pub(super) fn is_root() -> bool {
    Path::new("/proc/self").metadata().is_ok_and(|metadata| metadata.uid() == 0)
}

/// systemd is the first process and starts services.
pub(super) fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The command that a reader can type to install `packages`.
pub(super) fn install_command(packages: &[&str]) -> String {
    format!("apt-get update && apt-get install --no-install-recommends {}", packages.join(" "))
}

/// Those of `packages` that are not installed.
pub(super) fn missing<'a>(place: &Place, packages: &[&'a str]) -> Vec<&'a str> {
    let mut query = place.program("dpkg-query");
    query.args(["--show", "--showformat", "${Package} ${Status}\\n"]).args(packages);
    // It fails when one package is unknown, and still lists the others.
    let listed = run::answer(&mut query, QUESTION_MAX).map(|answer| answer.out).unwrap_or_default();
    let installed = installed(&listed);
    packages.iter().copied().filter(|package| !installed.contains(package)).collect()
}

/// The packages that a listing of `name status` lines holds as installed.
fn installed(listed: &str) -> Vec<&str> {
    listed.lines().filter_map(|line| line.strip_suffix(" install ok installed")).collect()
}

/// Installs `packages`; nothing is ever removed to make room for them.
pub(super) fn install(place: &Place, packages: &[&str]) -> Result<()> {
    let lock = format!("DPkg::Lock::Timeout={APT_LOCK_SECONDS_MAX}");
    let mut update = place.program("apt-get");
    update.args(["-o", &lock, "update", "--quiet"]);
    // A foreign source that is down must not stop us: whether the lists suffice shows in the next step.
    if let Err(error) = run::step("apt-get update", &mut update, APT_UPDATE_MAX, &place.log("apt-update")) {
        eprintln!("  note: {error:#}");
    }
    let mut install = place.program("apt-get");
    install
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("NEEDRESTART_SUSPEND", "1")
        .args(["-o", &lock, "install", "--yes", "--quiet", "--no-install-recommends", "--no-remove"])
        .args(packages);
    let what = format!("apt-get install {}", packages.join(" "));
    run::step(&what, &mut install, APT_INSTALL_MAX, &place.log("apt-install"))?;
    match missing(place, packages) {
        left if left.is_empty() => Ok(()),
        left => bail!("apt-get ended well, but these are not installed: {}", left.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fully_installed_packages_count() {
        let listed = "cmake install ok installed\nnpm unknown ok not-installed\nclang install ok half-configured\n";
        assert_eq!(installed(listed), ["cmake"]);
    }
}
