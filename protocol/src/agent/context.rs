//! `context_json` of prompts and tasks: reserved keys with their meaning, all others for the model.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Secret;
use super::negotiation::Negotiation;
use crate::limits::{CONTEXT_JSON_BYTES_MAX, FIELD_BYTES_MAX};

/// What a `context_json` says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskContext {
    /// `provider`: where the model is, if not where the sandbox or its operator say.
    pub provider: Option<Provider>,
    /// `agent_backend`.
    pub agent_backend: Option<String>,
    /// `agent_identifier`.
    pub agent_identifier: Option<String>,
    /// With `"kind": "negotiation"`: the rest of the object, which then may hold nothing else.
    pub negotiation: Option<Negotiation>,
    /// All other keys: the model is shown them.
    pub rest: Map<String, Value>,
}

/// Which wire protocol a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// `POST <base_url>/chat/completions`.
    Openai,
    /// `POST <base_url>/messages`.
    Anthropic,
    /// `POST <base_url>/api/chat`.
    Ollama,
}

/// A provider of models. Every field that is missing is as the sandbox or its operator say.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// What it speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ProviderKind>,
    /// Where it is; of OpenAI and Anthropic with the version, such as `https://api.openai.com/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The customer's key. Seal the field that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// Tokens that the model takes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u32>,
}

/// A `context_json` that says nothing, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("context_json: {field}{message}")]
pub struct BadContext {
    /// The place, with `: ` behind it; empty for the whole.
    field: String,
    message: String,
}

impl BadContext {
    /// A refusal of this field; empty for the whole.
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        let kept = field.floor_char_boundary(FIELD_BYTES_MAX);
        let field = if field.is_empty() { String::new() } else { format!("{}: ", &field[..kept]) };
        Self { field, message: message.into() }
    }

    /// Field and reason alone, for what came in another body than a `context_json`.
    pub fn reason(&self) -> String {
        format!("{}{}", self.field, self.message)
    }

    /// The same, of a field within this one.
    pub(super) fn within(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), ..self }
    }
}

impl TaskContext {
    /// Reads a `context_json`; an empty one says nothing and is right.
    ///
    /// # Errors
    /// The field that is not what it must be. What stands in it is not repeated: it may be secret.
    pub fn parse(json: &str) -> Result<Self, BadContext> {
        if json.is_empty() {
            return Ok(Self::default());
        }
        if json.len() > CONTEXT_JSON_BYTES_MAX {
            return Err(BadContext::new("", format!("longer than {CONTEXT_JSON_BYTES_MAX} bytes")));
        }
        let value: Value = serde_json::from_str(json).map_err(|error| BadContext::new("", error.to_string()))?;
        let Value::Object(mut rest) = value else { return Err(BadContext::new("", "not an object")) };
        let provider = taken(&mut rest, "provider", "an object")?.map(Provider::parse).transpose()?;
        let agent_backend = taken(&mut rest, "agent_backend", "a text")?;
        let agent_identifier = taken(&mut rest, "agent_identifier", "a text")?;
        let kind: Option<String> = taken(&mut rest, "kind", "a text")?;
        let negotiation = match kind.as_deref() {
            None => None,
            Some("negotiation") => Some(Negotiation::parse(std::mem::take(&mut rest))?),
            Some(_) => return Err(BadContext::new("kind", "the one kind there is: negotiation")),
        };
        Ok(Self { provider, agent_backend, agent_identifier, negotiation, rest })
    }
}

impl Provider {
    fn parse(mut object: Map<String, Value>) -> Result<Self, BadContext> {
        let of_provider = |error: BadContext| error.within("provider");
        let mut text = |key| taken(&mut object, key, "a text").map_err(of_provider);
        let (base_url, api_key) = (text("base_url")?, text("api_key")?.map(Secret::new));
        let kind = taken(&mut object, "kind", "openai, anthropic or ollama").map_err(of_provider)?;
        let context_tokens = taken(&mut object, "context_tokens", "a whole number").map_err(of_provider)?;
        let read = Self { kind, base_url, api_key, context_tokens };
        if read.context_tokens == Some(0) {
            return Err(of_provider(BadContext::new("context_tokens", "1 or more")));
        }
        nothing_left(&object).map_err(of_provider)?;
        Ok(read)
    }
}

/// The value of a key that is reserved; `null` is none.
pub(super) fn taken<T: for<'de> Deserialize<'de>>(
    object: &mut Map<String, Value>,
    key: &str,
    expected: &str,
) -> Result<Option<T>, BadContext> {
    let Some(value) = object.remove(key) else { return Ok(None) };
    // The library's words would repeat the value.
    serde_json::from_value(value).map_err(|_| BadContext::new(key, format!("not {expected}")))
}

/// Refuses an object of which something was not taken.
pub(super) fn nothing_left(object: &Map<String, Value>) -> Result<(), BadContext> {
    match object.keys().next() {
        Some(key) => Err(BadContext::new(key, "no such field")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
