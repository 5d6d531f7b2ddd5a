//! npm for the full image: npm's own package, since Debian's brings four hundred others.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::limits::{NPM_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;
use crate::setup::digest;

/// The last line that runs on the Node of Debian bookworm.
pub(super) const NPM_VERSION: &str = "10.9.9";
const NPM_SHA256: &str = "c80bd097147cce32e31010b791bab8c71a26a5e10668210ec9d2e7f4c7cea2a1";

/// Lays npm where it lies in the image, below `files`.
pub(super) fn stage_npm(place: &Place, files: &Path) -> Result<()> {
    let packed = fetch(place)?;
    let (home, programs) = (files.join("usr/local/lib/node_modules/npm"), files.join("usr/local/bin"));
    for folder in [&home, &programs] {
        fs::create_dir_all(folder).with_context(|| format!("cannot write {}", folder.display()))?;
    }
    let mut unpack = place.program("tar");
    unpack.args(["--extract", "--no-same-owner", "--strip-components=1", "--file"]).arg(&packed);
    run::output(unpack.arg("--directory").arg(&home), QUESTION_MAX)?;
    for name in ["npm", "npx"] {
        let script = format!("bin/{name}-cli.js");
        fs::set_permissions(home.join(&script), Permissions::from_mode(0o755)).context("npm has no such script")?;
        symlink(format!("../lib/node_modules/npm/{script}"), programs.join(name)).context("cannot link npm")?;
    }
    Ok(())
}

/// The pinned package, fetched once into the cache.
fn fetch(place: &Place) -> Result<PathBuf> {
    let name = format!("npm-{NPM_VERSION}.tgz");
    let packed = place.cached(&name);
    if !packed.is_file() {
        let folder = place.cached(&format!("npm.{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot write {}", folder.display()))?;
        let mut npm = place.program("npm");
        npm.args(["pack", &format!("npm@{NPM_VERSION}"), "--pack-destination"]).arg(&folder);
        let fetched = run::step("full image: npm pack", &mut npm, NPM_MAX, &place.log("npm-pack"))
            .and_then(|()| fs::rename(folder.join(&name), &packed).context("npm pack left no package"));
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        fetched?;
    }
    match digest::of_file(&packed)? {
        found if found == NPM_SHA256 => Ok(packed),
        found => bail!("{} has SHA-256 {found}, not {NPM_SHA256}: delete it", packed.display()),
    }
}
