//! An attempt at a step, carried out under a name of its own: a sandbox does what has one name once.

use std::sync::Arc;

use alloy::primitives::Address;
use sandbox_fleet::Unfinished;
use sandbox_fleet::ports::Turns;
use sandbox_fleet::request::{Command, Errand, SnapshotWish};
use sandbox_fleet::workflow::{Action, Start, StepResult, step_key};
use sandbox_protocol::files::{FilePath, FilesQuery as _, ReadQuery};
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use tokio::runtime::Handle;

use super::Shared;
use super::course::Course;
use crate::jobs::{self, NegotiationOrder};
use crate::limits::SNAPSHOT_TIMEOUT;
use crate::records::RunKey;

/// An attempt in hand.
struct Doing {
    shared: Arc<Shared>,
    key: RunKey,
    owner: Address,
    /// What it is called in its sandbox.
    name: String,
    resumed: bool,
}

impl Shared {
    /// Ends what a former life began of an attempt, in a sandbox that outlives its run.
    pub(super) async fn end_begun(&self, run: (RunKey, u16), owner: Address, start: Start) {
        // Its own sandbox goes with the run.
        let Some(sandbox) = start.sandbox else { return };
        let errand = jobs::Errand { owner, id: name_of(run, &start), resumed: true };
        let ended = match start.action {
            Action::Exec(_) => self.parts.executor.end_command(&errand, sandbox).await,
            Action::Agent { .. } => self.parts.executor.end_run(&errand, sandbox).await,
            // They end with the process that conducts them, and what they made goes with the run.
            Action::Snapshot(_) | Action::Negotiation(_) => Ok(()),
        };
        if let Err(error) = ended {
            tracing::info!(%sandbox, %error, "nothing of a step is left to end");
        }
    }

    /// Forgets the moves of a run's negotiations, or of one of them.
    pub(super) async fn forget_moves(&self, run: RunKey, attempt: Option<&str>) {
        if let Err(error) = self.parts.records.forget_moves(run, attempt).await {
            tracing::warn!(workflow = %run.workflow, error = %crate::error_chain(&error), "moves of a negotiation stay");
        }
    }
}

impl Course {
    /// Carries an attempt out, or attaches to what a former life began of it.
    pub(super) fn doing(&self, start: Start, resumed: bool) -> impl Future<Output = StepResult> + Send + use<> {
        let name = name_of((self.key, self.epoch()), &start);
        let doing = Doing { shared: self.shared.clone(), key: self.key, owner: self.owner, name, resumed };
        let sandbox = start.sandbox.or(self.own());
        async move {
            let Some(sandbox) = sandbox else { return no_sandbox() };
            // What is in the run's own sandbox goes with the run: a link there would lead nowhere once it is read.
            let links = start.sandbox.map(|sandbox| links(&doing.shared.parts.url, sandbox, &start.artifacts));
            let done = match start.action.at(sandbox) {
                Action::Exec(command) => doing.exec(command).await,
                Action::Agent { turns, errand } => doing.agent(turns, errand).await,
                Action::Snapshot(wish) => doing.snapshot(sandbox, wish).await,
                Action::Negotiation(errand) => doing.negotiate(errand, start.timeout_ms).await,
            };
            match done {
                Ok(result) => result.with_artifacts(links.into_iter().flatten()),
                Err(Unfinished::Failed(failure)) => StepResult::Failed(failure),
                // The next life asks what became of it.
                Err(Unfinished::Stopping) => std::future::pending().await,
            }
        }
    }
}

impl Doing {
    fn errand(&self) -> jobs::Errand {
        jobs::Errand { owner: self.owner, id: self.name.clone(), resumed: self.resumed }
    }

    async fn exec(&self, command: Command) -> Result<StepResult, Unfinished> {
        let (reply, _) = self.shared.parts.executor.exec(self.errand(), command).await?;
        Ok(StepResult::exec(reply))
    }

    async fn agent(&self, turns: Turns, errand: Errand) -> Result<StepResult, Unfinished> {
        let (reply, _) = self.shared.parts.executor.run(self.errand(), turns, errand).await?;
        Ok(StepResult::agent(reply))
    }

    /// Written anew where a former life may have begun it: a snapshot that was not ended is none.
    async fn snapshot(&self, sandbox: SandboxId, wish: SnapshotWish) -> Result<StepResult, Unfinished> {
        let parts = &self.shared.parts;
        let visit = parts.executor.fleet.visit(sandbox, self.owner).await?;
        let order = wish.of(&visit.sandbox.spec)?;
        let taking = parts.snapshots.take(&visit.sandbox, &visit.instance, &order);
        let late = || Failure::new(FailureCode::Engine, "the snapshot is not written in time");
        let taken = tokio::time::timeout(SNAPSHOT_TIMEOUT, taking).await.map_err(|_| late())?;
        let taken = taken.map_err(|error| {
            tracing::warn!(workflow = %self.key.workflow, error = %crate::error_chain(&error), "no snapshot");
            error.failure
        })?;
        Ok(StepResult::snapshot(taken.uri.as_str(), taken.size_bytes))
    }

    async fn negotiate(&self, errand: Errand, timeout_ms: u64) -> Result<StepResult, Unfinished> {
        let order = NegotiationOrder {
            call: self.key.workflow,
            inputs_hash: self.key.moves(&self.name),
            run: self.name.clone(),
            scope: Some(self.key.scope(&self.name)),
            resumed: self.resumed,
            owner: self.owner,
            timeout_ms,
        };
        let made = Made::of(self.shared.clone(), self.key, &self.name);
        match self.shared.parts.conductor.negotiate(order, errand).await {
            Ok(response) => Ok(StepResult::negotiation(response)),
            Err(Unfinished::Stopping) => {
                made.keep();
                Err(Unfinished::Stopping)
            }
            Err(failed) => Err(failed),
        }
    }
}

/// What an attempt at a negotiation makes: sandboxes, and records of its moves. Dropped, nothing of it stays, however it ended.
pub(super) struct Made {
    shared: Arc<Shared>,
    key: RunKey,
    name: String,
    is_kept: bool,
}

impl Made {
    /// What the attempt of that name makes.
    pub(super) fn of(shared: Arc<Shared>, key: RunKey, name: &str) -> Self {
        Self { shared, key, name: name.to_owned(), is_kept: false }
    }

    /// The next life goes on with it.
    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // When the process itself ends its next life goes on with it, too.
        let Some(handle) = Handle::try_current().ok().filter(|_| !self.is_kept) else { return };
        let (shared, key, name) = (self.shared.clone(), self.key, std::mem::take(&mut self.name));
        drop(handle.spawn(async move {
            shared.parts.conductor.clear(key.workflow, &key.scope(&name)).await;
            shared.forget_moves(key, Some(&name)).await;
        }));
    }
}

/// What an attempt is called in its sandbox.
fn name_of((RunKey { workflow, number }, epoch): (RunKey, u16), start: &Start) -> String {
    step_key(workflow, (epoch, number), &start.id, start.attempt.number)
}

fn no_sandbox() -> StepResult {
    StepResult::Failed(Failure::new(FailureCode::SandboxLost, "the run has no sandbox for the step"))
}

/// Where files of a sandbox are to be had.
fn links(url: &str, sandbox: SandboxId, paths: &[String]) -> Vec<String> {
    let link = |path: &String| {
        let target = ReadQuery { path: FilePath::from(path.as_str()) }.target();
        format!("{url}/sandboxes/{sandbox}{target}")
    };
    paths.iter().map(link).collect()
}
