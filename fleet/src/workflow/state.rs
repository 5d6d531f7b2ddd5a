//! A run: what an operator keeps of it on disk, and what it says is to be done.

use sandbox_protocol::limits::WORKFLOW_OUTPUTS_BYTES_MAX;
use sandbox_protocol::workflow::{Cause, RunStatus, StepBody, StepStatus};
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use serde::{Deserialize, Serialize};

use super::plan::{Plan, StepIndex};
use super::result::StepResult;
use super::retry::{is_worth_another, pause_ms};
use super::value::{Outputs, Value};
use super::work::Action;

mod advance;

/// What expressions know of a run's beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriggerData {
    /// `run.number`.
    pub run: u64,
    /// `trigger.kind`, and what else it says of itself: `trigger.slot_s`, …
    pub cause: Cause,
    /// `trigger.body`: what a webhook or an event brought; null for others.
    pub body: Value,
}

/// A run, as it is kept on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// What fired it.
    pub trigger: TriggerData,
    /// In the order of the plan.
    pub steps: Vec<StepState>,
    /// Why it is given up, once it is.
    pub cancelled: Option<String>,
    /// Its time is over.
    pub is_overdue: bool,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    /// What it came to, and when.
    pub ended: Option<(RunStatus, u64)>,
    /// Grows with every change.
    pub version: u64,
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepState {
    /// Where it is.
    pub phase: StepPhase,
    /// Times it was begun.
    pub attempts: u32,
    /// When its last attempt was begun, in milliseconds since 1970.
    pub started_ms: Option<u64>,
    /// When it became final, in milliseconds since 1970.
    pub ended_ms: Option<u64>,
    /// Of its last attempt that had any.
    pub outputs: Outputs,
    /// Of its last attempt that had any.
    pub artifacts: Vec<String>,
}

/// Where a step is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepPhase {
    /// Steps that it needs are not through, or there is no room for it.
    Waiting,
    /// An attempt is being carried out.
    Running {
        /// From 1 on.
        attempt: u32,
        /// Milliseconds since 1970.
        since_ms: u64,
        /// When it is broken off though its sandbox has told nothing, in milliseconds since 1970.
        until_ms: u64,
    },
    /// An attempt failed, and another follows.
    Retrying {
        /// The attempt that follows.
        attempt: u32,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// Why the last one failed.
        failure: Failure,
    },
    /// Done.
    Succeeded,
    /// Not done, for good.
    Failed(Failure),
    /// Not to be done.
    Skipped,
    /// Not done, since the run was given up.
    Cancelled,
}

/// An attempt at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// Which step.
    pub step: StepIndex,
    /// From 1 on.
    pub number: u32,
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Advance {
    /// Attempts to be begun. They are `Running` already: write the state first.
    pub start: Vec<Start>,
    /// Running attempts that are to be broken off, and then settled, by [`StepResult::BrokenOff`] or what they came to all the
    /// same. They are named until they are.
    pub cancel: Vec<Attempt>,
    /// When to come again though nothing was settled.
    pub wake_at_ms: Option<u64>,
    /// What the run came to; from then on nothing is to be done.
    pub ended: Option<RunStatus>,
}

/// An attempt that is to be begun, or taken up again.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Which.
    pub attempt: Attempt,
    /// What the workflow calls its step.
    pub id: String,
    /// Where; `None`: in the run's own sandbox. [`Action::at`] puts it in.
    pub sandbox: Option<SandboxId>,
    /// What is to be done.
    pub action: Action,
    /// Milliseconds that it may take.
    pub timeout_ms: u64,
    /// Files in its sandbox that the workflow names as its artifacts.
    pub artifacts: Vec<String>,
}

impl RunState {
    /// A run that begins now.
    pub fn begin(plan: &Plan, trigger: TriggerData, now_ms: u64) -> Self {
        let step = StepState {
            phase: StepPhase::Waiting,
            attempts: 0,
            started_ms: None,
            ended_ms: None,
            outputs: Outputs::new(),
            artifacts: Vec::new(),
        };
        Self {
            trigger,
            steps: vec![step; plan.steps.len()],
            cancelled: None,
            is_overdue: false,
            started_ms: now_ms,
            ended: None,
            version: 1,
        }
    }

    /// What came of an attempt. Late or repeated results, and those of other attempts, change nothing.
    pub fn settle(&mut self, plan: &Plan, attempt: Attempt, result: StepResult, now_ms: u64) {
        let place = attempt.step.place();
        let (Some(planned), Some(step)) = (plan.steps.get(place), self.steps.get(place)) else { return };
        let StepPhase::Running { attempt: number, until_ms, .. } = step.phase else { return };
        if number != attempt.number {
            return;
        }
        let left = match result {
            StepResult::Done { failure, outputs, artifacts } => {
                let outputs = self.kept(place, outputs);
                let step = &mut self.steps[place];
                (step.outputs, step.artifacts) = (outputs, artifacts);
                failure
            }
            StepResult::Failed(failure) => Some(failure),
            StepResult::BrokenOff if self.is_given_up() => return self.finish(place, StepPhase::Cancelled, now_ms),
            StepResult::BrokenOff if now_ms >= until_ms => {
                Some(Failure::new(FailureCode::Timeout, "nothing was heard of it in the time that it may take"))
            }
            StepResult::BrokenOff => Some(Failure::new(FailureCode::Interrupted, "it was broken off")),
        };
        let Some(failure) = left else { return self.finish(place, StepPhase::Succeeded, now_ms) };
        if self.is_given_up() || number >= planned.retry.max_attempts || !is_worth_another(failure.code) {
            return self.finish(place, StepPhase::Failed(failure), now_ms);
        }
        let at_ms = now_ms.saturating_add(pause_ms(planned.retry, number));
        self.steps[place].phase = StepPhase::Retrying { attempt: number + 1, at_ms, failure };
        self.version += 1;
    }

