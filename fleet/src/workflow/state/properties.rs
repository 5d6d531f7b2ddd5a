//! What holds of any run: whatever graph, whatever comes of its steps and in which order, and wherever its operator dies.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// A step of a random workflow.
#[derive(Debug, Clone)]
struct Wish {
    /// Of earlier steps, which it needs.
    needs: Vec<Index>,
    when: Option<usize>,
    max_attempts: u32,
    allow_failure: bool,
}

/// Something that happens to a run.
#[derive(Debug, Clone)]
enum Happening {
    /// One of the attempts that run comes to this.
    Settle(Index, usize),
    /// A result of an attempt that is over comes again.
    Repeat(Index, usize),
    /// Time passes.
    Pass(u64),
    /// The operator dies and comes back.
    Restart,
    Cancel,
}

fn wish() -> impl Strategy<Value = Wish> {
    (proptest::collection::vec(any::<Index>(), 0..3), proptest::option::of(0..3_usize), 1..4_u32, any::<bool>())
        .prop_map(|(needs, when, max_attempts, allow_failure)| Wish { needs, when, max_attempts, allow_failure })
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        12 => (any::<Index>(), 0..5_usize).prop_map(|(which, what)| Happening::Settle(which, what)),
        2 => (any::<Index>(), 0..5_usize).prop_map(|(which, what)| Happening::Repeat(which, what)),
        4 => (0..3_000_u64).prop_map(Happening::Pass),
        1 => (0..120_000_u64).prop_map(Happening::Pass),
        2 => Just(Happening::Restart),
    ]
}

