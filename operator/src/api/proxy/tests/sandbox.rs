//! What is inside: a sidecar that shows what it was asked, and a program at port 80.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use axum::{Json, Router, middleware};
use futures::{SinkExt as _, StreamExt as _};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use sandbox_fleet::sandbox::Instance;
use sandbox_process::upgrade::Wish;
use sandbox_process::websocket::{Handshake, Socket, tungstenite::Message};
use sandbox_protocol::ticket::verify;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, copy, split};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use crate::api::now;
use crate::places::Places;

/// A sidecar, until it is dropped.
pub(super) struct Inner {
    /// Connections of the execution protocol, as they are opened.
    pub(super) fsp: mpsc::Receiver<Socket>,
    /// One for each request that is held, which is cancelled when nobody waits for it any more.
    pub(super) held: mpsc::Receiver<CancellationToken>,
    serving: AbortOnDropHandle<()>,
    connections: CancellationToken,
    socket: std::path::PathBuf,
}

#[derive(Clone)]
struct Shared {
    token: Arc<str>,
    fsp: mpsc::Sender<Socket>,
    held: mpsc::Sender<CancellationToken>,
    scopes: Arc<Mutex<String>>,
}

impl Inner {
    pub(super) fn start(places: &Places, instance: &Instance) -> Self {
        std::fs::create_dir(places.socket_dir(&instance.vessel)).unwrap();
        let socket = places.socket(&instance.vessel);
        let listener = UnixListener::bind(&socket).unwrap();
        let ((fsp_tx, fsp), (held_tx, held)) = (mpsc::channel(8), mpsc::channel(8));
        let token = instance.token.reveal().into();
        let shared = Shared { token, fsp: fsp_tx, held: held_tx, scopes: Arc::default() };
        let (router, connections) = (sidecar(shared), CancellationToken::new());
        let told = connections.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = serve(stream, router.clone());
                let told = told.clone();
                tokio::spawn(async move { told.run_until_cancelled(served).await });
            }
        });
        Self { fsp, held, serving: AbortOnDropHandle::new(serving), connections, socket }
    }

    /// The sidecar is no more, with all its connections that are still HTTP.
    pub(super) fn die(&self) {
        self.serving.abort();
        self.connections.cancel();
        std::fs::remove_file(&self.socket).unwrap();
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let service = TowerToHyperService::new(router);
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    drop(served);
}

fn sidecar(shared: Shared) -> Router {
    Router::new()
        .route("/events", get(events))
        .route("/files/content", any(echo))
        .route("/files/list", any(hold))
        .route("/files/stat", any(breaks))
        .route("/pty", get(websocket))
        .route("/tcp/{port}", get(tcp))
        .route("/fsp", get(fsp))
        .fallback(show)
        .layer(middleware::from_fn_with_state(shared.clone(), let_in))
        .route("/health", get(async || "ok"))
        .with_state(shared)
}

async fn let_in(State(shared): State<Shared>, request: Request, next: middleware::Next) -> Response {
    let shown = request.headers().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    match verify(shared.token.as_bytes(), shown.trim_start_matches("Bearer "), now()) {
        Ok(scopes) => {
            *shared.scopes.lock().unwrap() = scopes.to_string();
            next.run(request).await
        }
        Err(_) => (axum::http::StatusCode::UNAUTHORIZED, "no").into_response(),
    }
}

fn shown(request: &Request) -> Value {
    let pair = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        (name.to_string(), Value::from(String::from_utf8_lossy(value.as_bytes())))
    };
    let headers: serde_json::Map<String, Value> = request.headers().iter().map(pair).collect();
    json!({ "method": request.method().as_str(), "uri": request.uri().to_string(), "headers": headers })
}

/// Shows what was asked, and what the ticket opened.
async fn show(State(shared): State<Shared>, request: Request) -> Json<Value> {
    let mut shown = shown(&request);
    shown["scopes"] = shared.scopes.lock().unwrap().clone().into();
    Json(shown)
}

/// Gives back what comes as it comes, trailers too.
async fn echo(request: Request) -> Response {
    let mut response = Response::new(Body::empty());
    for name in ["trailer", "content-length"] {
        if let Some(value) = request.headers().get(name) {
            response.headers_mut().insert(axum::http::HeaderName::from_static(name), value.clone());
        }
    }
    response.headers_mut().insert("x-hop", "1".parse().unwrap());
    response.headers_mut().insert("connection", "x-hop".parse().unwrap());
    *response.body_mut() = request.into_body();
    response
}

