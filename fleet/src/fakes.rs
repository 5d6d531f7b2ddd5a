//! Ports without a world behind them, for tests: what exists is a set in memory, and each may be told to fail.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sandbox_protocol::exec::{ByteText, ExecBody, ExecEnd, ExecReply};
use sandbox_protocol::{FailureCode, SandboxId};

use crate::ports::{Containers, PortError, Sandboxes, SidecarError, Sidecars};
use crate::sandbox::{Instance, Sandbox};

/// An engine, its sidecars and a record store in memory.
#[derive(Debug, Default)]
pub struct FakeWorld {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    containers: BTreeSet<SandboxId>,
    saved: BTreeMap<SandboxId, Vec<String>>,
    failing: VecDeque<FailureCode>,
    adoptions_fail: bool,
    provisions: usize,
}

impl FakeWorld {
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

    /// Removes a container behind the fleet's back.
    pub fn lose(&self, id: SandboxId) {
        self.state().containers.remove(&id);
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

fn instance() -> Instance {
    Instance { runtime: "fake".into(), image_digest: "sha256:fake".into() }
}

#[async_trait]
impl Containers for FakeWorld {
    async fn provision(&self, sandbox: &Sandbox) -> Result<Instance, PortError> {
        let mut state = self.state();
        state.provisions += 1;
        // As with a real engine, a failure may strike after something was made.
        state.containers.insert(sandbox.id);
        state.fail()?;
        Ok(instance())
    }

    async fn adopt(&self, sandbox: &Sandbox) -> Result<Option<Instance>, PortError> {
        let mut state = self.state();
        state.fail()?;
        if state.adoptions_fail {
            return Err(PortError::new(FailureCode::Engine, "told to fail", "told to fail"));
        }
        Ok(state.containers.contains(&sandbox.id).then(instance))
    }

    async fn remove(&self, id: SandboxId) -> Result<(), PortError> {
        let mut state = self.state();
        state.fail()?;
        state.containers.remove(&id);
        Ok(())
    }
}

#[async_trait]
impl Sidecars for FakeWorld {
    async fn ready(&self, _sandbox: &Sandbox) -> Result<(), PortError> {
        Ok(())
    }

    async fn exec(&self, sandbox: &Sandbox, body: ExecBody) -> Result<ExecReply, SidecarError> {
        if !self.state().containers.contains(&sandbox.id) {
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
}

#[async_trait]
impl Sandboxes for FakeWorld {
    async fn save(&self, sandbox: &Sandbox) -> Result<(), PortError> {
        self.state().saved.entry(sandbox.id).or_default().push(sandbox.phase.name().to_owned());
        Ok(())
    }
}
