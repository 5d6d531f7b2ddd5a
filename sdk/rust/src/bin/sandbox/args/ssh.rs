//! Commands that come into a sandbox with the SSH programs of this machine.

use std::path::PathBuf;

use clap::Subcommand;
use sandbox_protocol::SandboxId;

use super::words::sandbox;

/// By which key one comes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct IdentityArgs {
    /// Key to come with, private or public half; default: the agent's first, ~/.ssh/id_ed25519, or one that is made and kept
    #[arg(long, short, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Blocks for which the key opens the sandbox, counted anew; default: as it is on record, or as long as the sandbox
    #[arg(long, value_name = "BLOCKS")]
    pub(crate) ttl_blocks: Option<u64>,
    /// Admit the key by a job: paid on chain, and the host's keys proven by its receipt
    #[arg(long)]
    pub(crate) job: bool,
    /// Start the sandbox if it is stopped
    #[arg(long)]
    pub(crate) resume: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SshArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
    /// Option of ssh, as in its -o; may be repeated
    #[arg(long = "option", short = 'o', value_name = "NAME=VALUE")]
    pub(crate) options: Vec<String>,
    /// One word is a script for the sandbox's shell; several are a program and its arguments, each passed on as it is
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CpArgs {
    /// What is copied: a path here, or ID:PATH in a sandbox, where relative paths begin in the workspace
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// Where to: the other of the two
    #[arg(value_name = "TO")]
    pub(crate) to: String,
    /// Directories with all that is in them
    #[arg(long, short)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SshConfigArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SshKeyCommand {
    /// Let a key in, or give it a new end
    Add {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
        /// File with the public key
        file: PathBuf,
        /// Blocks for which it opens the sandbox; 0: as long as there is one
        #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
        ttl_blocks: u64,
        /// By a job, paid on chain
        #[arg(long)]
        job: bool,
    },
    /// Let a key in no more, and end what it has opened
    Rm {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
        /// File with the public key, or its fingerprint as `ls` shows it
        key: String,
        /// By a job, paid on chain; takes a file
        #[arg(long)]
        job: bool,
    },
    /// List the keys that are let in
    Ls {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
    },
}
