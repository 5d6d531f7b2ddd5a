//! Where things are: the checkout, the cache, cargo and its target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::limits::METADATA_MAX;
use crate::run;

/// What cargo sets for the program it runs. Handed on, it would look to build scripts like a changed environment.
const SET_BY_CARGO_RUN: [&str; 18] = [
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_AUTHORS",
    "CARGO_PKG_DESCRIPTION",
    "CARGO_PKG_HOMEPAGE",
    "CARGO_PKG_LICENSE",
    "CARGO_PKG_LICENSE_FILE",
    "CARGO_PKG_NAME",
    "CARGO_PKG_README",
    "CARGO_PKG_REPOSITORY",
    "CARGO_PKG_RUST_VERSION",
    "CARGO_PKG_VERSION",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// The directories and programs that every task needs.
pub(crate) struct Place {
    root: PathBuf,
    cache: PathBuf,
    cargo: PathBuf,
}

impl Place {
    /// The checkout around the crate at `manifest`, and the cache below `cache_home` (default `~/.cache`).
    pub(crate) fn find(manifest: Option<PathBuf>, cache_home: Option<PathBuf>, cargo: PathBuf) -> Result<Place> {
        let root = manifest.as_deref().and_then(Path::parent).context("start this as `cargo xtask`")?.to_path_buf();
        let home = cache_home.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
        let cache = home.context("neither XDG_CACHE_HOME nor a home directory is known")?.join("agent-sandbox");
        fs::create_dir_all(cache.join("logs")).with_context(|| format!("cannot create {}", cache.display()))?;
        Ok(Place { root, cache, cargo })
    }

    /// A path inside the checkout.
    pub(crate) fn at(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// A path inside the cache, which survives between runs and is shared by all checkouts.
    pub(crate) fn cached(&self, relative: &str) -> PathBuf {
        self.cache.join(relative)
    }

    /// Where the output of the step `name` is kept.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.cache.join("logs").join(format!("{name}.log"))
    }

    /// A program started in the checkout, without standard input.
    pub(crate) fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// Cargo with these arguments, in the environment a shell would give it.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(&self.cargo);
        command.args(arguments);
        SET_BY_CARGO_RUN.iter().for_each(|name| {
            command.env_remove(name);
        });
        command
    }

    /// The native file of one of the pinned Foundry tools. (`.bin/` holds node wrappers, slower and hard to stop.)
    pub(crate) fn foundry(&self, tool: &str) -> Result<PathBuf> {
        let system = match std::env::consts::OS {
            "linux" => "linux",
            "macos" => "darwin",
            other => bail!("the Foundry tools are not pinned for {other}"),
        };
        let machine = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => bail!("the Foundry tools are not pinned for {other}"),
        };
        Ok(self.at(&format!("node_modules/@foundry-rs/{tool}-{system}-{machine}/bin/{tool}")))
    }

    /// What cargo says about this workspace: its members and where builds go.
    pub(crate) fn workspace(&self) -> Result<Workspace> {
        let text = run::output(&mut self.cargo(&["metadata", "--no-deps", "--format-version", "1"]), METADATA_MAX)?;
        serde_json::from_str(&text).context("cargo metadata is not what this program expects")
    }
}

/// The part of `cargo metadata` that tasks here read.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    /// Members only, because dependencies are not asked for.
    pub packages: Vec<Package>,
    /// Where cargo puts what it builds.
    pub target_directory: PathBuf,
}

/// A member of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub name: String,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
}

/// A dependency as a member's manifest names it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub name: String,
}

/// Something cargo can build from a member.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub name: String,
    pub kind: Vec<String>,
}
