//! The server: where it listens, what it remembers, how it sends.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request as Incoming, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Json, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::limits::{REQUEST_BYTES_MAX, REQUESTS_KEPT_MAX};
use crate::listener::{Connection, Numbered};
use crate::reply::Reply;
use crate::request::{Arrival, Protocol, Request};
use crate::script::Script;
use crate::wire::{self, Behind, Refusal};

/// Where a provider listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A port of 127.0.0.1; any free one if 0.
    Port(u16),
    /// A Unix socket that is not there yet.
    Socket(PathBuf),
}

/// A provider that serves until it is dropped.
pub struct Provider {
    url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// What the provider knows of its calls.
struct Shared {
    script: Script,
    delay: Duration,
    arrived: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
    requests: Mutex<VecDeque<Arc<Request>>>,
    told: watch::Sender<u64>,
    /// Cancelled when the provider is dropped, since its connections outlive the task that accepts them.
    stopped: CancellationToken,
}

/// A call that is being answered.
struct Flight(Arc<Shared>);

/// What is left to send of a reply.
struct Sending {
    frames: VecDeque<Bytes>,
    behind: Behind,
    pause: Duration,
    is_first: bool,
    flight: Flight,
}

impl Provider {
    /// A provider on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(script: Script) -> io::Result<Self> {
        Self::start_at(Place::Port(0), script, Duration::ZERO).await
    }

    /// A provider that listens there and lets every call wait this long besides what the script says.
    ///
    /// # Errors
    /// It cannot listen there.
    pub async fn start_at(place: Place, script: Script, delay: Duration) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            script,
            delay,
            arrived: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            in_flight_max: AtomicU64::new(0),
            requests: Mutex::default(),
            told: watch::Sender::new(0),
            stopped: CancellationToken::new(),
        });
        let service = router(Arc::clone(&shared)).into_make_service_with_connect_info::<Connection>();
        let (url, server) = match place {
            Place::Port(port) => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
                let url = format!("http://{}", listener.local_addr()?);
                // It serves until it is aborted.
                let serves = async move { axum::serve(Numbered::new(listener), service).await.unwrap_or_default() };
                (url, tokio::spawn(serves))
            }
            Place::Socket(path) => {
                let listener = UnixListener::bind(&path)?;
                let serves = async move { axum::serve(Numbered::new(listener), service).await.unwrap_or_default() };
                (format!("unix:{}", path.display()), tokio::spawn(serves))
            }
        };
        Ok(Self { url, shared, server })
    }

    /// Where it is, without a path: `http://127.0.0.1:4000`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The base URL of OpenAI's and Anthropic's protocols: with the version.
    pub fn v1(&self) -> String {
        format!("{}/v1", self.url)
    }

    /// The requests so far, oldest first.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// How many requests there were.
    pub fn calls(&self) -> u64 {
        self.shared.arrived.load(Ordering::SeqCst)
    }

    /// How many are being answered.
    pub fn in_flight(&self) -> u64 {
        self.shared.in_flight.load(Ordering::SeqCst)
    }

    /// How many were, at the most.
    pub fn in_flight_max(&self) -> u64 {
        self.shared.in_flight_max.load(Ordering::SeqCst)
    }

    /// Waits until there were as many requests.
    pub async fn reached(&self, calls: u64) {
        let mut told = self.shared.told.subscribe();
        // The sender lives in `self`.
        told.wait_for(|arrived| *arrived >= calls).await.ok();
    }

    /// Serves until its task ends, which it does not.
    pub async fn serve(mut self) {
        (&mut self.server).await.unwrap_or_default();
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.server.abort();
        self.shared.stopped.cancel();
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let wants = |protocol, embeds| {
        move |from, state, incoming| async move { answer((protocol, embeds), from, state, incoming).await }
    };
    Router::new()
        .route("/v1/chat/completions", post(wants(Protocol::Openai, false)))
        .route("/v1/embeddings", post(wants(Protocol::Openai, true)))
        .route("/v1/messages", post(wants(Protocol::Anthropic, false)))
        .route("/api/chat", post(wants(Protocol::Ollama, false)))
        .route("/api/embed", post(wants(Protocol::Ollama, true)))
        .route("/v1/models", get(models))
        .route("/requests", get(requests))
        .with_state(shared)
}

async fn models() -> Json<Value> {
    Json(
        json!({ "object": "list", "data": [{ "id": "scripted", "object": "model", "created": 0, "owned_by": "tests" }] }),
    )
}

