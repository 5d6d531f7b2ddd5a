//! The router as its callers meet it: over real records and a keeper whose engine is a fake, without a chain.

use std::net::SocketAddr;
use std::time::Duration;

use alloy::primitives::{B256, keccak256};
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use futures::StreamExt as _;
use hyper::service::Service as _;
use sandbox_fleet::Keeper;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::fakes::{FakeWorld, OWNER, sandbox, ssh_key};
use sandbox_fleet::ports::Sandboxes as _;
use sandbox_fleet::request::Resources;
use sandbox_fleet::sandbox::{Phase, Sandbox};
use sandbox_process::serve::Peer;
use sandbox_protocol::CallKey;
use sandbox_protocol::holdings::{
    CallsBody, SandboxBody, SandboxesBody, SnapshotBody, SshBody, SshKeyBody, SshKeysBody,
};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::session::Scope;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::*;
use crate::config::SshConfig;
use crate::limits::{API_ADDRESS_BURST, API_PLACE_BURST, API_SMALL_BODY_BYTES_MAX};
use crate::records::{CallRecord, Progress, RecordsGuard, TokenRecord};
use crate::ssh::Front;

const STRANGER: Address = Address::repeat_byte(9);
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The API of an operator with a few sandboxes of [`OWNER`].
struct Desk {
    route: TowerToHyperService<Router>,
    records: Records,
    fleet: Fleet,
    stop: CancellationToken,
    _kept: (RecordsGuard, TempDir),
}

impl Desk {
    async fn new() -> Self {
        Self::with(ApiConfig::default()).await
    }

    async fn with(config: ApiConfig) -> Self {
        Self::with_ssh(config, false).await
    }

    async fn with_ssh(config: ApiConfig, has_ssh: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bind = SocketAddr::from(([127, 0, 0, 1], 0));
        let ssh = has_ssh.then(|| SshConfig { bind, host: "ssh.example".into(), port: Some(22) });
        let ssh = Front::open(ssh.as_ref(), dir.path()).await.unwrap().map(|front| front.offer());
        let (records, guard) = Records::open(dir.path()).unwrap();
        let resources = Resources { cpu_cores: 8, memory_mb: 8_192, disk_gb: 100 };
        let capacity = Capacity { sandboxes: 8, sandboxes_each_max: 8, resources, cpu_cores_each_max: 4 };
        let world = Arc::new(FakeWorld::default());
        let ports = sandbox_fleet::Ports { sandboxes: Arc::new(records.clone()), ..world.ports() };
        let (keeper, fleet) = Keeper::new(capacity, ports);
        let stop = CancellationToken::new();
        tokio::spawn(keeper.run(Vec::new(), stop.clone()));
        let metrics = Metrics::new().unwrap();
        let open = Open { fleet: fleet.clone(), head: watch::channel(5).1, metrics, stop: stop.clone() };
        let asked = Asked { operator: Address::ZERO, chain_id: 1, core: Address::ZERO };
        let calls = Calls::new((records.clone(), Stories::default()), asked, Seats::new(STREAMS), stop.clone());
        let routes = Router::from(open::routes().with_state(Arc::new(open)))
            .merge(calls::routes().with_state(Arc::new(calls)))
            .merge(sandboxes::routes().with_state(Arc::new(Holdings::new(fleet.clone(), world))))
            .merge(ssh::routes().with_state(Arc::new(ssh::Keys::new(fleet.clone(), watch::channel(5).1, ssh))))
            .merge(events::routes().with_state(Arc::new(Feed::new(
                records.clone(),
                Seats::new(STREAMS),
                stop.clone(),
            ))));
        let trusted = config.trusted_proxies.clone();
        let gate = Gate { records: records.clone(), rates: Rates::new(), trusted };
        let route = TowerToHyperService::new(guarded(routes, gate, &config));
        Self { route, records, fleet, stop, _kept: (guard, dir) }
    }

    /// A token of an address, for these scopes.
    async fn token(&self, address: Address, scopes: &[Scope]) -> String {
        let secret: [u8; 32] = rand::random();
        self.give(keccak256(secret), address, scopes, now() + 600).await;
        session::text(secret)
    }

