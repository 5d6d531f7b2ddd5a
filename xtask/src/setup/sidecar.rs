//! The image a sandbox runs: the base, and the sidecar as one static file in it.
//!
//! Its tag follows from what went in (binary, Dockerfile, base image), so a second set-up finds it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::limits::{BUILD_MAX, IMAGE_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;
use crate::setup::{base, digest};

const BINARY: &str = "sandbox-sidecar";
const DOCKERFILE: &str = "docker/sidecar.Dockerfile";
const REPOSITORY: &str = "agent-sandbox-sidecar";

/// Leaves with `agent-sandbox-sidecar:dev` naming an image made from the sources as they are.
pub(crate) fn make(place: &Place) -> Result<()> {
    let binary = build(place)?;
    let binary_digest = digest::of_file(&binary)?;
    let dockerfile = fs::read_to_string(place.at(DOCKERFILE)).with_context(|| format!("cannot read {DOCKERFILE}"))?;
    let base = base::id(place, base::IMAGE).with_context(|| format!("{} has gone", base::IMAGE))?;
    let image = format!("{REPOSITORY}:{}", digest::tag(&[&binary_digest, &dockerfile, &base]));
    if base::id(place, &image).is_none() {
        image_from(place, &binary, &binary_digest, &image)?;
    }
    let latest = format!("{REPOSITORY}:dev");
    run::output(place.program("docker").args(["tag", &image, &latest]), QUESTION_MAX).map(|_| ())
}

/// Compiles the sidecar so that it runs in any image, whatever libraries that has.
fn build(place: &Place) -> Result<PathBuf> {
    let triple = host(place)?;
    let mut cargo =
        place.cargo(&["build", "--profile", "sidecar", "--target", &triple, "--package", BINARY, "--bin", BINARY]);
    // By target, because procedural macros cannot be static; and the general variable would win over this one.
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", triple.to_uppercase().replace('-', "_"));
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env(flags, "-C target-feature=+crt-static");
    run::step("sidecar: cargo build", &mut cargo, BUILD_MAX, &place.log("sidecar-build"))?;
    Ok(place.workspace()?.target_directory.join(triple).join("sidecar").join(BINARY))
}

fn host(place: &Place) -> Result<String> {
    let version = run::output(place.program("rustc").arg("-vV"), QUESTION_MAX)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_string())
}

/// Builds from a folder that holds the two files and nothing else, without any network.
fn image_from(place: &Place, binary: &Path, binary_digest: &str, image: &str) -> Result<()> {
    let context = place.cached(&format!("sidecar-image.{}", std::process::id()));
    fs::create_dir_all(&context).with_context(|| format!("cannot write {}", context.display()))?;
    fs::copy(binary, context.join(BINARY)).context("cannot stage the sidecar")?;
    fs::copy(place.at(DOCKERFILE), context.join("Dockerfile")).context("cannot stage the Dockerfile")?;
    let mut docker = place.program("docker");
    docker
        // A builder of one's own would not see the local base image.
        .env("BUILDX_BUILDER", "default")
        .args(["build", "--network", "none", "--build-arg", &format!("BASE={}", base::IMAGE)])
        // The Dockerfile checks the file against it, and labels the image with it.
        .args(["--build-arg", &format!("SIDECAR_SHA256={binary_digest}")])
        .args(["--build-arg", &format!("SIDECAR_VERSION={}", env!("CARGO_PKG_VERSION")), "--tag", image])
        .arg(&context);
    let built = run::step("sidecar image: docker build", &mut docker, IMAGE_MAX, &place.log("sidecar-image"));
    fs::remove_dir_all(&context).with_context(|| format!("cannot remove {}", context.display()))?;
    built
}
