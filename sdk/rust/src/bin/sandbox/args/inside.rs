//! Commands that reach into a sandbox.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Subcommand;
use sandbox_protocol::SandboxId;
use sandbox_protocol::fsp::Signal;
use sandbox_protocol::limits::EXEC_DETACHED_TIMEOUT_MS_MAX;

use super::words::{ports, sandbox, signal, variable};

#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// Kill the command after this long; default 30,000, at most 300,000; with --detach a day is both
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=EXEC_DETACHED_TIMEOUT_MS_MAX))]
    pub(crate) timeout: Option<u64>,
    /// Working directory; default: the workspace
    #[arg(long, default_value = "", value_name = "DIRECTORY")]
    pub(crate) cwd: String,
    /// Variable of the environment; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Print the id and leave it running: `logs` shows what it writes
    #[arg(long, short, conflicts_with = "no_stdin")]
    pub(crate) detach: bool,
    /// Give the command no stdin
    #[arg(long, short = 'n')]
    pub(crate) no_stdin: bool,
    /// One word is a script for the sandbox's shell; several are a program and its arguments, each passed on as it is
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KillArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// Id of the execution, as `ps` shows it
    pub(crate) execution: String,
    /// Send this to its process group instead: HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP
    #[arg(long, short, value_parser = signal)]
    pub(crate) signal: Option<Signal>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List a directory
    Ls {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
        /// The directory; default: the workspace
        #[arg(default_value = "")]
        path: String,
    },
    /// Read a file
    Get {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
        /// The file in the sandbox
        path: String,
        /// Where it goes; default: the same name here; - is stdout
        to: Option<PathBuf>,
    },
    /// Write a file, all at once or not at all
    Put {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
        /// The file here; - is stdin
        from: PathBuf,
        /// The file in the sandbox; default: the same name in the workspace
        path: Option<String>,
        /// Make directories that are missing on the way
        #[arg(long, short)]
        parents: bool,
    },
    /// Remove a file or a directory
    Rm {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
        /// What is removed
        path: String,
        /// A directory with all that is in it
        #[arg(long, short)]
        recursive: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct PortArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// Port here and port inside, such as 8080:80; one number is both, and 0 here is any that is free
    #[arg(value_name = "LOCAL:REMOTE", value_parser = ports)]
    pub(crate) ports: (u16, u16),
    /// Address to listen at
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub(crate) bind: IpAddr,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShellArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// Come back to a terminal that was opened before
    #[arg(long, value_name = "TERMINAL", conflicts_with = "command")]
    pub(crate) attach: Option<String>,
    /// A command for the shell, instead of a prompt
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
