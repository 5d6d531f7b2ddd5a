//! Slither, which only `ci` needs: installed once into the cache, apart from the machine's own Python packages.
//!
//! Nothing is compiled for it, and every package is of the version that the constraints name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::limits::{PYTHON_ENVIRONMENT_MAX, QUESTION_MAX, SLITHER_INSTALL_MAX};
use crate::place::Place;
use crate::run;
use crate::setup::{digest, system};

const CONSTRAINTS: &str = "build/slither/constraints.txt";
/// Debian's package of what makes an environment; its Python comes with it.
const PACKAGE: &str = "python3-venv";

/// The program, installed where it is not there yet or no longer starts.
pub(super) fn install(place: &Place) -> Result<PathBuf> {
    let constraints =
        fs::read_to_string(place.at(CONSTRAINTS)).with_context(|| format!("cannot read {CONSTRAINTS}"))?;
    let folder = place.cached(&format!("tools/slither-{}", digest::tag(&[&constraints])));
    let program = folder.join("bin/slither");
    if starts(place, &program) {
        return Ok(program);
    }
    python(place)?;
    let mut environment = place.program("python3");
    environment.args(["-m", "venv", "--clear"]).arg(&folder);
    run::step("slither: python3 -m venv", &mut environment, PYTHON_ENVIRONMENT_MAX, &place.log("slither-venv"))?;
    let mut pip = place.program(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:"]);
    pip.args(["--constraint", CONSTRAINTS, "slither-analyzer"]);
    run::step("slither: pip install", &mut pip, SLITHER_INSTALL_MAX, &place.log("slither-pip"))?;
    if !starts(place, &program) {
        bail!("pip ended well, but {} does not start", program.display());
    }
    Ok(program)
}

fn starts(place: &Place, program: &Path) -> bool {
    program.is_file() && run::succeeds(place.program(program).arg("--version"), QUESTION_MAX)
}

/// A Python that can make environments.
fn python(place: &Place) -> Result<()> {
    let able = || run::succeeds(place.program("python3").args(["-c", "import ensurepip, venv"]), QUESTION_MAX);
    if able() {
        return Ok(());
    }
    if !system::can_install() {
        bail!("no python3 with venv and ensurepip; on Debian: {}", system::install_command(&[PACKAGE]));
    }
    system::install(place, &[PACKAGE])?;
    if !able() {
        bail!("{PACKAGE} is installed, but the python3 that comes first on the path has no venv or ensurepip");
    }
    Ok(())
}
