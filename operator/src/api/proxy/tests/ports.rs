//! Programs at ports.

use futures::{SinkExt as _, StreamExt as _};
use sandbox_process::websocket::tungstenite::Message;
use serde_json::Value;

use super::*;

#[tokio::test]
async fn a_program_is_asked_by_a_neighbour_without_the_callers_token() {
    let world = World::new().await;
    let (token, _) = world.token_of(OWNER, &[Scope::SandboxesPorts]).await;
    let path = format!("{BASE}/ports/80/a//b?c=%20");
    let request = asked("POST", &path, &token).header("cookie", "x=y").body(Body::from("text")).unwrap();
    let answer = world.send(request).await;
    let prefix = "/base/sandboxes/sbx-7-1-0/ports/80";
    assert_eq!(answer.header("location"), Some(format!("{prefix}/next").as_str()));
    assert_eq!(answer.header("set-cookie"), Some(format!("a=b; Path={prefix}/").as_str()));
    assert!(answer.header("content-security-policy").unwrap().starts_with("sandbox "));
    assert_eq!(answer.header("alt-svc"), None);
    let seen: Value = serde_json::from_str(&answer.text().await).unwrap();
    assert_eq!((&seen["method"], &seen["uri"]), (&"POST".into(), &"/a//b?c=%20".into()));
    let headers = &seen["headers"];
    for (name, value) in [
        ("host", "localhost:80"),
        ("cookie", "x=y"),
        ("x-forwarded-host", "op.example"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-prefix", prefix),
    ] {
        assert_eq!(headers[name], value, "{seen}");
    }
    assert!(headers["authorization"].is_null(), "{seen}");

    let own = Request::get(&path).header("x-sandbox-token", &token).header("authorization", "Basic own");
    let seen = world.send(own.body(Body::empty()).unwrap()).await.text().await;
    assert!(seen.contains("Basic own") && !seen.contains(&token), "{seen}");
}

#[tokio::test]
async fn bodies_of_programs_flow() {
    let world = World::new().await;
    let request = asked("PUT", &format!("{BASE}/ports/80/echo"), &world.token().await);
    let answer = world.send(request.body(Body::from("x".repeat(1 << 20))).unwrap()).await;
    assert_eq!(answer.text().await.len(), 1 << 20);
}

#[tokio::test]
async fn a_port_where_nothing_listens_is_closed() {
    let world = World::new().await;
    let token = world.token().await;
    let answer = world.get(&format!("{BASE}/ports/81/"), &token).await;
    assert_eq!(answer.refusal().await, (502, "port_closed".into()));
}

#[tokio::test]
async fn a_programs_root_ends_in_a_slash() {
    let world = World::new().await;
    let token = world.token().await;
    let answer = world.get(&format!("{BASE}/ports/80?a=b"), &token).await;
    assert_eq!((answer.status(), answer.header("location")), (308, Some("80/?a=b")));
    let posted = asked("POST", &format!("{BASE}/ports/80"), &token).body(Body::empty()).unwrap();
    assert!(world.send(posted).await.text().await.contains(r#""uri":"/""#));
}

#[tokio::test]
async fn a_websocket_reaches_a_program() {
    let world = World::new().await;
    let token = world.token().await;
    let more = [("sec-websocket-protocol", "vite-hmr")];
    let (mut socket, headers) = world.websocket(&format!("{BASE}/ports/80/ws"), &token, &more).await;
    assert_eq!(headers["sec-websocket-protocol"], "vite-hmr");
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(within(socket.next()).await.unwrap().unwrap(), Message::text("hello"));
    let plain = world.upgraded(&format!("{BASE}/ports/80/page"), &token, ("h2c", &[])).await;
    assert_eq!(plain.status(), 200, "nothing else is passed on");
    assert!(!plain.text().await.contains("h2c"));
}
