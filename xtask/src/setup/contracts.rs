//! The contracts' artifacts, which demo, devnet, bench and the end-to-end tests deploy.

use anyhow::Result;

use crate::limits::CONTRACTS_MAX;
use crate::place::Place;
use crate::run;

/// Compiles what changed; a moment where nothing did.
pub(super) fn build(place: &Place) -> Result<()> {
    let mut forge = place.program(place.foundry("forge")?);
    run::step("contracts: forge build", forge.arg("build"), CONTRACTS_MAX, &place.log("forge"))
}
