//! What OpenAI's chat completions and embeddings look like, and all that follow them.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{argument_pieces, frame, tokens};
use crate::reply::{Call, Reply};
use crate::request::{Protocol, Request};

pub(super) fn frames(request: &Request, reply: &Reply) -> Vec<Bytes> {
    let delta = |delta: Value| chunk(request, json!([{ "index": 0, "delta": delta, "finish_reason": null }]));
    let mut chunks = vec![delta(json!({ "role": "assistant", "content": "" }))];
    if !reply.reasoning.is_empty() {
        chunks.push(delta(json!({ "reasoning_content": reply.reasoning })));
    }
    chunks.extend(reply.text_pieces().into_iter().map(|piece| delta(json!({ "content": piece }))));
    for (index, call) in reply.tool_calls.iter().enumerate() {
        chunks.push(delta(json!({ "tool_calls": [opening(index, call)] })));
        chunks.extend(
            argument_pieces(&call.arguments)
                .into_iter()
                .map(|piece| delta(json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }))),
        );
    }
    chunks.push(chunk(request, json!([{ "index": 0, "delta": {}, "finish_reason": finish(reply) }])));
    if !reply.without_usage && request.body["stream_options"]["include_usage"] == true {
        let mut counted = chunk(request, json!([]));
        counted["usage"] = usage(request, reply);
        chunks.push(counted);
    }
    let frame = |data: &str| frame(Protocol::Openai, "", data);
    chunks.iter().map(|chunk| frame(&chunk.to_string())).chain([frame("[DONE]")]).collect()
}

pub(super) fn body(request: &Request, reply: &Reply) -> Value {
    let calls = reply.tool_calls.iter().enumerate().map(|(index, call)| {
        let mut opening = opening(index, call);
        opening["function"]["arguments"] = call.arguments.clone().into();
        opening
    });
    let mut message = json!({ "role": "assistant", "content": reply.text });
    if !reply.tool_calls.is_empty() {
        message["tool_calls"] = calls.collect();
    }
    if !reply.reasoning.is_empty() {
        message["reasoning_content"] = reply.reasoning.clone().into();
    }
    let mut body = json!({
        "id": format!("chatcmpl-{}", request.number), "object": "chat.completion", "created": 0, "model": request.model,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish(reply) }],
    });
    if !reply.without_usage {
        body["usage"] = usage(request, reply);
    }
    body
}

pub(super) fn vectors(request: &Request, vectors: Vec<Vec<f32>>) -> Value {
    let vector = |(index, vector)| json!({ "object": "embedding", "index": index, "embedding": vector });
    let data: Vec<Value> = vectors.into_iter().enumerate().map(vector).collect();
    let tokens = request.bytes().div_ceil(4);
    json!({
        "object": "list", "data": data, "model": request.model,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })
}

pub(super) fn refused(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        400 if message.contains("maximum context length") => ("invalid_request_error", Some("context_length_exceeded")),
        401 => ("invalid_request_error", Some("invalid_api_key")),
        429 => ("requests", Some("rate_limit_exceeded")),
        500.. => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

fn chunk(request: &Request, choices: Value) -> Value {
    json!({
        "id": format!("chatcmpl-{}", request.number), "object": "chat.completion.chunk", "created": 0,
        "model": request.model, "choices": choices, "usage": null,
    })
}

fn opening(index: usize, call: &Call) -> Value {
    let mut opening = json!({ "index": index, "type": "function", "function": { "name": call.name, "arguments": "" } });
    if let Some(id) = &call.id {
        opening["id"] = id.clone().into();
    }
    opening
}

fn finish(reply: &Reply) -> &'static str {
    if reply.tool_calls.is_empty() { "stop" } else { "tool_calls" }
}

fn usage(request: &Request, reply: &Reply) -> Value {
    let tokens = tokens(request, reply);
    json!({
        "prompt_tokens": tokens.input, "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    })
}
