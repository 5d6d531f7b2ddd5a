//! Connections of the execution protocol, and what is said when they break.

use futures::{SinkExt as _, StreamExt as _};
use sandbox_fleet::request::SandboxSpec;
use sandbox_process::websocket::tungstenite::Message;
use sandbox_process::websocket::tungstenite::protocol::CloseFrame;
use sandbox_process::websocket::tungstenite::protocol::frame::coding::CloseCode;
use sandbox_protocol::fsp::{
    ClientMessage, Ended, ErrorCode, Execute, Extra, Language, Limits, ServerBody, ServerMessage, Stream,
    decode_server, encode_client, encode_server,
};

use super::*;
use crate::limits::{API_RELAY_MESSAGE_BYTES_MAX, API_RELAYS_EACH_MAX};

/// Both ends of a relay, as client and sandbox have them.
struct Ends {
    client: Socket,
    inside: Socket,
}

impl Ends {
    async fn new(world: &mut World, token: &str, extensions: &str) -> Self {
        let more = [
            ("x-protocol-version", "1"),
            ("x-protocol-extensions", extensions),
            ("sec-websocket-extensions", "permessage-deflate"),
        ];
        let (client, headers) = world.websocket(&format!("{BASE}/fsp"), token, &more).await;
        assert!(!headers.contains_key("sec-websocket-extensions"));
        assert_eq!(headers["x-protocol-extensions"], extensions);
        let inside = within(world.inner.fsp.recv()).await.unwrap();
        Self { client, inside }
    }

    /// The client says this, and the sandbox hears it.
    async fn up(&mut self, message: Message) {
        self.client.send(message.clone()).await.unwrap();
        assert_eq!(within(self.inside.next()).await.unwrap().unwrap(), message);
    }

    /// The sandbox says this, and the client hears it.
    async fn down(&mut self, message: Message) {
        self.inside.send(message.clone()).await.unwrap();
        assert_eq!(within(self.client.next()).await.unwrap().unwrap(), message);
    }

    async fn execute(&mut self, ids: &[&str]) {
        for id in ids {
            self.up(execute(id)).await;
        }
    }

    /// What the client hears last: errors, by id, and the code of the end.
    async fn rest(&mut self) -> (Vec<(String, ErrorCode)>, Option<u16>) {
        let mut errors = Vec::new();
        loop {
            match within(self.client.next()).await {
                Some(Ok(Message::Text(text))) => match decode_server(&text).unwrap() {
                    ServerMessage { id: Some(id), body: ServerBody::Error { code, retryable: true, .. }, .. } => {
                        errors.push((id, code));
                    }
                    other => panic!("{other:?}"),
                },
                Some(Ok(Message::Close(frame))) => return (errors, frame.map(|frame| frame.code.into())),
                Some(Ok(other)) => panic!("{other:?}"),
                None | Some(Err(_)) => return (errors, None),
            }
        }
    }
}

fn execute(id: &str) -> Message {
    let (language, code, extra) = (Language::Shell, "sleep 9".to_owned(), Extra::default());
    let (stdin, env, limits) = (None, Default::default(), Limits::default());
    let execute = Execute { id: id.into(), language, code, stdin, env, limits, extra };
    Message::text(encode_client(&ClientMessage::Execute(Box::new(execute)), 0))
}

fn said(id: &str, body: ServerBody) -> Message {
    Message::text(encode_server(&ServerMessage { id: Some(id.to_owned()), seq: None, body }, 0))
}

fn result(id: &str) -> Message {
    said(id, ServerBody::Result(Ended { exit_code: Some(0), signal: None, duration_ms: 1, resource_usage: None }))
}

fn errors(ids: &[&str], code: ErrorCode) -> Vec<(String, ErrorCode)> {
    ids.iter().map(|id| ((*id).to_owned(), code)).collect()
}

