//! The ways into a sandbox over real sockets on both sides; inside is a sidecar of a test's own making.

mod http;
mod ports;
mod relay;
mod sandbox;
mod tunnels;

use std::net::SocketAddr;
use std::time::Duration;

use alloy::primitives::keccak256;
use axum::body::Bytes;
use axum::http::Request;
use axum::middleware;
use http_body_util::BodyExt as _;
use hyper_util::service::TowerToHyperService;
use sandbox_fleet::Keeper;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::fakes::{FakeWorld, OWNER, sandbox};
use sandbox_fleet::request::Resources;
use sandbox_fleet::sandbox::{Phase, Sandbox};
use sandbox_process::link::{Driver, link};
use sandbox_process::serve::{Doorway, Gate as Admission};
use sandbox_process::websocket::tungstenite::handshake::client::generate_key;
use sandbox_process::websocket::tungstenite::protocol::Role;
use sandbox_process::websocket::{Socket, bounds};
use sandbox_protocol::http::ErrorBody;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use self::sandbox::Inner;
use super::*;
use crate::api::gate::{self, Gate};
use crate::api::rate::Rates;
use crate::api::{BOUNDS, session};
use crate::places::Places;
use crate::records::{RecordsGuard, TokenRecord};
use crate::sidecars::SocketSidecars;

const STRANGER: Address = Address::repeat_byte(9);
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const BASE: &str = "/sandboxes/sbx-7-1-0";

/// Everybody comes in.
#[derive(Clone)]
struct Everybody;

impl Admission<SocketAddr> for Everybody {
    type Pass = ();

    async fn admit(&self, _: &SocketAddr) -> Option<()> {
        Some(())
    }
}

/// An operator with one sandbox of [`OWNER`], and what is inside.
struct World {
    address: SocketAddr,
    fleet: Fleet,
    records: Records,
    stop: CancellationToken,
    tasks: TaskTracker,
    inner: Inner,
    _kept: (RecordsGuard, TempDir),
}

/// An answer whose body is still to come.
struct Answer {
    response: hyper::Response<Incoming>,
    _driver: Driver,
}

impl World {
    async fn new() -> Self {
        Self::of(sandbox(1)).await
    }

    async fn of(asked: Sandbox) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (records, guard) = Records::open(dir.path()).unwrap();
        let places = Places::new(dir.path(), Address::ZERO, 1).unwrap();
        let resources = Resources { cpu_cores: 8, memory_mb: 8_192, disk_gb: 100 };
        let capacity = Capacity { sandboxes: 8, sandboxes_each_max: 8, resources, cpu_cores_each_max: 4 };
        let (keeper, fleet) = Keeper::new(capacity, Arc::new(FakeWorld::default()).ports());
        let stop = CancellationToken::new();
        tokio::spawn(keeper.run(Vec::new(), CancellationToken::new()));
        let made = fleet.create(asked).await.unwrap();
        let instance = made.phase.instance().unwrap().clone();
        let inner = Inner::start(&places, &instance);

        let upgraded = Upgraded { tasks: TaskTracker::new(), stop: stop.clone() };
        let tasks = upgraded.tasks.clone();
        let parts = (fleet.clone(), Arc::new(SocketSidecars::new(places)) as Arc<dyn Sidecars>, records.clone());
        let proxy = Proxy::new(parts, "https://op.example/base/", Vec::new(), upgraded);
        let gate = Arc::new(Gate { records: records.clone(), rates: Rates::new(), trusted: Vec::new() });
        let router = routes(proxy).layer(middleware::from_fn_with_state(gate, gate::pass));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let doorway = Doorway::new(TowerToHyperService::new(router), Everybody, BOUNDS, CancellationToken::new());
        doorway.serve(listener);
        Self { address, fleet, records, stop, tasks, inner, _kept: (guard, dir) }
    }

    /// A token of an address, for these scopes, and the hash by which it is revoked.
    async fn token_of(&self, address: Address, scopes: &[Scope]) -> (String, alloy::primitives::B256) {
        let secret: [u8; 32] = rand::random();
        let token = TokenRecord { address, scopes: scopes.to_vec(), issued_at: 0, expires_at: crate::api::now() + 600 };
        self.records.put_token(keccak256(secret), &token, 0).await.unwrap();
        (session::text(secret), keccak256(secret))
    }

    async fn token(&self) -> String {
        self.token_of(OWNER, &Scope::ALL).await.0
    }

    async fn revoke(&self, hash: alloy::primitives::B256) {
        let token = self.records.token(hash).unwrap().unwrap();
        self.records.remove_token(hash, &token).await.unwrap();
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, driver) = link(stream).await.unwrap();
        let response = within(sender.send_request(request)).await.unwrap();
        Answer { response, _driver: driver }
    }

    async fn get(&self, path: &str, token: &str) -> Answer {
        self.send(asked("GET", path, token).body(Body::empty()).unwrap()).await
    }

    /// A connection that became this protocol.
    async fn upgraded(&self, path: &str, token: &str, (protocol, more): (&'static str, &[(&str, &str)])) -> Answer {
        let mut request = asked("GET", path, token).header("connection", "Upgrade").header("upgrade", protocol);
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    async fn websocket(&self, path: &str, token: &str, more: &[(&str, &str)]) -> (Socket, HeaderMap) {
        let key = generate_key();
        let mut headers = vec![("sec-websocket-version", "13"), ("sec-websocket-key", &key)];
        headers.extend(more);
        let answer = self.upgraded(path, token, ("websocket", &headers)).await;
        let headers = answer.response.headers().clone();
        (answer.websocket().await, headers)
    }

    async fn phase(&self) -> Phase {
        self.fleet.find(sandbox(1).id, OWNER).await.unwrap().phase
    }
}

impl Answer {
    fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    async fn text(self) -> String {
        let bytes = within(self.response.into_body().collect()).await.unwrap().to_bytes();
        String::from_utf8(bytes.into()).unwrap()
    }

    async fn refusal(self) -> (u16, String) {
        let status = self.status();
        (status, serde_json::from_str::<ErrorBody>(&self.text().await).unwrap().code)
    }

    async fn stream(mut self) -> hyper_util::rt::TokioIo<upgrade::Upgraded> {
        assert_eq!(self.status(), 101);
        hyper_util::rt::TokioIo::new(within(upgrade::on(&mut self.response)).await.unwrap())
    }

    async fn websocket(self) -> Socket {
        Socket::from_raw_socket(self.stream().await, Role::Client, Some(bounds(usize::MAX / 4))).await
    }

    /// The next piece of the body; `None` at its end, an error where it is cut.
    async fn chunk(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        let frame = within(self.response.body_mut().frame()).await?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }
}

fn asked(method: &str, path: &str, token: &str) -> axum::http::request::Builder {
    let request = Request::builder().method(method).uri(path).header("host", "op.example");
    request.header("authorization", format!("Bearer {token}"))
}

async fn within<T>(answer: impl Future<Output = T>) -> T {
    timeout(PATIENCE, answer).await.expect("no answer in time")
}
