//! Ports without a world behind them, for tests: what exists is a set in memory, and each may be told to fail.

mod agents;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alloy_primitives::Address;
use async_trait::async_trait;
use sandbox_protocol::exec::{ByteText, ExecBody, ExecEnd, ExecReply};
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::{CallKey, FailureCode, SandboxId};

use crate::Ports;
use crate::children::{ChildName, ChildOrder};
use crate::keys::SshKeys;
use crate::ports::{
    Containers, Egress, Pipe, PortError, Sandboxes, SidecarError, Sidecars, Snapshot, SnapshotOrder, Snapshots,
};
use crate::request::{AgentChoice, Env, Resources, SandboxSpec, SnapshotUri};
use crate::sandbox::{Instance, Phase, Sandbox, SidecarToken};

pub use agents::FakeAgents;

/// Who the sandboxes of this world are of.
pub const OWNER: Address = Address::repeat_byte(1);

/// An engine, its sidecars and a record store in memory.
#[derive(Debug, Default)]
pub struct FakeWorld {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    containers: BTreeSet<SandboxId>,
    /// Of those, the ones that run.
    running: BTreeSet<SandboxId>,
    /// Of those, the ones that something may leave.
    open: BTreeSet<SandboxId>,
    restored: Vec<SnapshotUri>,
    killed: Vec<String>,
    unreadable: bool,
    saved: BTreeMap<SandboxId, Vec<String>>,
    failing: VecDeque<FailureCode>,
    adoptions_fail: bool,
    provisions: usize,
}

impl FakeWorld {
    /// The world as ports.
    pub fn ports(self: &Arc<Self>) -> Ports {
        Ports {
            containers: self.clone(),
            sidecars: self.clone(),
            egress: self.clone(),
            snapshots: self.clone(),
            sandboxes: self.clone(),
        }
    }

    /// The next engine calls fail, each with one of these.
    pub fn fail_next(&self, codes: impl IntoIterator<Item = FailureCode>) {
        self.state().failing.extend(codes);
    }

    /// From now on no container can be adopted.
    pub fn fail_adoptions(&self) {
        self.state().adoptions_fail = true;
    }

    /// Containers that exist now.
    pub fn containers(&self) -> Vec<SandboxId> {
        self.state().containers.iter().copied().collect()
    }

    /// Containers that run now.
    pub fn running(&self) -> Vec<SandboxId> {
        self.state().running.iter().copied().collect()
    }

    /// Sandboxes that something may leave now.
    pub fn open(&self) -> Vec<SandboxId> {
        self.state().open.iter().copied().collect()
    }

    /// Snapshots that were restored, in order.
    pub fn restored(&self) -> Vec<SnapshotUri> {
        self.state().restored.clone()
    }

    /// Commands that were ended, in order.
    pub fn killed(&self) -> Vec<String> {
        self.state().killed.clone()
    }

    /// Whether snapshots cannot be read from now on.
    pub fn lose_snapshots(&self, lost: bool) {
        self.state().unreadable = lost;
    }

    /// Removes a container behind the fleet's back.
    pub fn lose(&self, id: SandboxId) {
        let mut state = self.state();
        state.containers.remove(&id);
        state.running.remove(&id);
    }

    /// Every phase that was saved of a sandbox, in order.
    pub fn phases(&self, id: SandboxId) -> Vec<String> {
        self.state().saved.get(&id).cloned().unwrap_or_default()
    }

    /// How often a container was asked for.
    pub fn provisions(&self) -> usize {
        self.state().provisions
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fail(&mut self) -> Result<(), PortError> {
        match self.failing.pop_front() {
            None => Ok(()),
            Some(code) => Err(PortError::new(code, "told to fail", "told to fail")),
        }
    }
}

/// A small sandbox of [`OWNER`], asked for in a call of service 7.
pub fn sandbox(call: u64) -> Sandbox {
    Sandbox {
        id: SandboxId { origin: CallKey { service: 7, call }, slot: 0 },
        owner: OWNER,
        spec: SandboxSpec {
            resources: Resources { cpu_cores: 1, memory_mb: 64, disk_gb: 1 },
            image: "sidecar".into(),
            env: Env::new(),
            runtime: None,
            idle_timeout_s: None,
            snapshot: None,
            snapshot_destination: None,
            egress: String::new(),
            name: String::new(),
            labels: BTreeMap::new(),
            agent: AgentChoice::default(),
        },
        expires_at_block: None,
        warned: false,
        child: None,
        ssh_keys: SshKeys::default(),
        keys_call: None,
        phase: Phase::Requested,
    }
}

/// A child of that name, of the same size, asked for in the course of a call of service 7.
#[allow(clippy::expect_used)] // for names that tests write themselves
pub fn child(call: u64, name: &str) -> ChildOrder {
    let Sandbox { id, owner, spec, expires_at_block, .. } = sandbox(call);
    let name = ChildName::parse(name).expect("a name");
    ChildOrder { parent: id.origin, name, owner, spec, expires_at_block }
}

/// An ed25519 key that nobody has the private half of.
#[allow(clippy::expect_used)] // of a form that is taken
pub fn ssh_key(number: u8) -> PublicKey {
    let kind = b"ssh-ed25519";
    let part = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
    PublicKey::from_wire(&[part(kind), part(&[number; 32])].concat()).expect("a key")
}

/// A place for snapshots.
#[allow(clippy::expect_used)] // for texts that tests write themselves
pub fn snapshot(text: &str) -> SnapshotUri {
    SnapshotUri::parse("uri", text).expect("a place").expect("not empty")
}

/// The container that the fake engine makes of it.
pub fn instance(id: SandboxId) -> Instance {
    Instance {
        runtime: "fake".into(),
        image_digest: "sha256:fake".into(),
        vessel: id.to_string(),
        token: SidecarToken::default(),
    }
}

#[async_trait]
impl Containers for FakeWorld {
    async fn provision(&self, sandbox: &Sandbox) -> Result<Instance, PortError> {
        let mut state = self.state();
        state.provisions += 1;
        // As with a real engine, a failure may strike after something was made.
        state.containers.insert(sandbox.id);
        state.running.insert(sandbox.id);
        state.fail()?;
        Ok(instance(sandbox.id))
    }

