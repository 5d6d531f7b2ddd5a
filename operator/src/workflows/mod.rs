//! Workflows: fired by the clock, by requests, by events and by job 31; carried out step by step; kept in step with the chain.
//!
//! | module | what it is |
//! |---|---|
//! | `table` | who is due, who runs, who waits: in memory, and pure |
//! | `registry` | keeps the table what the chain says |
//! | `text` | what a workflow does, checked |
//! | `fire` | a firing, written down once, whatever names it |
//! | `course`, `steps` | a run, from its first step to its end, over however many lives of the process |
//! | `places` | how many runs are carried out at a time, of all and of one owner's |
//! | `events`, `logs` | events that fire, and the logs that tell of them |
//! | `report` | firings told to the chain, many at a time |
//! | `views`, `waiters` | what the API tells, and whom it tells of a run's changes |
//!
//! A workflow is fired by the operator that the chain names, and by nobody on an old sight of the chain. What names a firing, an instant
//! or a delivery, is on disk with the run that it fired, so it fires once.

mod course;
mod error;
mod events;
#[cfg(test)]
mod events_tests;
mod fire;
mod logs;
mod places;
mod registry;
mod report;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod views;
#[cfg(test)]
mod views_tests;
mod waiters;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use alloy::primitives::Address;
use sandbox_fleet::ports::Snapshots;
use sandbox_fleet::request::Menu;
use sandbox_fleet::workflow::Value;
use sandbox_protocol::CallKey;
use sandbox_protocol::workflow::{Cause, RunStatus};
use sandbox_sdk::Chain;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::places::Places;
use self::table::Table;
use self::waiters::Waiters;
use crate::chain::head::Look;
use crate::chain::key::SealKeys;
use crate::chain::notices::Notices;
use crate::chain::sender::Sender;
use crate::jobs::{Conductor, Executor};
use crate::limits::{WORKFLOW_READS_AT_ONCE_MAX, WORKFLOW_RUNS_EACH_MAX, WORKFLOW_RUNS_RUNNING_MAX};
use crate::records::{Records, RunKey, now_ms};

pub(crate) use self::error::WorkflowError;
pub(crate) use self::fire::Fired;
#[cfg(test)]
pub(crate) use self::tests::{Sight, of_nobody};
pub(crate) use self::text::{Checked, check, check_trigger};
pub(crate) use self::views::Hook;

/// What workflows are carried out with.
pub(crate) struct Parts {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) executor: Executor,
    pub(crate) conductor: Conductor,
    pub(crate) snapshots: Arc<dyn Snapshots>,
    pub(crate) menu: Menu,
    pub(crate) seal_keys: SealKeys,
    pub(crate) sender: Sender,
    pub(crate) looks: watch::Receiver<Look>,
    /// Oldest newest block on which anything is fired, in seconds of its age; zero is without bound.
    pub(crate) head_age_s_max: u64,
    /// The most that this may be at any other operator.
    pub(crate) others_head_age_s_max: u64,
    /// Blocks that a block must have on top of it before it is believed.
    pub(crate) confirmations: u64,
    /// What the reader of the chain saw of workflows.
    pub(crate) notices: Notices,
    /// This operator.
    pub(crate) me: Address,
    /// Only this service, where one is named.
    pub(crate) service: Option<u64>,
    /// Where customers reach the API.
    pub(crate) url: String,
    /// Time between two reports of firings on chain; `None` reports none.
    pub(crate) report_pause: Option<Duration>,
}

/// The workflows of this operator. Clones share them.
#[derive(Clone)]
pub(crate) struct Workflows(Arc<Shared>);

