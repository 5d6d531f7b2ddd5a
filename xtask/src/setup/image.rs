//! The images that sandboxes run: a base, the tools of a variant, and the sidecar as one static file in it.
//!
//! An image's tag follows from everything that went in, so a second set-up finds it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::limits::{IMAGE_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;
use crate::setup::base::{self, Base};
use crate::setup::sbom::{self, Contents};
use crate::setup::sidecar::{self, BINARIES, BINARY};
use crate::setup::variant::Variant;
use crate::setup::{digest, node, npm};

const DOCKERFILE: &str = "docker/sidecar.Dockerfile";
const REPOSITORY: &str = "agent-sandbox-sidecar";
/// The bill of materials inside.
const BILL: &str = "/usr/share/agent-sandbox/sbom.json";
const DPKG_FORMAT: &str = "${Package}|${Version}|${Architecture}\\n";

/// Leaves with the variant's name standing for an image made from the sources as they are.
pub(super) fn make(place: &Place, variant: Variant) -> Result<()> {
    let binaries = sidecar::build(place)?;
    let base = base::make(place, variant)?;
    let base_id = base::id(place, base.image).with_context(|| format!("{} has gone", base.image))?;
    let build = Build { place, variant, base, binary_digest: digest::of_file(&binaries.join(BINARY))? };
    build.stage(&binaries)?;
    let staged = digest::of_folder(&build.context())?;
    let image = format!("{REPOSITORY}:{}", digest::tag(&[variant.name(), &base_id, &staged]));
    if base::id(place, &image).is_none() {
        build.build(&image)?;
    }
    build.keep_bill(&image)?;
    run::output(place.program("docker").args(["tag", &image, variant.image()]), QUESTION_MAX)?;
    eprintln!("  {} is {}", variant.image(), base::id(place, &image).context("the image has gone")?);
    Ok(())
}

/// What one build goes by.
struct Build<'a> {
    place: &'a Place,
    variant: Variant,
    base: Base,
    binary_digest: String,
}

impl Build<'_> {
    /// The folder that the image is built from. It stays, so that one can build from it on another base.
    fn context(&self) -> PathBuf {
        self.place.cached(&format!("image-{}", self.variant.name()))
    }

    /// Fills the folder with everything but the bill of materials, which needs the image to be half made.
    fn stage(&self, binaries: &Path) -> Result<()> {
        let context = self.context();
        if context.exists() {
            fs::remove_dir_all(&context).with_context(|| format!("cannot empty {}", context.display()))?;
        }
        fs::create_dir_all(context.join("files")).with_context(|| format!("cannot write {}", context.display()))?;
        for name in BINARIES {
            fs::copy(binaries.join(name), context.join(name)).with_context(|| format!("cannot stage {name}"))?;
        }
        for (from, to) in [(DOCKERFILE, "Dockerfile"), (&self.variant.packages_file(), "packages")] {
            fs::copy(self.place.at(from), context.join(to)).with_context(|| format!("cannot stage {from}"))?;
        }
        match self.variant {
            Variant::Slim => Ok(()),
            Variant::Full => self.stage_tools(&context.join("files")),
        }
    }

    /// What the full variant has that is no Debian package.
    fn stage_tools(&self, files: &Path) -> Result<()> {
        node::stage_npm(self.place, files)?;
        if let Some((program, _)) = npm::opencode(self.place)? {
            let staged = files.join("usr/local/bin/opencode");
            fs::copy(&program, &staged).with_context(|| format!("cannot stage {}", program.display()))?;
            fs::set_permissions(&staged, Permissions::from_mode(0o755)).context("cannot stage opencode")?;
        }
        let own = self.place.at(&format!("docker/{}/files/.", self.variant.name()));
        run::output(self.place.program("cp").arg("--recursive").arg(own).arg(files), QUESTION_MAX)?;
        Ok(())
    }

    /// Builds as far as the tools, asks what is in there, and builds the rest with the answer in it.
    fn build(&self, image: &str) -> Result<()> {
        let is_full = self.variant == Variant::Full;
        let opencode = if is_full { npm::opencode(self.place)?.map(|(_, version)| version) } else { None };
        let tools = format!("{image}-tools");
        self.docker(&tools, &["--target", "tools"])?;
        let bill = sbom::document(&Contents {
            image: self.variant.image(),
            version: env!("CARGO_PKG_VERSION"),
            sidecar_sha256: &self.binary_digest,
            debian: &self.debian(&tools)?,
            crates: &sidecar::crates(self.place)?,
            npm: is_full.then_some(node::NPM_VERSION),
            opencode: opencode.as_deref(),
        })?;
        write(&self.context().join("sbom.json"), &bill)?;
        self.docker(image, &[])?;
        // The finished image holds its layers.
        run::output(self.place.program("docker").args(["rmi", "--no-prune", &tools]), QUESTION_MAX).map(|_| ())
    }

    /// Takes the bill out of the finished image: to where logs are, and to the folder that one can build from.
    fn keep_bill(&self, image: &str) -> Result<()> {
        let mut ask = self.place.program("docker");
        ask.args(["run", "--rm", "--network", "none", "--entrypoint", "cat", image, BILL]);
        let bill = run::output(&mut ask, QUESTION_MAX)?;
        let kept = self.place.cached(&format!("logs/sbom-{}.json", self.variant.name()));
        [self.context().join("sbom.json"), kept].iter().try_for_each(|path| write(path, &bill))
    }

    fn docker(&self, tag: &str, more: &[&str]) -> Result<()> {
        let mut docker = self.place.program("docker");
        docker
            // A builder of one's own would not see the local base image.
            .env("BUILDX_BUILDER", "default")
            .args(["build", "--network", self.base.network()])
            .args(["--build-arg", &format!("BASE={}", self.base.image)])
            // The Dockerfile checks the file against it, and labels the image with it.
            .args(["--build-arg", &format!("SIDECAR_SHA256={}", self.binary_digest)])
            .args(["--build-arg", &format!("SIDECAR_VERSION={}", env!("CARGO_PKG_VERSION"))])
            .args(["--build-arg", &format!("VARIANT={}", self.variant.name()), "--tag", tag])
            .args(more)
            .arg(self.context());
        let what = format!("{} image: docker build", self.variant.name());
        run::step(&what, &mut docker, IMAGE_MAX, &self.place.log(&format!("image-{}", self.variant.name())))
    }

    /// The Debian packages of an image.
    fn debian(&self, image: &str) -> Result<String> {
        let mut ask = self.place.program("docker");
        ask.args(["run", "--rm", "--network", "none", "--entrypoint", "dpkg-query", image]);
        run::output(ask.args(["--show", "--showformat", DPKG_FORMAT]), QUESTION_MAX)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
