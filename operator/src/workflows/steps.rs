//! An attempt at a step, carried out under a name of its own: a sandbox does what has one name once.

use std::sync::Arc;

use alloy::primitives::{Address, keccak256};
use sandbox_fleet::Unfinished;
use sandbox_fleet::ports::Turns;
use sandbox_fleet::request::{Command, Errand, SnapshotWish};
use sandbox_fleet::workflow::{Action, Start, StepResult, step_key};
use sandbox_protocol::files::{FilePath, FilesQuery as _, ReadQuery};
use sandbox_protocol::{Failure, FailureCode, SandboxId};

use super::course::Course;
use super::error::WorkflowError;
use super::{Checked, Shared, check};
use crate::jobs::{self, NegotiationOrder};
use crate::limits::SNAPSHOT_TIMEOUT;
use crate::records::{RunKey, RunRecord};

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
    /// Ends what a former life began of a run that nobody carries on: in a sandbox that outlives the run it would go on for nobody.
    pub(super) async fn end_begun(&self, key: RunKey, record: &RunRecord) -> Result<(), WorkflowError> {
        let Some(state) = &record.state else { return Ok(()) };
        let Some((view, _)) = self.parts.chain.workflow(key.workflow).await? else { return Ok(()) };
        let Some(text) = self.parts.records.workflow_text(key.workflow, view.bodyHash)? else { return Ok(()) };
        let Checked { plan, .. } = check(&text, &self.parts.menu).map_err(WorkflowError::Text)?;
        for start in state.running(&plan) {
            // Its own sandbox goes with the run.
            let Some(sandbox) = start.sandbox else { continue };
            let errand = jobs::Errand { owner: view.owner, id: name_of(key, &start), resumed: true };
            let ended = match start.action {
                Action::Exec(_) => self.parts.executor.end_command(&errand, sandbox).await,
                Action::Agent { .. } => self.parts.executor.end_run(&errand, sandbox).await,
                // They end with the process that conducts them.
                Action::Snapshot(_) | Action::Negotiation(_) => Ok(()),
            };
            if let Err(error) = ended {
                tracing::info!(workflow = %key.workflow, run = key.number, %sandbox, %error, "nothing to end");
            }
        }
        Ok(())
    }
}

impl Course {
    /// Carries an attempt out, or attaches to what a former life began of it.
    pub(super) fn doing(&self, start: Start, resumed: bool) -> impl Future<Output = StepResult> + Send + use<> {
        let name = name_of(self.key, &start);
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
        let parts = &self.shared.parts;
        let order = NegotiationOrder {
            call: self.key.workflow,
            inputs_hash: keccak256(&self.name),
            run: self.name.clone(),
            resumed: self.resumed,
            owner: self.owner,
            timeout_ms,
        };
        let response = parts.conductor.negotiate(order, errand).await?;
        if let Err(error) = parts.records.forget_moves(self.key.workflow, keccak256(&self.name)).await {
            tracing::warn!(error = %crate::error_chain(&error), "moves of a negotiation stay");
        }
        Ok(StepResult::negotiation(response))
    }
}

/// What an attempt is called in its sandbox.
fn name_of(RunKey { workflow, number }: RunKey, start: &Start) -> String {
    step_key(workflow.service, workflow.call, number, &start.id, start.attempt.number)
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
