//! What genai is told to send, where, and with which headers.

use genai::adapter::AdapterKind;
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatRole, ContentPart, MessageContent, ReasoningEffort, Tool, ToolCall,
    ToolName, ToolResponse,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{Headers, ModelIden, ServiceTarget};
use sandbox_protocol::agent::{ProviderKind, Secret};
use serde_json::{Value, json};

use super::settings::ProviderSettings;
use crate::model::{self, Ask, Message, Role};

/// The version of Anthropic's protocol that is spoken.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Words,
    Vectors,
}

/// Where it goes, with the key. The URL and all headers are said, so that genai adds none and needs no key.
pub(super) fn target(settings: &ProviderSettings, model: &str, wanted: Wanted) -> ServiceTarget {
    let ProviderSettings { kind, base_url, api_key, .. } = settings;
    let (adapter, path) = match (kind, wanted) {
        (ProviderKind::Openai, Wanted::Words) => (AdapterKind::OpenAI, "chat/completions"),
        (ProviderKind::Openai, Wanted::Vectors) => (AdapterKind::OpenAI, "embeddings"),
        (ProviderKind::Anthropic, _) => (AdapterKind::Anthropic, "messages"),
        (ProviderKind::Ollama, Wanted::Words) => (AdapterKind::Ollama, "api/chat"),
        (ProviderKind::Ollama, Wanted::Vectors) => (AdapterKind::Ollama, "api/embed"),
    };
    let auth =
        AuthData::RequestOverride { url: format!("{base_url}/{path}"), headers: headers(*kind, api_key.as_ref()) };
    let endpoint = Endpoint::from_owned(format!("{base_url}/"));
    ServiceTarget { endpoint, auth, model: ModelIden::new(adapter, model) }
}

fn headers(kind: ProviderKind, key: Option<&Secret>) -> Headers {
    let mut headers: Vec<(&str, String)> = Vec::new();
    match kind {
        ProviderKind::Openai | ProviderKind::Ollama => {
            headers.extend(key.map(|key| ("authorization", format!("Bearer {}", key.reveal()))));
        }
        ProviderKind::Anthropic => {
            headers.push(("anthropic-version", ANTHROPIC_VERSION.to_owned()));
            headers.extend(key.map(|key| ("x-api-key", key.reveal().to_owned())));
        }
    }
    Headers::from(headers)
}

/// How it is asked. Words are collected by us, since genai would do so without a bound; calls only where it must put their
/// pieces together.
pub(super) fn options(settings: &ProviderSettings, ask: &Ask) -> ChatOptions {
    let ProviderSettings { kind, model, .. } = settings;
    let mut options =
        ChatOptions::default().with_capture_usage(true).with_capture_tool_calls(*kind != ProviderKind::Openai);
    if let Some(tokens) = ask.output_tokens_max {
        options = options.with_max_tokens(tokens);
    }
    match kind {
        // A name that ends in a word such as `max` would be cut there and sent with a reasoning effort; a budget is an effort
        // that says nothing on this wire.
        ProviderKind::Openai => {
            options.with_reasoning_effort(ReasoningEffort::Budget(0)).with_extra_body(json!({ "model": model }))
        }
        ProviderKind::Anthropic => options.with_extra_body(json!({ "model": model })),
        ProviderKind::Ollama => options,
    }
}

/// The conversation and the tools.
pub(super) fn chat(kind: ProviderKind, ask: &Ask) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(ask.messages.len());
    for message in &ask.messages {
        let next = said(message);
        match messages.last_mut() {
            // Anthropic wants the results of all calls of a turn in one message, the others in one each.
            Some(last) if kind == ProviderKind::Anthropic && is_result(last) && is_result(&next) => {
                last.content.extend(next.content.into_parts());
            }
            _ if is_empty(&next) => {}
            _ => messages.push(next),
        }
    }
    let request = ChatRequest::from_messages(messages);
    if ask.tools.is_empty() { request } else { request.with_tools(ask.tools.iter().map(tool)) }
}

fn said(message: &Message) -> ChatMessage {
    let Message { role, content, tool_calls, tool_call_id } = message;
    match role {
        Role::System => ChatMessage::system(content.as_str()),
        Role::User => ChatMessage::user(content.as_str()),
        Role::Tool => ToolResponse::new(tool_call_id.clone().unwrap_or_default(), content.as_str()).into(),
        Role::Assistant => {
            let text = (!content.is_empty()).then(|| ContentPart::Text(content.clone()));
            let calls = tool_calls.iter().map(|call| ContentPart::ToolCall(call_again(call)));
            ChatMessage::assistant(text.into_iter().chain(calls).collect::<MessageContent>())
        }
    }
}

/// A call as it is told to the model that made it. Two of the three take objects only.
fn call_again(call: &model::ToolCall) -> ToolCall {
    let fn_arguments =
        if call.arguments.is_object() { call.arguments.clone() } else { json!({ "arguments": call.arguments }) };
    ToolCall { call_id: call.id.clone(), fn_name: call.name.clone(), fn_arguments, thought_signatures: None }
}

fn is_result(message: &ChatMessage) -> bool {
    message.role == ChatRole::Tool
}

/// Whether an assistant said nothing: no provider takes that.
fn is_empty(message: &ChatMessage) -> bool {
    message.role == ChatRole::Assistant && message.content.parts().is_empty()
}

fn tool(spec: &model::ToolSpec) -> Tool {
    // Its name is never one that genai has a meaning of its own for.
    Tool::new(ToolName::Custom(spec.name.clone()))
        .with_description(spec.description.as_str())
        .with_schema(schema(&spec.parameters))
}

/// Some take no schema that is not an object's.
fn schema(parameters: &Value) -> Value {
    if parameters.is_object() { parameters.clone() } else { json!({ "type": "object", "properties": {} }) }
}