#[tokio::test]
async fn messages_pass_as_they_are() {
    let mut world = World::new().await;
    let (token, _) = world.token_of(OWNER, &[Scope::SandboxesExec]).await;
    let mut ends = Ends::new(&mut world, &token, "binary").await;
    ends.execute(&["a"]).await;
    ends.up(Message::text("not even JSON")).await;
    ends.up(Message::binary(vec![3; 70_000])).await;
    ends.up(Message::text("x".repeat(API_RELAY_MESSAGE_BYTES_MAX))).await;
    ends.down(said("a", ServerBody::Output(Stream::Stdout, "out".into()))).await;
    ends.down(Message::binary(vec![1; 70_000])).await;
    ends.down(result("a")).await;
    ends.client.send(Message::Close(None)).await.unwrap();
    assert_eq!(within(ends.inside.next()).await.unwrap().unwrap(), Message::Close(None));
    let plain = world.get(&format!("{BASE}/fsp"), &token).await;
    assert_eq!(plain.status(), 426, "what is no WebSocket is the sidecar's to refuse");
}

#[tokio::test]
async fn executions_that_live_end_with_network_error_when_the_way_to_a_sandbox_that_runs_breaks() {
    let mut world = World::new().await;
    let token = world.token().await;
    let mut ends = Ends::new(&mut world, &token, "").await;
    ends.execute(&["a", "b", "c"]).await;
    ends.down(said("b", ServerBody::Ack)).await;
    ends.down(result("b")).await;
    drop(std::mem::replace(&mut ends.inside, Ends::new(&mut world, &token, "").await.inside));
    assert_eq!(ends.rest().await, (errors(&["a", "c"], ErrorCode::NetworkError), Some(1012)));
    assert!(matches!(world.phase().await, Phase::Running(_)));
}

#[tokio::test]
async fn executions_that_live_end_with_internal_error_when_their_sandbox_is_no_more() {
    let mut world = World::new().await;
    let token = world.token().await;
    let mut stopped = Ends::new(&mut world, &token, "").await;
    stopped.execute(&["a"]).await;
    world.fleet.stop(sandbox(1).id, OWNER).await.unwrap();
    assert_eq!(stopped.rest().await, (errors(&["a"], ErrorCode::InternalError), Some(1001)));

    world.fleet.resume(sandbox(1).id, OWNER, None).await.unwrap();
    let mut dead = Ends::new(&mut world, &token, "").await;
    let mut leaving = Ends::new(&mut world, &token, "").await;
    dead.execute(&["a"]).await;
    leaving.execute(&["a"]).await;
    let away = CloseFrame { code: CloseCode::Away, reason: "the sidecar ends".into() };
    leaving.inside.send(Message::Close(Some(away))).await.unwrap();
    assert_eq!(leaving.rest().await, (errors(&["a"], ErrorCode::InternalError), Some(1001)));
    world.inner.die();
    let Ends { client, inside } = dead;
    drop(inside);
    let mut dead = Ends { client, inside: leaving.inside };
    assert_eq!(dead.rest().await, (errors(&["a"], ErrorCode::InternalError), Some(1012)));
}

#[tokio::test]
async fn executions_that_are_replayed_live_on_and_their_client_is_told_to_come_back() {
    let mut world = World::new().await;
    let token = world.token().await;
    let mut ends = Ends::new(&mut world, &token, "replay").await;
    ends.execute(&["a"]).await;
    drop(std::mem::replace(&mut ends.inside, Ends::new(&mut world, &token, "").await.inside));
    assert_eq!(ends.rest().await, (Vec::new(), Some(1012)));
}

#[tokio::test]
async fn what_a_sandbox_says_at_its_own_end_of_a_connection_is_passed_on() {
    let mut world = World::new().await;
    let token = world.token().await;
    let mut ends = Ends::new(&mut world, &token, "").await;
    ends.execute(&["a"]).await;
    let frame = CloseFrame { code: CloseCode::Policy, reason: "too slow".into() };
    ends.inside.send(Message::Close(Some(frame.clone()))).await.unwrap();
    assert_eq!(within(ends.client.next()).await.unwrap().unwrap(), Message::Close(Some(frame)));
}