/// The places and the JSON of a workflow; places are turned round by `turn`, so that needs point either way.
fn workflow(wishes: &[Wish], concurrency: u32, turn: usize) -> (Vec<BTreeSet<usize>>, String) {
    let count = wishes.len();
    let turned = |place: usize| (place + turn) % count;
    let mut needs = vec![BTreeSet::new(); count];
    let mut steps = vec![String::new(); count];
    for (place, wish) in wishes.iter().enumerate() {
        let own: BTreeSet<usize> =
            wish.needs.iter().filter(|_| place > 0).map(|need| turned(need.index(place.max(1)))).collect();
        let names: Vec<String> = own.iter().map(|need| format!("\"s{need}\"")).collect();
        let when = match (wish.when, own.first()) {
            (Some(0), _) => r#","when":"always()""#.to_owned(),
            (Some(1), Some(need)) => format!(r#","when":"steps.s{need}.status == 'failed'""#),
            (Some(2), Some(need)) => format!(r#","when":"steps.s{need}.outputs.exit_code != 1""#),
            _ => String::new(),
        };
        let Wish { max_attempts, allow_failure, .. } = wish;
        let retry = format!(r#""retry":{{"max_attempts":{max_attempts},"backoff_ms":500}}"#);
        steps[turned(place)] = format!(
            r#"{{"id":"s{}","kind":"exec","with":{{"command":"true"}},"needs":[{}]{when},{retry},"allow_failure":{allow_failure}}}"#,
            turned(place),
            names.join(","),
        );
        needs[turned(place)] = own;
    }
    let json = format!(r#"{{"steps":[{}],"concurrency":{concurrency},"timeout_ms":100000}}"#, steps.join(","));
    (needs, json)
}

fn result(what: usize) -> StepResult {
    let outputs: Outputs = [("exit_code".to_owned(), Value::from(i32::from(what == 1)))].into();
    let failure = |code| Failure::new(code, "why");
    match what {
        0 => StepResult::Done { failure: None, outputs, artifacts: Vec::new() },
        1 => StepResult::Done { failure: Some(failure(FailureCode::NoSuccess)), outputs, artifacts: Vec::new() },
        2 => StepResult::Failed(failure(FailureCode::SandboxUnreachable)),
        3 => StepResult::Failed(failure(FailureCode::BadRequest)),
        _ => StepResult::BrokenOff,
    }
}

/// A run, and what an operator that carries it out would see.
struct Operator {
    plan: Plan,
    needs: Vec<BTreeSet<usize>>,
    concurrency: usize,
    state: RunState,
    now_ms: u64,
    running: BTreeSet<Attempt>,
    begun: BTreeSet<Attempt>,
    cancelled: bool,
}

impl Operator {
    fn new(wishes: &[Wish], concurrency: u32, turn: usize) -> Self {
        let (needs, json) = workflow(wishes, concurrency, turn);
        let plan = Plan::parse(&json, true).unwrap();
        let trigger = TriggerData { run: 1, cause: Cause::Manual { call: 1 }, body: Value::Null };
        let state = RunState::begin(&plan, trigger, 0);
        let (running, begun) = (BTreeSet::new(), BTreeSet::new());
        let concurrency = usize::try_from(concurrency).unwrap();
        Self { plan, needs, concurrency, state, now_ms: 0, running, begun, cancelled: false }
    }

    fn advance(&mut self) -> Result<Advance, TestCaseError> {
        let was_given_up = self.state.is_given_up();
        let next = self.state.advance(&self.plan, self.now_ms);
        for start in &next.start {
            prop_assert!(!was_given_up, "nothing is begun in a run that is given up");
            prop_assert!(self.begun.insert(start.attempt), "no attempt is begun twice");
            prop_assert!(start.attempt.number <= self.plan.steps[start.attempt.step.place()].retry.max_attempts);
            for need in &self.needs[start.attempt.step.place()] {
                prop_assert!(self.state.steps[*need].phase.status().is_final(), "needs come first");
            }
            self.running.insert(start.attempt);
        }
        prop_assert!(self.running.len() <= self.concurrency);
        prop_assert!(next.cancel.iter().all(|attempt| self.running.contains(attempt)));
        prop_assert!(next.wake_at_ms.is_none_or(|at_ms| at_ms > self.now_ms));
        let is_over = next.ended.is_some();
        prop_assert_eq!(is_over, self.state.steps.iter().all(|step| step.phase.status().is_final()));
        // Where nothing comes by itself, somebody is to be waited for.
        prop_assert!(is_over || next.wake_at_ms.is_some() || !self.running.is_empty());
        Ok(next)
    }

    fn settle(&mut self, attempt: Attempt, what: usize) {
        self.running.remove(&attempt);
        self.state.settle(&self.plan, attempt, result(what), self.now_ms);
    }

    fn happen(&mut self, happening: &Happening) -> Result<(), TestCaseError> {
        match happening {
            Happening::Settle(which, what) => {
                let running: Vec<Attempt> = self.running.iter().copied().collect();
                if !running.is_empty() {
                    self.settle(*which.get(&running), *what);
                }
            }
            Happening::Repeat(which, what) => {
                let over: Vec<Attempt> = self.begun.difference(&self.running).copied().collect();
                if !over.is_empty() {
                    let before = self.state.clone();
                    self.settle(*which.get(&over), *what);
                    prop_assert_eq!(&self.state, &before);
                }
            }
            Happening::Pass(ms) => self.now_ms += ms,
            Happening::Restart => {
                let kept = serde_json::to_string(&self.state).unwrap();
                let state: RunState = serde_json::from_str(&kept).unwrap();
                prop_assert_eq!(&state, &self.state);
                self.state = state;
                let again: BTreeSet<Attempt> =
                    self.state.take_up(&self.plan, self.now_ms).iter().map(|start| start.attempt).collect();
                prop_assert_eq!(&again, &self.running, "what ran is taken up again, and nothing else");
            }
            Happening::Cancel => {
                self.cancelled |= self.state.ended.is_none();
                self.state.cancel("enough", self.now_ms);
            }
        }
        Ok(())
    }

    /// Does what is asked for until the run is over.
    fn finish(&mut self) -> Result<RunStatus, TestCaseError> {
        for _ in 0..1_000 {
            let next = self.advance()?;
            if let Some(status) = next.ended {
                return Ok(status);
            }
            if let Some(attempt) = next.cancel.first().or(self.running.first()) {
                let what = if next.cancel.is_empty() { 0 } else { 4 };
                self.settle(*attempt, what);
            } else if let Some(at_ms) = next.wake_at_ms {
                self.now_ms = at_ms;
            }
        }
        Err(TestCaseError::fail("the run does not end"))
    }

    /// What the run should have come to, by its steps.
    fn expected(&self) -> RunStatus {
        let failed = self.plan.steps.iter().zip(&self.state.steps);
        let mut failed =
            failed.filter(|(planned, step)| matches!(step.phase, StepPhase::Failed(_)) && !planned.allow_failure);
        if self.cancelled {
            RunStatus::Cancelled
        } else if self.state.is_overdue || failed.next().is_some() {
            RunStatus::Failed
        } else {
            RunStatus::Succeeded
        }
    }
}

proptest! {
    #[test]
    fn any_run_keeps_its_promises_and_ends(
        wishes in proptest::collection::vec(wish(), 1..10),
        concurrency in 1..5_u32,
        turn in 0..10_usize,
        happenings in proptest::collection::vec(happening(), 0..60),
        cancel in proptest::option::of(any::<Index>()),
    ) {
        let mut operator = Operator::new(&wishes, concurrency, turn);
        let mut happenings = happenings;
        if let Some(at) = cancel {
            happenings.insert(at.index(happenings.len() + 1), Happening::Cancel);
        }
        let mut version = operator.state.version;
        for happening in &happenings {
            operator.happen(happening)?;
            operator.advance()?;
            prop_assert!(operator.state.version >= version);
            version = operator.state.version;
        }
        let status = operator.finish()?;
        prop_assert_eq!(status, operator.expected());
        let ends: BTreeMap<_, _> = operator.state.bodies(&operator.plan).into_iter().map(|body| (body.id, body.ended_ms)).collect();
        prop_assert!(ends.values().all(Option::is_some));
    }
}