/// What was asked so far, for those who are other processes.
async fn requests(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
    let told = |request: &Arc<Request>| {
        let headers: serde_json::Map<String, Value> = request
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
            .collect();
        json!({
            "number": request.number, "path": request.path, "connection": request.connection, "headers": headers,
            "body": request.body,
        })
    };
    Json(json!({
        "calls": shared.arrived.load(Ordering::SeqCst), "in_flight": shared.in_flight.load(Ordering::SeqCst),
        "in_flight_max": shared.in_flight_max.load(Ordering::SeqCst),
        "requests": requests.iter().map(told).collect::<Vec<_>>(),
    }))
}

async fn answer(
    (protocol, embeds): (Protocol, bool),
    ConnectInfo(Connection(connection)): ConnectInfo<Connection>,
    State(shared): State<Arc<Shared>>,
    incoming: Incoming,
) -> Response {
    let flight = Flight::begun(&shared);
    let (parts, body) = incoming.into_parts();
    let Ok(body) = axum::body::to_bytes(body, REQUEST_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let number = shared.arrived.fetch_add(1, Ordering::SeqCst) + 1;
    let arrival = Arrival { number, connection, protocol, embeds };
    let request = Arc::new(Request::read(&arrival, parts.uri.path(), parts.headers, &body));
    shared.remember(Arc::clone(&request));
    let reply = shared.script.answer(&request);
    let delay = shared.delay + Duration::from_millis(reply.delay_ms);
    let answered = async {
        later(delay).await;
        respond(&request, &reply, flight).await
    };
    tokio::select! {
        () = shared.stopped.cancelled() => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        response = answered => response,
    }
}

/// The time that a script says passes.
async fn later(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep_until(Instant::now() + delay).await;
    }
}

async fn respond(request: &Request, reply: &Reply, flight: Flight) -> Response {
    if let Some(failure) = &reply.failure {
        return match wire::refusal(request, failure) {
            Some(refusal) => refused(refusal),
            None => std::future::pending().await,
        };
    }
    let (content_type, (frames, behind)) = if request.embeds || !request.streams {
        let (body, behind) = if request.embeds { wire::vectors(request, reply) } else { wire::whole(request, reply) };
        ("application/json", (vec![body], behind))
    } else {
        (wire::stream_type(request.protocol), wire::stream(request, reply))
    };
    let pause = Duration::from_millis(reply.piece_delay_ms);
    let sending = Sending { frames: frames.into(), behind, pause, is_first: true, flight };
    ([(CONTENT_TYPE, content_type)], Body::from_stream(sending.stream())).into_response()
}

fn refused(refusal: Refusal) -> Response {
    let mut response = Response::builder().status(refusal.status).header(CONTENT_TYPE, refusal.content_type);
    if let Some(retry_after_ms) = refusal.retry_after_ms {
        response = response.header("retry-after", retry_after_ms.div_ceil(1_000));
        if !retry_after_ms.is_multiple_of(1_000) {
            response = response.header("retry-after-ms", retry_after_ms);
        }
    }
    response.body(Body::from(refusal.body)).unwrap_or_default()
}

impl Shared {
    fn remember(&self, request: Arc<Request>) {
        let number = request.number;
        {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            if requests.len() == REQUESTS_KEPT_MAX {
                requests.pop_front();
            }
            requests.push_back(request);
        }
        self.told.send_modify(|told| *told = number.max(*told));
    }
}

impl Flight {
    fn begun(shared: &Arc<Shared>) -> Self {
        let now = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        shared.in_flight_max.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Sending {
    fn stream(self) -> impl Stream<Item = io::Result<Bytes>> {
        let stopped = self.flight.0.stopped.clone();
        stream::unfold(self, Self::next).take_until(stopped.cancelled_owned())
    }

    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if !self.is_first {
            later(self.pause).await;
        }
        self.is_first = false;
        match (self.frames.pop_front(), self.behind) {
            (Some(frame), _) => Some((Ok(frame), self)),
            (None, Behind::Nothing) => None,
            (None, Behind::Break) => {
                // The server flushes what it has when the body is not ready; an error makes it throw that away.
                tokio::task::yield_now().await;
                Some((Err(io::ErrorKind::ConnectionReset.into()), self))
            }
            (None, Behind::Silence) => std::future::pending().await,
        }
    }
}
