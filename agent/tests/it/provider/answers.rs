//! What a whole answer is made of, and what is sent for it.

use std::error::Error;
use std::time::Duration;

use sandbox_agent::model::{Ask, Message, Role, ToolCall, ToolSpec, Usage};
use sandbox_agent::provider::{Prices, ProviderModel};
use sandbox_protocol::agent::{ProviderKind, Secret};
use scripted_provider::{Provider, Reply, Request, Script};
use serde_json::json;

use super::{KEY, KINDS, asked, heard, model, settings, words};

#[tokio::test]
async fn words_are_heard_in_their_order_and_make_the_answer() {
    for kind in KINDS {
        let reply = Reply::pieces(["Hel", "lo, ", "wörld"]).usage(120, 7);
        let provider = Provider::start(Script::always(reply)).await.unwrap();
        let (answer, heard) = asked(kind, &provider).await;
        let answer = answer.unwrap();
        assert_eq!((heard.join("+"), answer.text.as_str()), ("Hel+lo, +wörld".to_owned(), "Hello, wörld"), "{kind:?}");
        assert_eq!(answer.usage, Usage { input_tokens: 120, output_tokens: 7 }, "{kind:?}");
        assert_eq!((answer.retries, provider.calls()), (0, 1));
    }
}

#[tokio::test]
async fn thoughts_are_heard_and_are_no_part_of_the_answer() {
    for kind in KINDS {
        let provider = Provider::start(Script::always(Reply::text("yes").reasoning("let me see"))).await.unwrap();
        let (answer, heard) = asked(kind, &provider).await;
        assert_eq!((answer.unwrap().text.as_str(), heard.concat()), ("yes", "(let me see)yes".to_owned()), "{kind:?}");
    }
}

#[tokio::test]
async fn calls_of_tools_come_whole_from_their_pieces() {
    let arguments = r#"{"command":"echo \"hello, wörld\"","timeout_ms":1000}"#;
    let reply = Reply::text("I look.").and_call("id-1", "shell", arguments).and_call("id-2", "list", "{}");
    for kind in KINDS {
        let provider = Provider::start(Script::always(reply.clone())).await.unwrap();
        let answer = asked(kind, &provider).await.0.unwrap();
        let call = |id: &str, name: &str, arguments| ToolCall { id: id.to_owned(), name: name.to_owned(), arguments };
        let shell = call("id-1", "shell", serde_json::from_str(arguments).unwrap());
        assert_eq!(answer.tool_calls, [shell, call("id-2", "list", json!({}))], "{kind:?}");
        assert_eq!(answer.text, "I look.");
    }
}

#[tokio::test]
async fn arguments_that_are_no_json_are_kept_as_text_and_missing_ids_are_made() {
    let reply = Reply::call("", "shell", "ls -l, please").and_call("", "shell", "{}");
    for kind in KINDS {
        let provider = Provider::start(Script::always(reply.clone())).await.unwrap();
        let calls = asked(kind, &provider).await.0.unwrap().tool_calls;
        assert_eq!((&calls[0].arguments, &calls[1].arguments), (&json!("ls -l, please"), &json!({})), "{kind:?}");
        assert!(!calls[0].id.is_empty() && calls[0].id != calls[1].id, "{kind:?}");
    }
}

#[tokio::test]
async fn a_provider_that_counts_nothing_is_believed_where_it_has_ended() {
    let reply = Reply { without_usage: true, ..Reply::text("done") };
    for kind in KINDS {
        let provider = Provider::start(Script::always(reply.clone())).await.unwrap();
        let answer = asked(kind, &provider).await.0.unwrap();
        assert_eq!((answer.text.as_str(), answer.usage), ("done", Usage::default()), "{kind:?}");
    }
}

fn conversation() -> Ask {
    let calls = ["a", "b"].map(|id| ToolCall {
        id: id.to_owned(),
        name: "shell".to_owned(),
        arguments: if id == "a" { json!({ "command": "ls" }) } else { json!("no json") },
    });
    let assistant = Message { tool_calls: calls.to_vec(), ..Message::new(Role::Assistant, "") };
    Ask {
        messages: vec![
            Message::new(Role::System, "be brief"),
            Message::new(Role::User, "look"),
            assistant,
            Message::of_tool("a", "file"),
            Message::of_tool("b", "Tool `shell` failed."),
        ],
        tools: vec![ToolSpec {
            name: "shell".to_owned(),
            description: "runs".to_owned(),
            parameters: json!({ "type": "object", "properties": { "command": { "type": "string" } } }),
        }],
        output_tokens_max: Some(77),
    }
}

/// The request that this conversation makes.
async fn sent(kind: ProviderKind) -> Result<Request, Box<dyn Error>> {
    let provider = Provider::start(Script::echo()).await?;
    let model = model(settings(kind, provider.url()))?;
    heard(&model, &conversation()).await.0?;
    Ok(Request::clone(&provider.requests()[0]))
}

