//! The workflows that this operator fires, as the chain has them, in memory: who is due, who runs, who waits.
//!
//! Nothing here asks, writes or waits: time and what the chain says are arguments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use alloy::primitives::{Address, B256};
use sandbox_fleet::schedule::{BadCron, Cron, Due, DueQueue, Entry};
use sandbox_protocol::CallKey;
use sandbox_protocol::workflow::{BadTrigger, CatchUp, EventSource, Overlap, Trigger};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{WorkflowStatus, WorkflowTrigger, WorkflowView};
use tokio::sync::{Mutex, watch};

use crate::records::Standing;

/// What the chain says of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) owner: Address,
    pub(super) epoch: u16,
    pub(super) kind: &'static str,
    pub(super) config: String,
    pub(super) body_hash: B256,
    pub(super) last_triggered_s: u64,
    pub(super) is_paused: bool,
}

/// What the clock and the chain say when a workflow is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Seconds since 1970.
    pub(super) now_s: i64,
    /// The newest block that is believed.
    pub(super) block: u64,
    /// Seconds for which nobody fires a workflow that came from another operator: that one may not know it yet.
    pub(super) handover_s: i64,
}

/// Why nothing fires a workflow.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoTrigger {
    /// Its configuration is none.
    #[error(transparent)]
    Trigger(#[from] BadTrigger),
    /// Its clock is none.
    #[error(transparent)]
    Cron(#[from] BadCron),
}

/// Why a run is to end early; nothing while it is not.
pub(super) type Cancel = watch::Sender<Option<String>>;

/// A workflow.
pub(super) struct Known {
    pub(super) row: Row,
    /// What fires it, or why nothing does.
    pub(super) trigger: Result<Trigger, NoTrigger>,
    pub(super) standing: Standing,
    /// Its runs that go on, by number.
    pub(super) running: BTreeMap<u64, Cancel>,
    /// Its runs that wait for those, in their order.
    pub(super) queued: VecDeque<u64>,
    /// Held by who fires it.
    pub(super) turn: Arc<Mutex<()>>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Table {
    of: BTreeMap<CallKey, Known>,
    due: DueQueue,
}

impl Row {
    /// What a view of the contract's says.
    pub(super) fn of(view: &WorkflowView) -> Self {
        let kind = match view.trigger {
            WorkflowTrigger::Manual => "manual",
            WorkflowTrigger::Cron => "cron",
            WorkflowTrigger::Webhook => "webhook",
            WorkflowTrigger::Event => "event",
            WorkflowTrigger::__Invalid => "unknown",
        };
        Self {
            owner: view.owner,
            epoch: view.epoch,
            kind,
            config: view.triggerConfig.clone(),
            body_hash: view.bodyHash,
            last_triggered_s: view.lastTriggered,
            is_paused: view.status == WorkflowStatus::Paused,
        }
    }

    /// How far it is, from what was known before: who has it from another operator leaves alone what that one may still fire, and
    /// nothing is made up for of the time in which its owner wanted none.
    pub(super) fn standing(&self, known: Option<Standing>, at: Moment) -> Standing {
        let standing = match known {
            Some(standing) if standing.epoch == self.epoch && standing.is_paused && !self.is_paused => {
                Standing { since_s: at.now_s, since_block: at.block, ..standing }
            }
            Some(standing) if standing.epoch == self.epoch => standing,
            other => {
                let last_triggered_s = i64::try_from(self.last_triggered_s).unwrap_or(i64::MAX);
                let handover_s = if self.epoch == 0 { 0 } else { at.handover_s };
                let since_s = (at.now_s + handover_s).max(last_triggered_s.saturating_add(1));
                Standing { epoch: self.epoch, since_s, since_block: at.block, ..other.unwrap_or_default() }
            }
        };
        Standing { is_paused: self.is_paused, ..standing }
    }
}

impl Known {
    /// What becomes of a firing while a run goes on.
    pub(super) fn overlap(&self) -> Overlap {
        self.trigger.as_ref().map_or_else(|_| Overlap::default(), Trigger::overlap)
    }

    /// Has a run go on, unless it does; where it is told that it is given up.
    pub(super) fn begin(&mut self, number: u64) -> Option<watch::Receiver<Option<String>>> {
        if self.running.contains_key(&number) {
            return None;
        }
        let (cancel, cancelled) = watch::channel(None);
        self.running.insert(number, cancel);
        Some(cancelled)
    }

    /// Has a run wait, unless it does or goes on.
    pub(super) fn queue(&mut self, number: u64) {
        if !self.running.contains_key(&number) && !self.queued.contains(&number) {
            self.queued.push_back(number);
        }
    }

    /// What in the world fires it.
    pub(super) fn event(&self) -> Option<&EventSource> {
        match &self.trigger {
            Ok(Trigger::Event(event)) if !self.row.is_paused => Some(&event.source),
            Ok(Trigger::Event(_) | Trigger::Manual(_) | Trigger::Cron(_) | Trigger::Webhook(_)) | Err(_) => None,
        }
    }

    /// Whether requests fire it.
    pub(super) fn has_hook(&self) -> bool {
        matches!(&self.trigger, Ok(Trigger::Webhook(_)))
    }
}

impl Table {
    /// Enters a workflow as the chain has it now; its runs go on.
    pub(super) fn enter(&mut self, key: CallKey, row: Row, standing: Standing, now_s: i64) {
        let (trigger, cron) = match Trigger::parse(row.kind, &row.config) {
            Ok(Trigger::Cron(found)) => match Cron::parse(&found.cron, &found.tz) {
                Ok(cron) => {
                    let (policy, jitter_s) = (found.catch_up, found.jitter_s);
                    (Ok(Trigger::Cron(found)), Some((cron, policy, jitter_s)))
                }
                Err(error) => (Err(error.into()), None),
            },
            Ok(other) => (Ok(other), None),
            Err(error) => (Err(error.into()), None),
        };
        match cron {
            Some(cron) if !row.is_paused => self.due.enter(key, entry(cron, &standing), now_s),
            Some(_) | None => self.due.leave(key),
        }
        match self.of.get_mut(&key) {
            Some(known) => {
                (known.row, known.trigger, known.standing) = (row, trigger, standing);
            }
            None => {
                let (running, queued, turn) = (BTreeMap::new(), VecDeque::new(), Arc::default());
                self.of.insert(key, Known { row, trigger, standing, running, queued, turn });
            }
        }
    }

    /// Takes a workflow out, with its runs, each to be told why.
    pub(super) fn leave(&mut self, key: CallKey) -> Option<Known> {
        self.due.leave(key);
        self.of.remove(&key)
    }

    /// A workflow.
    pub(super) fn get(&self, key: CallKey) -> Option<&Known> {
        self.of.get(&key)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, key: CallKey) -> Option<&mut Known> {
        self.of.get_mut(&key)
    }

    /// All of them, by service and number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CallKey, &Known)> {
        self.of.iter().map(|(key, known)| (*key, known))
    }

    /// Those whose time has come, with the instants that they are to be fired for.
    pub(super) fn due(&mut self, now_s: i64) -> Vec<Due> {
        self.due.due(now_s)
    }

    /// Has the clock come again for what it was not fired for.
    pub(super) fn put_back(&mut self, key: CallKey, now_s: i64) {
        if let Some((row, standing)) = self.get(key).map(|known| (known.row.clone(), known.standing.clone())) {
            self.enter(key, row, standing, now_s);
        }
    }

    /// When the clock fires a workflow next, in seconds since 1970.
    pub(super) fn next_slot_s(&self, key: CallKey) -> Option<i64> {
        self.due.next_at(key)
    }
}

fn entry((cron, policy, jitter_s): (Cron, CatchUp, u32), standing: &Standing) -> Entry {
    Entry { cron, policy, jitter_s, last_slot_s: standing.last_slot_s, since_s: standing.since_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CallKey = CallKey { service: 1, call: 2 };
    /// A full hour.
    const NOON_S: i64 = 1_700_006_400;

    fn row(kind: &'static str, config: &str, epoch: u16) -> Row {
        let (owner, body_hash) = (Address::ZERO, B256::ZERO);
        Row { owner, epoch, kind, config: config.into(), body_hash, last_triggered_s: 0, is_paused: false }
    }

    const HANDOVER_S: i64 = 60;

    fn at(now_s: i64) -> Moment {
        Moment { now_s, block: 7, handover_s: HANDOVER_S }
    }

    fn enter(table: &mut Table, row: &Row, is_paused: bool, standing: &Standing, now_s: i64) {
        table.enter(KEY, Row { is_paused, ..row.clone() }, standing.clone(), now_s);
    }

    #[test]
    fn a_workflow_is_due_at_its_instants_unless_it_is_paused_or_gone() {
        let (mut table, row) = (Table::default(), row("cron", "0 * * * *", 0));
        let standing = row.standing(None, at(NOON_S - 60));
        enter(&mut table, &row, false, &standing, NOON_S - 60);
        assert_eq!(table.due(NOON_S - 1).len(), 0);
        let due = table.due(NOON_S + 2);
        assert_eq!((due.len(), due[0].slots.as_slice()), (1, [NOON_S].as_slice()));
        enter(&mut table, &row, true, &standing, NOON_S + 3);
        assert_eq!((table.next_slot_s(KEY), table.due(NOON_S + 7_200).len()), (None, 0));
        enter(&mut table, &row, false, &standing, NOON_S + 3);
        assert!(table.leave(KEY).is_some());
        assert_eq!((table.due(NOON_S + 7_200).len(), table.iter().count()), (0, 0));
    }

    #[test]
    fn who_has_a_workflow_from_another_operator_leaves_alone_what_that_one_may_fire() {
        let moved = row("cron", "* * * * *", 1);
        let standing = moved.standing(None, at(NOON_S));
        assert_eq!((standing.epoch, standing.since_s, standing.since_block), (1, NOON_S + HANDOVER_S, 7));
        assert_eq!(moved.standing(Some(standing.clone()), at(NOON_S + 500)), standing, "known as it is");
        let back = row("cron", "* * * * *", 2).standing(Some(standing), at(NOON_S + 500));
        assert_eq!((back.epoch, back.since_s), (2, NOON_S + 500 + HANDOVER_S));
        let ahead = Row { last_triggered_s: NOON_S as u64 + 900, ..moved };
        assert_eq!(ahead.standing(None, at(NOON_S)).since_s, NOON_S + 901);
    }

    #[test]
    fn of_a_pause_nothing_is_made_up_for_also_when_it_began_in_a_former_life() {
        let (mut table, active) = (Table::default(), row("cron", "0 * * * *", 0));
        let paused = Row { is_paused: true, ..active.clone() };
        let standing = active.standing(None, at(NOON_S - 60));
        let kept = paused.standing(Some(standing), at(NOON_S - 30));
        let resumed = active.standing(Some(kept), at(NOON_S + 60));
        enter(&mut table, &active, false, &resumed, NOON_S + 60);
        assert_eq!(table.due(NOON_S + 3_500).len(), 0, "its noon was in the pause");
        assert_eq!(table.due(NOON_S + 3_602)[0].slots, [NOON_S + 3_600]);
    }

    #[test]
    fn what_was_due_and_not_fired_is_due_again() {
        let (mut table, row) = (Table::default(), row("cron", "0 * * * *", 0));
        enter(&mut table, &row, false, &row.standing(None, at(NOON_S - 60)), NOON_S - 60);
        assert_eq!(table.due(NOON_S + 2)[0].slots, [NOON_S]);
        assert_eq!(table.due(NOON_S + 3).len(), 0);
        table.put_back(KEY, NOON_S + 3);
        assert_eq!(table.due(NOON_S + 4)[0].slots, [NOON_S]);
    }

    #[test]
    fn a_run_waits_once_and_not_while_it_goes_on() {
        let mut table = Table::default();
        enter(&mut table, &row("manual", "", 0), false, &Standing::default(), NOON_S);
        let known = table.get_mut(KEY).unwrap();
        known.running.insert(1, Cancel::new(None));
        for number in [1, 2, 3, 2] {
            known.queue(number);
        }
        assert_eq!(known.queued, [2, 3]);
    }

    #[test]
    fn a_trigger_that_is_none_fires_nothing_and_says_why() {
        let mut table = Table::default();
        let standing = Standing::default();
        for config in ["61 * * * *", r#"{"cron":"* * * * *","tz":"Mars/Base"}"#] {
            enter(&mut table, &row("cron", config, 0), false, &standing, NOON_S);
            let problem = table.get(KEY).unwrap().trigger.as_ref().unwrap_err().to_string();
            assert!(problem.starts_with("trigger_config: "), "{problem}");
            assert_eq!(table.next_slot_s(KEY), None);
        }
    }
}
