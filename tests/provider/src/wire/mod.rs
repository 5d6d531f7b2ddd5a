//! Replies as bytes: frames of a stream, whole bodies, refusals in each protocol's own words.

mod anthropic;
mod ollama;
mod openai;

use bytes::Bytes;
use serde_json::Value;

use crate::builtin::embedding;
use crate::limits::ARGUMENT_PIECE_BYTES;
use crate::reply::{Ending, Failure, Reply, Tokens};
use crate::request::{Protocol, Request};

/// A refusal.
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
    pub(crate) retry_after_ms: Option<u64>,
}

/// How a stream goes on behind its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    Nothing,
    Break,
    Silence,
}

/// What the stream is called.
pub(crate) const fn stream_type(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Openai | Protocol::Anthropic => "text/event-stream",
        Protocol::Ollama => "application/x-ndjson",
    }
}

/// The reply as frames, and what comes behind.
pub(crate) fn stream(request: &Request, reply: &Reply) -> (Vec<Bytes>, Behind) {
    let mut frames = match request.protocol {
        Protocol::Openai => openai::frames(request, reply),
        Protocol::Anthropic => anthropic::frames(request, reply),
        Protocol::Ollama => ollama::frames(request, reply),
    };
    let behind = match reply.ending {
        Ending::Whole => Behind::Nothing,
        Ending::Malformed { after } => {
            frames.truncate(after);
            frames.push(frame(request.protocol, "content_block_delta", "{\"choices\": [{\"delta\": oops"));
            Behind::Nothing
        }
        Ending::Error { after } => {
            frames.truncate(after);
            let body = refused(request, 500, "the model has stopped unexpectedly").to_string();
            frames.push(frame(request.protocol, "error", &body));
            Behind::Nothing
        }
        Ending::Broken { after } => {
            frames.truncate(after);
            Behind::Break
        }
        Ending::Early { after } => {
            frames.truncate(after);
            Behind::Nothing
        }
        Ending::Hangs { after } => {
            frames.truncate(after);
            Behind::Silence
        }
    };
    (frames, behind)
}

/// The reply as one body; one that breaks, hangs or lacks its end is cut in its middle.
pub(crate) fn whole(request: &Request, reply: &Reply) -> (Bytes, Behind) {
    let body = match request.protocol {
        Protocol::Openai => openai::body(request, reply),
        Protocol::Anthropic => anthropic::body(request, reply),
        Protocol::Ollama => ollama::body(request, reply),
    };
    ended(reply, body.to_string())
}

/// Vectors of the texts.
pub(crate) fn vectors(request: &Request, reply: &Reply) -> (Bytes, Behind) {
    let vectors = request.messages.iter().map(|said| embedding(&said.content)).collect();
    let body = match request.protocol {
        Protocol::Openai | Protocol::Anthropic => openai::vectors(request, vectors),
        Protocol::Ollama => ollama::vectors(request, vectors),
    };
    ended(reply, body.to_string())
}

fn ended(reply: &Reply, mut body: String) -> (Bytes, Behind) {
    let behind = match reply.ending {
        Ending::Whole => Behind::Nothing,
        Ending::Malformed { .. } | Ending::Early { .. } | Ending::Error { .. } => {
            body.truncate(body.floor_char_boundary(body.len() / 2));
            Behind::Nothing
        }
        Ending::Broken { .. } | Ending::Hangs { .. } => {
            body.truncate(body.floor_char_boundary(body.len() / 2));
            if matches!(reply.ending, Ending::Hangs { .. }) { Behind::Silence } else { Behind::Break }
        }
    };
    (Bytes::from(body), behind)
}

/// A failure in the protocol's words; `None` for silence.
pub(crate) fn refusal(request: &Request, failure: &Failure) -> Option<Refusal> {
    let (status, message, retry_after_ms) = match failure {
        Failure::Silence => return None,
        Failure::Raw { status, content_type, body } => {
            let (content_type, body) = (content_type.clone(), body.clone());
            return Some(Refusal { status: *status, content_type, body, retry_after_ms: None });
        }
        Failure::RateLimited { retry_after_ms } => (429, "too many requests; slow down".to_owned(), *retry_after_ms),
        Failure::Unauthorized => {
            (401, format!("Incorrect API key provided: {}", request.key().unwrap_or_default()), None)
        }
        Failure::ContextOverflow => (400, overflow(request.protocol).to_owned(), None),
        Failure::Status { status, message } => (*status, message.clone(), None),
    };
    let body = refused(request, status, &message).to_string();
    Some(Refusal { status, content_type: "application/json".to_owned(), body, retry_after_ms })
}

/// What each says of a conversation that is too long.
const fn overflow(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Openai => {
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please \
             reduce the length of the messages."
        }
        Protocol::Anthropic => "prompt is too long: 9000 tokens > 8192 maximum",
        Protocol::Ollama => "prompt too long; exceeded max context length by 808 tokens",
    }
}

fn refused(request: &Request, status: u16, message: &str) -> Value {
    match request.protocol {
        Protocol::Openai => openai::refused(status, message),
        Protocol::Anthropic => anthropic::refused(status, message),
        Protocol::Ollama => ollama::refused(message),
    }
}

fn frame(protocol: Protocol, event: &str, data: &str) -> Bytes {
    match protocol {
        Protocol::Openai => Bytes::from(format!("data: {data}\n\n")),
        Protocol::Anthropic => Bytes::from(format!("event: {event}\ndata: {data}\n\n")),
        Protocol::Ollama => Bytes::from(format!("{data}\n")),
    }
}

fn tokens(request: &Request, reply: &Reply) -> Tokens {
    let quarter = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    let said: usize = reply.text.len()
        + reply.reasoning.len()
        + reply.tool_calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>();
    reply.usage.unwrap_or(Tokens { input: quarter(request.bytes()), output: quarter(said) })
}

fn argument_pieces(mut rest: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.ceil_char_boundary(ARGUMENT_PIECE_BYTES));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}
