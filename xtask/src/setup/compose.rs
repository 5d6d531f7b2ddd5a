//! Docker Compose, with which the operator's packaging is tested: a plugin of the engine's client, or Debian's program.

use anyhow::{Result, bail};

use crate::limits::QUESTION_MAX;
use crate::place::Place;
use crate::run;
use crate::setup::system;

const PACKAGE: &str = "docker-compose";

/// Leaves with one of the two.
pub(super) fn install(place: &Place) -> Result<()> {
    let plugin = run::succeeds(place.program("docker").args(["compose", "version"]), QUESTION_MAX);
    if plugin || run::on_path(PACKAGE) {
        return Ok(());
    }
    if !system::can_install() {
        bail!("not installed; on Debian: {}", system::install_command(&[PACKAGE]));
    }
    system::install(place, &[PACKAGE])
}
