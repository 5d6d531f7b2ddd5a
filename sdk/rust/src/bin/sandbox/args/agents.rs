//! Commands for the agent of a sandbox.

use std::path::PathBuf;

use sandbox_protocol::SandboxId;
use sandbox_protocol::limits::{NEGOTIATION_CONCURRENCY_MAX, NEGOTIATION_ROUNDS_MAX, TASK_TURNS_MAX};
use sandbox_sdk::limits::{PROMPT_TIMEOUT_S_MAX, TASK_TIMEOUT_S_DEFAULT, TASK_TIMEOUT_S_MAX};

use super::words::sandbox;
use super::{AnswerArgs, PayArgs};

/// Seconds that a job's answer may take beyond the time for its work: the sandbox may have to start, the receipt to settle.
const AROUND_S: u64 = 300;
/// Which model, and by whose key.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ModelArgs {
    /// Model of the provider; default: the profile's or the sandbox's
    #[arg(long, default_value = "", hide_default_value = true, value_name = "MODEL")]
    pub(crate) model: String,
    /// Variable of this program's environment that holds one's key for the provider; jobs carry it sealed
    #[arg(long, value_name = "NAME")]
    pub(crate) provider_key_env: Option<String>,
}

/// What is said to tool calls that ask.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct ApprovalArgs {
    /// Allow every tool call that asks; default: ask on a terminal, else leave it to the profile
    #[arg(long)]
    pub(crate) approve: bool,
    /// Deny every tool call that asks
    #[arg(long, conflicts_with = "approve")]
    pub(crate) deny: bool,
}

/// What the agent is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// What it is to do; - is stdin
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    /// Continue this session; default: begin one
    #[arg(long, default_value = "", hide_default_value = true, value_name = "ID")]
    pub(crate) session: String,
    /// Who carries it out: native, opencode or claude-agent; default: the sandbox's
    #[arg(long, default_value = "", hide_default_value = true, value_name = "BACKEND")]
    pub(crate) backend: String,
    /// Profile of the agent; default: the sandbox's
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PROFILE")]
    pub(crate) agent: String,
    /// File with a JSON object that the agent is shown, `provider` in it says where the model is; - is stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) context: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) approvals: ApprovalArgs,
    /// By a job: paid on chain, its answer proven; without it, live over the operator's API
    #[arg(long, conflicts_with_all = ["approve", "deny"])]
    pub(crate) job: bool,
    #[command(flatten)]
    pub(crate) pay: PayArgs,
    /// Wait at most this long for a job's answer; default: its time and 300 seconds
    #[arg(long, value_name = "SECONDS", requires = "job")]
    pub(crate) within: Option<u64>,
    /// Save a job's answer with its signed receipt
    #[arg(long, value_name = "FILE", requires = "job")]
    pub(crate) save: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PromptArgs {
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// End it after this long; default 600
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=PROMPT_TIMEOUT_S_MAX))]
    pub(crate) timeout: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TaskArgs {
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// End it after this long; default 600
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=TASK_TIMEOUT_S_MAX))]
    pub(crate) timeout: Option<u64>,
    /// Most calls of the model; default: the profile's, else 200
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=TASK_TURNS_MAX))]
    pub(crate) max_turns: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NegotiateArgs {
    /// Sandbox id: its settings are used, its operator conducts
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// File with an array of {"move_id", "content"}, or with the whole context of a negotiation; - is stdin
    #[arg(value_name = "MOVES.JSON")]
    pub(crate) moves: PathBuf,
    /// The company; part of its sandboxes' names
    #[arg(long)]
    pub(crate) ticker: Option<String>,
    /// Rounds of each move; default: the file's, else 10
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(NEGOTIATION_ROUNDS_MAX)))]
    pub(crate) rounds: Option<u32>,
    /// Moves at a time; default: the file's, else 5
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(NEGOTIATION_CONCURRENCY_MAX)))]
    pub(crate) concurrency: Option<u32>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// End it after this long; what was scored until then is told
    #[arg(long, default_value_t = TASK_TIMEOUT_S_MAX, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=TASK_TIMEOUT_S_MAX))]
    pub(crate) timeout: u64,
    /// Directory for result.json and report.md
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pay: PayArgs,
    /// Wait at most this long for the answer; default: its time and 300 seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) within: Option<u64>,
    /// Save the answer with its signed receipt
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunsArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// One of them, to be shown
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Tell all of it, and go on with what happens until it ends
    #[arg(long, short, requires = "run")]
    pub(crate) follow: bool,
    /// End it
    #[arg(long, requires = "run", conflicts_with = "follow")]
    pub(crate) cancel: bool,
    #[command(flatten)]
    pub(crate) approvals: ApprovalArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {
    /// Sandbox id
    #[arg(value_parser = sandbox)]
    pub(crate) id: SandboxId,
    /// Delete this one, with all that is remembered of it
    #[arg(long, value_name = "SESSION")]
    pub(crate) delete: Option<String>,
}

