//! The command line.

mod agents;
mod batch;
mod held;
mod inside;
mod ssh;
mod words;
mod workflows;

use std::path::PathBuf;

use alloy::primitives::{Address, B256, Bytes};
use alloy::transports::http::reqwest::Url;
use clap::{Parser, Subcommand};
use sandbox_protocol::{CallKey, Job, SandboxId};

pub(crate) use self::agents::{
    AgentArgs, ApprovalArgs, NegotiateArgs, PromptArgs, RunsArgs, SessionsArgs, TaskArgs, answer_within,
};
pub(crate) use self::batch::{
    BatchCollectArgs, BatchCommand, BatchCreateArgs, BatchExecArgs, BatchShowArgs, BatchTaskArgs, BatchWorkArgs,
};
pub(crate) use self::held::{EventsArgs, ListArgs, LoginArgs, WhereArgs};
pub(crate) use self::inside::{ExecArgs, FilesCommand, KillArgs, PortArgs, ShellArgs};
pub(crate) use self::ssh::{CpArgs, IdentityArgs, SshArgs, SshConfigArgs, SshKeyCommand};
pub(crate) use self::words::call_key;
use self::words::{job, sandbox, variable};
pub(crate) use self::workflows::{
    TriggerArgs, WorkflowArgs, WorkflowCommand, WorkflowCreateArgs, WorkflowJobArgs, WorkflowLogsArgs,
    WorkflowRunsArgs, WorkflowTriggerArgs,
};
use crate::commands::DeployArgs;

/// Seconds after which the core lets nobody approve a request any more.
const APPROVAL_S: u64 = 3_600;
/// Seconds in which the contract expects any answer, and a minute more.
pub(crate) const ANSWER_S: u64 = 660;

const HELP: &str = "\
Settings (an option wins over its variable):
  SANDBOX_DEPLOYMENT  addresses file of the blueprint
  SANDBOX_RPC_URL     HTTP endpoint of a node; default: the one in the addresses file
  SANDBOX_KEY         private key as hex; or SANDBOX_KEY_FILE, a file that holds it
  SANDBOX_SERVICE     service in which `create` creates, and whose operators are asked
  SANDBOX_CONFIG_DIR  where tokens, SSH keys and known hosts are kept; default: sandbox in XDG_CONFIG_HOME or ~/.config

Exit codes:
    0  done                     2  wrong usage or settings
  118  the agent, a run of a workflow, or an item of a batch ended without success; or too few items agree for a majority
  119  answer not proven      120  local trouble: files, output
  121  refused on chain       122  not done, the caller's matter
  123  not done, the operator's matter
  124  the command's time was over
  125  chain or operator unreachable, or no answer in time
`exec`, `run`, `logs`, `shell` and `ssh` end with the command's own exit code, which is 128 + signal for one that a signal ended.
`prompt` and `task` cancel what runs when they are interrupted, and end with 130 when they are a second time.";

