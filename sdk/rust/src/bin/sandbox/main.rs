//! `sandbox`: rent a service, create sandboxes, run commands in them, prove the answers.
//!
//! Only words stand here: options, settings, printing, exit codes. What is done is done by the library.

mod args;
mod commands;
mod failure;
mod output;
mod settings;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::output::Output;
use crate::settings::Settings;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let output = Output::new(args.global.json);
    match run(args, &output).await {
        Ok(code) => code,
        Err(failure) => output.failure(&failure),
    }
}

async fn run(args: Args, output: &Output) -> Result<ExitCode, failure::Failure> {
    let settings = Settings::new(&args.global);
    sandbox_process::logging::start(sandbox_process::logging::Format::Text, &settings.log_filter());
    commands::run(args.command, &settings, output).await
}
