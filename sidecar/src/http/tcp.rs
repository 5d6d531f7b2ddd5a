//! `GET /tcp/{port}`: a tunnel to a program inside the sandbox, as bare bytes or as a WebSocket.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::BytesMut;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use sandbox_process::upgrade::{Stream, Wish};
use sandbox_process::websocket::tungstenite::Message;
use sandbox_process::websocket::{Handshake, Socket};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::limits::TUNNEL_MESSAGE_BYTES_MAX;
use sandbox_protocol::tunnel::{PROTOCOL, close};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;

use super::error::{ApiError, no_websocket};
use super::upgraded::{self, Came, CloseCode, Upgraded};
use crate::limits::{TUNNEL_BUFFER_BYTES, TUNNEL_PING};
use crate::tunnel::{Tunnel, Tunnels};

/// What the route shares.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) tunnels: Tunnels,
    pub(super) upgraded: Upgraded,
}

/// How a client wants its bytes.
enum Way {
    Bare(Wish),
    Messages(Handshake),
}

impl Way {
    fn of(request: &mut Request) -> Result<Self, ApiError> {
        match Wish::of(request, PROTOCOL) {
            Some(wish) => Ok(Self::Bare(wish)),
            None => Ok(Self::Messages(Handshake::of(request).map_err(no_websocket)?)),
        }
    }

    fn response(&self) -> Response {
        match self {
            Self::Bare(wish) => wish.response(),
            Self::Messages(handshake) => handshake.response(),
        }
    }

    async fn carry(self, port: TcpStream, stop: CancellationToken) {
        match self {
            Self::Bare(wish) => {
                let Some(client) = upgraded::opened(&stop, wish.open()).await else { return };
                carry_bytes(client, port, stop).await;
            }
            Self::Messages(handshake) => {
                let opening = handshake.open(TUNNEL_MESSAGE_BYTES_MAX);
                let Some(socket) = upgraded::opened(&stop, opening).await else { return };
                carry_messages(socket, port, stop).await;
            }
        }
    }
}

pub(super) async fn tunnel(
    State(shared): State<Shared>,
    port: Result<Path<u16>, PathRejection>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let Path(port) = port.map_err(|rejection| ApiError::new(SidecarRefusal::BadRequest, rejection.body_text()))?;
    let way = Way::of(&mut request)?;
    let Tunnel { port, place } = shared.tunnels.open(port).await?;
    let response = way.response();
    shared.upgraded.spawn(|stop| async move {
        way.carry(port, stop).await;
        drop(place);
    });
    Ok(response)
}

/// Until both sides have ended their direction, or one has broken off.
async fn carry_bytes(mut client: Stream, mut port: TcpStream, stop: CancellationToken) {
    let carried = copy_bidirectional_with_sizes(&mut client, &mut port, TUNNEL_BUFFER_BYTES, TUNNEL_BUFFER_BYTES);
    if let Some(Err(error)) = stop.run_until_cancelled(carried).await {
        tracing::debug!(%error, "a tunnel broke off");
    }
}

/// Until the port has ended its direction, or the client is gone.
async fn carry_messages(socket: Socket, mut port: TcpStream, stop: CancellationToken) {
    let (mut sink, mut stream) = socket.split();
    let (mut from_port, mut to_port) = port.split();
    let up = async {
        match carry_up(&mut stream, &mut to_port).await {
            Up::Ended => std::future::pending().await,
            Up::Gone(code) => code,
        }
    };
    let code = tokio::select! {
        code = up => code,
        code = carry_down(&mut from_port, &mut sink) => code,
        () = stop.cancelled() => Some(close::GOING_AWAY),
    };
    if let Some(code) = code
        && let Ok(socket) = sink.reunite(stream)
    {
        upgraded::close(socket, code).await;
    }
}

/// How a client's direction ended.
enum Up {
    /// It has ended that alone.
    Ended,
    /// The tunnel is to end.
    Gone(Option<CloseCode>),
}

async fn carry_up(stream: &mut SplitStream<Socket>, port: &mut WriteHalf<'_>) -> Up {
    loop {
        let passed = match upgraded::came(stream, close::TOO_LONG).await {
            Came::Bytes(bytes) if bytes.is_empty() => {
                return if port.shutdown().await.is_ok() { Up::Ended } else { Up::Gone(Some(close::PORT_BROKE)) };
            }
            Came::Bytes(bytes) => port.write_all(&bytes).await,
            Came::Text(_) => return Up::Gone(Some(close::NOT_BINARY)),
            Came::Life => Ok(()),
            Came::End(code) => return Up::Gone(code),
        };
        if passed.is_err() {
            return Up::Gone(Some(close::PORT_BROKE));
        }
    }
}

async fn carry_down(port: &mut ReadHalf<'_>, sink: &mut SplitSink<Socket, Message>) -> Option<CloseCode> {
    let mut ping = interval_at(Instant::now() + TUNNEL_PING, TUNNEL_PING);
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(TUNNEL_BUFFER_BYTES);
        let message = tokio::select! {
            read = port.read_buf(&mut buffer) => match read {
                Ok(0) => return Some(close::ENDED),
                Ok(_) => Message::Binary(buffer.split().freeze()),
                Err(_) => return Some(close::PORT_BROKE),
            },
            _ = ping.tick() => Message::Ping(bytes::Bytes::new()),
        };
        sink.send(message).await.ok()?;
    }
}
