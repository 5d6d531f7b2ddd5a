//! A provider's words as they may be shown: few, and without secrets.

use sandbox_protocol::agent::Secret;
use serde_json::Value;
use tracing::Dispatch;
use tracing::instrument::{WithDispatch, WithSubscriber as _};

use crate::limits::PROVIDER_WORDS_BYTES_MAX;
use crate::redact::{REDACTED, cleaned};

/// Words that are an error's source.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Words(pub(super) String);

impl Words {
    pub(super) fn boxed(words: impl Into<String>) -> Box<dyn std::error::Error + Send + Sync> {
        Box::new(Self(words.into()))
    }
}

/// The same without its log lines: genai's hold whole answers of providers, some of which tell the key that they refuse.
pub(super) fn quietly<F>(future: F) -> WithDispatch<F> {
    future.with_subscriber(Dispatch::none())
}

/// What is said, without the key: also one that has no shape by which [`crate::redact`] would know it.
pub(super) fn shown(words: &str, key: Option<&Secret>) -> String {
    let key = key.map(Secret::reveal).filter(|key| !key.is_empty());
    let words = key.map_or_else(|| words.to_owned(), |key| words.replace(key, REDACTED));
    cleaned(words.trim(), PROVIDER_WORDS_BYTES_MAX)
}

/// The message in a body that tells an error, in whichever of the shapes in use.
pub(super) fn message(body: &Value) -> Option<&str> {
    ["/error/message", "/error/error/message", "/error", "/message", "/detail"]
        .into_iter()
        .find_map(|place| body.pointer(place).and_then(Value::as_str))
}

/// What providers say of a conversation that is longer than their model takes.
const OVERFLOWS: [&str; 14] = [
    // OpenAI and those that follow it.
    "context_length_exceeded",
    "maximum context length",
    "context window",
    "reduce the length of the messages",
    "maximum number of tokens allowed",
    "maximum prompt length",
    "token limit exceeded",
    // Anthropic.
    "prompt is too long",
    "exceed context limit",
    "request_too_large",
    // llama.cpp and Ollama.
    "exceed_context_size",
    "available context size",
    "prompt too long",
    "context length",
];

/// Whether a body says that the conversation is too long.
pub(super) fn is_overflow(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    OVERFLOWS.iter().any(|words| body.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_out_also_where_it_has_no_shape_of_one() {
        let key = Secret::new("plain words");
        assert_eq!(shown("no plain words here", Some(&key)), "no [redacted] here");
        assert_eq!(shown("Incorrect API key: sk-abcdefghijklmnopqrst", None), "Incorrect API key: [redacted]");
        assert!(shown(&"x".repeat(10_000), None).len() < PROVIDER_WORDS_BYTES_MAX + 40);
    }

    #[test]
    fn messages_are_found_in_all_shapes() {
        for body in [
            r#"{"error": {"message": "m"}}"#,
            r#"{"type": "error", "error": {"type": "t", "message": "m"}}"#,
            r#"{"error": "m"}"#,
            r#"{"message": "m"}"#,
        ] {
            assert_eq!(message(&serde_json::from_str(body).unwrap()), Some("m"), "{body}");
        }
    }

    #[test]
    fn overflows_are_known_by_the_words_of_each_provider() {
        for words in [
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            r#"{"error": {"code": "context_length_exceeded"}}"#,
            "prompt is too long: 215000 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
            "prompt too long; exceeded max context length by 808 tokens",
            "the input length exceeds the context length",
        ] {
            assert!(is_overflow(words), "{words}");
        }
        assert!(!is_overflow("max_tokens: must be at least 1") && !is_overflow("model not found"));
    }
}
