//! What an operator types. Each command says one line to people, or the same as JSON; a refusal is a sentence.

mod backup;
mod chain;
mod doctor;
mod keys;
mod output;
mod services;
mod ssh;
mod state;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use sandbox_gateway::hostkeys::HostKeyError;
use sandbox_process::source::{ConfigError, Source};
use sandbox_sdk::chain::{ReadError, SendError};

use crate::admin::AdminError;
use crate::app::{self, NodeError};
use crate::chain::connect::FindError;
use crate::chain::key::KeyError;
use crate::chain::sender::Stopped;
use crate::config::Config;
use crate::docker::DockerError;
use crate::records::RecordsError;

use backup::BackupError;
pub(crate) use output::Output;

/// Every command but `run`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Registers the account with its offer, or publishes a changed one.
    Register,
    /// Publishes the offer as it is set now. The account must be registered.
    Update,
    /// Lists the service requests that wait for this operator.
    Requests,
    /// Approves a service request.
    Approve {
        /// Its id.
        request: u64,
    },
    /// Rejects a service request, which ends it for every operator.
    Reject {
        /// Its id.
        request: u64,
    },
    /// Leaves a service: schedules the exit, and ends it once its time has come.
    Leave {
        /// The service's id.
        service: u64,
    },
    /// Claims what the operator has earned.
    Claim,
    /// Checks everything that a node needs, and says what to do.
    Doctor,
    /// Lists the sandboxes that are held.
    Sandboxes,
    /// Lists calls, the latest first.
    Calls {
        /// Only those that are not at their end.
        #[arg(long)]
        open: bool,
    },
    /// Takes nothing new: creates are answered with no_capacity, and customers see the operator as paused.
    Drain(state::DrainArgs),
    /// Compares the engine's containers of this node with the records; a running node looks after those that it knows.
    Adopt,
    /// Writes a consistent copy of the records into a new directory, also while the node runs. The key is not in it.
    Backup {
        /// The directory, which must not exist.
        directory: PathBuf,
    },
    /// Makes an empty DATA_DIR from a backup.
    Restore {
        /// The backup's directory.
        directory: PathBuf,
    },
    /// Works on the operator's key.
    #[command(subcommand)]
    Key(keys::KeyCommand),
    /// Works on the keys by which customers know the SSH gateway.
    #[command(subcommand)]
    SshKeys(ssh::SshKeysCommand),
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node's own start.
    #[error(transparent)]
    Node(Box<NodeError>),
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The blueprint.
    #[error(transparent)]
    Find(Box<FindError>),
    /// A question to the chain.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A transaction.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The process is ending.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The running node.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The records.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The engine.
    #[error(transparent)]
    Docker(#[from] DockerError),
    /// A backup.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The SSH gateway's host keys.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The counters, without which no chain is asked.
    #[error("cannot set up metrics")]
    Metrics(#[from] prometheus::Error),
    /// What was to be printed.
    #[error("cannot print the result")]
    Print(#[source] serde_json::Error),
    /// Only a registered operator can do this.
    #[error("the account {0} is not an operator of this blueprint; `operator register` makes it one")]
    Unregistered(alloy::primitives::Address),
    /// There is no such service here.
    #[error("the account serves no service {0}")]
    NotServed(u64),
}

impl From<NodeError> for CommandError {
    fn from(error: NodeError) -> Self {
        Self::Node(Box::new(error))
    }
}

impl From<FindError> for CommandError {
    fn from(error: FindError) -> Self {
        Self::Find(Box::new(error))
    }
}

/// Carries a command out.
pub(crate) async fn perform(command: Command, source: &impl Source, output: &Output) -> Result<ExitCode, CommandError> {
    match command {
        Command::Register => {
            let mined = app::register(&Config::read(source)?).await?;
            chain::say_published(mined, output)?;
        }
        Command::Update => chain::update(source, output).await?,
        Command::Requests => services::requests(source, output).await?,
        Command::Approve { request } => services::approve(source, request, output).await?,
        Command::Reject { request } => services::reject(source, request, output).await?,
        Command::Leave { service } => services::leave(source, service, output).await?,
        Command::Claim => chain::claim(source, output).await?,
        Command::Doctor => return doctor::doctor(source, output).await,
        Command::Sandboxes => state::sandboxes(source, output).await?,
        Command::Calls { open } => state::calls(source, open, output).await?,
        Command::Drain(args) => state::drain(source, args, output).await?,
        Command::Adopt => state::adopt(source, output).await?,
        Command::Backup { directory } => backup::backup(source, &directory, output).await?,
        Command::Restore { directory } => backup::restore(source, &directory, output)?,
        Command::Key(command) => keys::work(command, source, output)?,
        Command::SshKeys(command) => ssh::work(command, source, output)?,
    }
    Ok(ExitCode::SUCCESS)
}
