//! The operator node: answers the jobs of its services from hardened Docker sandboxes.
//!
//! `operator run` is the process's life: configuration before any port, then the state directory, the key, the chain, the
//! engine; then it serves until told to end, and leaves nothing undone that the next start would not resume.

mod admin;
mod api;
mod app;
#[cfg(test)]
mod bench;
mod chain;
mod commands;
mod config;
mod debates;
mod docker;
mod failpoint;
mod gauges;
mod intake;
mod jobs;
mod limits;
mod metrics;
mod operations;
mod outside;
#[cfg(test)]
mod packaging;
mod places;
mod records;
mod sidecars;
mod ssh;
mod stories;
mod workflows;

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sandbox_process::source::{ConfigError, Environment, Overrides};
use sandbox_process::{logging, signals};

use crate::commands::Output;
use crate::config::Config;
use crate::failpoint::Failpoint;

/// Rents out AI-agent sandboxes on the Tangle network.
#[derive(Debug, Parser)]
#[command(name = "operator", version)]
struct Cli {
    /// Sets a value that otherwise comes from the environment, such as DATA_DIR=/var/lib/operator. Repeatable.
    #[arg(long = "set", value_name = "NAME=VALUE", global = true)]
    set: Vec<String>,
    /// Prints results as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves until SIGTERM or SIGINT.
    Run(RunArgs),
    /// Prints the OpenAPI document of the API.
    Openapi,
    #[command(flatten)]
    Once(commands::Command),
}

/// What the Blueprint Manager passes to every blueprint. The environment carries the rest.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Runs without the Blueprint Manager, also where its socket is set.
    #[arg(long)]
    test_mode: bool,
    /// Logs for people.
    #[arg(long)]
    pretty: bool,
    /// Logs more; twice for everything.
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
}

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("operator: {}", error_chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<ExitCode, Box<dyn Error>> {
    let cli = Cli::parse();
    let mut given: HashMap<_, _> = cli.set.iter().map(|pair| assignment(pair)).collect::<Result<_, _>>()?;
    if let Command::Run(args) = &cli.command {
        given.extend(args.settings());
    }
    let source = Overrides::new(given, Environment);
    let log = config::read_log(&source)?;
    logging::start(log.format, &log.filter);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match cli.command {
            Command::Run(_) => {
                let config = Config { failpoint: Failpoint::read(&source)?, ..Config::read(&source)? };
                app::run(config, signals::shutdown()?).await?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Openapi => {
                print!("{}", api::openapi()?);
                Ok(ExitCode::SUCCESS)
            }
            Command::Once(command) => Ok(commands::perform(command, &source, &Output::new(cli.json)).await?),
        }
    })
}

fn assignment(pair: &str) -> Result<(String, String), ConfigError> {
    let (name, value) = pair.split_once('=').ok_or_else(|| ConfigError::invalid("--set", pair, "give NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

impl RunArgs {
    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        if self.test_mode {
            settings.push(("TEST_MODE".into(), "true".into()));
        }
        if self.pretty {
            settings.push(("LOG_FORMAT".into(), "text".into()));
        }
        match self.verbose {
            0 => {}
            1 => settings.push(("RUST_LOG".into(), "debug,hyper=info,sled=info".into())),
            _ => settings.push(("RUST_LOG".into(), "trace".into())),
        }
        settings
    }
}

/// An error with its causes, outermost first.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    let mut words: Vec<String> = causes.map(ToString::to_string).collect();
    words.dedup();
    words.join(": ")
}
