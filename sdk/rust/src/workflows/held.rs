//! One's workflows: the rows of the chain, each with what its operator tells of it.

use std::collections::BTreeMap;

use alloy::primitives::Address;
use sandbox_protocol::CallKey;
use sandbox_protocol::workflow::{RunEntry, WorkflowEntry};
use serde::{Deserialize, Serialize};

use crate::chain::{Chain, ReadError};
use crate::contracts::IAgentSandboxBlueprint::{WorkflowStatus, WorkflowTrigger, WorkflowView};

/// What an operator told when it was asked for one's workflows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The operator.
    pub operator: Address,
    /// Its answer.
    pub answer: Answer,
}

/// An operator's answer to who asked for workflows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Those of the asker.
    Workflows(Vec<WorkflowEntry>),
    /// None, since it was not reached or refused.
    None {
        /// What went wrong.
        why: String,
    },
}

impl Told {
    fn entries(&self) -> &[WorkflowEntry] {
        match &self.answer {
            Answer::Workflows(entries) => entries,
            Answer::None { .. } => &[],
        }
    }
}

/// Where a workflow is, by the chain's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its operator has not answered its create.
    Pending,
    /// It is fired.
    Active,
    /// Its owner has paused it.
    Paused,
    /// It was cancelled for good.
    Cancelled,
    /// Its create was not done.
    Failed,
}

impl Status {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// The contract's word; `None` where there is no workflow.
    pub const fn of(status: WorkflowStatus) -> Option<Self> {
        Some(match status {
            WorkflowStatus::Pending => Self::Pending,
            WorkflowStatus::Active => Self::Active,
            WorkflowStatus::Paused => Self::Paused,
            WorkflowStatus::Cancelled => Self::Cancelled,
            WorkflowStatus::Failed => Self::Failed,
            WorkflowStatus::Unknown | WorkflowStatus::__Invalid => return None,
        })
    }
}

/// A trigger's `trigger_type`.
pub const fn trigger_name(trigger: WorkflowTrigger) -> &'static str {
    match trigger {
        WorkflowTrigger::Cron => "cron",
        WorkflowTrigger::Webhook => "webhook",
        WorkflowTrigger::Event => "event",
        WorkflowTrigger::Manual | WorkflowTrigger::__Invalid => "manual",
    }
}

/// A workflow of one's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldWorkflow {
    /// Its service.
    pub service: u64,
    /// The call that created it.
    pub workflow: u64,
    /// What it is called, as far as anybody tells.
    pub name: String,
    /// Whose it is.
    pub owner: Address,
    /// Who fires it.
    pub operator: Address,
    /// How often it moved to another operator.
    pub epoch: u16,
    /// Where it is.
    pub status: Status,
    /// `manual`, `cron`, `webhook` or `event`.
    pub trigger: String,
    /// As its create has it.
    pub trigger_config: String,
    /// The last firing that is on chain, in seconds since 1970; operators report them when they see fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_triggered_s: Option<u64>,
    /// When the clock fires it next, in seconds since 1970, by its operator's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_slot_s: Option<i64>,
    /// Its last run, by its operator's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunEntry>,
    /// What is wrong with it, or why its operator tells nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl HeldWorkflow {
    /// The call that created it.
    pub const fn key(&self) -> CallKey {
        CallKey { service: self.service, call: self.workflow }
    }

    /// A row with what its operator tells; `None` where there is no such workflow.
    pub fn new(row: &WorkflowView, told: Option<&Told>) -> Option<Self> {
        let status = Status::of(row.status)?;
        let mut held = Self {
            service: row.serviceId,
            workflow: row.workflowId,
            name: String::new(),
            owner: row.owner,
            operator: row.operator,
            epoch: row.epoch,
            status,
            trigger: trigger_name(row.trigger).to_owned(),
            trigger_config: row.triggerConfig.clone(),
            last_triggered_s: (row.lastTriggered != 0).then_some(row.lastTriggered),
            next_slot_s: None,
            last_run: None,
            problem: None,
        };
        if let Some(told) = told {
            held.hear(told);
        }
        Some(held)
    }

    fn hear(&mut self, told: &Told) {
        if let Answer::None { why } = &told.answer {
            self.problem = Some(format!("its operator tells nothing: {why}"));
            return;
        }
        let is_this = |entry: &&WorkflowEntry| (entry.service, entry.workflow) == (self.service, self.workflow);
        let found = told.entries().iter().find(is_this);
        match found.filter(|entry| told.operator == self.operator && entry.epoch == self.epoch) {
            Some(entry) => {
                self.name.clone_from(&entry.name);
                self.last_run.clone_from(&entry.last_run);
                self.problem.clone_from(&entry.problem);
                // An operator that has not read of a pause yet would fire it, had the chain not the last word.
                self.next_slot_s = entry.next_slot_s.filter(|_| self.status == Status::Active);
            }
            None if self.status == Status::Active => {
                self.problem = Some("its operator does not know of it yet".to_owned());
            }
            None => {}
        }
    }
}

