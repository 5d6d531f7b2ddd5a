//! Connections that are not HTTP any more.

use futures::{SinkExt as _, StreamExt as _};
use sandbox_fleet::request::SandboxSpec;
use sandbox_fleet::sandbox::StopReason;
use sandbox_process::websocket::tungstenite::Message;
use sandbox_process::websocket::tungstenite::protocol::CloseFrame;
use tokio::time::Instant;

use super::*;
use crate::limits::API_TUNNELS_EACH_MAX;

const TCP: (&str, &[(&str, &str)]) = ("tcp", &[]);

fn echo() -> String {
    format!("{BASE}/tcp/7")
}

/// Says something, and hears it again.
async fn says(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin)) {
    stream.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    within(stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"hello");
}

/// Returns when there is nothing more to hear.
async fn ends(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    drop(within(stream.read_to_end(&mut rest)).await);
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_end_may_finish_by_itself() {
    let world = World::new().await;
    let (token, _) = world.token_of(OWNER, &[Scope::SandboxesPorts]).await;
    let mut stream = world.upgraded(&echo(), &token, TCP).await.stream().await;
    says(&mut stream).await;
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    within(stream.read_to_string(&mut rest)).await.unwrap();
    assert_eq!(rest, "end", "the other direction went on");
    drop(stream);
    world.tasks.close();
    within(world.tasks.wait()).await;
    let closed = world.upgraded(&format!("{BASE}/tcp/81"), &token, TCP).await;
    assert_eq!(closed.refusal().await, (502, "port_closed".into()), "what the sidecar says is passed on");
}

#[tokio::test]
async fn a_websocket_keeps_its_protocol_its_pings_and_its_end() {
    let world = World::new().await;
    let (token, _) = world.token_of(OWNER, &[Scope::SandboxesPty]).await;
    let more = [("sec-websocket-protocol", "terminal")];
    let (mut socket, headers) = world.websocket(&format!("{BASE}/pty?cols=80"), &token, &more).await;
    assert_eq!(headers["sec-websocket-protocol"], "terminal");
    for message in [Message::text("text"), Message::binary(vec![0; 1 << 19])] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(within(socket.next()).await.unwrap().unwrap(), message);
    }
    socket.send(Message::Ping("p".into())).await.unwrap();
    assert_eq!(within(socket.next()).await.unwrap().unwrap(), Message::Pong("p".into()));
    let close = Message::Close(Some(CloseFrame { code: 4321.into(), reason: "enough".into() }));
    socket.send(close.clone()).await.unwrap();
    assert_eq!(within(socket.next()).await.unwrap().unwrap(), close);
}

#[tokio::test]
async fn a_tunnel_ends_with_its_sandbox_its_token_and_the_operator() {
    let world = World::new().await;
    let (token, hash) = world.token_of(OWNER, &Scope::ALL).await;
    let other = world.token().await;
    let mut revoked = world.upgraded(&echo(), &token, TCP).await.stream().await;
    let mut stopped = world.upgraded(&echo(), &other, TCP).await.stream().await;
    world.revoke(hash).await;
    ends(&mut revoked).await;
    says(&mut stopped).await;
    world.fleet.stop(sandbox(1).id, OWNER).await.unwrap();
    ends(&mut stopped).await;
    world.fleet.resume(sandbox(1).id, OWNER, None).await.unwrap();
    let mut ended = world.upgraded(&echo(), &other, TCP).await.stream().await;
    says(&mut ended).await;
    world.stop.cancel();
    ends(&mut ended).await;
    world.tasks.close();
    within(world.tasks.wait()).await;
}

#[tokio::test]
async fn one_address_has_so_many_tunnels_and_a_place_is_free_when_one_has_ended() {
    let world = World::new().await;
    let token = world.token().await;
    let mut open = Vec::new();
    for _ in 0..API_TUNNELS_EACH_MAX {
        open.push(world.upgraded(&echo(), &token, TCP).await.stream().await);
    }
    assert_eq!(world.upgraded(&echo(), &token, TCP).await.refusal().await, (429, "busy".into()));
    assert_eq!(world.get(&format!("{BASE}/exec"), &token).await.status(), 200, "requests are not counted");
    drop(open.pop());
    let refused = async || world.upgraded(&echo(), &token, TCP).await.status() == 429;
    while within(refused()).await {
        tokio::task::yield_now().await;
    }
}

/// A sandbox that stops when nothing has happened for so long.
fn idle_after(timeout_s: u64) -> Sandbox {
    let asked = sandbox(1);
    Sandbox { spec: SandboxSpec { idle_timeout_s: Some(timeout_s), ..asked.spec.clone() }, ..asked }
}

#[tokio::test]
async fn bytes_keep_a_sandbox_awake_and_an_open_tunnel_and_its_pings_do_not() {
    let world = World::of(idle_after(1)).await;
    let token = world.token().await;
    let mut stream = world.upgraded(&echo(), &token, TCP).await.stream().await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_500) {
        says(&mut stream).await;
        tokio::task::yield_now().await;
    }
    assert!(matches!(world.phase().await, Phase::Running(_)));

    let (mut socket, _) = world.websocket(&format!("{BASE}/pty"), &token, &[]).await;
    let pinging = async {
        while socket.send(Message::Ping("p".into())).await.is_ok() {
            match socket.next().await {
                Some(Ok(Message::Pong(_))) => {}
                _ => break,
            }
        }
    };
    within(pinging).await;
    ends(&mut stream).await;
    let stopped = world.fleet.stop(sandbox(1).id, OWNER).await.unwrap();
    assert!(matches!(stopped.phase, Phase::Stopped(rest) if rest.reason == StopReason::Idle));
}