    /// Gives the run up. Nothing new is begun; [`advance`](Self::advance) names what runs.
    pub fn cancel(&mut self, reason: &str, now_ms: u64) {
        if self.ended.is_some() || self.cancelled.is_some() {
            return;
        }
        self.cancelled = Some(reason.to_owned());
        self.version += 1;
        self.drop_waiting(now_ms);
    }

    /// Where it is.
    pub fn status(&self) -> RunStatus {
        self.ended.map_or(RunStatus::Running, |(status, _)| status)
    }

    /// Why it failed or was cancelled, for people.
    pub fn reason(&self, plan: &Plan) -> Option<String> {
        if let Some(reason) = &self.cancelled {
            return Some(reason.clone());
        }
        if self.is_overdue {
            return Some(format!("it took longer than {} ms", plan.timeout_ms));
        }
        plan.steps.iter().zip(&self.steps).find_map(|(planned, step)| match &step.phase {
            StepPhase::Failed(failure) if !planned.allow_failure => Some(format!("step {:?}: {failure}", planned.id)),
            StepPhase::Failed(_)
            | StepPhase::Waiting
            | StepPhase::Running { .. }
            | StepPhase::Retrying { .. }
            | StepPhase::Succeeded
            | StepPhase::Skipped
            | StepPhase::Cancelled => None,
        })
    }

    /// What the API tells of its steps.
    pub fn bodies(&self, plan: &Plan) -> Vec<StepBody> {
        let body = |(planned, step): (&super::plan::Step, &StepState)| StepBody {
            id: planned.id.clone(),
            kind: planned.work.kind.name().to_owned(),
            status: step.phase.status(),
            attempts: step.attempts,
            started_ms: step.started_ms,
            ended_ms: step.ended_ms,
            failure: step.phase.failure().cloned(),
            outputs: step
                .outputs
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), serde_json::to_value(value).ok()?)))
                .collect(),
            artifacts: step.artifacts.clone(),
        };
        plan.steps.iter().zip(&self.steps).map(body).collect()
    }

    /// Nothing is begun any more.
    fn is_given_up(&self) -> bool {
        self.cancelled.is_some() || self.is_overdue
    }

    fn finish(&mut self, place: usize, phase: StepPhase, now_ms: u64) {
        let step = &mut self.steps[place];
        (step.phase, step.ended_ms) = (phase, Some(now_ms));
        self.version += 1;
    }

    /// What has not begun, or waits to begin again, never does.
    fn drop_waiting(&mut self, now_ms: u64) {
        for place in 0..self.steps.len() {
            match self.steps[place].phase {
                StepPhase::Waiting | StepPhase::Retrying { .. } => self.finish(place, StepPhase::Cancelled, now_ms),
                StepPhase::Running { .. }
                | StepPhase::Succeeded
                | StepPhase::Failed(_)
                | StepPhase::Skipped
                | StepPhase::Cancelled => (),
            }
        }
    }

    /// Outputs as they are kept: all of them, or, where the others' have used up what a run keeps, numbers and the like alone.
    fn kept(&self, place: usize, mut outputs: Outputs) -> Outputs {
        let others = self.steps.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, step)| &step.outputs);
        let size = |outputs: &Outputs| outputs.values().map(Value::size_bytes).sum::<usize>();
        if others.map(size).sum::<usize>() + size(&outputs) <= WORKFLOW_OUTPUTS_BYTES_MAX {
            return outputs;
        }
        for value in outputs.values_mut() {
            match value {
                Value::Text(text) => text.clear(),
                Value::List(_) | Value::Object(_) => *value = Value::Null,
                Value::Null | Value::Bool(_) | Value::Number(_) => (),
            }
        }
        outputs.insert("truncated".to_owned(), Value::Bool(true));
        outputs
    }
}

impl StepPhase {
    /// As the API tells it.
    pub const fn status(&self) -> StepStatus {
        match self {
            Self::Waiting => StepStatus::Waiting,
            Self::Running { .. } => StepStatus::Running,
            Self::Retrying { .. } => StepStatus::Retrying,
            Self::Succeeded => StepStatus::Succeeded,
            Self::Failed(_) => StepStatus::Failed,
            Self::Skipped => StepStatus::Skipped,
            Self::Cancelled => StepStatus::Cancelled,
        }
    }

    const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Retrying { failure, .. } | Self::Failed(failure) => Some(failure),
            Self::Waiting | Self::Running { .. } | Self::Succeeded | Self::Skipped | Self::Cancelled => None,
        }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