impl Chain {
    /// The workflows of `owner` that these operators fire, and those that they tell of. Paused ones are known by what is
    /// told alone: the contract lists active ones.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn workflows_of(&self, owner: Address, told: &[Told]) -> Result<Vec<HeldWorkflow>, ReadError> {
        let mut rows = BTreeMap::new();
        for one in told {
            for row in self.active_workflows(one.operator).await? {
                rows.insert((row.serviceId, row.workflowId), row);
            }
        }
        for entry in told.iter().flat_map(Told::entries) {
            let key = CallKey { service: entry.service, call: entry.workflow };
            if !rows.contains_key(&(key.service, key.call))
                && let Some((row, _)) = self.workflow(key).await?
            {
                rows.insert((key.service, key.call), row);
            }
        }
        let mut held = Vec::new();
        for row in rows.values().filter(|row| row.owner == owner) {
            let heard = told.iter().find(|one| one.operator == row.operator);
            held.extend(HeldWorkflow::new(row, heard));
        }
        for unnamed in held.iter_mut().filter(|held| held.name.is_empty()) {
            unnamed.name = self.stored_name(unnamed.key()).await?;
        }
        Ok(held)
    }

    /// A workflow's name, where it was small enough to be stored.
    async fn stored_name(&self, workflow: CallKey) -> Result<String, ReadError> {
        Ok(self.workflow(workflow).await?.map(|(_, body)| body.name).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::B256;

    use super::*;

    const HERE: Address = Address::repeat_byte(1);
    const THERE: Address = Address::repeat_byte(2);

    fn row(status: WorkflowStatus, epoch: u16) -> WorkflowView {
        WorkflowView {
            serviceId: 1,
            workflowId: 7,
            owner: Address::repeat_byte(9),
            operator: HERE,
            epoch,
            status,
            trigger: WorkflowTrigger::Cron,
            triggerConfig: "@daily".into(),
            lastTriggered: 0,
            bodyBlock: 1,
            bodyHash: B256::ZERO,
        }
    }

    fn told(operator: Address, epoch: u16) -> Told {
        let entry = WorkflowEntry {
            service: 1,
            workflow: 7,
            name: "nightly".into(),
            owner: Address::repeat_byte(9),
            epoch,
            trigger: "cron".into(),
            trigger_config: "@daily".into(),
            is_paused: false,
            next_slot_s: Some(86_400),
            last_run: None,
            problem: None,
        };
        Told { operator, answer: Answer::Workflows(vec![entry]) }
    }

    fn held(status: WorkflowStatus, told: &Told) -> HeldWorkflow {
        HeldWorkflow::new(&row(status, 1), Some(told)).unwrap()
    }

    #[test]
    fn what_its_operator_tells_stands_beside_what_the_chain_says() {
        let held = held(WorkflowStatus::Active, &told(HERE, 1));
        assert_eq!((held.name.as_str(), held.next_slot_s, held.problem), ("nightly", Some(86_400), None));
        assert_eq!((held.status, held.trigger.as_str(), held.last_triggered_s), (Status::Active, "cron", None));
    }

    #[test]
    fn an_operator_that_it_moved_away_from_is_not_believed() {
        for stale in [told(HERE, 0), told(THERE, 1)] {
            let held = held(WorkflowStatus::Active, &stale);
            assert_eq!((held.name.as_str(), held.next_slot_s), ("", None));
            assert_eq!(held.problem.as_deref(), Some("its operator does not know of it yet"));
        }
    }

    #[test]
    fn a_paused_one_has_no_next_firing_whatever_its_operator_has_read() {
        let held = held(WorkflowStatus::Paused, &told(HERE, 1));
        assert_eq!((held.status.name(), held.next_slot_s, held.problem), ("paused", None, None));
    }

    #[test]
    fn an_operator_that_tells_nothing_is_named_with_its_reason() {
        let silent = Told { operator: HERE, answer: Answer::None { why: "it did not answer".into() } };
        let held = held(WorkflowStatus::Active, &silent);
        assert_eq!(held.problem.as_deref(), Some("its operator tells nothing: it did not answer"));
        assert!(HeldWorkflow::new(&row(WorkflowStatus::Unknown, 0), None).is_none());
    }
}
