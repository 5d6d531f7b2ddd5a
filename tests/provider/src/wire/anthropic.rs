//! What Anthropic's messages look like.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{argument_pieces, frame, tokens};
use crate::reply::{Call, Reply};
use crate::request::{Protocol, Request};

/// Frames of a message, each with the name of its event.
struct Frames {
    frames: Vec<Bytes>,
    blocks: u32,
}

pub(super) fn frames(request: &Request, reply: &Reply) -> Vec<Bytes> {
    let tokens = tokens(request, reply);
    let mut frames = Frames { frames: Vec::new(), blocks: 0 };
    let mut start = message(request, json!([]), Value::Null);
    if !reply.without_usage {
        start["usage"] = json!({ "input_tokens": tokens.input, "output_tokens": 1 });
    }
    frames.push("message_start", json!({ "message": start }));
    frames.push("ping", json!({}));
    if !reply.reasoning.is_empty() {
        let deltas = vec![
            json!({ "type": "thinking_delta", "thinking": reply.reasoning }),
            json!({ "type": "signature_delta", "signature": "c2lnbmVk" }),
        ];
        frames.block(json!({ "type": "thinking", "thinking": "", "signature": "" }), deltas);
    }
    let text = |piece: &str| json!({ "type": "text_delta", "text": piece });
    if !reply.text.is_empty() {
        let deltas = reply.text_pieces().into_iter().map(text).collect();
        frames.block(json!({ "type": "text", "text": "" }), deltas);
    }
    for (index, call) in reply.tool_calls.iter().enumerate() {
        let pieces = argument_pieces(&call.arguments).into_iter();
        let deltas = pieces.map(|piece| json!({ "type": "input_json_delta", "partial_json": piece })).collect();
        frames.block(json!({ "type": "tool_use", "id": id(index, call), "name": call.name, "input": {} }), deltas);
    }
    let mut delta = json!({ "delta": { "stop_reason": stop_reason(reply), "stop_sequence": null } });
    if !reply.without_usage {
        delta["usage"] = json!({ "output_tokens": tokens.output });
    }
    frames.push("message_delta", delta);
    frames.push("message_stop", json!({}));
    frames.frames
}

pub(super) fn body(request: &Request, reply: &Reply) -> Value {
    let tokens = tokens(request, reply);
    let mut content = Vec::new();
    if !reply.reasoning.is_empty() {
        content.push(json!({ "type": "thinking", "thinking": reply.reasoning, "signature": "c2lnbmVk" }));
    }
    if !reply.text.is_empty() {
        content.push(json!({ "type": "text", "text": reply.text }));
    }
    content.extend(reply.tool_calls.iter().enumerate().map(|(index, call)| {
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| call.arguments.clone().into());
        json!({ "type": "tool_use", "id": id(index, call), "name": call.name, "input": input })
    }));
    let mut body = message(request, content.into(), stop_reason(reply).into());
    if !reply.without_usage {
        body["usage"] = json!({ "input_tokens": tokens.input, "output_tokens": tokens.output });
    }
    body
}

pub(super) fn refused(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" })
}

impl Frames {
    fn push(&mut self, event: &str, mut data: Value) {
        data["type"] = event.into();
        self.frames.push(frame(Protocol::Anthropic, event, &data.to_string()));
    }

    fn block(&mut self, block: Value, deltas: Vec<Value>) {
        let index = self.blocks;
        self.push("content_block_start", json!({ "index": index, "content_block": block }));
        for delta in deltas {
            self.push("content_block_delta", json!({ "index": index, "delta": delta }));
        }
        self.push("content_block_stop", json!({ "index": index }));
        self.blocks += 1;
    }
}

fn message(request: &Request, content: Value, stop_reason: Value) -> Value {
    json!({
        "id": format!("msg_{}", request.number), "type": "message", "role": "assistant", "model": request.model,
        "content": content, "stop_reason": stop_reason, "stop_sequence": null,
    })
}

/// The protocol knows no call without an id.
fn id(index: usize, call: &Call) -> String {
    call.id.clone().unwrap_or_else(|| format!("toolu_{index}"))
}

fn stop_reason(reply: &Reply) -> &'static str {
    if reply.tool_calls.is_empty() { "end_turn" } else { "tool_use" }
}