/// Rent AI-agent sandboxes on Tangle, and prove what was done in them.
#[derive(Debug, Parser)]
#[command(name = "sandbox", version, after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// HTTP endpoint of a node
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) rpc_url: Option<Url>,
    /// Addresses file of the blueprint
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) deployment: Option<PathBuf>,
    /// File that holds the private key as hex
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Print JSON: results on stdout, errors as {code, message, retryable} on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Seal nothing: environments and prompts are public on chain
    #[arg(long, global = true)]
    pub(crate) plain: bool,
    /// Seal commands and their stdin as well as the environment
    #[arg(long, global = true, conflicts_with = "plain")]
    pub(crate) seal_all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Request and show services
    #[command(subcommand)]
    Service(ServiceCommand),
    /// Create a sandbox and print its id
    Create(CreateArgs),
    /// Run a command in a sandbox as a job: paid on chain, its answer proven
    Run(RunArgs),
    /// Run a command in a sandbox and see what it writes as it does
    Exec(ExecArgs),
    /// Print what a command wrote and writes, and end as it does
    Logs {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
        /// Id of the execution
        execution: String,
    },
    /// Create many sandboxes, do one thing in many, and see what came of it at all operators
    #[command(subcommand)]
    Batch(BatchCommand),
    /// Ask the agent of a sandbox for one turn, and see what it says as it does
    Prompt(Box<PromptArgs>),
    /// Have the agent of a sandbox work on a task until it is done
    Task(Box<TaskArgs>),
    /// Have moves argued about and scored, each in a sandbox of its own, and rank them
    Negotiate(Box<NegotiateArgs>),
    /// List what the agent of a sandbox does and did; show, follow or end one of them
    Runs(RunsArgs),
    /// List the conversations of a sandbox's agent, or delete one
    Sessions(SessionsArgs),
    /// List what runs in a sandbox and ran there
    Ps {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
    },
    /// End a command with all that it started, or send it a signal
    Kill(KillArgs),
    /// List, read, write and remove files in a sandbox
    #[command(subcommand)]
    Files(FilesCommand),
    /// Listen here for a port inside a sandbox, until interrupted
    Port(PortArgs),
    /// Open a terminal in a sandbox
    Shell(ShellArgs),
    /// Come into a sandbox with ssh: its key is admitted, the host's is checked
    Ssh(SshArgs),
    /// Copy files into a sandbox or out of it with scp
    Cp(CpArgs),
    /// Print a block for ~/.ssh/config, with which ssh and all that is built on it come into a sandbox
    SshConfig(SshConfigArgs),
    /// Say whose SSH keys are let into a sandbox
    #[command(subcommand)]
    SshKey(SshKeyCommand),
    /// Stop a sandbox; what is in it stays
    Stop(RemoveArgs),
    /// Start a stopped sandbox again
    Resume(ResumeArgs),
    /// Write what is in a running sandbox to a place, and print where it is
    Snapshot(SnapshotArgs),
    /// Create a sandbox from a snapshot and print its id
    Restore(RestoreArgs),
    /// Delete a sandbox and everything in it
    Rm(RemoveArgs),
    /// Create workflows, run them, see what fires them and how they go
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    /// Sign in to the operators of a service
    Login(LoginArgs),
    /// List one's sandboxes
    Ls(ListArgs),
    /// Show a sandbox
    Show {
        /// Sandbox id
        #[arg(value_parser = sandbox)]
        id: SandboxId,
    },
    /// Print what happened to one's sandboxes
    Events(EventsArgs),
    /// List the operators that are registered, with what they offer
    Operators,
    /// Pay out what the account has earned
    Claim,
    /// Show what a job costs in a service at the list price, before it is sent
    #[command(visible_alias = "cost")]
    Price(PriceArgs),
    /// Ask the operators of a service what they would do a job for
    Quote(Box<QuoteArgs>),
    /// Show calls
    #[command(subcommand)]
    Call(CallCommand),
    /// Prove an answer: a saved file's, or a call's
    Verify(VerifyArgs),
    /// Put the blueprint on a chain, continue that, or change its prices
    Deploy(Box<DeployArgs>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Request a service and wait until its operators have approved
    Request(RequestArgs),
    /// Show a service
    Show {
        /// Service id
        id: u64,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct RequestArgs {
    /// Operators by address, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS", required_unless_present = "count")]
    pub(crate) operators: Vec<Address>,
    /// Draw this many operators from those eligible
    #[arg(long, value_name = "NUMBER", conflicts_with = "operators")]
    pub(crate) count: Option<u32>,
    /// Seed of the draw, 32 bytes as hex; default: random
    #[arg(long, requires = "count")]
    pub(crate) seed: Option<B256>,
    /// Life of the service; 0 is without end
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub(crate) ttl: u64,
    /// Another account that may submit jobs; may be repeated
    #[arg(long = "caller", value_name = "ADDRESS")]
    pub(crate) callers: Vec<Address>,
    /// Do not wait for the operators
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Wait at most this long
    #[arg(long, default_value_t = APPROVAL_S, value_name = "SECONDS")]
    pub(crate) within: u64,
}

/// How an answer is waited for and kept.
#[derive(Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// Wait at most this long for the answer
    #[arg(long, default_value_t = ANSWER_S, value_name = "SECONDS")]
    pub(crate) within: u64,
    /// Save the answer with its signed receipt
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

/// What a sandbox is to be like.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct SpecArgs {
    /// Processor cores; 0 is the operator's default, as in the next three
    #[arg(long, default_value_t = 0, value_name = "CORES")]
    pub(crate) cpu: u64,
    /// Memory in MB
    #[arg(long, default_value_t = 0, value_name = "MB")]
    pub(crate) memory_mb: u64,
    /// Disk in GB
    #[arg(long, default_value_t = 0, value_name = "GB")]
    pub(crate) disk_gb: u64,
    /// Life in blocks; 0 lasts until the service ends
    #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
    pub(crate) ttl_blocks: u64,
    /// Variable of the environment; may be repeated. Sealed to the operators unless --plain
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// An image on the operator's allow-list
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// Who carries prompts and tasks out in it: native, opencode or claude-agent
    #[arg(long, value_name = "BACKEND")]
    pub(crate) agent_backend: Option<String>,
    /// Profile of its agent
    #[arg(long, value_name = "PROFILE")]
    pub(crate) agent: Option<String>,
    /// What it is called in lists
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// What it is found by in lists; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub(crate) labels: Vec<String>,
    /// Stop it after so long without activity
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub(crate) idle_timeout: u64,
    /// Have it entered over SSH: only by an operator that lets customers in
    #[arg(long)]
    pub(crate) ssh: bool,
    /// File with a public key that is let in over SSH from the beginning
    #[arg(long, value_name = "FILE")]
    pub(crate) ssh_key: Option<PathBuf>,
}

/// How a job is paid.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PayArgs {
    /// Pay by quote: the operators that can do it are asked, the cheapest does it and alone is paid
    #[arg(long)]
    pub(crate) quote: bool,
    /// Refuse to pay more, in the asset that the service is paid in, such as 0.25
    #[arg(long, value_name = "AMOUNT", requires = "quote")]
    pub(crate) max_price: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PriceArgs {
    /// Job by name or id
    #[arg(value_parser = job)]
    pub(crate) job: Job,
    /// Service in which it would be sent
    #[arg(long, value_name = "ID")]
    pub(crate) service: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QuoteArgs {
    /// Service in which it would be sent; default: the sandbox's
    #[arg(long, value_name = "ID")]
    pub(crate) service: Option<u64>,
    /// Job by name or id: create takes the options of `create`, exec and delete a sandbox, the others their inputs
    #[arg(long, value_parser = job)]
    pub(crate) job: Job,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
    /// Sandbox that the job is done in
    #[arg(long, value_name = "ID", value_parser = sandbox)]
    pub(crate) sandbox: Option<SandboxId>,
    /// The job's inputs, ABI-encoded, as hex
    #[arg(long, value_name = "HEX", conflicts_with_all = ["sandbox", "command"])]
    pub(crate) inputs: Option<Bytes>,
    /// The command of an exec, as `exec` takes it
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Service to create it in
    #[arg(long, value_name = "ID")]
    pub(crate) service: Option<u64>,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
    #[command(flatten)]
    pub(crate) pay: PayArgs,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// Kill the command after this long; default 30,000, at most 300,000
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pub(crate) timeout: u64,
    /// Working directory
    #[arg(long, default_value = "", value_name = "DIRECTORY")]
    pub(crate) cwd: String,
    /// Variable of the environment; may be repeated. Sealed to the operators unless --plain
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// File given to the command as stdin; - is this program's own
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pay: PayArgs,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
    /// One word is a script for the sandbox's shell; several are a program and its arguments, each passed on as it is
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// A snapshot whose files replace the sandbox's
    #[arg(long, value_name = "URI")]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// Where it goes: s3://, ipfs://, https:// or file://; default: the place that the sandbox was created with
    #[arg(long, value_name = "URI")]
    pub(crate) to: Option<String>,
    /// Also the files of the home directory
    #[arg(long)]
    pub(crate) state: bool,
    /// Not the files of the workspace
    #[arg(long, requires = "state")]
    pub(crate) no_workspace: bool,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Where the snapshot is, as `snapshot` printed it
    #[arg(value_name = "URI")]
    pub(crate) snapshot: String,
    #[command(flatten)]
    pub(crate) create: CreateArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CallCommand {
    /// Show where a call is, and its answer
    Show {
        /// SERVICE/CALL
        #[arg(value_parser = call_key)]
        key: CallKey,
        /// Wait for the answer
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        answer: AnswerArgs,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// A file that --save wrote, or SERVICE/CALL
    #[arg(value_name = "FILE|SERVICE/CALL")]
    pub(crate) subject: String,
    /// Ask nobody: only the receipt's own signature and the response are checked
    #[arg(long)]
    pub(crate) offline: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn operators_are_named_or_drawn_but_not_both() {
        let parse = |words: &str| Args::try_parse_from(words.split(' '));
        assert!(parse("sandbox service request").is_err());
        assert!(parse("sandbox service request --count 2").is_ok());
        let one = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
        assert!(parse(&format!("sandbox service request --operators {one},{one}")).is_ok());
        assert!(parse(&format!("sandbox service request --operators {one} --count 1")).is_err());
    }
}
