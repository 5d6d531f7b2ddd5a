//! `GET /pty`, `GET /pty/{id}`, `GET /ptys`, `DELETE /pty/{id}`, and what viewers and terminals say to each other.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use sandbox_process::websocket::tungstenite::Message;
use sandbox_process::websocket::{Handshake, Socket};
use sandbox_protocol::limits::PTY_INPUT_BYTES_MAX;
use sandbox_protocol::pty::{AttachQuery, OpenQuery, PtyCause, PtyList, ServerMessage, close};
use tokio::time::{Instant, interval_at, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::error::{ApiError, bad_query, no_websocket};
use super::upgraded::{self, Came, CloseCode, Upgraded};
use crate::limits::{PTY_PING, PTY_SILENT_MAX, SOCKET_CLOSE_MAX};
use crate::pty::{Terminals, Told, Viewer};

/// What the routes share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) terminals: Terminals,
    pub(super) upgraded: Upgraded,
}

pub(super) async fn open(
    State(shared): State<Shared>,
    query: Result<Query<OpenQuery>, QueryRejection>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(bad_query)?;
    let handshake = Handshake::of(&mut request).map_err(no_websocket)?;
    let viewer = shared.terminals.open(query).await?;
    Ok(view(&shared.upgraded, handshake, viewer))
}

pub(super) async fn attach(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    query: Result<Query<AttachQuery>, QueryRejection>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(bad_query)?;
    let handshake = Handshake::of(&mut request).map_err(no_websocket)?;
    let viewer = shared.terminals.attach(&id, query)?;
    Ok(view(&shared.upgraded, handshake, viewer))
}

pub(super) async fn list(State(shared): State<Shared>) -> Json<PtyList> {
    Json(shared.terminals.list())
}

pub(super) async fn delete(State(shared): State<Shared>, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    shared.terminals.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn view(upgraded: &Upgraded, handshake: Handshake, viewer: Viewer) -> Response {
    let response = handshake.response();
    upgraded.spawn(|stop| async move {
        if let Some(socket) = upgraded::opened(&stop, handshake.open(PTY_INPUT_BYTES_MAX)).await {
            converse(socket, viewer, stop).await;
        }
    });
    response
}

/// Goes on until the terminal, the viewer or the sidecar has ended.
async fn converse(socket: Socket, viewer: Viewer, stop: CancellationToken) {
    let (mut sink, mut stream) = socket.split();
    let stopped = async {
        stop.cancelled().await;
        viewer.over().await;
        sleep(SOCKET_CLOSE_MAX).await;
    };
    let code = tokio::select! {
        code = tell(&mut sink, &viewer) => code,
        code = listen(&mut stream, &viewer) => code,
        () = stopped => Some(close::GOING_AWAY),
    };
    drop(viewer);
    if let Some(code) = code
        && let Ok(socket) = sink.reunite(stream)
    {
        upgraded::close(socket, code).await;
    }
}

/// Passes on what the viewer is told, and asks at times whether it is there. Ends with the terminal or the connection.
async fn tell(sink: &mut SplitSink<Socket, Message>, viewer: &Viewer) -> Option<CloseCode> {
    let mut voice = viewer.voice();
    let mut ping = interval_at(Instant::now() + PTY_PING, PTY_PING);
    let mut message = said(viewer.hello());
    loop {
        sink.send(message).await.ok()?;
        message = tokio::select! {
            told = voice.next() => match told {
                Told::Message(message) => said(message),
                Told::Bytes(bytes) => Message::Binary(bytes),
                Told::End(cause) => return Some(close_code(cause)),
            },
            _ = ping.tick() => Message::Ping(Bytes::new()),
        };
    }
}

/// Passes on what the viewer says, until it says no more.
async fn listen(stream: &mut SplitStream<Socket>, viewer: &Viewer) -> Option<CloseCode> {
    loop {
        let Ok(came) = timeout(PTY_SILENT_MAX, upgraded::came(stream, close::TOO_LONG)).await else {
            return Some(close::SILENT);
        };
        match came {
            Came::Bytes(bytes) => viewer.type_in(&bytes).await,
            Came::Text(text) => match serde_json::from_str(&text) {
                Ok(message) => viewer.heard(message),
                Err(_) => viewer.not_understood(),
            },
            Came::Life => {}
            Came::End(code) => return code,
        }
    }
}

fn said(message: ServerMessage) -> Message {
    Message::Text(serde_json::to_string(&message).unwrap_or_default().into())
}

fn close_code(cause: PtyCause) -> CloseCode {
    match cause {
        PtyCause::Exited => close::ENDED,
        PtyCause::Deleted | PtyCause::Abandoned => close::DELETED,
        PtyCause::Stopped => close::GOING_AWAY,
    }
}