    async fn give(&self, hash: B256, address: Address, scopes: &[Scope], expires_at: u64) {
        let token = TokenRecord { address, scopes: scopes.to_vec(), issued_at: now(), expires_at };
        self.records.put_token(hash, &token, 0).await.unwrap();
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, HeaderMap, Body) {
        let response = timeout(PATIENCE, self.route.call(request)).await.expect("no answer").unwrap();
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: &str,
    ) -> Result<(u16, T), (u16, String)> {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        let request = request.header("content-type", "application/json").body(body.to_owned().into()).unwrap();
        let (status, _, body) = self.send(request).await;
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        if status.is_success() {
            return Ok((status.as_u16(), serde_json::from_slice(&bytes).unwrap()));
        }
        Err((status.as_u16(), serde_json::from_slice::<ErrorBody>(&bytes).unwrap().code))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, token: &str) -> Result<T, (u16, String)> {
        self.ask("GET", path, token, "").await.map(|(_, body)| body)
    }
}

fn refusal<T>(status: u16, code: &str) -> Result<T, (u16, String)> {
    Err((status, code.to_owned()))
}

#[tokio::test]
async fn every_refusal_has_a_code_a_message_and_says_whether_to_come_back() {
    let desk = Desk::new().await;
    let token = desk.token(OWNER, &Scope::ALL).await;
    let long = format!("{{\"destination\":\"{}\"}}", "x".repeat(API_SMALL_BODY_BYTES_MAX));
    let snapshot = "/v1/sandboxes/sbx-7-1-0/snapshot";
    for (method, path, media, body, status, code) in [
        ("GET", "/nothing", "", "", 404, "no_route"),
        ("GET", "/v1/sandboxes/", "", "", 404, "no_route"),
        ("PUT", "/v1/sandboxes", "", "", 405, "no_method"),
        ("POST", "/v1/events", "", "", 405, "no_method"),
        ("GET", "/v1/sandboxes/sbx-1", "", "", 400, "bad_request"),
        ("GET", "/v1/sandboxes?limit=0", "", "", 400, "bad_request"),
        ("GET", "/v1/sandboxes?limit=101", "", "", 400, "bad_request"),
        ("GET", "/v1/sandboxes?limit=x", "", "", 400, "bad_request"),
        ("GET", "/v1/sandboxes?color=red", "", "", 400, "bad_request"),
        ("GET", "/v1/calls?cursor=x", "", "", 400, "bad_request"),
        ("GET", "/v1/events?after=x", "", "", 400, "bad_request"),
        ("GET", "/v1/services/x/calls/1", "", "", 400, "bad_request"),
        ("GET", "/v1/services/1/calls/1", "", "", 404, "no_call"),
        ("GET", "/v1/sandboxes/sbx-7-1-0", "", "", 404, "no_sandbox"),
        ("POST", "/v1/sandboxes/sbx-7-1-0/stop", "", "", 404, "no_sandbox"),
        ("POST", "/v1/sandboxes/sbx-7-1-0/resume", "text/plain", "", 415, "media_type"),
        ("POST", "/v1/sandboxes/sbx-7-1-0/resume", "", "{\"x\":1}", 400, "bad_request"),
        ("POST", "/v1/sandboxes/sbx-7-1-0/resume", "", "{\"snapshot_uri\":\"ftp://x\"}", 422, "bad_request"),
        ("POST", snapshot, "application/json; charset=utf-8", "{", 400, "bad_request"),
        ("POST", snapshot, "application/x-www-form-urlencoded", "a=b", 415, "media_type"),
        ("POST", snapshot, "application/json", &long, 413, "too_large"),
        ("POST", snapshot, "", "{\"destination\":\"file:///x\",\"include_workspace\":false}", 422, "bad_request"),
    ] {
        let mut request =
            Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        if !media.is_empty() {
            request = request.header("content-type", media);
        }
        let (found, headers, answer) = desk.send(request.body(body.to_owned().into()).unwrap()).await;
        let bytes = to_bytes(answer, usize::MAX).await.unwrap();
        let error: ErrorBody = serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("{method} {path}: {bytes:?}"));
        assert_eq!((found.as_u16(), error.code.as_str()), (status, code), "{method} {path}: {}", error.message);
        assert!(!error.message.is_empty() && headers["content-type"] == "application/json", "{method} {path}");
    }
}

