//! Where in a `workflow_json` something is wrong, and how that is said.

use std::fmt::Display;

use sandbox_protocol::workflow::body::BadBody;
use sandbox_protocol::{Failure, FailureCode};
use serde::Serialize;

use super::template::{Names, OPEN, Shape};
use super::value::Value;
use crate::limits::VALUE_DEPTH_MAX;

/// A step, or a body that is one task and has no steps to name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    step: Option<&'a str>,
}

impl<'a> Place<'a> {
    /// A step.
    pub(super) fn step(id: &'a str) -> Self {
        Self { step: Some(id) }
    }

    /// The whole body.
    pub(super) fn whole() -> Self {
        Self { step: None }
    }

    /// A refusal of this place.
    pub(super) fn wrong(self, message: impl Into<String>) -> Failure {
        let bad = match self.step {
            Some(step) => BadBody::of_step(step, message),
            None => BadBody::new("", message),
        };
        Failure::new(FailureCode::BadRequest, bad.to_string())
    }

    /// A refusal of a field of what it does.
    pub(super) fn bad(self, field: &str, message: impl Display) -> Failure {
        let with = if self.step.is_some() { "with." } else { "" };
        self.wrong(format!("{with}{field}: {message}"))
    }

    /// A refusal of what it does, by who reads requests of jobs: there some fields have other names.
    pub(super) fn refused(self, refusal: &Failure) -> Failure {
        let message = &refusal.message;
        if self.step.is_none() || message.starts_with("timeout_ms") {
            return self.wrong(message);
        }
        let renamed = ["env_json", "context_json"].into_iter().find_map(|field| {
            let rest = message.strip_prefix(field)?;
            Some(format!("{}{rest}", field.trim_end_matches("_json")))
        });
        self.wrong(format!("with: {}", renamed.as_ref().unwrap_or(message)))
    }

    /// A text in which nothing is replaced, and that does not look as if something were.
    pub(super) fn fixed(self, field: &str, text: String, why: &str) -> Result<String, Failure> {
        if text.contains(OPEN) { Err(self.bad(field, why)) } else { Ok(text) }
    }

    /// A context with its expressions.
    pub(super) fn context(self, context: &impl Serialize, names: &dyn Names) -> Result<Shape, Failure> {
        let value = Value::of(context);
        if value == Value::Null {
            return Err(
                self.bad("context", format!("more than {VALUE_DEPTH_MAX} lists and objects within one another"))
            );
        }
        Shape::parse(value, names).map_err(|bad| self.bad("context", bad))
    }
}
