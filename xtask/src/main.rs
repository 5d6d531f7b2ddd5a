//! The repository's one tool: `cargo xtask setup · demo · devnet · test · ci · gas · slither · bench · tidy`.
//!
//! It prepares a machine, runs the parts in order and says how long each took. What a part does is the business of that
//! part: the chain and the customer's journey live in `tests`, the rules of style in `tidy`.

mod check;
mod devkit;
mod limits;
mod place;
mod report;
mod run;
mod setup;
mod tidy;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::place::Place;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Prepares, runs and checks the Agent Sandbox Blueprint.")]
struct Cli {
    /// Where images, logs and downloads are kept between runs (default: `~/.cache`).
    #[arg(long, env = "XDG_CACHE_HOME", global = true, hide_env = true)]
    cache_home: Option<PathBuf>,
    /// The cargo to call; cargo itself names the one that runs this.
    #[arg(long, env = "CARGO", default_value = "cargo", global = true, hide = true)]
    cargo: PathBuf,
    /// The folder of this crate, which cargo names. Not fixed at compile time: checkouts may share a target directory.
    #[arg(long, env = "CARGO_MANIFEST_DIR", global = true, hide = true)]
    manifest: Option<PathBuf>,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install or name what is missing; make the sandbox image. Quick when nothing is missing.
    Setup {
        /// Make the full sandbox image too, with the tools that agents and people expect.
        #[arg(long)]
        full: bool,
    },
    /// The customer's journey on a local chain holding the real Tangle core.
    Demo(Passed),
    /// The same chain and operator, kept up, with its endpoints and keys printed.
    Devnet(Passed),
    /// Measurements; without a name, all of them.
    Bench(Passed),
    /// Everything that can be tested, with the minutes each part took.
    Test {
        /// Contracts and the light crates only: what one runs between two edits.
        #[arg(long, conflicts_with = "long")]
        quick: bool,
        /// Only what takes too long for every merge: hundreds of kills, with the figures printed.
        #[arg(long)]
        long: bool,
    },
    /// What has to be green before a merge: formatting, lints, tidy, tests, contracts, Slither, dependencies.
    Ci,
    /// Runs the contracts' tests and writes what they record of gas to `contracts/snapshots`, saying what changed.
    Gas,
    /// Slither over the contracts, which `ci` runs too.
    Slither,
    /// The rules of style that a machine can check, and the figures of the whole code.
    Tidy,
}

#[derive(clap::Args)]
struct Passed {
    /// Handed on unchanged.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let place = Place::find(cli.manifest, cli.cache_home, cli.cargo);
    match place.and_then(|place| perform(&place, cli.task)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(place: &Place, task: Task) -> Result<ExitCode> {
    match task {
        Task::Setup { full } => set_up(place, full).map(|()| ExitCode::SUCCESS),
        Task::Demo(passed) => devkit::delegate(place, "demo", &passed.arguments),
        Task::Devnet(passed) => devkit::delegate(place, "devnet", &passed.arguments),
        Task::Bench(passed) => devkit::delegate(place, "bench", &passed.arguments),
        Task::Test { quick: true, .. } => check::quick(place),
        Task::Test { long: true, .. } => check::long(place),
        Task::Test { .. } => check::test(place),
        Task::Ci => check::ci(place),
        Task::Gas => check::gas(place),
        Task::Slither => check::slither(place),
        Task::Tidy => tidy::command(place),
    }
}

fn set_up(place: &Place, full: bool) -> Result<()> {
    setup::everything(place)?;
    if full { setup::full(place) } else { Ok(()) }
}
