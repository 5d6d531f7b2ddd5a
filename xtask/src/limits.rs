//! The longest that anything here is waited for, and the largest that a contract may be.
//!
//! The times are generous: they end what hangs, they do not judge what is slow.

use std::time::Duration;

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// A question to a local program.
pub(crate) const QUESTION_MAX: Duration = Duration::from_secs(20);
/// `cargo metadata`, which may have to fetch the index.
pub(crate) const METADATA_MAX: Duration = minutes(5);
/// Another set-up on this machine.
pub(crate) const SETUP_LOCK_MAX: Duration = minutes(40);
/// Another user of the package database, in apt's own unit.
pub(crate) const APT_LOCK_SECONDS_MAX: u64 = 300;
/// `apt-get update`.
pub(crate) const APT_UPDATE_MAX: Duration = minutes(6);
/// `apt-get install`.
pub(crate) const APT_INSTALL_MAX: Duration = minutes(20);
/// Compiling the contracts and their tests, for which solc in JavaScript takes some minutes on a busy machine.
pub(crate) const CONTRACTS_MAX: Duration = minutes(20);
/// `npm ci`.
pub(crate) const NPM_MAX: Duration = minutes(10);
/// A Docker engine from its start to its first answer.
pub(crate) const ENGINE_START_MAX: Duration = minutes(1);
/// Pulling an image. Short, because where a registry can be reached it answers at once.
pub(crate) const PULL_MAX: Duration = minutes(2);
/// `mmdebstrap`, which fetches and unpacks some two hundred packages for the full image.
pub(crate) const BOOTSTRAP_MAX: Duration = minutes(15);
/// Packing, importing or building an image from local files.
pub(crate) const IMAGE_MAX: Duration = minutes(10);
/// Compiling; includes the wait for another cargo.
pub(crate) const BUILD_MAX: Duration = minutes(60);
/// One part of the tests: a test that hangs must leave time for the parts after it.
pub(crate) const PART_MAX: Duration = minutes(30);
/// The tests that are kept out of every other part because they take long.
pub(crate) const LONG_PART_MAX: Duration = minutes(90);
/// The rest of a program's output, once the program has ended.
pub(crate) const PIPE_MAX: Duration = Duration::from_secs(3);
/// Compiling a tool that no package of this machine provides.
pub(crate) const TOOL_BUILD_MAX: Duration = minutes(20);
/// Fetching the database of known vulnerabilities.
pub(crate) const ADVISORIES_MAX: Duration = minutes(2);
/// Making an empty Python environment.
pub(crate) const PYTHON_ENVIRONMENT_MAX: Duration = minutes(2);
/// Installing Slither: some forty small packages.
pub(crate) const SLITHER_INSTALL_MAX: Duration = minutes(5);
/// Slither over all contracts, which takes seconds.
pub(crate) const SLITHER_MAX: Duration = minutes(5);

/// Code that a chain takes for a contract, in bytes (EIP-170).
pub(crate) const RUNTIME_BYTES_MAX: usize = 24_576;
/// Code with arguments that a chain runs to make a contract, in bytes (EIP-3860).
pub(crate) const INITCODE_BYTES_MAX: usize = 49_152;
