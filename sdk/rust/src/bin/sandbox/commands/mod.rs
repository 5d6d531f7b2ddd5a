//! One function per command: build the request, let the library do it, print.

mod call;
mod deploy;
mod holdings;
mod market;
mod quotes;
mod sandboxes;
mod service;
mod sessions;

use std::process::ExitCode;

pub(crate) use deploy::DeployArgs;

use crate::args::{CallCommand, Command, ServiceCommand};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

pub(crate) async fn run(command: Command, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        Command::Service(ServiceCommand::Request(args)) => service::request(args, settings, output).await,
        Command::Service(ServiceCommand::Show { id }) => service::show(id, settings, output).await,
        Command::Create(args) => sandboxes::create(args, settings, output).await,
        Command::Exec(args) => sandboxes::exec(args, settings, output).await,
        Command::Stop(args) => sandboxes::stop(args, settings, output).await,
        Command::Resume(args) => sandboxes::resume(args, settings, output).await,
        Command::Snapshot(args) => sandboxes::snapshot(args, settings, output).await,
        Command::Restore(args) => sandboxes::restore(args, settings, output).await,
        Command::Rm(args) => sandboxes::remove(args, settings, output).await,
        Command::Login(args) => sessions::login(args, settings, output).await,
        Command::Ls(args) => holdings::list(args, settings, output).await,
        Command::Show { id } => holdings::show(id, settings, output).await,
        Command::Events(args) => holdings::events(args, settings, output).await,
        Command::Operators => market::operators(settings, output).await,
        Command::Claim => market::claim(settings, output).await,
        Command::Price(args) => quotes::price(&args, settings, output).await,
        Command::Quote(args) => quotes::quote(*args, settings, output).await,
        Command::Call(CallCommand::Show { key, wait, answer }) => {
            let within = wait.then_some(answer.within);
            call::show(key, within, answer.save.as_deref(), (settings, output)).await
        }
        Command::Deploy(args) => deploy::run(*args, settings, output).await,
        Command::Verify(args) => call::verify(args, settings, output).await,
    }
}
