//! One function per command: build the request, let the library do it, print.

mod agents;
mod batch;
mod call;
mod deploy;
mod executions;
mod files;
mod holdings;
mod market;
mod negotiate;
mod ports;
mod quotes;
mod sandboxes;
mod service;
mod sessions;
mod shell;
mod ssh;
mod streams;
mod workflows;

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
        Command::Run(args) => sandboxes::run(args, settings, output).await,
        Command::Exec(args) => executions::exec(args, settings, output).await,
        Command::Logs { id, execution } => executions::logs((id, &execution), settings, output).await,
        Command::Batch(command) => batch::run(command, settings, output).await,
        Command::Prompt(args) => agents::prompt(*args, settings, output).await,
        Command::Task(args) => agents::task(*args, settings, output).await,
        Command::Negotiate(args) => negotiate::negotiate(*args, settings, output).await,
        Command::Runs(args) => agents::runs(args, settings, output).await,
        Command::Sessions(args) => agents::sessions(args, settings, output).await,
        Command::Ps { id } => executions::list(id, settings, output).await,
        Command::Kill(args) => executions::kill(args, settings, output).await,
        Command::Files(command) => files::run(command, settings, output).await,
        Command::Port(args) => ports::forward(args, settings, output).await,
        Command::Shell(args) => shell::shell(args, settings, output).await,
        Command::Ssh(args) => ssh::ssh(args, settings, output).await,
        Command::Cp(args) => ssh::cp(args, settings, output).await,
        Command::SshConfig(args) => ssh::config(args, settings, output).await,
        Command::SshKey(command) => ssh::key(command, settings, output).await,
        Command::Stop(args) => sandboxes::stop(args, settings, output).await,
        Command::Resume(args) => sandboxes::resume(args, settings, output).await,
        Command::Snapshot(args) => sandboxes::snapshot(args, settings, output).await,
        Command::Restore(args) => sandboxes::restore(args, settings, output).await,
        Command::Rm(args) => sandboxes::remove(args, settings, output).await,
        Command::Workflow(command) => workflows::run(command, settings, output).await,
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
