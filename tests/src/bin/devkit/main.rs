//! What `cargo xtask demo|devnet|bench` run: the same ground as the tests, shown to people.

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
    Demo,
    /// A local network that stays up until Ctrl-C.
    Devnet,
    /// Measures; one line of JSON per figure on standard output.
    Bench(bench::BenchArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Demo => demo::run().await,
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