struct Shared {
    parts: Parts,
    table: Mutex<Table>,
    /// Workflows that the chain does not have as active yet, though they were answered here.
    expected: Mutex<BTreeSet<CallKey>>,
    /// Those that it does not have as this operator's any more, with the newest block when that was seen first.
    parting: Mutex<BTreeMap<CallKey, u64>>,
    /// See [`table::Moment::handover_s`].
    handover_s: OnceLock<i64>,
    /// Held by the tick that goes on.
    ticking: tokio::sync::Mutex<()>,
    /// Places for runs that are carried out.
    places: Places,
    /// Counts what was written of runs.
    changed: watch::Sender<u64>,
    /// Who waits for a change of one of them.
    waiters: Waiters,
    /// Places for reads that take long.
    reads: Arc<Semaphore>,
    /// Something was fired that the chain is to be told of.
    unreported: Notify,
    /// Whether the table is what the chain says: nothing is fired before.
    in_step: watch::Sender<bool>,
    stop: CancellationToken,
}

impl Workflows {
    /// None yet: they are read from the chain by [`Workflows::run`].
    pub(crate) fn new(parts: Parts, stop: CancellationToken) -> Self {
        Self(Arc::new(Shared {
            parts,
            table: Mutex::default(),
            expected: Mutex::default(),
            parting: Mutex::default(),
            handover_s: OnceLock::new(),
            ticking: tokio::sync::Mutex::default(),
            places: Places::new(WORKFLOW_RUNS_RUNNING_MAX, WORKFLOW_RUNS_EACH_MAX),
            changed: watch::Sender::new(0),
            waiters: Waiters::default(),
            reads: Arc::new(Semaphore::new(WORKFLOW_READS_AT_ONCE_MAX)),
            unreported: Notify::new(),
            in_step: watch::Sender::new(false),
            stop,
        }))
    }

    /// Reads the workflows from the chain, goes on with runs of a former life, and keeps everything in step until it is stopped.
    pub(crate) async fn run(self) {
        let shared = self.0;
        let stop = shared.stop.clone();
        let keeping = async {
            shared.expect_answered();
            shared.learn_handover().await;
            shared.rebuild().await;
            shared.take_up().await;
            shared.in_step.send_replace(true);
            shared.tick().await;
            tokio::join!(shared.keep_in_step(), shared.watch_events(), shared.report());
        };
        stop.run_until_cancelled(keeping).await;
    }

    /// Fires what is due. Ticks that come while one goes on are left out: the next finds what they would have.
    pub(crate) async fn tick(&self) {
        self.0.tick().await;
    }

    /// Expects the chain to have this workflow as active soon: it was answered here.
    pub(crate) fn expect(&self, key: CallKey) {
        self.0.expected().insert(key);
    }

    /// Fires a workflow for job 31; a repeat of the call gives the run that it fired.
    pub(crate) async fn trigger(&self, key: CallKey, call: u64) -> Result<(u64, RunStatus), WorkflowError> {
        self.0.read().await;
        self.0.looked_up_unless_active(key).await?;
        let cause = Cause::Manual { call };
        let fired = self.0.fire(key, Fired { cause, body: Value::Null, seal: None }).await?;
        Ok((fired.number, fired.status))
    }

    /// Ends a workflow, which the chain has as cancelled, and its runs; returns when they have ended, or the time for it is over.
    pub(crate) async fn cancel(&self, key: CallKey) {
        self.0.read().await;
        self.0.drop_workflow(key, "the workflow was cancelled").await;
        // A look that began before may enter it once more; another one, after it, takes it out.
        self.0.expected().insert(key);
        self.0.runs_ended(key).await;
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expected(&self) -> MutexGuard<'_, BTreeSet<CallKey>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parting(&self) -> MutexGuard<'_, BTreeMap<CallKey, u64>> {
        self.parting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the workflows were read from the chain, and runs of a former life were taken up.
    async fn read(&self) {
        if self.in_step.subscribe().wait_for(|is_in_step| *is_in_step).await.is_err() {
            tracing::debug!("nobody reads the workflows any more");
        }
    }

    /// The newest block that is believed.
    fn believed(&self) -> u64 {
        self.parts.looks.borrow().block.number.saturating_sub(self.parts.confirmations)
    }

    /// Says that something of this run was written.
    fn tell_changed(&self, run: RunKey) {
        self.waiters.tell(run);
        self.changed.send_modify(|changes| *changes += 1);
    }
}

/// Seconds since 1970.
fn now_s() -> i64 {
    i64::try_from(now_ms() / 1_000).unwrap_or(i64::MAX)
}
