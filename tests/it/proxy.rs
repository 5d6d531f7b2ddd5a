//! What an operator promises to those who reach into their sandboxes through it.

use std::time::Duration;

use alloy::primitives::Bytes;
use anyhow::{Context, Result, ensure};
use futures::{SinkExt as _, StreamExt as _};
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, UPGRADE};
use hyper::upgrade::{Upgraded, on};
use hyper_util::rt::TokioIo;
use reqwest::{Method, RequestBuilder};
use sandbox_process::link::link;
use sandbox_process::websocket::tungstenite::Message;
use sandbox_process::websocket::tungstenite::protocol::Role;
use sandbox_process::websocket::{Socket, bounds};
use sandbox_protocol::SandboxId;
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::session::Scope;
use sandbox_sdk::api::{Session, sign_in};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, STRANGER};
use sandbox_tests::wait::until;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server at a port: gives back the head of a request as a page, and where that asks for an upgrade, all bytes after it.
const SERVER: &str = r#"exec perl -MIO::Socket::INET -e '
    my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 8000, Listen => 9, ReuseAddr => 1) or die;
    $SIG{CHLD} = "IGNORE";
    while (my $client = $server->accept) {
        next if fork;
        my ($head, $line) = ("", "");
        while (defined($line = <$client>)) { $head .= $line; last if $line eq "\r\n" }
        if ($head =~ /upgrade: websocket/i) {
            syswrite $client, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
            while (sysread $client, my $bytes, 4096) { syswrite $client, $bytes }
        } else {
            syswrite $client, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " . length($head) . "\r\n\r\n$head";
        }
        exit;
    }
'"#;

/// A customer's way into one sandbox.
struct Inside {
    world: World,
    id: SandboxId,
    session: Session,
}

impl Inside {
    async fn new() -> Result<Self> {
        let world = World::new().await?;
        let id = world.create().await?.parse()?;
        let session = signed_in(&world, CUSTOMER, &Scope::ALL).await?;
        Ok(Self { world, id, session })
    }

    fn path(&self, path: &str) -> String {
        format!("/sandboxes/{}/{path}", self.id)
    }

    fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{}", self.world.node.api_url(), self.path(path));
        reqwest::Client::new().request(method, url).bearer_auth(&self.session.token().token)
    }

    async fn get(&self, path: &str) -> Result<reqwest::Response> {
        Ok(self.ask(Method::GET, path).send().await?)
    }

    /// Starts a command that goes on by itself.
    async fn start(&self, command: &str) -> Result<()> {
        let asked = self.ask(Method::POST, "exec").json(&json!({ "command": command, "detach": true })).send().await?;
        ensure!(asked.status() == 202, "{} {}", asked.status(), asked.text().await?);
        Ok(())
    }

    /// A connection that went over to another protocol.
    async fn upgraded(&self, path: &str, protocol: &str, more: &[(&str, &str)]) -> Result<TokioIo<Upgraded>> {
        let authority = self.world.node.api_url().trim_start_matches("http://").to_owned();
        let (mut sender, _driver) = link(TcpStream::connect(&authority).await?).await?;
        let mut request = Request::get(self.path(path))
            .header(HOST, &authority)
            .header(AUTHORIZATION, format!("Bearer {}", self.session.token().token))
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, protocol);
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        let mut response = sender.send_request(request.body(String::new())?).await?;
        ensure!(response.status() == 101, "{}", response.status());
        Ok(TokioIo::new(on(&mut response).await?))
    }

    /// A connection of the execution protocol.
    async fn executions(&self, extensions: &str) -> Result<Socket> {
        let more = [
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("x-protocol-version", "1"),
            ("x-protocol-extensions", extensions),
        ];
        let stream = self.upgraded("fsp", "websocket", &more).await?;
        Ok(Socket::from_raw_socket(stream, Role::Client, Some(bounds(1 << 20))).await)
    }
}