#[tokio::test]
async fn openai_is_sent_what_it_takes() {
    let request = sent(ProviderKind::Openai).await.unwrap();
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    let body = &request.body;
    assert_eq!((&body["model"], &body["stream"], &body["max_tokens"]), (&json!("test-max"), &json!(true), &json!(77)));
    assert_eq!(body["stream_options"]["include_usage"], true);
    assert_eq!(body.get("reasoning_effort"), None, "no word of the model's name is taken for one");
    let calls = &body["messages"][2]["tool_calls"];
    assert_eq!(calls[0]["function"]["arguments"], r#"{"command":"ls"}"#);
    assert_eq!(body["messages"][3]["tool_call_id"], "a");
    assert_eq!(body["messages"][4]["content"], "Tool `shell` failed.");
    assert_eq!(body["tools"][0]["function"]["parameters"]["properties"]["command"]["type"], "string");
}

#[tokio::test]
async fn anthropic_is_sent_what_it_takes() {
    let request = sent(ProviderKind::Anthropic).await.unwrap();
    assert_eq!((request.header("x-api-key"), request.header("anthropic-version")), (Some(KEY), Some("2023-06-01")));
    assert_eq!(request.header("authorization"), None);
    let body = &request.body;
    assert_eq!(
        (&body["model"], &body["system"], &body["max_tokens"]),
        (&json!("test-max"), &json!("be brief"), &json!(77))
    );
    let calls = &body["messages"][1]["content"];
    assert_eq!(
        (&calls[0]["input"], &calls[1]["input"]),
        (&json!({ "command": "ls" }), &json!({ "arguments": "no json" }))
    );
    let results = &body["messages"][2]["content"];
    assert_eq!((&results[0]["tool_use_id"], &results[1]["tool_use_id"]), (&json!("a"), &json!("b")));
    assert_eq!(body["messages"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn ollama_is_sent_what_it_takes() {
    let request = sent(ProviderKind::Ollama).await.unwrap();
    assert_eq!(request.path, "/api/chat");
    let body = &request.body;
    assert_eq!((&body["model"], &body["options"]["num_predict"]), (&json!("test-max"), &json!(77)));
    assert_eq!(body["messages"][2]["tool_calls"][0]["function"]["arguments"], json!({ "command": "ls" }));
    assert_eq!((&body["messages"][3]["content"], &body["messages"][4]["role"]), (&json!("file"), &json!("tool")));
}

#[tokio::test]
async fn a_provider_without_a_key_is_sent_none() {
    for kind in KINDS {
        let provider = Provider::start(Script::echo()).await.unwrap();
        let keyless = settings(kind, provider.url());
        let model = model(sandbox_agent::provider::ProviderSettings { api_key: None, ..keyless }).unwrap();
        assert_eq!(heard(&model, &words("hi")).await.0.unwrap().text, "hi");
        let requests = provider.requests();
        assert_eq!((requests[0].key(), requests[0].header("authorization")), (None, None), "{kind:?}");
    }
}

#[tokio::test]
async fn models_that_share_a_client_keep_their_keys_apart_and_connections_together() {
    let provider = Provider::start(Script::echo()).await.unwrap();
    let http = sandbox_agent::provider::http_client(&Default::default()).unwrap();
    for key in ["mine", "theirs"] {
        let mut settings = settings(ProviderKind::Openai, provider.url());
        settings.api_key = Some(Secret::new(key));
        let model = ProviderModel::new(settings, http.clone()).unwrap();
        heard(&model, &words("hi")).await.0.unwrap();
    }
    let requests = provider.requests();
    assert_eq!((requests[0].key(), requests[1].key()), (Some("mine"), Some("theirs")));
    assert_eq!((requests[0].connection, requests[1].connection), (1, 1));
}

#[tokio::test]
async fn answers_are_counted_at_their_price() {
    let provider = Provider::start(Script::always(Reply::text("x").usage(1_000, 100))).await.unwrap();
    let mut settings = settings(ProviderKind::Openai, provider.url());
    settings.prices = Prices::parse(r#"{"test-max": {"input": 3, "output": 15}}"#).unwrap();
    let model = model(settings).unwrap();
    for _ in 0..2 {
        heard(&model, &words("hi")).await.0.unwrap();
    }
    let ledger = model.ledger();
    assert_eq!((ledger.calls(), ledger.cost_micro_usd()), (2, Some(9_000)));
    assert_eq!(ledger.usage(), Usage { input_tokens: 2_000, output_tokens: 200 });
}

#[tokio::test]
async fn a_connection_is_kept_though_its_body_ends_after_the_last_word() {
    for kind in KINDS {
        let provider =
            Provider::start(Script::always(Reply::text("x").piece_delay(Duration::from_millis(10)))).await.unwrap();
        let model = model(settings(kind, provider.url())).unwrap();
        for call in 1..=20 {
            heard(&model, &words("hi")).await.0.unwrap();
            while provider.in_flight() > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(provider.calls(), call);
        }
        let opened = provider.requests().iter().map(|request| request.connection).max().unwrap();
        assert!(opened < 10, "{kind:?}: {opened} connections for 20 calls");
    }
}