/// How long the answer of a job is waited for that may work for so long.
pub(crate) fn answer_within(within: Option<u64>, timeout_s: Option<u64>, save: Option<PathBuf>) -> AnswerArgs {
    AnswerArgs { within: within.unwrap_or(timeout_s.unwrap_or(TASK_TIMEOUT_S_DEFAULT) + AROUND_S), save }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn parsed(words: &str) -> Result<Command, String> {
        let words = std::iter::once("sandbox").chain(words.split(' '));
        Args::try_parse_from(words).map(|args| args.command).map_err(|error| error.to_string())
    }

    #[test]
    fn a_prompt_and_a_task_take_their_options() {
        let Ok(Command::Prompt(prompt)) = parsed("prompt sbx-1-2-0 hi --session s --model m --timeout 9 --job") else {
            panic!("no prompt")
        };
        assert_eq!((prompt.agent.text.as_str(), prompt.timeout, prompt.agent.job), ("hi", Some(9), true));
        assert_eq!((prompt.agent.session.as_str(), prompt.agent.model.model.as_str()), ("s", "m"));
        let Ok(Command::Task(task)) = parsed("task sbx-1-2-0 hi --max-turns 200 --approve --context -") else {
            panic!("no task")
        };
        assert_eq!((task.max_turns, task.agent.approvals.approve), (Some(200), true));
        assert_eq!(task.agent.context, Some("-".into()));
    }

    #[test]
    fn what_a_sandbox_would_refuse_is_refused_here() {
        for words in [
            "task sbx-1-2-0 hi --max-turns 201",
            "task sbx-1-2-0 hi --max-turns 0",
            "task sbx-1-2-0 hi --timeout 3301",
            "prompt sbx-1-2-0 hi --timeout 1501",
            "prompt sbx-1-2-0 hi --max-turns 1",
            "task sbx-1-2-0 hi --approve --deny",
            "task sbx-1-2-0 hi --approve --job",
            "task sbx-1-2-0 hi --save x",
            "negotiate sbx-1-2-0 m.json --rounds 21",
            "negotiate sbx-1-2-0 m.json --concurrency 16",
            "runs sbx-1-2-0 --follow",
            "runs sbx-1-2-0 r --follow --cancel",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
        for words in [
            "task sbx-1-2-0 hi --timeout 3300",
            "prompt sbx-1-2-0 hi --timeout 1500",
            "negotiate sbx-1-2-0 m.json --rounds 20 --concurrency 15",
            "runs sbx-1-2-0",
            "runs sbx-1-2-0 r --cancel",
            "sessions sbx-1-2-0 --delete s",
        ] {
            assert!(parsed(words).is_ok(), "{words}: {:?}", parsed(words));
        }
    }

    #[test]
    fn an_answer_is_waited_for_longer_than_its_work_may_take() {
        let within = |within, timeout| answer_within(within, timeout, None).within;
        assert_eq!((within(None, None), within(None, Some(3_300)), within(Some(7), Some(9))), (900, 3_600, 7));
    }
}
