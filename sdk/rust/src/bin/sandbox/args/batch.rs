//! Commands for many sandboxes at once.

use std::path::PathBuf;

use alloy::primitives::Address;
use clap::Subcommand;
use sandbox_fleet::batch_plan::Distribution;
use sandbox_protocol::SandboxId;
use sandbox_protocol::batch::{Aggregation, BatchId};
use sandbox_protocol::limits::BATCH_SANDBOXES_MAX;
use sandbox_sdk::limits::{BATCH_EXEC_ANSWER_S, BATCH_TASK_ANSWER_S};

use super::words::{sandbox, variable};
use super::{ANSWER_S, SpecArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum BatchCommand {
    /// Create many sandboxes of one kind, shared out among operators
    Create(Box<BatchCreateArgs>),
    /// Run a command in many sandboxes
    Exec(BatchExecArgs),
    /// Have the agents of many sandboxes work on a task
    Task(BatchTaskArgs),
    /// Show where a batch is, as its operators tell; nothing of it is proven
    Show(BatchShowArgs),
    /// Have every operator account for a batch by a job, prove what it answered, and print all of it
    Collect(BatchCollectArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct BatchCreateArgs {
    /// How many
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(BATCH_SANDBOXES_MAX)))]
    pub(crate) count: u32,
    /// Service to create them in
    #[arg(long, value_name = "ID")]
    pub(crate) service: Option<u64>,
    /// How they are shared out: round_robin, cheapest or random
    #[arg(long, value_name = "WORD", default_value = "round_robin")]
    pub(crate) distribution: Distribution,
    /// An operator that may make them; may be repeated; default: all of the service
    #[arg(long = "operator", value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) operators: Vec<Address>,
    /// What the batch is called; default: by its call
    #[arg(long, value_name = "BATCH")]
    pub(crate) id: Option<BatchId>,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
    #[command(flatten)]
    pub(crate) pay: BatchPayArgs,
    #[command(flatten)]
    pub(crate) answer: BatchAnswerArgs<ANSWER_S>,
}

/// How a batch is paid.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BatchPayArgs {
    /// Pay by quote: each operator is asked for its part, and paid for that alone
    #[arg(long)]
    pub(crate) quote: bool,
    /// Refuse to pay more for all of it, in the asset that the service is paid in, such as 0.25
    #[arg(long, value_name = "AMOUNT", requires = "quote")]
    pub(crate) max_price: Option<String>,
}

/// How answers are waited for and kept.
#[derive(Debug, clap::Args)]
pub(crate) struct BatchAnswerArgs<const WITHIN_S: u64> {
    /// Wait at most this long for the answers
    #[arg(long, default_value_t = WITHIN_S, value_name = "SECONDS")]
    pub(crate) within: u64,
    /// Save each operator's answer with its signed receipt in this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) save: Option<PathBuf>,
}

/// What is common to work in many sandboxes.
#[derive(Debug, clap::Args)]
pub(crate) struct BatchWorkArgs {
    /// Service of the batch
    #[arg(long, value_name = "ID", conflicts_with = "sandboxes")]
    pub(crate) service: Option<u64>,
    /// In all living sandboxes that this batch made
    #[arg(long, value_name = "BATCH", required_unless_present = "sandboxes")]
    pub(crate) batch: Option<BatchId>,
    /// In this sandbox; may be repeated
    #[arg(long = "sandbox", value_name = "ID", value_parser = sandbox, value_delimiter = ',', conflicts_with = "batch")]
    pub(crate) sandboxes: Vec<SandboxId>,
    /// One sandbox after the other, at each operator
    #[arg(long)]
    pub(crate) sequential: bool,
    /// When it is over, and what it comes to: all, first_success, or majority: the answer of more than half of all items
    #[arg(long, value_name = "WORD", default_value = "all")]
    pub(crate) aggregation: Aggregation,
    /// What this batch is called; default: by its call
    #[arg(long, value_name = "BATCH")]
    pub(crate) id: Option<BatchId>,
    #[command(flatten)]
    pub(crate) pay: BatchPayArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BatchExecArgs {
    #[command(flatten)]
    pub(crate) work: BatchWorkArgs,
    /// Kill a command after this long; default 30,000, at most 300,000
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pub(crate) timeout: u64,
    /// Working directory
    #[arg(long, default_value = "", value_name = "DIRECTORY")]
    pub(crate) cwd: String,
    /// Variable of the environment; may be repeated. Sealed to the operators unless --plain
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) answer: BatchAnswerArgs<BATCH_EXEC_ANSWER_S>,
    /// One word is a script for the sandbox's shell; several are a program and its arguments, each passed on as it is
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BatchTaskArgs {
    #[command(flatten)]
    pub(crate) work: BatchWorkArgs,
    #[command(flatten)]
    pub(crate) answer: BatchAnswerArgs<BATCH_TASK_ANSWER_S>,
    /// What they are to do; - is stdin. Sealed to the operators unless --plain
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BatchShowArgs {
    /// The batch
    #[arg(value_name = "BATCH")]
    pub(crate) id: BatchId,
    /// Its service
    #[arg(long, value_name = "ID")]
    pub(crate) service: Option<u64>,
    /// Go on until it is over
    #[arg(long, short)]
    pub(crate) watch: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BatchCollectArgs {
    /// The batch
    #[arg(value_name = "BATCH")]
    pub(crate) id: BatchId,
    /// Its service
    #[arg(long, value_name = "ID")]
    pub(crate) service: Option<u64>,
    #[command(flatten)]
    pub(crate) answer: BatchAnswerArgs<ANSWER_S>,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::Args;

    #[test]
    fn what_the_contract_would_refuse_is_refused_here() {
        let parsed = |words: &str| Args::try_parse_from(words.split(' ')).map(drop).map_err(|error| error.to_string());
        for words in [
            "sandbox batch create",
            "sandbox batch create --count 0",
            "sandbox batch create --count 201",
            "sandbox batch create --count 2 --distribution dearest",
            "sandbox batch create --count 2 --id .hidden",
            "sandbox batch create --count 2 --max-price 1",
            "sandbox batch exec -- true",
            "sandbox batch exec --batch b --sandbox sbx-1-2-0 -- true",
            "sandbox batch exec --batch b --aggregation most -- true",
            "sandbox batch exec --batch b",
            "sandbox batch task --batch b",
            "sandbox batch show",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
        for words in [
            "sandbox batch create --count 200 --distribution cheapest --cpu 2 --id night --quote --max-price 1",
            "sandbox batch exec --sandbox sbx-1-2-0,sbx-1-2-1 --sandbox sbx-1-2-2 --sequential -- echo hi",
            "sandbox batch task --batch b --aggregation majority --quote -",
            "sandbox batch show batch-1-2 --watch",
            "sandbox batch collect b --service 7",
        ] {
            assert_eq!(parsed(words), Ok(()), "{words}");
        }
    }
}
