//! A run, from its first step to its end.
//!
//! What is to be done is decided by `fleet::workflow` and written down before it is done, in one write with what came of what was done
//! before. So whoever takes the run up again, in another life of the process, finds every step where it was. The process's own end is no
//! end of a run: its steps go on in their sandboxes, and are asked for what became of them.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use futures::FutureExt as _;
use sandbox_fleet::Unfinished;
use sandbox_fleet::children::{ChildName, ChildOrder};
use sandbox_fleet::request::SandboxSpec;
use sandbox_fleet::sandbox::Sandbox;
use sandbox_fleet::schedule::overlap::{self, Firing};
use sandbox_fleet::workflow::{Attempt, Plan, RunState, StepResult, TriggerData};
use sandbox_protocol::workflow::{RunEntry, RunStatus};
use sandbox_protocol::{CallKey, Failure, FailureCode, SandboxId};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::error::WorkflowError;
use super::table::Row;
use super::{Checked, Shared, check};
use crate::limits::{WORKFLOW_CLEAR_TIMEOUT, WORKFLOW_SANDBOX_TIMEOUT, WORKFLOW_TEXT_PAUSE, WORKFLOW_TEXT_TRIES_MAX};
use crate::records::{RecordsError, RunKey, RunRecord, WorkflowText, now_ms};

/// A run in hand.
pub(super) struct Course {
    pub(super) shared: Arc<Shared>,
    pub(super) key: RunKey,
    /// Whose the workflow is.
    pub(super) owner: Address,
    plan: Plan,
    record: RunRecord,
    state: RunState,
    /// Its own sandbox, where it has one.
    own: Option<SandboxId>,
    steps: JoinSet<(Attempt, StepResult)>,
    running: HashMap<Attempt, AbortHandle>,
}

/// Tells why a run is given up, once it is.
type Cancelled = watch::Receiver<Option<String>>;

/// Why a run is not carried on in this life.
enum Halt {
    /// It came to nothing, for this reason.
    Failed(String),
    /// It was given up before its first step.
    Cancelled(String),
    /// The process is ending.
    Stopping,
}

impl Shared {
    /// Begins a run, or goes on with one that a former life began. One that goes on already is begun by nobody else.
    pub(super) fn begin(self: &Arc<Self>, key: RunKey, resumed: bool) {
        let begun =
            self.table().get_mut(key.workflow).and_then(|known| Some((known.row.owner, known.begin(key.number)?)));
        if let Some((owner, cancelled)) = begun {
            self.start(key, (owner, cancelled), resumed);
        }
    }

    /// Begins the run that waits longest, if it may run beside those that go on.
    pub(super) fn begin_next(self: &Arc<Self>, workflow: CallKey) {
        let next = self.table().get_mut(workflow).and_then(|known| {
            let may_run = overlap::decide(known.overlap(), known.running.len(), 0) == Firing::Start;
            let number = if may_run { known.queued.pop_front()? } else { return None };
            Some((number, known.row.owner, known.begin(number)?))
        });
        if let Some((number, owner, cancelled)) = next {
            self.start(RunKey { workflow, number }, (owner, cancelled), false);
        }
    }

    /// Carries out a run that the table has as begun.
    pub(super) fn start(self: &Arc<Self>, key: RunKey, (owner, cancelled): (Address, Cancelled), resumed: bool) {
        let shared = self.clone();
        tokio::spawn(async move {
            let course = AssertUnwindSafe(shared.clone().carry_out(key, owner, cancelled, resumed));
            if course.catch_unwind().await.is_err() {
                tracing::error!(workflow = %key.workflow, run = key.number, "a run panicked; it is left for the next start");
            }
            if let Some(known) = shared.table().get_mut(key.workflow) {
                known.running.remove(&key.number);
            }
            shared.tell_changed(key);
            shared.begin_next(key.workflow);
        });
    }

