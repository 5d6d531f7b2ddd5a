//! A `workflow_json` that can be carried out.

use std::collections::{BTreeMap, BTreeSet};

use sandbox_protocol::limits::{
    EXEC_CWD_BYTES_MAX, WORKFLOW_ARTIFACTS_MAX, WORKFLOW_ATTEMPTS_MAX, WORKFLOW_BACKOFF_MS_DEFAULT,
    WORKFLOW_BACKOFF_MS_MAX, WORKFLOW_CONCURRENCY_DEFAULT, WORKFLOW_CONCURRENCY_MAX, WORKFLOW_RUN_TIMEOUT_MS_DEFAULT,
    WORKFLOW_RUN_TIMEOUT_MS_MAX, WORKFLOW_STEP_ID_BYTES_MAX,
};
use sandbox_protocol::workflow::body::{self, Body, Kind, Retry, SingleTask, Steps, TaskWith};
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::expression::Expression;
use super::graph::Graph;
use super::names::Known;
use super::place::Place;
use super::template::checked;
use super::work::Work;

/// What the one step of a single task is called.
const SINGLE: &str = "task";

/// A step by its place in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepIndex(pub u32);

/// A workflow that can be carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) timeout_ms: u64,
    pub(super) concurrency: usize,
}

/// A step that can be carried out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) id: String,
    /// `None`: the run's own.
    pub(super) sandbox: Option<SandboxId>,
    /// Places of the steps that must be through before.
    pub(super) needs: BTreeSet<usize>,
    pub(super) when: Option<Expression>,
    pub(super) work: Work,
    pub(super) retry: Retry,
    pub(super) allow_failure: bool,
    pub(super) artifacts: Vec<String>,
}

impl StepIndex {
    /// Of the step at this place of the list.
    pub(super) fn of(place: usize) -> Self {
        Self(u32::try_from(place).unwrap_or(u32::MAX))
    }