async fn signed_in(world: &World, key: usize, scopes: &[Scope]) -> Result<Session> {
    let account = world.ground.account(key).await?;
    Ok(sign_in(&account, (Ground::address(OPERATOR), &world.node.api_url()), scopes).await?)
}

async fn refusal(response: reqwest::Response) -> Result<(u16, String)> {
    let status = response.status().as_u16();
    Ok((status, response.json::<ErrorBody>().await?.code))
}

fn execute(id: &str, code: &str) -> Message {
    let limits = json!({ "timeout_ms": 60_000, "memory_mb": 64 });
    let execute = json!({
        "v": 1, "type": "execute", "id": id, "ts": "2025-12-27T11:30:00.000Z", "language": "shell", "code": code,
        "stdin": null, "env": {}, "limits": limits,
    });
    Message::text(execute.to_string())
}

/// The next message of this type; those before it are passed over.
async fn heard(socket: &mut Socket, kind: &str) -> Result<Value> {
    let hearing = async {
        while let Some(message) = socket.next().await {
            let Message::Text(text) = message? else { continue };
            let said: Value = serde_json::from_str(&text)?;
            if said["type"] == kind {
                return Ok(said);
            }
        }
        anyhow::bail!("the connection ended without {kind}")
    };
    timeout(PATIENCE, hearing).await.with_context(|| format!("no {kind}"))?
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_runs_commands_and_moves_files_without_a_job() -> Result<()> {
    let inside = Inside::new().await?;
    let ran = inside.ask(Method::POST, "exec").json(&json!({ "command": "id -un && pwd" })).send().await?;
    let ran: Value = ran.error_for_status()?.json().await?;
    assert_eq!(ran["exit_code"], 0, "{ran}");

    let content: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
    let put = inside.ask(Method::PUT, "files/content?path=big").body(content.clone()).send().await?;
    ensure!(put.status().is_success(), "{} {}", put.status(), put.text().await?);
    let got = inside.get("files/content?path=big").await?.error_for_status()?.bytes().await?;
    assert!(got == content);
    let part = inside.ask(Method::GET, "files/content?path=big").header("range", "bytes=1000-1009").send().await?;
    assert_eq!((part.status().as_u16(), part.bytes().await?.to_vec()), (206, content[1_000..1_010].to_vec()));

    for path in ["snapshot", "health", "nothing"] {
        assert_eq!(refusal(inside.get(path).await?).await?, (404, "no_route".into()), "{path}");
    }
    let stranger = signed_in(&inside.world, STRANGER, &Scope::ALL).await?;
    let asked = inside.ask(Method::GET, "exec").header("x-sandbox-token", &stranger.token().token).send().await?;
    assert_eq!(refusal(asked).await?, (404, "no_sandbox".into()));
    let narrow = signed_in(&inside.world, CUSTOMER, &[Scope::SandboxesFiles]).await?;
    let asked = |path| inside.ask(Method::GET, path).header("x-sandbox-token", &narrow.token().token).send();
    assert_eq!(refusal(asked("exec").await?).await?, (403, "no_scope".into()));
    assert_eq!(asked("files/stat?path=big").await?.status(), 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_reached_at_its_port_by_http_by_websocket_and_by_a_tunnel() -> Result<()> {
    let inside = Inside::new().await?;
    assert_eq!(refusal(inside.get("ports/8000/").await?).await?, (502, "port_closed".into()));
    inside.start(SERVER).await?;
    let serves = || async { inside.get("ports/8000/a?b=c").await.ok().filter(|answer| answer.status() == 200) };
    let page = until("the program", PATIENCE, serves).await?;
    assert!(page.headers()["content-security-policy"].to_str()?.starts_with("sandbox"));
    let head = page.text().await?.to_lowercase();
    let lines = ["get /a?b=c http/1.1", "host: localhost:8000", "x-forwarded-prefix: /sandboxes/"];
    assert!(lines.iter().all(|line| head.contains(line)) && !head.contains("authorization"), "{head}");

    let mut stream = inside.upgraded("ports/8000/ws", "websocket", &[]).await?;
    stream.write_all(b"any bytes at all").await?;
    let mut back = [0; 16];
    timeout(PATIENCE, stream.read_exact(&mut back)).await??;
    assert_eq!(&back, b"any bytes at all");

    let mut tunnel = inside.upgraded("tcp/8000", "tcp", &[]).await?;
    tunnel.write_all(b"GET /tunnel HTTP/1.1\r\n\r\n").await?;
    tunnel.shutdown().await?;
    let mut answer = String::new();
    timeout(PATIENCE, tunnel.read_to_string(&mut answer)).await??;
    assert!(answer.ends_with("GET /tunnel HTTP/1.1\r\n\r\n"), "{answer}");

    let mut open = inside.upgraded("tcp/8000", "tcp", &[]).await?;
    inside.session.stop(inside.id).await?;
    let mut rest = Vec::new();
    timeout(PATIENCE, open.read_to_end(&mut rest)).await.context("the tunnel outlives its sandbox")?.ok();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_is_told_what_ended_it_when_its_sandbox_stops() -> Result<()> {
    let inside = Inside::new().await?;
    let mut socket = inside.executions("").await?;
    socket.send(execute("short", "echo hello")).await?;
    assert_eq!(heard(&mut socket, "stdout").await?["data"], "hello\n");
    assert_eq!(heard(&mut socket, "result").await?["exit_code"], 0);
    socket.send(execute("long", "sleep 60")).await?;
    heard(&mut socket, "status").await?;
    let (stopped, told) = tokio::join!(inside.session.stop(inside.id), heard(&mut socket, "error"));
    let (told, _) = (told?, stopped?);
    assert_eq!(
        (&told["id"], &told["code"], &told["retryable"]),
        (&"long".into(), &"INTERNAL_ERROR".into(), &true.into())
    );
    let end = timeout(PATIENCE, socket.next()).await?.context("no close")??;
    assert!(matches!(&end, Message::Close(Some(frame)) if u16::from(frame.code) == 1001), "{end:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_ends_tells_who_is_connected() -> Result<()> {
    let mut inside = Inside::new().await?;
    let mut plain = inside.executions("").await?;
    let mut replayed = inside.executions("replay").await?;
    plain.send(execute("a", "sleep 60")).await?;
    heard(&mut plain, "status").await?;
    replayed.send(execute("b", "sleep 2; echo late")).await?;
    heard(&mut replayed, "status").await?;
    inside.world.node.stop().await?;
    let told = heard(&mut plain, "error").await?;
    assert_eq!((&told["id"], &told["code"]), (&"a".into(), &"NETWORK_ERROR".into()));
    let end = timeout(PATIENCE, replayed.next()).await?.context("no close")??;
    assert!(matches!(&end, Message::Close(Some(frame)) if u16::from(frame.code) == 1012), "{end:?}");

    inside.world.node.start().await?;
    let mut again = inside.executions("replay").await?;
    let attach = json!({ "v": 1, "type": "attach", "id": "b", "ts": "2025-12-27T11:30:00.000Z", "after_seq": 0 });
    again.send(Message::text(attach.to_string())).await?;
    assert_eq!(heard(&mut again, "stdout").await?["data"], "late\n", "it lived on");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_wakes_a_stopped_sandbox_where_it_asks_to() -> Result<()> {
    let inside = Inside::new().await?;
    let kept = Bytes::from_static(b"kept");
    inside.ask(Method::PUT, "files/content?path=file").body(kept.to_vec()).send().await?.error_for_status()?;
    inside.session.stop(inside.id).await?;
    assert_eq!(refusal(inside.get("files/content?path=file").await?).await?, (422, "sandbox_stopped".into()));
    let woken = inside.get("files/content?path=file&resume=true").await?.error_for_status()?;
    assert_eq!(woken.bytes().await?.to_vec(), kept.to_vec());
    inside.session.stop(inside.id).await?;
    let woken = inside.ask(Method::GET, "exec").header("x-sandbox-resume", "true").send().await?;
    assert_eq!(woken.status(), 200);
    Ok(())
}