    async fn carry_out(self: Arc<Self>, key: RunKey, owner: Address, cancelled: Cancelled, resumed: bool) {
        let record = match self.parts.records.run(key) {
            Ok(Some(record)) => record,
            Ok(None) => return tracing::error!(workflow = %key.workflow, run = key.number, "a run is in no record"),
            Err(error) => return never(&error).await,
        };
        let mut waiting = cancelled.clone();
        let preparing = async {
            let place = self.places.take(owner).await.map_err(|_| Halt::Stopping)?;
            Ok((place, self.clone().prepared(key, owner, record.clone()).await?))
        };
        let prepared = tokio::select! {
            prepared = preparing => prepared,
            reason = given_up(&mut waiting) => Err(Halt::Cancelled(reason)),
        };
        match prepared {
            Ok((_place, course)) => {
                if let Err(error) = course.run(cancelled, resumed).await {
                    never(&error).await;
                }
            }
            Err(Halt::Failed(reason)) => self.give_up(key, &record, (RunStatus::Failed, reason)).await,
            Err(Halt::Cancelled(reason)) => self.give_up(key, &record, (RunStatus::Cancelled, reason)).await,
            Err(Halt::Stopping) => std::future::pending().await,
        }
    }

    /// A run with all that it needs: its plan, and its own sandbox where it has one.
    async fn prepared(self: Arc<Self>, key: RunKey, owner: Address, record: RunRecord) -> Result<Course, Halt> {
        let row = self.table().get(key.workflow).map(|known| known.row.clone());
        let row = row.ok_or_else(|| Halt::Cancelled("the workflow is over".into()))?;
        let text = self.text_at_last(key.workflow, &row).await?;
        let Checked { plan, spec } = check(&text, &self.parts.menu).map_err(|failure| Halt::Failed(failure.message))?;
        let own = match spec {
            Some(spec) if plan.uses_own_sandbox() && !is_over(&record) => {
                self.is_there_still(key, &record).await?;
                Some(self.own_sandbox(key, owner, spec).await?.id)
            }
            Some(_) | None => None,
        };
        let state = record.state.clone().unwrap_or_else(|| {
            let trigger = TriggerData { run: key.number, cause: record.entry.cause.clone(), body: record.body.clone() };
            RunState::begin(&plan, trigger, now_ms())
        });
        let (steps, running) = (JoinSet::new(), HashMap::new());
        Ok(Course { shared: self, key, owner, plan, record, state, own, steps, running })
    }

    /// The text of a workflow; a chain that does not answer is asked again, for a while.
    async fn text_at_last(&self, workflow: CallKey, row: &Row) -> Result<WorkflowText, Halt> {
        let mut tries = 1;
        loop {
            match self.text(workflow, row).await {
                Ok(text) => return Ok(text),
                Err(WorkflowError::Records(_)) => return Err(Halt::Stopping),
                Err(WorkflowError::Chain(_) | WorkflowError::NoText) if tries < WORKFLOW_TEXT_TRIES_MAX => tries += 1,
                Err(error) => return Err(Halt::Failed(error.to_string())),
            }
            sleep(WORKFLOW_TEXT_PAUSE).await;
        }
    }

    /// A run that was begun in a sandbox of its own goes on in that one or not at all: what it left there is part of it.
    async fn is_there_still(&self, key: RunKey, record: &RunRecord) -> Result<(), Halt> {
        if record.state.is_none() {
            return Ok(());
        }
        let children = self.parts.executor.fleet.children(key.workflow).await.map_err(|_| Halt::Stopping)?;
        let lives = children.iter().any(|child| child.lives() && key.is_own(child));
        if lives { Ok(()) } else { Err(Halt::Failed("the run's sandbox is gone".into())) }
    }

