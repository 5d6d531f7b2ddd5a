//! What `cargo xtask demo|devnet|bench` run: the same ground as the tests, shown to people.

mod all_jobs;
mod bench;
mod demo;
mod devnet;
mod steps;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The demo, the local network and the benches.
#[derive(Debug, Parser)]
#[command(name = "devkit")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A customer's journey on a local chain, each step timed.
    Demo {
        /// Instead: every job there is, done by three operators, and every reserved id refused.
        #[arg(long)]
        all_jobs: bool,
    },
    /// A local network that stays up until Ctrl-C.
    Devnet,
    /// Measures; one line of JSON per figure on standard output.
    Bench(bench::BenchArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Demo { all_jobs: false } => demo::run().await,
        Command::Demo { all_jobs: true } => all_jobs::run().await,
        Command::Devnet => devnet::run().await,
        Command::Bench(args) => bench::run(args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("✘ {error:#}");
            ExitCode::FAILURE
        }
    }
}