/// One event and a sign of life, and then nothing.
async fn events(State(shared): State<Shared>) -> Response {
    let guard = held(&shared).await;
    let first = futures::stream::iter(["data: 1\n\n", ":\n\n"]).map(|text| Ok::<_, std::io::Error>(Bytes::from(text)));
    let rest = futures::stream::pending().map(move |bytes: Result<Bytes, std::io::Error>| {
        let _held = &guard;
        bytes
    });
    ([("content-type", "text/event-stream")], Body::from_stream(first.chain(rest))).into_response()
}

/// Never answers.
async fn hold(State(shared): State<Shared>) -> Response {
    let _held = held(&shared).await;
    std::future::pending().await
}

async fn held(shared: &Shared) -> DropGuard {
    let token = CancellationToken::new();
    shared.held.send(token.clone()).await.unwrap();
    token.drop_guard()
}

/// Begins an answer, and breaks off once that is on its way.
async fn breaks() -> Response {
    let half = futures::stream::iter([Ok(Bytes::from("half"))]);
    let broken = futures::stream::once(async {
        let sent = tokio::time::timeout(std::time::Duration::from_millis(100), std::future::pending::<()>()).await;
        Err(std::io::Error::other(sent.unwrap_err()))
    });
    Body::from_stream(half.chain(broken)).into_response()
}

async fn websocket(mut request: Request) -> Response {
    let protocol = request.headers().get("sec-websocket-protocol").cloned();
    let handshake = Handshake::of(&mut request).unwrap();
    let mut response = handshake.response();
    if let Some(protocol) = protocol {
        response.headers_mut().insert("sec-websocket-protocol", protocol);
    }
    tokio::spawn(async move {
        let mut socket = handshake.open(1 << 20).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if matches!(message, Message::Text(_) | Message::Binary(_)) && socket.send(message).await.is_err() {
                break;
            }
        }
    });
    response
}

/// A program at port 80; at port 7 what comes is given back, and then an `end`; nothing elsewhere.
async fn tcp(mut request: Request) -> Response {
    let port = request.uri().path().rsplit('/').next().unwrap().to_owned();
    if !["80", "7"].contains(&port.as_str()) {
        let body = json!({"code": "port_closed", "message": "nothing listens", "retryable": true});
        return (axum::http::StatusCode::BAD_GATEWAY, Json(body)).into_response();
    }
    let Some(wish) = Wish::of(&mut request, "tcp") else { return Response::new(Body::from("no")) };
    let response = wish.response();
    tokio::spawn(async move {
        let stream = wish.open().await.unwrap();
        if port == "80" {
            serve(stream, program()).await;
        } else {
            let (mut read, mut write) = split(stream);
            if copy(&mut read, &mut write).await.is_ok() {
                drop(tokio::io::AsyncWriteExt::write_all(&mut write, b"end").await);
                drop(tokio::io::AsyncWriteExt::shutdown(&mut write).await);
            }
        }
    });
    response
}

fn program() -> Router {
    let page = async |request: Request| {
        let cookie = [("set-cookie", "a=b; Path=/"), ("location", "/next"), ("alt-svc", "x")];
        (cookie, Json(shown(&request))).into_response()
    };
    let dead = async |request: Request| -> Response {
        drop(request);
        panic!("a program that ends amid a request")
    };
    Router::new().route("/ws", get(websocket)).route("/echo", any(echo)).route("/dead", get(dead)).fallback(page)
}

async fn fsp(State(shared): State<Shared>, mut request: Request) -> Response {
    assert!(!request.headers().contains_key("sec-websocket-extensions"));
    let granted = request.headers().get("x-protocol-extensions").cloned();
    let Ok(handshake) = Handshake::of(&mut request) else {
        return (axum::http::StatusCode::UPGRADE_REQUIRED, "a WebSocket, please").into_response();
    };
    let mut response = handshake.response();
    if let Some(granted) = granted {
        response.headers_mut().insert("x-protocol-extensions", granted);
    }
    tokio::spawn(async move { shared.fsp.send(handshake.open(16 << 20).await.unwrap()).await });
    response
}
