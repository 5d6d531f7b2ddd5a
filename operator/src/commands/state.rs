//! Commands on what a node holds: through the running node, or from the records where none runs.

use std::collections::BTreeMap;
use std::path::Path;

use alloy::primitives::B256;
use clap::ValueEnum;
use sandbox_process::source::Source;
use sandbox_sdk::calls;
use serde::Serialize;
use serde_json::json;

use super::chain::Hands;
use super::{CommandError, Output};
use crate::admin::{CallLine, CallsQuery, Node, NodeState, SandboxLine, calls_of, sandboxes_of};
use crate::chain::key;
use crate::config::{self, Config};
use crate::docker::{FoundContainer, Survey};
use crate::limits::DRAIN_PAUSE;
use crate::places::Places;
use crate::records::{Records, RecordsGuard, Vault};

/// How to drain.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    /// Waits until no call is open, or until no sandbox is left either.
    #[arg(long, value_name = "FOR", num_args = 0..=1, default_missing_value = "sandboxes", conflicts_with = "end")]
    wait: Option<WaitFor>,
    /// Takes new work again.
    #[arg(long)]
    end: bool,
}

/// What a drain is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WaitFor {
    /// Every call is answered, its receipt on chain: enough to end the process. Sandboxes outlive it.
    Calls,
    /// No sandbox is left either: enough to give up the machine.
    Sandboxes,
}

/// What there is of an operator's state.
pub(super) enum State {
    /// A node runs on it.
    Running(Node),
    /// No node does, and none can while this is held.
    Stopped(Records, RecordsGuard),
}

impl State {
    /// Of the node that `source` sets up.
    pub(super) async fn of(source: &impl Source) -> Result<Self, CommandError> {
        Self::with(&config::data_dir(source)?, || Ok(Vault::of(&key::load(&config::read_keystore(source)?)?))).await
    }

    /// Of the node with this state directory, for who copies the records and reads none: it takes no key.
    pub(super) async fn locked(data_dir: &Path) -> Result<Self, CommandError> {
        Self::with(data_dir, || Ok(Vault::locked())).await
    }

    /// A running node needs no key of ours.
    async fn with(data_dir: &Path, vault: impl FnOnce() -> Result<Vault, CommandError>) -> Result<Self, CommandError> {
        if let Some(node) = Node::running(data_dir).await? {
            return Ok(Self::Running(node));
        }
        let (records, guard) = Records::open_with(data_dir, vault()?)?;
        Ok(Self::Stopped(records, guard))
    }

    /// How far it is. Whether a node that does not run would drain is for the chain to say.
    pub(super) async fn node_state(&self) -> Result<NodeState, CommandError> {
        match self {
            Self::Running(node) => Ok(node.state().await?),
            Self::Stopped(records, _) => Ok(NodeState::of(records, false)?),
        }
    }

    async fn sandboxes(&self) -> Result<Vec<SandboxLine>, CommandError> {
        match self {
            Self::Running(node) => Ok(node.sandboxes().await?),
            Self::Stopped(records, _) => Ok(sandboxes_of(records)?),
        }
    }
}

/// Lists the sandboxes.
pub(super) async fn sandboxes(source: &impl Source, output: &Output) -> Result<(), CommandError> {
    let sandboxes = State::of(source).await?.sandboxes().await?;
    output.list(&sandboxes, "no sandboxes", |sandbox| {
        let SandboxLine { id, phase, owner, image, cpu_cores, memory_mb, disk_gb, .. } = sandbox;
        let end = sandbox.expires_at_block.map_or("its service's end".to_owned(), |block| format!("block {block}"));
        format!("{id} {phase} of {owner}, {image}, {cpu_cores} cores, {memory_mb} MB, {disk_gb} GB, until {end}")
    })
}

/// Lists the calls.
pub(super) async fn calls(source: &impl Source, open: bool, output: &Output) -> Result<(), CommandError> {
    let calls: Vec<CallLine> = match State::of(source).await? {
        State::Running(node) => node.calls(CallsQuery { open }).await?,
        State::Stopped(records, _guard) => calls_of(&records, open)?,
    };
    output.list(&calls, if open { "no open calls" } else { "no calls" }, |call| {
        let reason = call.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{} job {} of {} in block {}: {}{reason}", call.call, call.job, call.caller, call.block, call.state)
    })
}

