//! What is to be done now.
//!
//! A step is decided about when all its needs are final. Without `when` it runs if they all succeeded, or failed and may; else it is
//! skipped, and so are those that need it. With `when` it runs if that holds, whatever became of them. A step that cannot be
//! told what to do, since its expressions came to something that is refused, fails.

use sandbox_protocol::Failure;
use sandbox_protocol::workflow::RunStatus;

use super::{Advance, Attempt, RunState, Start, StepPhase};
use crate::limits::STEP_GRACE_MS;
use crate::workflow::names::Seen;
use crate::workflow::plan::{Plan, Step, StepIndex};
use crate::workflow::template::Rendering;

/// What becomes of a step that waits.
enum Verdict {
    /// It goes on waiting.
    Wait,
    Run,
    Skip,
}

impl RunState {
    /// What is to be done now.
    pub fn advance(&mut self, plan: &Plan, now_ms: u64) -> Advance {
        assert_eq!(plan.steps.len(), self.steps.len(), "a run goes by the plan that it began with");
        let mut start = Vec::new();
        if self.ended.is_none() {
            if !self.is_given_up() && now_ms >= self.deadline_ms(plan) {
                self.is_overdue = true;
                self.version += 1;
                self.drop_waiting(now_ms);
            }
            if !self.is_given_up() {
                while self.decide(plan, now_ms, &mut start) {}
            }
            self.end(plan, now_ms);
        }
        let (cancel, wake_at_ms) = (self.to_be_broken_off(now_ms), self.wake_at_ms(plan, now_ms));
        Advance { start, cancel, wake_at_ms, ended: self.ended.map(|(status, _)| status) }
    }

    /// After a restart: the attempts that were running, to be taken up again by their keys. One whose time passed meanwhile has what
    /// a sandbox has to tell what became of it: it may have been done long ago.
    pub fn take_up(&mut self, plan: &Plan, now_ms: u64) -> Vec<Start> {
        let least_ms = now_ms.saturating_add(STEP_GRACE_MS);
        for step in &mut self.steps {
            if let StepPhase::Running { until_ms, .. } = &mut step.phase {
                *until_ms = least_ms.max(*until_ms);
            }
        }
        self.version += 1;
        self.running(plan)
    }

    /// The attempts that are running.
    pub fn running(&self, plan: &Plan) -> Vec<Start> {
        let attempts = self.attempts().filter_map(|(attempt, _)| {
            let planned = plan.steps.get(attempt.step.place())?;
            // What was begun could be; should a later version see that otherwise, the attempt's time will end it.
            self.start(plan, planned, attempt).ok()
        });
        attempts.collect()
    }

    fn deadline_ms(&self, plan: &Plan) -> u64 {
        self.started_ms.saturating_add(plan.timeout_ms)
    }

    /// Decides once about every step; whether something changed that others may wait for.
    fn decide(&mut self, plan: &Plan, now_ms: u64, start: &mut Vec<Start>) -> bool {
        let mut is_changed = false;
        for (place, planned) in plan.steps.iter().enumerate() {
            let verdict = match self.steps[place].phase {
                StepPhase::Waiting => self.verdict(plan, planned),
                StepPhase::Retrying { at_ms, .. } if now_ms >= at_ms => Verdict::Run,
                StepPhase::Retrying { .. }
                | StepPhase::Running { .. }
                | StepPhase::Succeeded
                | StepPhase::Failed(_)
                | StepPhase::Skipped
                | StepPhase::Cancelled => Verdict::Wait,
            };
            match verdict {
                Verdict::Run if self.attempts().count() < plan.concurrency => {
                    match self.begin_step(plan, place, now_ms) {
                        Ok(begun) => start.push(begun),
                        Err(failure) => {
                            self.finish(place, StepPhase::Failed(failure), now_ms);
                            is_changed = true;
                        }
                    }
                }
                Verdict::Skip => {
                    self.finish(place, StepPhase::Skipped, now_ms);
                    is_changed = true;
                }
                Verdict::Run | Verdict::Wait => (),
            }
        }
        is_changed
    }

