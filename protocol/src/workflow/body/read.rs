//! From JSON to a body, with a name for every place that is not what it must be.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Body, Kind, Retry, Step, Steps, Work};
use crate::limits::{WORKFLOW_BODY_BYTES_MAX, WORKFLOW_STEPS_MAX};
use crate::sandbox_id::SandboxId;

/// A `workflow_json` that says nothing, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("workflow_json: {place}{message}")]
pub struct BadBody {
    /// The step or field, with `: ` behind it; empty for the whole.
    place: String,
    message: String,
}

/// [`Steps`] without the steps.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameWords {
    #[serde(default)]
    sandbox_id: Option<SandboxId>,
    #[serde(default)]
    sidecar_url: Option<String>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    concurrency: Option<u32>,
}

/// A [`Step`] of which it is not known yet what its kind takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepWords {
    id: String,
    kind: Kind,
    with: Map<String, Value>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    when: Option<String>,
    #[serde(default)]
    retry: Option<Retry>,
    #[serde(default)]
    timeout_ms: u64,
    #[serde(default)]
    allow_failure: bool,
    #[serde(default)]
    artifacts: Vec<String>,
}

impl BadBody {
    /// A refusal of this place, such as `steps`; empty for the whole.
    pub fn new(place: &str, message: impl Into<String>) -> Self {
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        Self { place, message: message.into() }
    }

    /// A refusal of a step, or of a field of it.
    pub fn of_step(step: &str, message: impl Into<String>) -> Self {
        Self::new(&format!("step {step:?}"), message)
    }
}

impl Body {
    /// The body that a `workflow_json` holds.
    ///
    /// # Errors
    /// [`BadBody`] names the first step and field that are not what they must be.
    pub fn parse(json: &str) -> Result<Self, BadBody> {
        if json.len() > WORKFLOW_BODY_BYTES_MAX {
            return Err(BadBody::new("", format!("longer than {WORKFLOW_BODY_BYTES_MAX} bytes")));
        }
        let value: Value = serde_json::from_str(json).map_err(|error| BadBody::new("", error.to_string()))?;
        let Value::Object(mut frame) = value else { return Err(BadBody::new("", "not an object")) };
        let Some(steps) = frame.remove("steps") else {
            return read(Value::Object(frame)).map(Self::Single).map_err(|message| BadBody::new("", message.0));
        };
        let Value::Array(steps) = steps else { return Err(BadBody::new("steps", "not a list")) };
        if steps.is_empty() || steps.len() > WORKFLOW_STEPS_MAX {
            return Err(BadBody::new("steps", format!("1 to {WORKFLOW_STEPS_MAX}")));
        }
        let frame = read(Value::Object(frame)).map_err(|message| BadBody::new("", message.0))?;
        let FrameWords { sandbox_id, sidecar_url, timeout_ms, concurrency } = frame;
        let steps =
            steps.into_iter().enumerate().map(|(index, step)| Step::parse(index, step)).collect::<Result<_, _>>()?;
        Ok(Self::Steps(Steps { steps, sandbox_id, sidecar_url, timeout_ms, concurrency }))
    }
}

impl Step {
    fn parse(index: usize, value: Value) -> Result<Self, BadBody> {
        let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
        let bad = |message: Misread| match &id {
            Some(id) => BadBody::of_step(id, message.0),
            None => BadBody::new(&format!("steps[{index}]"), message.0),
        };
        let words: StepWords = read(value).map_err(bad)?;
        let StepWords { id, kind, with, needs, when, retry, timeout_ms, allow_failure, artifacts } = words;
        let work = Work::parse(kind, Value::Object(with)).map_err(|message| BadBody::of_step(&id, message.0))?;
        Ok(Self { id, work, needs, when, retry, timeout_ms, allow_failure, artifacts })
    }
}

impl Work {
    fn parse(kind: Kind, with: Value) -> Result<Self, Misread> {
        let work = match kind {
            Kind::Exec => read(with).map(Self::Exec),
            Kind::Prompt => read(with).map(Self::Prompt),
            Kind::Task => read(with).map(Self::Task),
            Kind::Snapshot => read(with).map(Self::Snapshot),
            Kind::Negotiation => read(with).map(Self::Negotiation),
        };
        work.map_err(|Misread(message)| Misread(format!("with: {message}")))
    }
}

/// What is wrong with a value, with the place in it.
struct Misread(String);

fn read<T: DeserializeOwned>(value: Value) -> Result<T, Misread> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner();
        Misread(if path == "." { message.to_string() } else { format!("{path}: {message}") })
    })
}