    pub(super) fn place(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Plan {
    /// The plan of a `workflow_json`; with its own sandbox, a run has one that is made for it.
    ///
    /// # Errors
    /// `BadRequest`: the first step and field that are not what they must be.
    pub fn parse(workflow_json: &str, has_own_sandbox: bool) -> Result<Self, Failure> {
        let body = Body::parse(workflow_json).map_err(|bad| Failure::new(FailureCode::BadRequest, bad.to_string()))?;
        match body {
            Body::Single(task) => Self::single(task, has_own_sandbox),
            Body::Steps(steps) => Self::graph(steps, has_own_sandbox),
        }
    }

    fn single(task: SingleTask, has_own_sandbox: bool) -> Result<Self, Failure> {
        let place = Place::whole();
        let sandbox = common_sandbox(task.sandbox_id, task.sidecar_url.as_deref(), has_own_sandbox)?;
        if sandbox.is_none() && !has_own_sandbox {
            return Err(place.wrong(NOWHERE));
        }
        let context = match (task.context, task.context_json.as_deref()) {
            (Some(_), Some(_)) => return Err(place.wrong("context_json: not beside context")),
            (Some(context), None) => context,
            (None, None | Some("")) => Map::new(),
            (None, Some(text)) => serde_json::from_str(text).map_err(|error| place.bad("context_json", error))?,
        };
        let SingleTask { prompt, session_id, max_turns, model, agent, timeout_ms, .. } = task;
        let with = TaskWith { sandbox_id: None, prompt, session_id, max_turns, context, model, agent };
        let names = Known { ids: &BTreeMap::new(), before: &BTreeSet::new() };
        let work = Work::read(body::Work::Task(with), timeout_ms, place, &names)?;
        let step = Step {
            id: SINGLE.to_owned(),
            sandbox,
            needs: BTreeSet::new(),
            when: None,
            work,
            retry: ONCE,
            allow_failure: false,
            artifacts: Vec::new(),
        };
        Ok(Self { steps: vec![step], timeout_ms: WORKFLOW_RUN_TIMEOUT_MS_DEFAULT, concurrency: 1 })
    }

    fn graph(steps: Steps, has_own_sandbox: bool) -> Result<Self, Failure> {
        let Steps { steps, sandbox_id, sidecar_url, timeout_ms, concurrency } = steps;
        let place = Place::whole();
        let common = common_sandbox(sandbox_id, sidecar_url.as_deref(), has_own_sandbox)?;
        let timeout_ms = timeout_ms.unwrap_or(WORKFLOW_RUN_TIMEOUT_MS_DEFAULT);
        if !(1..=WORKFLOW_RUN_TIMEOUT_MS_MAX).contains(&timeout_ms) {
            return Err(place.wrong(format!("timeout_ms: 1 to {WORKFLOW_RUN_TIMEOUT_MS_MAX}")));
        }
        let concurrency = concurrency.unwrap_or(WORKFLOW_CONCURRENCY_DEFAULT);
        if !(1..=WORKFLOW_CONCURRENCY_MAX).contains(&concurrency) {
            return Err(place.wrong(format!("concurrency: 1 to {WORKFLOW_CONCURRENCY_MAX}")));
        }
        steps.iter().try_for_each(|step| check_id(&step.id))?;
        let graph = Graph::of(&steps)?;
        let ids: BTreeMap<String, Kind> = steps.iter().map(|step| (step.id.clone(), step.work.kind())).collect();
        let read = |(place, step): (usize, body::Step)| {
            let names = Known { ids: &ids, before: &graph.before(place) };
            let step = Step::read(step, graph.needs(place).clone(), &names)?;
            Ok(Step { sandbox: step.sandbox.or(common), ..step })
        };
        let steps = steps.into_iter().enumerate().map(read).collect::<Result<Vec<Step>, Failure>>()?;
        match steps.iter().find(|step| step.sandbox.is_none() && !has_own_sandbox) {
            Some(step) => Err(Place::step(&step.id).wrong(NOWHERE)),
            None => Ok(Self { steps, timeout_ms, concurrency: usize::try_from(concurrency).unwrap_or(usize::MAX) }),
        }
    }

    /// Every sandbox that it names.
    pub fn sandboxes(&self) -> BTreeSet<SandboxId> {
        self.steps.iter().filter_map(|step| step.sandbox).collect()
    }

    /// Whether a step runs in the run's own sandbox.
    pub fn uses_own_sandbox(&self) -> bool {
        self.steps.iter().any(|step| step.sandbox.is_none())
    }

    /// Milliseconds that a run may take.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// Names of its steps, in order.
    pub fn step_ids(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|step| step.id.as_str())
    }
}

const NOWHERE: &str = "sandbox_id: there is none, and the workflow has no sandbox_config_json to make one";
const ONCE: Retry = Retry { max_attempts: 1, backoff_ms: WORKFLOW_BACKOFF_MS_DEFAULT };

/// The sandbox that a body names for all of it.
fn common_sandbox(
    sandbox_id: Option<SandboxId>,
    sidecar_url: Option<&str>,
    has_own_sandbox: bool,
) -> Result<Option<SandboxId>, Failure> {
    let place = Place::whole();
    let by_url = sidecar_url.map(SandboxId::from_endpoint).transpose();
    let by_url = by_url.map_err(|error| place.wrong(format!("sidecar_url: {error}")))?;
    if sandbox_id.is_some() && by_url.is_some() {
        return Err(place.wrong("sidecar_url: not beside sandbox_id"));
    }
    let named = sandbox_id.or(by_url);
    if named.is_some() && has_own_sandbox {
        return Err(
            place.wrong("sandbox_id: not beside a sandbox_config_json, which gives each run a sandbox of its own")
        );
    }
    Ok(named)
}

fn check_id(id: &str) -> Result<(), Failure> {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_good = id.bytes().next().is_some_and(is_first)
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        && id.len() <= WORKFLOW_STEP_ID_BYTES_MAX;
    if is_good {
        return Ok(());
    }
    let kept = &id[..id.floor_char_boundary(WORKFLOW_STEP_ID_BYTES_MAX)];
    let rule = "letters, digits, `_` and `-`, a letter or `_` in front";
    Err(Place::step(kept).wrong(format!("id: 1 to {WORKFLOW_STEP_ID_BYTES_MAX} {rule}")))
}

impl Step {
    fn read(step: body::Step, needs: BTreeSet<usize>, names: &Known<'_>) -> Result<Self, Failure> {
        let body::Step { id, work, needs: _, when, retry, timeout_ms, allow_failure, artifacts } = step;
        let place = Place::step(&id);
        let retry = retry.unwrap_or(ONCE);
        if !(1..=WORKFLOW_ATTEMPTS_MAX).contains(&retry.max_attempts) {
            return Err(place.wrong(format!("retry.max_attempts: 1 to {WORKFLOW_ATTEMPTS_MAX}")));
        }
        if retry.backoff_ms > WORKFLOW_BACKOFF_MS_MAX {
            return Err(place.wrong(format!("retry.backoff_ms: at most {WORKFLOW_BACKOFF_MS_MAX}")));
        }
        let when = when.map(|text| Expression::parse(&text).and_then(|when| checked(&text, when, names))).transpose();
        let when = when.map_err(|bad| place.wrong(format!("when: {bad}")))?;
        check_artifacts(place, work.kind(), &artifacts)?;
        let sandbox = sandbox_of(&work);
        let work = Work::read(work, timeout_ms, place, names)?;
        Ok(Self { sandbox, needs, when, work, retry, allow_failure, artifacts, id })
    }
}

const fn sandbox_of(work: &body::Work) -> Option<SandboxId> {
    match work {
        body::Work::Exec(with) => with.sandbox_id,
        body::Work::Prompt(with) => with.sandbox_id,
        body::Work::Task(with) => with.sandbox_id,
        body::Work::Snapshot(with) => with.sandbox_id,
        body::Work::Negotiation(with) => with.sandbox_id,
    }
}

fn check_artifacts(place: Place<'_>, kind: Kind, paths: &[String]) -> Result<(), Failure> {
    let bad = |message: String| Err(place.wrong(format!("artifacts: {message}")));
    match kind {
        Kind::Snapshot | Kind::Negotiation if !paths.is_empty() => {
            return bad(format!("a {} leaves no files", kind.name()));
        }
        Kind::Exec | Kind::Prompt | Kind::Task | Kind::Snapshot | Kind::Negotiation => (),
    }
    if paths.len() > WORKFLOW_ARTIFACTS_MAX {
        return bad(format!("at most {WORKFLOW_ARTIFACTS_MAX}"));
    }
    for path in paths {
        if path.is_empty() || path.len() > EXEC_CWD_BYTES_MAX || path.contains('\0') {
            return bad(format!("1 to {EXEC_CWD_BYTES_MAX} bytes each, and no NUL"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