    fn verdict(&self, plan: &Plan, planned: &Step) -> Verdict {
        let needs = || planned.needs.iter().map(|need| (&plan.steps[*need], &self.steps[*need].phase));
        if !needs().all(|(_, phase)| phase.status().is_final()) {
            return Verdict::Wait;
        }
        let is_fine = |(need, phase): (&Step, &StepPhase)| match phase {
            StepPhase::Succeeded => true,
            StepPhase::Failed(_) => need.allow_failure,
            StepPhase::Waiting
            | StepPhase::Running { .. }
            | StepPhase::Retrying { .. }
            | StepPhase::Skipped
            | StepPhase::Cancelled => false,
        };
        let runs = match &planned.when {
            Some(when) => when.holds(&Seen { plan, state: self }),
            None => needs().all(is_fine),
        };
        if runs { Verdict::Run } else { Verdict::Skip }
    }

    fn begin_step(&mut self, plan: &Plan, place: usize, now_ms: u64) -> Result<Start, Failure> {
        let number = self.steps[place].attempts + 1;
        let begun = self.start(plan, &plan.steps[place], Attempt { step: StepIndex::of(place), number })?;
        let until_ms = now_ms.saturating_add(begun.timeout_ms).saturating_add(STEP_GRACE_MS);
        let step = &mut self.steps[place];
        step.phase = StepPhase::Running { attempt: number, since_ms: now_ms, until_ms };
        (step.attempts, step.started_ms) = (number, Some(now_ms));
        self.version += 1;
        Ok(begun)
    }

    /// The same for the same attempt at any time: what its expressions name is final.
    fn start(&self, plan: &Plan, planned: &Step, attempt: Attempt) -> Result<Start, Failure> {
        let seen = Seen { plan, state: self };
        let (action, timeout_ms) = planned.work.action(planned.sandbox, &mut Rendering::live(&seen))?;
        let (id, artifacts) = (planned.id.clone(), planned.artifacts.clone());
        Ok(Start { attempt, id, sandbox: planned.sandbox, action, timeout_ms, artifacts })
    }

    /// Attempts that run, and when they are broken off.
    fn attempts(&self) -> impl Iterator<Item = (Attempt, u64)> {
        self.steps.iter().enumerate().filter_map(|(place, step)| match step.phase {
            StepPhase::Running { attempt, until_ms, .. } => {
                Some((Attempt { step: StepIndex::of(place), number: attempt }, until_ms))
            }
            StepPhase::Waiting
            | StepPhase::Retrying { .. }
            | StepPhase::Succeeded
            | StepPhase::Failed(_)
            | StepPhase::Skipped
            | StepPhase::Cancelled => None,
        })
    }

    fn to_be_broken_off(&self, now_ms: u64) -> Vec<Attempt> {
        let overdue = self.attempts().filter(|(_, until_ms)| self.is_given_up() || now_ms >= *until_ms);
        overdue.map(|(attempt, _)| attempt).collect()
    }

    fn wake_at_ms(&self, plan: &Plan, now_ms: u64) -> Option<u64> {
        if self.ended.is_some() || self.is_given_up() {
            return None;
        }
        let steps = self.steps.iter().filter_map(|step| match step.phase {
            StepPhase::Running { until_ms, .. } => Some(until_ms),
            StepPhase::Retrying { at_ms, .. } => Some(at_ms),
            StepPhase::Waiting
            | StepPhase::Succeeded
            | StepPhase::Failed(_)
            | StepPhase::Skipped
            | StepPhase::Cancelled => None,
        });
        // What is past waits for a result, or for room, and neither comes by time.
        steps.chain([self.deadline_ms(plan)]).filter(|at_ms| *at_ms > now_ms).min()
    }

    /// Ends the run once every step is final.
    fn end(&mut self, plan: &Plan, now_ms: u64) {
        if !self.steps.iter().all(|step| step.phase.status().is_final()) {
            return;
        }
        let failed = plan
            .steps
            .iter()
            .zip(&self.steps)
            .any(|(planned, step)| matches!(step.phase, StepPhase::Failed(_)) && !planned.allow_failure);
        let status = match (&self.cancelled, self.is_overdue || failed) {
            (Some(_), _) => RunStatus::Cancelled,
            (None, true) => RunStatus::Failed,
            (None, false) => RunStatus::Succeeded,
        };
        self.ended = Some((status, now_ms));
        self.version += 1;
    }
}