    async fn adopt(&self, sandbox: &Sandbox) -> Result<Option<Instance>, PortError> {
        let mut state = self.state();
        state.fail()?;
        if state.adoptions_fail {
            return Err(PortError::new(FailureCode::Engine, "told to fail", "told to fail"));
        }
        if !state.containers.contains(&sandbox.id) {
            return Ok(None);
        }
        state.running.insert(sandbox.id);
        Ok(Some(instance(sandbox.id)))
    }

    async fn halt(&self, sandbox: &Sandbox) -> Result<bool, PortError> {
        let mut state = self.state();
        state.fail()?;
        state.running.remove(&sandbox.id);
        Ok(state.containers.contains(&sandbox.id))
    }

    async fn remove(&self, sandbox: &Sandbox) -> Result<(), PortError> {
        let mut state = self.state();
        state.fail()?;
        state.containers.remove(&sandbox.id);
        state.running.remove(&sandbox.id);
        Ok(())
    }
}

#[async_trait]
impl Sidecars for FakeWorld {
    async fn ready(&self, _instance: &Instance) -> Result<(), PortError> {
        Ok(())
    }

    async fn exec(&self, instance: &Instance, body: ExecBody) -> Result<ExecReply, SidecarError> {
        if !self.state().running.iter().any(|id| id.to_string() == instance.vessel) {
            return Err(SidecarError::Unreachable("no such container".into()));
        }
        Ok(ExecReply {
            id: body.id.unwrap_or_default(),
            ended: ExecEnd::Exited,
            exit_code: 0,
            stdout: ByteText(body.command.into_bytes()),
            stderr: ByteText::default(),
            truncated: false,
            duration_ms: 0,
        })
    }

    async fn kill(&self, _instance: &Instance, execution: &str) -> Result<(), SidecarError> {
        self.state().killed.push(execution.to_owned());
        Ok(())
    }

    async fn connect(&self, _instance: &Instance) -> Result<Box<dyn Pipe>, SidecarError> {
        Err(SidecarError::NotSent("nothing speaks HTTP here".into()))
    }
}

#[async_trait]
impl Egress for FakeWorld {
    async fn open(&self, sandbox: &Sandbox, _instance: &Instance) -> Result<(), PortError> {
        self.state().open.insert(sandbox.id);
        Ok(())
    }

    async fn close(&self, sandbox: &Sandbox) {
        self.state().open.remove(&sandbox.id);
    }
}

#[async_trait]
impl Snapshots for FakeWorld {
    async fn take(
        &self,
        _sandbox: &Sandbox,
        _instance: &Instance,
        wanted: &SnapshotOrder,
    ) -> Result<Snapshot, PortError> {
        self.state().fail()?;
        Ok(Snapshot { uri: wanted.destination.clone(), size_bytes: 1 })
    }

    async fn restore(&self, _sandbox: &Sandbox, _instance: &Instance, from: &SnapshotUri) -> Result<(), PortError> {
        let mut state = self.state();
        if state.unreadable {
            return Err(PortError::new(FailureCode::SnapshotUnreadable, "told to fail", "told to fail"));
        }
        state.restored.push(from.clone());
        Ok(())
    }
}

#[async_trait]
impl Sandboxes for FakeWorld {
    async fn save(&self, sandbox: &Sandbox) -> Result<(), PortError> {
        self.state().saved.entry(sandbox.id).or_default().push(sandbox.phase.name().to_owned());
        Ok(())
    }
}
