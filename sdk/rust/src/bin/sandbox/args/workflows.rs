//! Commands for workflows.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use sandbox_protocol::limits::{PAGE_ENTRIES_DEFAULT, PAGE_ENTRIES_MAX, WORKFLOW_JITTER_S_MAX};
use sandbox_protocol::workflow::{CatchUp, Overlap};
use sandbox_protocol::{CallKey, SandboxId};

use super::words::{call_key, sandbox};
use super::{AnswerArgs, PayArgs, SpecArgs, WhereArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Create a workflow and print its id, SERVICE/CALL
    Create(Box<WorkflowCreateArgs>),
    /// List one's workflows: who fires them, when next, how they went
    Ls(WhereArgs),
    /// Show a workflow: what it does, who fires it, its last runs
    Show(WorkflowArgs),
    /// Run a workflow now, by a job
    Trigger(WorkflowTriggerArgs),
    /// End a workflow for good and what it runs, by a job
    Cancel(WorkflowJobArgs),
    /// Stop a workflow from being fired; what runs goes on
    Pause(WorkflowArgs),
    /// Let a paused workflow be fired again
    Resume(WorkflowArgs),
    /// List the runs of a workflow, the newest first; show or follow one of them
    Runs(WorkflowRunsArgs),
    /// Print what the steps of a run wrote and answered
    Logs(WorkflowLogsArgs),
    /// End one run; the workflow stays
    CancelRun {
        /// SERVICE/CALL
        #[arg(value_parser = call_key)]
        workflow: CallKey,
        /// Number of the run
        run: u64,
    },
    /// Show where a workflow's webhook is, its secret, and a line that signs and sends
    Secret {
        /// SERVICE/CALL
        #[arg(value_parser = call_key)]
        workflow: CallKey,
        /// Make a new secret; the one before is good no more
        #[arg(long)]
        replace: bool,
    },
    /// Print the JSON Schema of what a workflow does
    Schema(WhereArgs),
}

/// A workflow.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkflowArgs {
    /// SERVICE/CALL
    #[arg(value_parser = call_key)]
    pub(crate) workflow: CallKey,
}