#[tokio::test]
async fn a_connection_ends_with_its_token_and_with_the_operator_and_says_so() {
    let mut world = World::new().await;
    let (token, hash) = world.token_of(OWNER, &Scope::ALL).await;
    let mut revoked = Ends::new(&mut world, &token, "").await;
    let token = world.token().await;
    let mut ended = Ends::new(&mut world, &token, "").await;
    revoked.execute(&["a"]).await;
    ended.execute(&["b"]).await;
    world.revoke(hash).await;
    assert_eq!(revoked.rest().await, (errors(&["a"], ErrorCode::NetworkError), Some(1008)));
    world.stop.cancel();
    assert_eq!(ended.rest().await, (errors(&["b"], ErrorCode::NetworkError), Some(1012)));
    drop((revoked, ended));
    world.tasks.close();
    within(world.tasks.wait()).await;
}

#[tokio::test]
async fn a_client_that_leaves_is_missed_inside_and_one_that_says_too_much_is_told() {
    let mut world = World::new().await;
    let token = world.token().await;
    let Ends { client, mut inside } = Ends::new(&mut world, &token, "").await;
    drop(client);
    assert!(!matches!(within(inside.next()).await, Some(Ok(Message::Text(_) | Message::Binary(_)))));

    let Ends { mut client, mut inside } = Ends::new(&mut world, &token, "").await;
    let long = Message::text("x".repeat(API_RELAY_MESSAGE_BYTES_MAX + 1));
    let (sent, heard) = tokio::join!(client.send(long), within(inside.next()));
    drop(sent);
    assert!(matches!(&heard, Some(Ok(Message::Close(Some(frame)))) if frame.code == CloseCode::Size), "{heard:?}");
}

#[tokio::test]
async fn a_slow_client_holds_up_its_sandbox() {
    const CHUNK: usize = 64 * 1024;
    let mut world = World::new().await;
    let token = world.token().await;
    let mut ends = Ends::new(&mut world, &token, "binary").await;
    let mut sent = 0;
    let message = || Message::binary(vec![1; CHUNK]);
    while timeout(Duration::from_secs(1), ends.inside.send(message())).await.is_ok() {
        sent += 1;
        assert!(sent * CHUNK < 64 << 20, "all of it was taken though nothing was read");
    }
    for _ in 0..sent {
        assert_eq!(within(ends.client.next()).await.unwrap().unwrap().len(), CHUNK);
    }
}

#[tokio::test]
async fn an_execution_that_lives_keeps_its_sandbox_awake_though_it_says_nothing() {
    let asked = sandbox(1);
    let spec = SandboxSpec { idle_timeout_s: Some(1), ..asked.spec.clone() };
    let mut world = World::of(Sandbox { spec, ..asked }).await;
    let token = world.token().await;
    let mut ends = Ends::new(&mut world, &token, "").await;
    ends.execute(&["a"]).await;
    let silent = timeout(Duration::from_millis(2_500), ends.client.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    ends.down(result("a")).await;
    let pinging = async {
        let ping = || Message::text(encode_client(&ClientMessage::Ping, 0));
        while ends.client.send(ping()).await.is_ok() {
            tokio::select! {
                heard = ends.client.next() => return heard,
                _ = ends.inside.next() => {}
            }
        }
        None
    };
    assert!(matches!(within(pinging).await, Some(Ok(Message::Close(Some(_))))), "it sleeps, whoever pings");
    assert!(matches!(world.phase().await, Phase::Stopping(_) | Phase::Stopped(_)));
}

#[tokio::test]
async fn one_address_has_so_many_connections() {
    let mut world = World::new().await;
    let token = world.token().await;
    let mut open = Vec::new();
    for _ in 0..API_RELAYS_EACH_MAX {
        open.push(Ends::new(&mut world, &token, "").await);
    }
    let more = [("sec-websocket-version", "13"), ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")];
    let refused = world.upgraded(&format!("{BASE}/fsp"), &token, ("websocket", &more)).await;
    assert_eq!(refused.refusal().await, (429, "busy".into()));
}
