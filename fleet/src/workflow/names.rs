//! What expressions may name, and what that stands for in a run.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sandbox_protocol::workflow::body::Kind;

use super::expression::{Part, Scope};
use super::plan::Plan;
use super::result::outputs_of;
use super::state::RunState;
use super::template::{Names, NoSuchName};
use super::value::{NULL, Value};

/// What a cause may say of itself, and what came with it.
const OF_TRIGGERS: [&str; 6] = ["kind", "call", "slot_s", "delivery", "event", "body"];

/// What the expressions of one step may name.
pub(super) struct Known<'a> {
    /// Every step of the workflow.
    pub(super) ids: &'a BTreeMap<String, Kind>,
    /// Those that are through before it.
    pub(super) before: &'a BTreeSet<String>,
}

/// What the expressions of a run stand for.
pub(super) struct Seen<'a> {
    pub(super) plan: &'a Plan,
    pub(super) state: &'a RunState,
}

fn no(message: impl Into<String>) -> Result<(), NoSuchName> {
    Err(NoSuchName(message.into()))
}

impl Names for Known<'_> {
    fn check(&self, path: &[Part]) -> Result<(), NoSuchName> {
        let Some((Part::Name(first), rest)) = path.split_first() else { return no("a name is expected") };
        match (first.as_str(), rest) {
            ("run", [Part::Name(name)]) if name == "number" => Ok(()),
            ("run", _) => no("of a run there is run.number"),
            ("trigger", [Part::Name(name)]) if OF_TRIGGERS.contains(&name.as_str()) => Ok(()),
            ("trigger", [Part::Name(name), _, ..]) if name == "body" => Ok(()),
            ("trigger", _) => no(format!("of a trigger there are {}", OF_TRIGGERS.join(", "))),
            ("steps", [Part::Name(id), rest @ ..]) => self.check_step(id, rest),
            ("steps", _) => no("a step's id is expected: steps.ID.status, steps.ID.outputs.NAME"),
            (other, _) => no(format!("no `{other}`; there are steps, trigger and run")),
        }
    }
}

impl Known<'_> {
    fn check_step(&self, id: &str, rest: &[Part]) -> Result<(), NoSuchName> {
        let Some(kind) = self.ids.get(id) else { return no(format!("no step {id:?}")) };
        if !self.before.contains(id) {
            return no(format!("step {id:?} is none that it needs"));
        }
        match rest {
            [Part::Name(status)] if status == "status" => Ok(()),
            [Part::Name(outputs), Part::Name(name), ..] if outputs == "outputs" => {
                let names = outputs_of(*kind);
                let message = || format!("a step of kind {} has the outputs {}", kind.name(), names.join(", "));
                if names.contains(&name.as_str()) { Ok(()) } else { no(message()) }
            }
            _ => no(format!("of a step there are steps.{id}.status and steps.{id}.outputs.NAME")),
        }
    }
}

impl Scope for Seen<'_> {
    fn value(&self, path: &[Part]) -> Cow<'_, Value> {
        let names: Vec<&str> = path.iter().map_while(|part| name(part)).collect();
        match names[..] {
            ["run", "number", ..] => Cow::Owned(self.state.trigger.run.into()),
            ["trigger", "body", ..] => Cow::Borrowed(within(&self.state.trigger.body, &path[2..])),
            ["trigger", name, ..] => Cow::Owned(Value::of(&self.state.trigger.cause).key(name).clone()),
            ["steps", id, "status", ..] => {
                let status = self.step(id).map(|place| self.state.steps[place].phase.status().name());
                Cow::Owned(status.map(Value::from).unwrap_or_default())
            }
            ["steps", id, "outputs", name, ..] => {
                let output = self.step(id).and_then(|place| self.state.steps[place].outputs.get(name));
                Cow::Borrowed(within(output.unwrap_or(&NULL), &path[4..]))
            }
            _ => Cow::Borrowed(&NULL),
        }
    }
}

impl Seen<'_> {
    fn step(&self, id: &str) -> Option<usize> {
        self.plan.steps.iter().position(|step| step.id == id).filter(|place| *place < self.state.steps.len())
    }
}

fn name(part: &Part) -> Option<&str> {
    match part {
        Part::Name(name) => Some(name),
        Part::Item(_) => None,
    }
}

fn within<'a>(value: &'a Value, path: &[Part]) -> &'a Value {
    path.iter().fold(value, |value, part| match part {
        Part::Name(name) => value.key(name),
        Part::Item(place) => value.item(*place),
    })
}
