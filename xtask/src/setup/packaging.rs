//! What the operator's packaging is tested with: Docker Compose, as a plugin of the engine's client or as Debian's
//! program, and systemd's judge of units.

use anyhow::{Result, bail};

use crate::limits::QUESTION_MAX;
use crate::place::Place;
use crate::run;
use crate::setup::system;

const COMPOSE: &str = "docker-compose";

/// Installs what is missing of them.
pub(super) fn install(place: &Place) -> Result<()> {
    let mut missing = Vec::new();
    let plugin = run::succeeds(place.program("docker").args(["compose", "version"]), QUESTION_MAX);
    if !plugin && !run::on_path(COMPOSE) {
        missing.push(COMPOSE);
    }
    if !run::on_path("systemd-analyze") {
        missing.push("systemd");
    }
    if missing.is_empty() {
        return Ok(());
    }
    if !system::can_install() {
        bail!("not installed: {}; on Debian: {}", missing.join(", "), system::install_command(&missing));
    }
    system::install(place, &missing)
}