/// Takes nothing new, or takes new work again.
pub(super) async fn drain(source: &impl Source, args: DrainArgs, output: &Output) -> Result<(), CommandError> {
    let drain = !args.end;
    let (transaction, mut state) = match State::of(source).await? {
        State::Running(node) => {
            let drained = node.drain(drain).await?;
            let mut state = drained.state;
            while args.wait.is_some_and(|wait| !is_over(&state, wait)) {
                tokio::time::sleep(DRAIN_PAUSE).await;
                state = node.state().await?;
            }
            (drained.transaction, state)
        }
        // The next start reads from the chain whether to take anything.
        State::Stopped(records, _guard) => (pause(source, drain).await?, NodeState::of(&records, drain)?),
    };
    state.draining = drain;
    let line = if drain {
        format!("nothing new is taken; {} calls are open and {} sandboxes are held", state.open_calls, state.sandboxes)
    } else {
        "new work is taken again".to_owned()
    };
    output.say(&line, &json!({ "state": state, "transaction": transaction }))
}

const fn is_over(state: &NodeState, wait: WaitFor) -> bool {
    match wait {
        WaitFor::Calls => state.open_calls == 0,
        WaitFor::Sandboxes => state.open_calls == 0 && state.sandboxes == 0,
    }
}

async fn pause(source: &impl Source, paused: bool) -> Result<Option<B256>, CommandError> {
    let hands = Hands::new(source).await?;
    let published = hands.chain.operator(hands.me).await?;
    if !published.registered {
        return Err(CommandError::Unregistered(hands.me));
    }
    if published.paused == paused {
        return Ok(None);
    }
    let mined = hands.send(calls::set_paused(hands.chain.deployment(), paused)).await?;
    Ok(Some(mined.transaction))
}

/// A container of this node, and what the records say of it.
#[derive(Debug, Serialize)]
struct Adopted {
    #[serde(flatten)]
    container: FoundContainer,
    /// Its sandbox's phase; nothing where the records know none that lives.
    phase: Option<String>,
}

/// Compares containers with records.
pub(super) async fn adopt(source: &impl Source, output: &Output) -> Result<(), CommandError> {
    let config = Config::read(source)?;
    let state = State::of(source).await?;
    let places = Places::new(&config.run_dir, config.chain.core, state.node_state().await?.state_id);
    let tag = places.map(|places| places.tag().to_owned()).map_err(crate::app::NodeError::from)?;
    let known = match &state {
        State::Running(node) => node.adopt().await?,
        State::Stopped(..) => state.sandboxes().await?,
    };
    let mut known: BTreeMap<String, String> = known.into_iter().map(|line| (line.id, line.phase)).collect();
    let containers = Survey::connect(&config.engine.host).await?.containers(&tag).await?;
    let adopted: Vec<Adopted> = containers
        .into_iter()
        .map(|container| Adopted { phase: known.remove(&container.sandbox), container })
        .collect();
    let looked_after = matches!(state, State::Running(_));
    let missing: Vec<String> = known.into_keys().collect();
    output.say(&told(&adopted, &missing, looked_after), &json!({ "containers": adopted, "missing": missing }))
}

fn told(adopted: &[Adopted], missing: &[String], looked_after: bool) -> String {
    let mut lines: Vec<String> = adopted
        .iter()
        .map(|Adopted { container: FoundContainer { name, sandbox, state }, phase }| match phase {
            Some(phase) if looked_after => format!("{name} ({state}): sandbox {sandbox}, {phase}; looked after"),
            Some(phase) => format!("{name} ({state}): sandbox {sandbox}, {phase}; the node adopts it when it starts"),
            None => format!("{name} ({state}): no live sandbox is known for it; remove it if it stays"),
        })
        .collect();
    lines.extend(missing.iter().map(|sandbox| format!("sandbox {sandbox}: it has no container")));
    if lines.is_empty() { "no containers of this node, and no sandboxes".to_owned() } else { lines.join("\n") }
}
