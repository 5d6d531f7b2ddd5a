//! What was asked, in words that are the same for all protocols.

use std::time::Instant;

use axum::http::HeaderMap;
use serde_json::Value;

/// A wire protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `/v1/chat/completions`, `/v1/embeddings`.
    Openai,
    /// `/v1/messages`.
    Anthropic,
    /// `/api/chat`, `/api/embed`.
    Ollama,
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// The words, also those of a tool's result.
    pub content: String,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// From 1 on, in the order of arrival.
    pub number: u64,
    /// By which protocol.
    pub protocol: Protocol,
    /// Whether vectors are wanted, not words.
    pub embeds: bool,
    /// Its path.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, parsed; `null` if it is no JSON.
    pub body: Value,
    /// When it came.
    pub at: Instant,
    /// The connection that it came on, from 1 on.
    pub connection: u64,
    /// The model.
    pub model: String,
    /// All words of the system.
    pub system: String,
    /// The conversation without those; of an embedding, its texts.
    pub messages: Vec<Said>,
    /// Whether the reply is streamed.
    pub streams: bool,
}

/// Where a request came from, before it is read.
pub(crate) struct Arrival {
    pub(crate) number: u64,
    pub(crate) connection: u64,
    pub(crate) protocol: Protocol,
    pub(crate) embeds: bool,
}

impl Request {
    /// The last words of the conversation.
    pub fn last(&self) -> &str {
        self.messages.last().map_or("", |said| said.content.as_str())
    }

    /// The last words of a user.
    pub fn last_of_user(&self) -> &str {
        self.messages.iter().rev().find(|said| said.role == "user").map_or("", |said| said.content.as_str())
    }

    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The key that it was asked with.
    pub fn key(&self) -> Option<&str> {
        let bearer = || self.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        self.header("x-api-key").or_else(bearer)
    }

    /// Letters of all that was said.
    pub(crate) fn bytes(&self) -> usize {
        self.system.len() + self.messages.iter().map(|said| said.content.len()).sum::<usize>()
    }

    pub(crate) fn read(arrival: &Arrival, path: &str, headers: HeaderMap, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut messages = if arrival.embeds { texts(&body["input"]) } else { conversation(&body) };
        let mut system = words(&body["system"]);
        messages.retain(|said| {
            let is_system = matches!(said.role.as_str(), "system" | "developer");
            if is_system {
                system.push_str(&said.content);
            }
            !is_system
        });
        Self {
            number: arrival.number,
            protocol: arrival.protocol,
            embeds: arrival.embeds,
            path: path.to_owned(),
            headers,
            at: Instant::now(),
            connection: arrival.connection,
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            system,
            messages,
            streams: body["stream"].as_bool().unwrap_or(arrival.protocol == Protocol::Ollama),
            body,
        }
    }
}

fn conversation(body: &Value) -> Vec<Said> {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let said = |message: &Value| Said {
        role: message["role"].as_str().unwrap_or_default().to_owned(),
        content: words(&message["content"]),
    };
    messages.iter().map(said).collect()
}

fn texts(input: &Value) -> Vec<Said> {
    let said = |text: &Value| Said { role: "input".to_owned(), content: words(text) };
    input.as_array().map_or_else(|| vec![said(input)], |inputs| inputs.iter().map(said).collect())
}

/// The words of a content: a text, or blocks of which some hold words.
fn words(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(words).collect(),
        Value::Object(block) => block.get("text").or_else(|| block.get("content")).map(words).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_every_shape_of_content() {
        let body = br#"{"model": "m", "system": [{"type": "text", "text": "be "}], "messages": [
            {"role": "system", "content": "kind"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "tool_result", "content": "b"}]}
        ]}"#;
        let arrival = Arrival { number: 1, connection: 1, protocol: Protocol::Anthropic, embeds: false };
        let request = Request::read(&arrival, "/v1/messages", HeaderMap::new(), body);
        assert_eq!((request.system.as_str(), request.last(), request.streams), ("be kind", "ab", false));
        assert_eq!(request.messages.len(), 1);
    }
}
