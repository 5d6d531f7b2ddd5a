//! Makes a machine ready: installs what is missing, or names it all in one message.
//!
//! Every step asks first and does nothing when there is nothing to do, so this stands in front of every other task. One
//! set-up runs at a time on a machine, whatever the number of checkouts. What it knows nothing of: the chain, the tests,
//! the operator.

mod base;
mod contracts;
mod digest;
mod engine;
mod image;
mod native;
mod node;
mod npm;
mod packages;
mod packaging;
mod runsc;
mod sbom;
mod sidecar;
mod slither;
mod system;
mod variant;

use std::fs::{File, TryLockError};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::limits::SETUP_LOCK_MAX;
use crate::place::Place;
use crate::run;
use crate::setup::variant::Variant;

/// All that building, testing and running need.
pub(crate) fn everything(place: &Place) -> Result<()> {
    let _one_at_a_time = lock(place)?;
    packages::install(place).context("native packages")?;
    native::write(place).context("native libraries")?;
    npm::install(place).context("npm tools")?;
    engine::start(place).context("Docker engine")?;
    image::make(place, Variant::Slim).context("sandbox image")?;
    contracts::build(place).context("contracts")
}

/// What the tests of images, packaging and runtimes need besides: the full image, Compose, systemd, gVisor. After [`everything`].
pub(crate) fn full(place: &Place) -> Result<()> {
    let _one_at_a_time = lock(place)?;
    packaging::install(place).context("Compose and systemd")?;
    runsc::register(place).context("runtime runsc")?;
    image::make(place, Variant::Full).context("full sandbox image")
}

/// What compiling and unit tests need: no engine, no images.
pub(crate) fn tools(place: &Place) -> Result<()> {
    let _one_at_a_time = lock(place)?;
    packages::install(place).context("native packages")?;
    native::write(place).context("native libraries")?;
    npm::install(place).context("npm tools")
}

/// Slither's program. Apart from the rest, because one check alone needs it and can say that it is missing.
pub(crate) fn slither(place: &Place) -> Result<PathBuf> {
    let _one_at_a_time = lock(place)?;
    slither::install(place)
}

fn lock(place: &Place) -> Result<File> {
    let path = place.cached("setup.lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    if free(&file)? {
        return Ok(file);
    }
    let mut outcome = Ok(true);
    let got = run::until("another set-up is running on this machine", SETUP_LOCK_MAX, || {
        outcome = free(&file);
        !matches!(outcome, Ok(false))
    });
    outcome?;
    if !got {
        bail!("another set-up still holds {}", path.display());
    }
    Ok(file)
}

fn free(file: &File) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}