    /// The sandbox of a run: the one there is, or a new one as soon as there is room.
    async fn own_sandbox(&self, key: RunKey, owner: Address, spec: SandboxSpec) -> Result<Sandbox, Halt> {
        let name = ChildName::parse(&key.child_name()).map_err(|error| Halt::Failed(error.to_string()))?;
        let order = ChildOrder { parent: key.workflow, name, owner, spec, expires_at_block: None };
        match timeout(WORKFLOW_SANDBOX_TIMEOUT, self.parts.executor.fleet.create_child(order)).await {
            Ok(Ok(sandbox)) => Ok(sandbox),
            Ok(Err(Unfinished::Failed(failure))) => Err(Halt::Failed(format!("no sandbox for the run: {failure}"))),
            Ok(Err(Unfinished::Stopping)) => Err(Halt::Stopping),
            Err(_) => Err(Halt::Failed("no sandbox for the run in time".into())),
        }
    }

    /// Has nothing left of a run's own sandbox, or of what its negotiations made.
    async fn clear(&self, key: RunKey) {
        self.forget_moves(key, None).await;
        let fleet = &self.parts.executor.fleet;
        let clearing = async {
            for child in fleet.children(key.workflow).await? {
                if child.lives() && RunKey::of_child(&child) == Some(key) {
                    fleet.delete(child.id, child.owner).await?;
                }
            }
            Ok::<(), Unfinished>(())
        };
        match timeout(WORKFLOW_CLEAR_TIMEOUT, clearing).await {
            Ok(Ok(())) => {}
            // What is left is found by who compares sandboxes with what they are for.
            Ok(Err(error)) => tracing::warn!(workflow = %key.workflow, %error, "a run's sandbox is not removed"),
            Err(_) => tracing::warn!(workflow = %key.workflow, "a run's sandbox is not removed yet"),
        }
    }

    /// Ends a run that is not carried on, with its sandbox and with what a former life began of it elsewhere.
    pub(super) async fn give_up(&self, key: RunKey, record: &RunRecord, (status, reason): (RunStatus, String)) {
        let state = self.broken_off(key, record, &reason).await.unwrap_or_else(|error| {
            tracing::warn!(workflow = %key.workflow, error = %crate::error_chain(&error), "a run's steps may go on");
            record.state.clone()
        });
        self.clear(key).await;
        // The reason may repeat what is sealed.
        tracing::info!(workflow = %key.workflow, run = key.number, status = status.name(), "a run is given up");
        let entry = RunEntry { status, ended_ms: Some(now_ms()), reason: Some(reason), ..record.entry.clone() };
        if let Err(error) = self.parts.records.put_run(key, &RunRecord { entry, state, ..record.clone() }).await {
            never(&error).await;
        }
        self.tell_changed(key);
    }

    /// The steps of a run that is given up: what a former life began of them is ended where it would go on for nobody.
    async fn broken_off(
        &self,
        key: RunKey,
        record: &RunRecord,
        reason: &str,
    ) -> Result<Option<RunState>, WorkflowError> {
        let Some(mut state) = record.state.clone().filter(|state| state.ended.is_none()) else {
            return Ok(record.state.clone());
        };
        let (view, _) = self.parts.chain.workflow(key.workflow).await?.ok_or(WorkflowError::NoText)?;
        let text = self.parts.records.workflow_text(key.workflow, view.bodyHash)?.ok_or(WorkflowError::NoText)?;
        let plan = text.plan().map_err(WorkflowError::Text)?;
        state.cancel(reason, now_ms());
        for start in state.running(&plan) {
            let attempt = start.attempt;
            self.end_begun((key, record.epoch), view.owner, start).await;
            state.settle(&plan, attempt, StepResult::BrokenOff, now_ms());
        }
        state.advance(&plan, now_ms());
        Ok(Some(state))
    }
}

