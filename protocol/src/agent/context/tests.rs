//! What a `context_json` may say, and by which field it is refused.

use serde_json::json;

use super::*;

fn refused(json: &str, message: &str) {
    assert_eq!(TaskContext::parse(json).unwrap_err().to_string(), format!("context_json: {message}"), "{json}");
}

#[test]
fn an_empty_context_says_nothing() {
    for json in ["", "{}", r#"{"provider": null, "kind": null, "agent_backend": null}"#] {
        assert_eq!(TaskContext::parse(json).unwrap(), TaskContext::default(), "{json}");
    }
}

#[test]
fn reserved_keys_are_read_and_all_others_are_the_models() {
    let provider = json!({ "kind": "ollama", "base_url": "http://m.test", "api_key": "k", "context_tokens": 1 });
    let json = json!({ "provider": provider, "agent_backend": "native", "agent_identifier": "me", "ticket": [1] });
    let read = TaskContext::parse(&json.to_string()).unwrap();
    let expected = Provider {
        kind: Some(ProviderKind::Ollama),
        base_url: Some("http://m.test".into()),
        api_key: Some(Secret::new("k")),
        context_tokens: Some(1),
    };
    assert_eq!(read.provider, Some(expected));
    assert_eq!((read.agent_backend.as_deref(), read.agent_identifier.as_deref()), (Some("native"), Some("me")));
    assert_eq!(serde_json::Value::from(read.rest), json!({ "ticket": [1] }));
    assert_eq!(read.negotiation, None);
}

#[test]
fn what_is_no_object_is_refused_as_a_whole() {
    refused("[]", "not an object");
    refused("\"text\"", "not an object");
    refused("{", "EOF while parsing an object at line 1 column 1");
}

#[test]
fn each_reserved_key_is_refused_by_its_name() {
    refused(r#"{"agent_backend": 1}"#, "agent_backend: not a text");
    refused(r#"{"agent_identifier": {}}"#, "agent_identifier: not a text");
    refused(r#"{"kind": 1}"#, "kind: not a text");
    refused(r#"{"kind": "vote"}"#, "kind: the one kind there is: negotiation");
    refused(r#"{"provider": "sk-secret"}"#, "provider: not an object");
    refused(r#"{"provider": {"kind": "sk-secret"}}"#, "provider.kind: not openai, anthropic or ollama");
    refused(r#"{"provider": {"base_url": 1}}"#, "provider.base_url: not a text");
    refused(r#"{"provider": {"api_key": 1}}"#, "provider.api_key: not a text");
    refused(r#"{"provider": {"context_tokens": "sk-secret"}}"#, "provider.context_tokens: not a whole number");
    refused(r#"{"provider": {"context_tokens": 4294967296}}"#, "provider.context_tokens: not a whole number");
    refused(r#"{"provider": {"context_tokens": 0}}"#, "provider.context_tokens: 1 or more");
    refused(r#"{"provider": {"key": "sk-secret"}}"#, "provider.key: no such field");
}

#[test]
fn a_negotiation_holds_nothing_but_its_own_fields() {
    let moves = r#""kind": "negotiation", "ticker": "A", "moves": [{"move_id": "m1", "content": "x"}]"#;
    let read = TaskContext::parse(&format!(r#"{{{moves}, "agent_backend": "native"}}"#)).unwrap();
    assert!(read.negotiation.is_some() && read.rest.is_empty() && read.agent_backend.is_some());
    refused(&format!(r#"{{{moves}, "rounds": 3}}"#), "rounds: no such field");
    let long = "k".repeat(FIELD_BYTES_MAX + 1);
    refused(&format!(r#"{{{moves}, "{long}": 3}}"#), &format!("{}: no such field", &long[1..]));
}

#[test]
fn a_context_has_a_length() {
    let of = |bytes: usize| format!(r#"{{"a": "{}"}}"#, "x".repeat(bytes - 9));
    let longest = of(CONTEXT_JSON_BYTES_MAX);
    assert_eq!(longest.len(), CONTEXT_JSON_BYTES_MAX);
    assert!(TaskContext::parse(&longest).is_ok());
    refused(&of(CONTEXT_JSON_BYTES_MAX + 1), "longer than 1048576 bytes");
}

#[test]
fn a_refusal_prints_no_secret() {
    let context = TaskContext::parse(r#"{"provider": {"api_key": "sk-secret"}}"#).unwrap();
    assert!(!format!("{context:?}").contains("sk-secret"));
    let odd = r#"{"provider": {"api_key": ["sk-secret"]}}"#;
    assert!(!TaskContext::parse(odd).unwrap_err().to_string().contains("sk-secret"));
}
