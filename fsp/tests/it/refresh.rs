//! Keys that are renewed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_fsp::limits::{REFRESH_INTERVAL_MS, REFRESH_RETRY_MS};
use sandbox_fsp::{HttpRefresh, Keeper, Refresh, RefreshError, Renewed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::yield_now;
use tokio::time::{Instant, advance};

/// Answers with what it is told to, and writes down when, and for which key, it was asked.
#[derive(Clone, Default)]
struct Script {
    asked: Arc<Mutex<Vec<(Instant, String)>>>,
    fails: Arc<Mutex<usize>>,
}

#[async_trait]
impl Refresh for Script {
    async fn refresh(&self, token: &str) -> Result<Renewed, RefreshError> {
        let mut asked = self.asked.lock().unwrap();
        asked.push((Instant::now(), token.to_owned()));
        let mut fails = self.fails.lock().unwrap();
        if *fails > 0 {
            *fails -= 1;
            return Err(RefreshError::Status(503));
        }
        Ok(Renewed { token: format!("key-{}", asked.len()), expires_at: "later".into() })
    }
}

/// Lets time pass, and others do what is due then.
async fn pass(time_ms: u64) {
    yield_now().await;
    advance(Duration::from_millis(time_ms)).await;
    yield_now().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_is_renewed_every_hour_and_a_minute_after_a_failure() {
    let script = Script::default();
    *script.fails.lock().unwrap() = 2;
    let started = Instant::now();
    let keeper = Keeper::start("first", script.clone());
    let token = keeper.token();
    pass(REFRESH_INTERVAL_MS - 1).await;
    assert!(script.asked.lock().unwrap().is_empty());
    pass(1).await;
    pass(REFRESH_RETRY_MS).await;
    pass(REFRESH_RETRY_MS - 1).await;
    assert_eq!(&*token.get(), "first");
    pass(1).await;
    assert_eq!(&*token.get(), "key-3");
    pass(REFRESH_INTERVAL_MS).await;
    assert_eq!(&*token.get(), "key-4");
    let asked = script.asked.lock().unwrap().clone();
    let at_ms: Vec<_> = asked.iter().map(|(at, _)| (*at - started).as_millis() as u64).collect();
    let hour = REFRESH_INTERVAL_MS;
    assert_eq!(at_ms, [hour, hour + REFRESH_RETRY_MS, hour + 2 * REFRESH_RETRY_MS, 2 * hour + 2 * REFRESH_RETRY_MS]);
    let keys: Vec<_> = asked.iter().map(|(_, key)| key.as_str()).collect();
    assert_eq!(keys, ["first", "first", "first", "key-3"]);
    drop(keeper);
    pass(3 * hour).await;
    assert_eq!((script.asked.lock().unwrap().len(), &*token.get()), (4, "key-4"));
}

/// The answer to a renewal of the key `old` by a server that answers with `response`, and the request that it got.
async fn renewed(response: &str) -> (Result<Renewed, RefreshError>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/renew", listener.local_addr().unwrap()).parse().unwrap();
    let refresh = HttpRefresh::new(&url).unwrap();
    let served = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = String::new();
        while !request.contains('}') {
            let mut piece = [0; 1024];
            let read = stream.read(&mut piece).await.unwrap();
            request.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
        stream.write_all(response.as_bytes()).await.unwrap();
        request
    };
    tokio::join!(refresh.refresh("old"), served)
}

fn response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_key_is_renewed_over_http() {
    let (answer, request) =
        renewed(&response("200 OK", r#"{"token":"new","expires_at":"2026-01-01T00:00:00Z"}"#)).await;
    let answer = answer.unwrap();
    assert_eq!((answer.token.as_str(), answer.expires_at.as_str()), ("new", "2026-01-01T00:00:00Z"));
    assert!(request.starts_with("POST /renew HTTP/1.1\r\n") && request.ends_with(r#"{"token":"old"}"#));
    let (answer, _) = renewed(&response("200 OK", r#"{"token":"new","expires_at":1767225600}"#)).await;
    assert_eq!(answer.unwrap().expires_at, "1767225600");
}

#[tokio::test]
async fn an_answer_without_a_usable_key_changes_nothing() {
    for body in [r#"{"token":"new"}"#, r#"{"token":"","expires_at":1}"#, r#"{"token":"a b","expires_at":1}"#, "", "[]"]
    {
        let (answer, _) = renewed(&response("200 OK", body)).await;
        assert!(matches!(answer, Err(RefreshError::Answer(_))), "{body}");
    }
    let (answer, _) = renewed(&response("403 Forbidden", r#"{"token":"new","expires_at":1}"#)).await;
    assert!(matches!(answer, Err(RefreshError::Status(403))));
}