/// A workflow to which a job does something.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkflowJobArgs {
    /// SERVICE/CALL
    #[arg(value_parser = call_key)]
    pub(crate) workflow: CallKey,
    #[command(flatten)]
    pub(crate) pay: PayArgs,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkflowTriggerArgs {
    #[command(flatten)]
    pub(crate) job: WorkflowJobArgs,
    /// See the run step by step, and end as it does
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkflowRunsArgs {
    /// SERVICE/CALL
    #[arg(value_parser = call_key)]
    pub(crate) workflow: CallKey,
    /// Number of one of them, to be shown
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<u64>,
    /// See it step by step, and end as it does
    #[arg(long, short, requires = "run")]
    pub(crate) follow: bool,
    /// Only those before the run of this number
    #[arg(long, value_name = "NUMBER", conflicts_with = "run")]
    pub(crate) before: Option<u64>,
    /// Most that are listed
    #[arg(long, default_value_t = PAGE_ENTRIES_DEFAULT, value_name = "NUMBER", conflicts_with = "run", value_parser = clap::value_parser!(u64).range(1..=PAGE_ENTRIES_MAX))]
    pub(crate) limit: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkflowLogsArgs {
    /// SERVICE/CALL
    #[arg(value_parser = call_key)]
    pub(crate) workflow: CallKey,
    /// Number of the run
    #[arg(value_name = "RUN")]
    pub(crate) run: u64,
    /// Id of one step; default: all of them
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkflowCreateArgs {
    /// File with what it does, a JSON object as `workflow schema` describes it; - is stdin
    #[arg(value_name = "FILE", required_unless_present = "prompt")]
    pub(crate) file: Option<PathBuf>,
    /// One prompt for the agent of a sandbox, instead of a file
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    pub(crate) prompt: Option<String>,
    /// Service to create it in; default: the sandbox's
    #[arg(long, value_name = "ID")]
    pub(crate) service: Option<u64>,
    /// Sandbox in which every run works
    #[arg(long, value_name = "ID", value_parser = sandbox)]
    pub(crate) sandbox: Option<SandboxId>,
    /// A sandbox of its own for every run; any option of `create` asks for one too
    #[arg(long, conflicts_with = "sandbox")]
    pub(crate) own_sandbox: bool,
    #[command(flatten)]
    pub(crate) trigger: TriggerArgs,
    /// What a sandbox of a run's own is like; `--name` is the workflow's
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
    #[command(flatten)]
    pub(crate) pay: PayArgs,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

/// What fires a workflow, besides its owner.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub(crate) struct TriggerArgs {
    /// Fired by the clock: minute, hour, day of month, month, day of week; or @daily and the like
    #[arg(long, value_name = "EXPRESSION", group = "fires")]
    pub(crate) cron: Option<String>,
    /// Fired by signed requests
    #[arg(long, group = "fires")]
    pub(crate) webhook: bool,
    /// Fired by a contract's event, {"event","address","fields"}, or a sandbox's, {"event","sandbox"}; as JSON
    #[arg(long, value_name = "JSON", group = "fires")]
    pub(crate) event: Option<String>,
    /// Fired by its owner alone; the default
    #[arg(long, group = "fires")]
    pub(crate) manual: bool,
    /// Zone by which the clock is read, such as Europe/Berlin
    #[arg(long, default_value = "UTC", value_name = "ZONE", requires = "cron", conflicts_with_all = ["webhook", "event", "manual"])]
    pub(crate) tz: String,
    /// What becomes of a firing while a run goes on
    #[arg(long, value_enum, default_value_t, conflicts_with = "event")]
    pub(crate) overlap: OverlapArg,
    /// What becomes of firings that nobody could do at their time
    #[arg(long, value_enum, default_value_t, requires = "cron", conflicts_with_all = ["webhook", "event", "manual"])]
    pub(crate) catch_up: CatchUpArg,
    /// Put each firing off by up to so long
    #[arg(long, default_value_t = 0, value_name = "SECONDS", requires = "cron", conflicts_with_all = ["webhook", "event", "manual"], value_parser = clap::value_parser!(u32).range(0..=i64::from(WORKFLOW_JITTER_S_MAX)))]
    pub(crate) jitter: u32,
}

/// See [`Overlap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OverlapArg {
    /// It is not run
    #[default]
    Skip,
    /// It runs afterwards
    Queue,
    /// It runs beside
    Allow,
}

impl From<OverlapArg> for Overlap {
    fn from(arg: OverlapArg) -> Self {
        match arg {
            OverlapArg::Skip => Self::Skip,
            OverlapArg::Queue => Self::Queue,
            OverlapArg::Allow => Self::Allow,
        }
    }
}

/// See [`CatchUp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum CatchUpArg {
    /// The last of them is fired
    #[default]
    Latest,
    /// All are fired, in their order
    All,
    /// None is fired
    Skip,
}

impl From<CatchUpArg> for CatchUp {
    fn from(arg: CatchUpArg) -> Self {
        match arg {
            CatchUpArg::Latest => Self::Latest,
            CatchUpArg::All => Self::All,
            CatchUpArg::Skip => Self::Skip,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn parsed(words: &str) -> Result<WorkflowCommand, String> {
        let words = ["sandbox", "workflow"].into_iter().chain(words.split(' '));
        match Args::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Workflow(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    fn created(words: &str) -> WorkflowCreateArgs {
        match parsed(words).unwrap() {
            WorkflowCommand::Create(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_create_names_its_trigger_and_what_its_sandbox_is_like() {
        let args = created("create f.json --name n --cron @daily --tz Europe/Berlin --overlap queue --jitter 3600");
        assert_eq!((args.trigger.cron.as_deref(), args.trigger.tz.as_str()), (Some("@daily"), "Europe/Berlin"));
        assert_eq!((args.trigger.overlap, args.trigger.jitter), (OverlapArg::Queue, 3_600));
        assert_eq!((args.spec.name.as_deref(), args.own_sandbox), (Some("n"), false));
        let bare = created("create -");
        assert_eq!(bare.spec, SpecArgs::default(), "what is not said is not asked for");
        assert_eq!((bare.trigger.tz.as_str(), bare.trigger.catch_up), ("UTC", CatchUpArg::Latest));
        assert_eq!(created("create - --cpu 2").spec, SpecArgs { cpu: 2, ..SpecArgs::default() });
    }

    #[test]
    fn what_makes_no_sense_is_refused_here() {
        for words in [
            "create",
            "create f.json --prompt x",
            "create f.json --cron @daily --webhook",
            "create f.json --manual --event {}",
            "create f.json --tz Europe/Berlin",
            "create f.json --webhook --catch-up all",
            "create f.json --event {} --overlap queue",
            "create f.json --cron @daily --jitter 3601",
            "create f.json --own-sandbox --sandbox sbx-1-2-0",
            "runs 1/2 --follow",
            "runs 1/2 3 --limit 4",
            "runs 1/2 --limit 101",
            "runs 1/2 --limit 0",
            "logs 1/2",
            "trigger 1",
            "secret sbx-1-2-0",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
        for words in [
            "create --prompt x --sandbox sbx-1-2-0",
            "create f.json --webhook --overlap allow",
            "runs 1/2 3 --follow",
            "runs 1/2 --limit 100 --before 7",
            "logs 1/2 3 build",
            "trigger 1/2 --follow --quote",
            "cancel-run 1/2 3",
            "secret 1/2 --replace",
            "schema",
            "ls --service 1",
        ] {
            assert!(parsed(words).is_ok(), "{words}: {:?}", parsed(words));
        }
    }
}