impl Course {
    /// Carries the run to its end.
    async fn run(mut self, mut cancelled: Cancelled, resumed: bool) -> Result<(), RecordsError> {
        if resumed {
            for start in self.state.take_up(&self.plan, now_ms()) {
                self.start(start, true);
            }
        }
        loop {
            let advance = self.state.advance(&self.plan, now_ms());
            if self.record.state.as_ref() != Some(&self.state) {
                self.save().await?;
            }
            if let Some(status) = advance.ended {
                return self.end(status).await;
            }
            advance.start.into_iter().for_each(|start| self.start(start, false));
            if !advance.cancel.is_empty() {
                self.break_off(advance.cancel);
                continue;
            }
            let wake = advance.wake_at_ms.map(|at_ms| Duration::from_millis(at_ms.saturating_sub(now_ms())));
            tokio::select! {
                Some(ended) = self.steps.join_next() => self.settle(ended),
                () = async { match wake { Some(wake) => sleep(wake).await, None => std::future::pending().await } } => {}
                reason = given_up(&mut cancelled), if self.state.cancelled.is_none() => self.state.cancel(&reason, now_ms()),
            }
        }
    }

    fn start(&mut self, start: sandbox_fleet::workflow::Start, resumed: bool) {
        let attempt = start.attempt;
        let doing = self.doing(start, resumed);
        self.running.insert(attempt, self.steps.spawn(async move { (attempt, doing.await) }));
    }

    /// What is not waited for any more is ended in its sandbox.
    fn break_off(&mut self, attempts: Vec<Attempt>) {
        for attempt in attempts {
            if let Some(running) = self.running.remove(&attempt) {
                running.abort();
            }
            self.state.settle(&self.plan, attempt, StepResult::BrokenOff, now_ms());
        }
    }

    fn settle(&mut self, ended: Result<(Attempt, StepResult), tokio::task::JoinError>) {
        let (attempt, result) = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_cancelled() => return,
            Err(error) => {
                let panicked =
                    self.running.iter().find(|(_, task)| task.id() == error.id()).map(|(attempt, _)| *attempt);
                let Some(attempt) = panicked else { return };
                tracing::error!(workflow = %self.key.workflow, run = self.key.number, %error, "a step panicked");
                let failure = Failure::new(FailureCode::Internal, "the operator failed");
                (attempt, StepResult::Failed(failure))
            }
        };
        self.running.remove(&attempt);
        self.state.settle(&self.plan, attempt, result, now_ms());
    }

    async fn save(&mut self) -> Result<(), RecordsError> {
        self.record.state = Some(self.state.clone());
        self.record.entry.status = RunStatus::Running;
        self.record.entry.started_ms.get_or_insert(self.state.started_ms);
        self.shared.parts.records.put_run(self.key, &self.record).await?;
        self.shared.tell_changed(self.key);
        Ok(())
    }

    async fn end(mut self, status: RunStatus) -> Result<(), RecordsError> {
        self.shared.clear(self.key).await;
        let reason = self.state.reason(&self.plan);
        let entry = &mut self.record.entry;
        (entry.status, entry.ended_ms, entry.reason) = (status, Some(now_ms()), reason);
        entry.started_ms.get_or_insert(self.state.started_ms);
        self.record.state = Some(self.state);
        self.shared.parts.records.put_run(self.key, &self.record).await?;
        tracing::info!(workflow = %self.key.workflow, run = self.key.number, status = status.name(), "a run has ended");
        Ok(())
    }

    /// The epoch in which it was fired.
    pub(super) const fn epoch(&self) -> u16 {
        self.record.epoch
    }

    /// The run's own sandbox.
    pub(super) const fn own(&self) -> Option<SandboxId> {
        self.own
    }
}

/// Whether a run has come to its end, though that was not told.
fn is_over(record: &RunRecord) -> bool {
    record.state.as_ref().is_some_and(|state| state.ended.is_some())
}

/// Why the run is given up, once it is.
async fn given_up(cancelled: &mut Cancelled) -> String {
    let reason = cancelled.wait_for(Option::is_some).await.map(|reason| reason.clone().unwrap_or_default());
    match reason {
        Ok(reason) => reason,
        // Nobody can give it up any more.
        Err(_) => std::future::pending().await,
    }
}

/// A store that failed ends the process: nothing is undone meanwhile, and the next life goes on.
async fn never(error: &RecordsError) {
    tracing::error!(error = %crate::error_chain(error), "a run is left for the next start");
    std::future::pending().await
}
