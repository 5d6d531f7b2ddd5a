//! The provider as programs see it: its three protocols, its failures, its program.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use scripted_provider::{Ending, Failure, Place, Provider, Reply, Rule, Script, When};
use serde_json::{Value, json};

async fn post(url: &str, body: &Value) -> reqwest::Result<reqwest::Response> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    client.post(url).header("content-type", "application/json").body(body.to_string()).send().await
}

fn asked(words: &str) -> Value {
    json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": words }] })
}

#[tokio::test]
async fn each_protocol_streams_words_and_ends_in_its_own_way() {
    let provider = Provider::start(Script::echo()).await.unwrap();
    for (path, word, end) in [
        ("/v1/chat/completions", r#""content":"two"#, "data: [DONE]\n\n"),
        ("/v1/messages", r#""text":"two"#, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        ("/api/chat", r#""content":"two"#, "}\n"),
    ] {
        let streamed =
            post(&format!("{}{path}", provider.url()), &asked("one two")).await.unwrap().text().await.unwrap();
        assert!(streamed.contains(word) && streamed.ends_with(end), "{path}: {streamed}");
    }
    assert_eq!((provider.calls(), provider.in_flight()), (3, 0));
    assert_eq!(provider.requests()[2].last(), "one two");
}

#[tokio::test]
async fn replies_that_are_not_streamed_are_one_body() {
    let provider = Provider::start(Script::always(Reply::call("c1", "shell", r#"{"a":1}"#))).await.unwrap();
    let mut ask = asked("x");
    ask["stream"] = false.into();
    for (path, at, value) in [
        ("/v1/chat/completions", "/choices/0/message/tool_calls/0/function/arguments", json!("{\"a\":1}")),
        ("/v1/messages", "/content/0/input", json!({ "a": 1 })),
        ("/api/chat", "/message/tool_calls/0/function/arguments", json!({ "a": 1 })),
    ] {
        let body = post(&format!("{}{path}", provider.url()), &ask).await.unwrap().text().await.unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body.pointer(at), Some(&value), "{path}: {body}");
    }
}

#[tokio::test]
async fn rules_come_before_the_queue_and_are_used_up() {
    let limited = Reply::rate_limited(Some(Duration::from_millis(1_500)));
    let rule = Rule { when: When::last("x"), reply: limited, times: Some(1) };
    let provider = Provider::start(Script::queue([Reply::text("queued")]).rule(rule)).await.unwrap();
    let url = format!("{}/v1/chat/completions", provider.url());
    let first = post(&url, &asked("x")).await.unwrap();
    assert_eq!((first.status().as_u16(), first.headers()["retry-after"].to_str().unwrap()), (429, "2"));
    assert_eq!(first.headers()["retry-after-ms"].to_str().unwrap(), "1500");
    assert!(post(&url, &asked("x")).await.unwrap().text().await.unwrap().contains("queued"));
    assert_eq!(post(&url, &asked("x")).await.unwrap().status().as_u16(), 500, "the queue is empty");
}

#[tokio::test]
async fn a_broken_reply_breaks_the_connection_and_an_early_one_does_not() {
    let replies = [Ending::Broken { after: 1 }, Ending::Early { after: 1 }];
    let script = Script::queue(replies.map(|ending| Reply::text("a b c").ending(ending)));
    let provider = Provider::start(script).await.unwrap();
    let url = format!("{}/v1/chat/completions", provider.url());
    post(&url, &asked("x")).await.unwrap().text().await.unwrap_err();
    assert!(!post(&url, &asked("x")).await.unwrap().text().await.unwrap().contains("[DONE]"));
}

#[tokio::test]
async fn silence_lasts_until_the_provider_is_dropped() {
    let script = Script::queue([Reply::failure(Failure::Silence), Reply::text("a").ending(Ending::Hangs { after: 1 })]);
    let provider = Provider::start(script).await.unwrap();
    let url = format!("{}/v1/chat/completions", provider.url());
    let at = url.clone();
    let silent = tokio::spawn(async move { post(&at, &asked("x")).await });
    provider.reached(1).await;
    tokio::time::timeout(Duration::from_millis(100), silent).await.unwrap_err();
    let ended = tokio::spawn(async move { post(&url, &asked("x")).await.unwrap().text().await });
    provider.reached(2).await;
    drop(provider);
    assert!(!ended.await.unwrap().unwrap_or_default().contains("[DONE]"));
}

#[tokio::test]
async fn texts_that_share_words_have_vectors_that_are_near() {
    let provider = Provider::start(Script::echo()).await.unwrap();
    let ask = json!({ "model": "e", "input": ["the red house", "a red house", "blue water"] });
    let body = post(&format!("{}/api/embed", provider.url()), &ask).await.unwrap().text().await.unwrap();
    let vectors: Vec<Vec<f32>> =
        serde_json::from_value(serde_json::from_str::<Value>(&body).unwrap()["embeddings"].take()).unwrap();
    let near = |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
    assert!(near(&vectors[0], &vectors[1]) > near(&vectors[0], &vectors[2]));
    assert!((near(&vectors[0], &vectors[0]) - 1.0).abs() < 1e-5);
}

#[tokio::test]
async fn a_negotiation_says_the_same_to_the_same_and_scores_when_it_must() {
    let provider = Provider::start(Script::negotiation()).await.unwrap();
    let url = format!("{}/v1/chat/completions", provider.url());
    let mut ask = asked("judge. Respond ONLY with valid JSON in this exact format");
    ask["stream"] = false.into();
    let mut said = Vec::new();
    for _ in 0..2 {
        let body: Value = serde_json::from_str(&post(&url, &ask).await.unwrap().text().await.unwrap()).unwrap();
        said.push(body["choices"][0]["message"]["content"].as_str().unwrap().to_owned());
    }
    assert_eq!(said[0], said[1]);
    let scores: Value = serde_json::from_str(&said[0]).unwrap();
    let metrics = ["impact", "feasibility", "risk_adjusted_return", "strategic_alignment"];
    assert!(metrics.iter().all(|metric| (1..=10).contains(&scores[metric].as_u64().unwrap())), "{scores}");
}

#[tokio::test]
async fn it_listens_on_a_unix_socket_too_and_tells_what_it_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("provider.sock");
    let provider =
        Provider::start_at(Place::Socket(path.clone()), Script::echo(), Duration::from_millis(30)).await.unwrap();
    let client = reqwest::Client::builder().unix_socket(path).build().unwrap();
    let begun = Instant::now();
    let sent = client.post("http://provider/api/chat").body(asked("by socket").to_string()).send().await.unwrap();
    assert!(sent.text().await.unwrap().contains("socket"));
    assert!(begun.elapsed() >= Duration::from_millis(30), "its own delay");
    let told = client.get("http://provider/requests").send().await.unwrap().text().await.unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["calls"], &told["requests"][0]["body"]["messages"][0]["content"]),
        (&json!(1), &json!("by socket"))
    );
    assert_eq!(provider.calls(), 1);
}

#[tokio::test]
async fn the_program_tells_its_url_and_follows_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script.json");
    let rules = json!({ "rules": [{ "when": { "last": "hi" }, "reply": { "text": "from the file" } }] });
    std::fs::write(&script, rules.to_string()).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_scripted-provider"))
        .arg("--script")
        .arg(&script)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let said = post(&format!("{}/v1/chat/completions", url.trim()), &asked("hi")).await.unwrap().text().await.unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(said.contains("from "), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_calls_are_answered_and_counted() {
    let provider = Provider::start(Script::negotiation()).await.unwrap();
    let url = format!("{}/v1/chat/completions", provider.url());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let begun = Instant::now();
    let callers = (0..16).map(|caller| {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(async move {
            for call in 0..125 {
                let ask = asked(&format!("call {call} of {caller}")).to_string();
                let said = client.post(&url).body(ask).send().await.unwrap().text().await.unwrap();
                assert!(said.ends_with("data: [DONE]\n\n"));
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    println!("{:.0} calls/s", 2_000.0 / begun.elapsed().as_secs_f64());
    assert_eq!((provider.calls(), provider.in_flight()), (2_000, 0));
    assert!((1..=16).contains(&provider.in_flight_max()));
}