#[tokio::test]
async fn a_token_opens_what_its_scopes_say_until_it_ends() {
    let desk = Desk::new().await;
    assert_eq!(desk.get::<SandboxesBody>("/v1/sandboxes", "sbt_00").await, refusal(401, "unauthorized"));
    let reads = desk.token(OWNER, &[Scope::SandboxesRead]).await;
    assert!(desk.get::<SandboxesBody>("/v1/sandboxes", &reads).await.is_ok());
    for (method, path) in [
        ("POST", "/v1/sandboxes/sbx-7-1-0/stop"),
        ("DELETE", "/v1/sandboxes/sbx-7-1-0"),
        ("GET", "/v1/calls"),
        ("GET", "/v1/services/1/calls/1"),
        ("GET", "/v1/events"),
    ] {
        assert_eq!(desk.ask::<ErrorBody>(method, path, &reads, "").await, refusal(403, "no_scope"), "{method} {path}");
    }
    let secret = [7; 32];
    desk.give(keccak256(secret), OWNER, &Scope::ALL, now() - 1).await;
    let late = desk.get::<SandboxesBody>("/v1/sandboxes", &session::text(secret)).await;
    assert_eq!(late, refusal(401, "unauthorized"));
}

#[tokio::test]
async fn a_sandbox_is_its_owners_and_for_a_stranger_it_does_not_exist() {
    let desk = Desk::new().await;
    let (token, stranger) = (desk.token(OWNER, &Scope::ALL).await, desk.token(STRANGER, &Scope::ALL).await);
    desk.fleet.create(sandbox(1)).await.unwrap();
    for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("POST", "/resume"), ("POST", "/snapshot")] {
        let body = if path == "/snapshot" { r#"{"destination":"file:///x"}"# } else { "" };
        let path = format!("/v1/sandboxes/sbx-7-1-0{path}");
        let refused = desk.ask::<SandboxBody>(method, &path, &stranger, body).await;
        assert_eq!(refused, refusal(404, "no_sandbox"), "{method} {path}");
    }
    assert_eq!(desk.get::<SandboxesBody>("/v1/sandboxes", &stranger).await.unwrap().sandboxes, []);

    let act = async |method: &str, path: &str, body: &str| {
        let path = format!("/v1/sandboxes/sbx-7-1-0{path}");
        let (status, shown) = desk.ask::<SandboxBody>(method, &path, &token, body).await?;
        Ok::<_, (u16, String)>((status, shown.phase, shown.reason))
    };
    let seen = |phase: &str, reason: Option<&str>| Ok((200, phase.to_owned(), reason.map(str::to_owned)));
    assert_eq!(act("GET", "", "").await, seen("running", None));
    let taken =
        desk.ask::<SnapshotBody>("POST", "/v1/sandboxes/sbx-7-1-0/snapshot", &token, r#"{"destination":"file:///x"}"#);
    assert_eq!(taken.await.unwrap().1, SnapshotBody { snapshot_uri: "file:///x".into(), size_bytes: 1 });
    assert_eq!(act("POST", "/stop", "").await, seen("stopped", Some("asked")));
    let rests =
        desk.ask::<SnapshotBody>("POST", "/v1/sandboxes/sbx-7-1-0/snapshot", &token, r#"{"destination":"file:///x"}"#);
    assert_eq!(rests.await, refusal(422, "sandbox_stopped"));
    assert_eq!(act("POST", "/resume", r#"{"snapshot_uri":"file:///x"}"#).await, seen("running", None));
    assert_eq!(act("POST", "/resume", "").await, seen("running", None));
    assert_eq!(act("DELETE", "", "").await, seen("gone", Some("deleted")));
}

#[tokio::test]
async fn sandboxes_are_listed_in_pages_by_phase_and_by_label() {
    let desk = Desk::new().await;
    let token = desk.token(OWNER, &Scope::ALL).await;
    for call in [10, 2, 1] {
        let mut asked = sandbox(call);
        asked.spec.labels.insert("kind".into(), if call == 2 { "even" } else { "other" }.into());
        desk.fleet.create(asked).await.unwrap();
    }
    desk.fleet.stop(sandbox(10).id, OWNER).await.unwrap();
    let list = async |query: &str| {
        let page = desk.get::<SandboxesBody>(&format!("/v1/sandboxes?{query}"), &token).await.unwrap();
        let ids: Vec<_> = page.sandboxes.iter().map(|sandbox| sandbox.id.origin.call).collect();
        (ids, page.next.map(|next| next.to_string()))
    };
    assert_eq!(list("").await, (vec![1, 2, 10], None));
    assert_eq!(list("limit=3").await, (vec![1, 2, 10], None));
    assert_eq!(list("limit=2").await, (vec![1, 2], Some("sbx-7-2-0".into())));
    assert_eq!(list("limit=2&cursor=sbx-7-2-0").await, (vec![10], None));
    assert_eq!(list("phase=stopped").await.0, [10]);
    assert_eq!(list("label=kind%3Deven").await.0, [2]);
    assert_eq!((list("label=kind").await.0.len(), list("label=color").await.0.len()), (3, 0));
}

#[tokio::test]
async fn ssh_keys_are_admitted_listed_and_revoked_by_who_owns_the_sandbox() {
    let desk = Desk::with_ssh(ApiConfig::default(), true).await;
    let (token, stranger) = (desk.token(OWNER, &[Scope::SandboxesSsh]).await, desk.token(STRANGER, &Scope::ALL).await);
    let id = desk.fleet.create(sandbox(1)).await.unwrap().id;
    let place: SshBody = desk.get("/v1/ssh", &token).await.unwrap();
    assert_eq!((place.host.as_str(), place.port, place.host_keys.len()), ("ssh.example", 22, 1));

    let path = format!("/v1/sandboxes/{id}/ssh-keys");
    let key = ssh_key(1);
    let put = async |token: &str, body: String| desk.ask::<SshKeysBody>("PUT", &path, token, &body).await;
    let asked = format!(r#"{{"key":"{key} me@here","ttl_blocks":10}}"#);
    let (status, admitted) = put(&token, asked.clone()).await.unwrap();
    let fingerprint = key.fingerprint();
    let entry = SshKeyBody { key, fingerprint: fingerprint.clone(), expires_at_block: Some(15), expired: false };
    assert_eq!((status, admitted), (200, SshKeysBody { keys: vec![entry.clone()] }));
    assert_eq!(desk.get::<SshKeysBody>(&path, &token).await.unwrap().keys, [entry]);

    assert_eq!(put(&stranger, asked.clone()).await, refusal(404, "no_sandbox"));
    assert_eq!(put(&token, r#"{"key":"ssh-rsa AAAA"}"#.into()).await, refusal(422, "bad_request"));
    let reads = desk.token(OWNER, &[Scope::SandboxesRead]).await;
    assert_eq!(put(&reads, asked).await, refusal(403, "no_scope"));
    let gone = format!("{path}?fingerprint={}", fingerprint.replace('+', "%2B"));
    assert_eq!(desk.ask::<SshKeysBody>("DELETE", &gone, &stranger, "").await, refusal(404, "no_sandbox"));
    for _ in 0..2 {
        let (status, left) = desk.ask::<SshKeysBody>("DELETE", &gone, &token, "").await.unwrap();
        assert_eq!((status, left.keys.len()), (200, 0));
    }
}

#[tokio::test]
async fn without_a_gateway_nobody_is_told_of_one_and_no_key_is_admitted() {
    let desk = Desk::new().await;
    let token = desk.token(OWNER, &Scope::ALL).await;
    let id = desk.fleet.create(sandbox(1)).await.unwrap().id;
    assert_eq!(desk.get::<SshBody>("/v1/ssh", &token).await, refusal(404, "no_ssh"));
    let body = format!(r#"{{"key":"{}"}}"#, ssh_key(1));
    let put = desk.ask::<SshKeysBody>("PUT", &format!("/v1/sandboxes/{id}/ssh-keys"), &token, &body).await;
    assert_eq!(put, refusal(404, "no_ssh"));
}

#[tokio::test]
async fn calls_are_read_and_listed_with_a_token() {
    let desk = Desk::new().await;
    let (token, stranger) = (desk.token(OWNER, &Scope::ALL).await, desk.token(STRANGER, &Scope::ALL).await);
    for call in 1..=3 {
        let key = CallKey { service: 1, call };
        desk.records.put_call(&CallRecord::seen(key, 0, OWNER, vec![1].into(), 10 + call)).await.unwrap();
    }
    let dropped = CallRecord::seen(CallKey { service: 1, call: 4 }, 0, OWNER, vec![1].into(), 10);
    let dropped = CallRecord { progress: Progress::Dropped { reason: "late".into() }, ..dropped };
    desk.records.put_call(&dropped).await.unwrap();
    let shown: serde_json::Value = desk.get("/v1/services/1/calls/2", &token).await.unwrap();
    assert_eq!(shown["status"], "pending");
    assert_eq!(desk.get::<ErrorBody>("/v1/services/1/calls/2", &stranger).await, refusal(404, "no_call"));
    assert_eq!(desk.get::<ErrorBody>("/v1/services/1/calls/2", "x").await, refusal(401, "unauthorized"));
    let page = desk.get::<CallsBody>("/v1/calls?limit=2", &token).await.unwrap();
    assert_eq!(page.calls.iter().map(|call| call.call).collect::<Vec<_>>(), [3, 2]);
    let rest = desk.get::<CallsBody>(&format!("/v1/calls?cursor={}", page.next.unwrap()), &token).await.unwrap();
    assert_eq!(rest.calls.iter().map(|call| call.call).collect::<Vec<_>>(), [1], "one that was dropped is not listed");
    assert_eq!(rest.next, None);
    assert_eq!(desk.get::<CallsBody>("/v1/calls", &stranger).await.unwrap().calls, []);
}

/// A stream of events; lines are read as they come.
struct Stream {
    body: axum::body::BodyDataStream,
    text: String,
}

impl Stream {
    async fn open(desk: &Desk, token: &str, query: &str, last: Option<&str>) -> Self {
        let mut request = Request::get(format!("/v1/events{query}")).header("authorization", format!("Bearer {token}"));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let (status, headers, body) = desk.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!((status, &headers["content-type"]), (StatusCode::OK, &"text/event-stream".parse().unwrap()));
        Self { body: body.into_data_stream(), text: String::new() }
    }

    async fn chunk(&mut self) -> Option<Bytes> {
        timeout(PATIENCE, self.body.next()).await.expect("no event").transpose().unwrap()
    }

    /// The next event: its kind, its id and a field of its data.
    async fn next(&mut self, field: &str) -> (String, String, String) {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if event.starts_with(':') {
                    continue;
                }
                let line =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
                let data: serde_json::Value = serde_json::from_str(&line("data:")).unwrap();
                return (line("event:"), line("id:"), data[field].to_string().replace('"', ""));
            }
            let chunk = self.chunk().await.expect("the stream ended");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

fn event(kind: &str, id: &str, field: &str) -> (String, String, String) {
    (kind.to_owned(), id.to_owned(), field.to_owned())
}

#[tokio::test]
async fn events_are_followed_taken_up_again_and_end_with_the_process() {
    let desk = Desk::new().await;
    let token = desk.token(OWNER, &[Scope::EventsRead]).await;
    let mut live = Stream::open(&desk, &token, "", None).await;
    let foreign = Sandbox { owner: STRANGER, ..sandbox(9) };
    desk.records.save(&foreign).await.unwrap();
    desk.fleet.create(sandbox(1)).await.unwrap();
    for (id, phase) in [("2", "provisioning"), ("3", "running")] {
        assert_eq!(live.next("phase").await, event("sandbox", id, phase));
    }
    let mut again = Stream::open(&desk, &token, "?after=3", Some("2")).await;
    assert_eq!(again.next("phase").await, event("sandbox", "3", "running"), "the header wins");
    let mut all = Stream::open(&desk, &token, "?after=0", None).await;
    assert_eq!(all.next("sandbox").await, event("sandbox", "2", "sbx-7-1-0"));
    let mut kept = Stream::open(&desk, &token, "?after=2&follow=false", None).await;
    assert_eq!(kept.next("phase").await, event("sandbox", "3", "running"));
    assert_eq!(kept.chunk().await, None);
    let mut ahead = Stream::open(&desk, &token, "?after=99", None).await;
    assert_eq!(ahead.next("after").await, event("gap", "3", "99"), "an id that was never given");
    desk.stop.cancel();
    while live.chunk().await.is_some() {}
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let desk = Desk::new().await;
    let secret = [8; 32];
    let hash = keccak256(secret);
    desk.give(hash, OWNER, &[Scope::EventsRead], now() + 600).await;
    let mut stream = Stream::open(&desk, &session::text(secret), "", None).await;
    let token = desk.records.token(hash).unwrap().unwrap();
    desk.records.remove_token(hash, &token).await.unwrap();
    desk.records.save(&Sandbox { phase: Phase::Provisioning, ..sandbox(1) }).await.unwrap();
    while let Some(chunk) = stream.chunk().await {
        assert!(!chunk.starts_with(b"event"), "{chunk:?}");
    }
}

#[tokio::test]
async fn one_place_and_one_address_are_served_as_often_as_they_may_ask() {
    let config = ApiConfig { trusted_proxies: vec!["192.0.2.0/24".parse().unwrap()], ..ApiConfig::default() };
    let desk = Desk::with(config).await;
    let ask = async |peer: &str, forwarded: &str, token: &str| {
        let mut request = Request::get("/health").header("x-forwarded-for", forwarded).body(Body::empty()).unwrap();
        let peer: SocketAddr = peer.parse().unwrap();
        request.extensions_mut().insert(Peer(Arc::new(peer)));
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let (status, headers, _) = desk.send(request).await;
        (status.as_u16(), headers.contains_key("retry-after"))
    };
    let spend = async |peer: &str, forwarded: &str, token: &str| {
        for served in 0..2 * API_ADDRESS_BURST {
            if ask(peer, forwarded, token).await == (429, true) {
                return served;
            }
        }
        panic!("{peer} is served without end");
    };
    // As many as come back while the burst is spent are served as well.
    let about = |served: u64, burst: u64| (burst..burst + burst / 2).contains(&served);
    assert!(about(spend("198.51.100.1:1", "203.0.113.1", "x").await, API_PLACE_BURST));
    assert_eq!(ask("198.51.100.2:1", "198.51.100.1", "x").await.0, 200, "another place");
    assert!(about(spend("192.0.2.1:1", "203.0.113.7", "x").await, API_PLACE_BURST), "behind a proxy");
    assert_eq!(ask("192.0.2.1:1", "203.0.113.8", "x").await.0, 200, "another one behind it");
    let token = desk.token(OWNER, &Scope::ALL).await;
    assert!(about(spend("198.51.100.1:1", "", &token).await, API_ADDRESS_BURST), "who signed in is counted for itself");
}

#[tokio::test]
async fn pages_of_other_origins_may_ask_only_where_that_was_set() {
    let asked = || {
        let request = Request::builder().method("OPTIONS").uri("/v1/sandboxes").header("origin", "https://app.example");
        request.header("access-control-request-method", "GET").body(Body::empty()).unwrap()
    };
    let (status, headers, _) = Desk::new().await.send(asked()).await;
    assert!(status == StatusCode::METHOD_NOT_ALLOWED && !headers.contains_key("access-control-allow-origin"));
    let config = |origin: &str| ApiConfig { cors_origins: vec![origin.parse().unwrap()], ..ApiConfig::default() };
    let (status, headers, _) = Desk::with(config("https://app.example")).await.send(asked()).await;
    assert_eq!(
        (status.as_u16(), headers["access-control-allow-origin"].as_bytes()),
        (200, b"https://app.example".as_slice())
    );
    let (_, headers, _) = Desk::with(config("https://other.example")).await.send(asked()).await;
    assert!(!headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn health_is_told_before_there_is_anything_else_to_serve() {
    let lobby = Lobby::default();
    let route = TowerToHyperService::new(lobby.router());
    let ask = async |path: &str| {
        let response = route.call(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let (status, body) = (response.status().as_u16(), to_bytes(response.into_body(), usize::MAX).await.unwrap());
        (status, serde_json::from_slice::<ErrorBody>(&body).map(|error| error.code).unwrap_or_default())
    };
    assert_eq!(ask("/health").await, (200, String::new()));
    for path in ["/ready", "/v1/sandboxes", "/nothing"] {
        assert_eq!(ask(path).await, (503, "starting".into()), "{path}");
    }
    lobby.open(Router::new().fallback(async || ApiError::NoRoute));
    assert_eq!((ask("/health").await.0, ask("/nothing").await.0), (200, 404));
}
