//! What Ollama's own protocol looks like.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{frame, tokens};
use crate::reply::{Call, Reply};
use crate::request::{Protocol, Request};

const CREATED_AT: &str = "1970-01-01T00:00:00Z";

pub(super) fn frames(request: &Request, reply: &Reply) -> Vec<Bytes> {
    let line =
        |message: Value| json!({ "model": request.model, "created_at": CREATED_AT, "message": message, "done": false });
    let mut lines = Vec::new();
    if !reply.reasoning.is_empty() {
        lines.push(line(json!({ "role": "assistant", "content": "", "thinking": reply.reasoning })));
    }
    let text = |piece: &str| line(json!({ "role": "assistant", "content": piece }));
    lines.extend(reply.text_pieces().into_iter().map(text));
    if !reply.tool_calls.is_empty() {
        lines.push(line(json!({ "role": "assistant", "content": "", "tool_calls": calls(reply) })));
    }
    lines.push(end(request, reply, json!({ "role": "assistant", "content": "" })));
    lines.iter().map(|line| frame(Protocol::Ollama, "", &line.to_string())).collect()
}

pub(super) fn body(request: &Request, reply: &Reply) -> Value {
    let mut message = json!({ "role": "assistant", "content": reply.text });
    if !reply.reasoning.is_empty() {
        message["thinking"] = reply.reasoning.clone().into();
    }
    if !reply.tool_calls.is_empty() {
        message["tool_calls"] = calls(reply);
    }
    end(request, reply, message)
}

pub(super) fn vectors(request: &Request, vectors: Vec<Vec<f32>>) -> Value {
    json!({ "model": request.model, "embeddings": vectors, "prompt_eval_count": request.bytes().div_ceil(4) })
}

pub(super) fn refused(message: &str) -> Value {
    json!({ "error": message })
}

fn end(request: &Request, reply: &Reply, message: Value) -> Value {
    let mut end = json!({
        "model": request.model, "created_at": CREATED_AT, "message": message, "done": true, "done_reason": "stop",
    });
    if !reply.without_usage {
        let tokens = tokens(request, reply);
        end["prompt_eval_count"] = tokens.input.into();
        end["eval_count"] = tokens.output.into();
    }
    end
}

fn calls(reply: &Reply) -> Value {
    let call = |call: &Call| {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| call.arguments.clone().into());
        let mut shown = json!({ "function": { "name": call.name, "arguments": arguments } });
        if let Some(id) = &call.id {
            shown["id"] = id.clone().into();
        }
        shown
    };
    reply.tool_calls.iter().map(call).collect()
}
