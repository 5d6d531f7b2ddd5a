//! `GET /channel`, `GET /unix`, `GET /listen`, `GET /accepted/{id}`: what comes through them is `channel`'s.

use std::os::unix::ffi::OsStrExt as _;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::BytesMut;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use sandbox_process::upgrade::{Stream, Wish};
use sandbox_protocol::channel::{
    FromProgram, LISTEN_PROTOCOL, ListenQuery, PATH_HEADER, PORT_HEADER, PROTOCOL, Refused, ToProgram, UnixQuery,
};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::tunnel;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error::{ApiError, bad_query, channel_refusal};
use super::upgraded::{self, Upgraded};
use crate::channel::{Accepted, ChannelError, Channels, Listening, Program, frames};

/// What the routes share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) channels: Channels,
    pub(super) upgraded: Upgraded,
}

pub(super) async fn program(State(shared): State<Shared>, mut request: Request) -> Result<Response, ApiError> {
    let wish = wish(&mut request, PROTOCOL)?;
    let place = shared.channels.place()?;
    let response = wish.response();
    let channels = shared.channels;
    shared.upgraded.spawn(|stop| async move {
        let Some(mut operator) = upgraded::opened(&stop, wish.open()).await else { return };
        match stop.run_until_cancelled(started(&mut operator, &channels)).await {
            Some(Ok(program)) => program.attend(operator, place, stop).await,
            Some(Err(error)) => refuse(&mut operator, &error).await,
            None => {}
        }
    });
    Ok(response)
}

/// The program that the first frame asks for.
async fn started(operator: &mut Stream, channels: &Channels) -> Result<Program, ChannelError> {
    match timeout(channels.start_read_max(), frames::next(operator)).await {
        Ok(Ok(ToProgram::Start(start))) => channels.start(start).await,
        Ok(Ok(_) | Err(_)) | Err(_) => Err(ChannelError::NoStart),
    }
}

async fn refuse(operator: &mut Stream, error: &ChannelError) {
    let mut bytes = BytesMut::new();
    let refused = Refused { code: channel_refusal(error), message: error.to_string() };
    FromProgram::Refused(refused).encode(&mut bytes);
    // An operator that has gone needs no answer.
    if operator.write_all(&bytes).await.is_ok() {
        operator.shutdown().await.unwrap_or_default();
    }
}

pub(super) async fn unix(
    State(shared): State<Shared>,
    query: Result<Query<UnixQuery>, QueryRejection>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(bad_query)?;
    let wish = wish(&mut request, tunnel::PROTOCOL)?;
    let stream = shared.channels.connect(&query.path).await?;
    Ok(carry(&shared.upgraded, wish, Accepted::Unix(stream)))
}

pub(super) async fn accepted(
    State(shared): State<Shared>,
    id: Result<Path<u64>, PathRejection>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let Path(id) = id.map_err(|rejection| ApiError::new(SidecarRefusal::BadRequest, rejection.body_text()))?;
    let wish = wish(&mut request, tunnel::PROTOCOL)?;
    let connection = shared.channels.listeners().fetch(id)?;
    Ok(carry(&shared.upgraded, wish, connection))
}

fn carry(upgraded: &Upgraded, wish: Wish, connection: Accepted) -> Response {
    let response = wish.response();
    upgraded.spawn(|stop| async move {
        let Some(operator) = upgraded::opened(&stop, wish.open()).await else { return };
        if let Some(Err(error)) = stop.run_until_cancelled(connection.carry(operator)).await {
            tracing::debug!(%error, "a connection of an operator's broke off");
        }
    });
    response
}

pub(super) async fn listen(
    State(shared): State<Shared>,
    query: Result<Query<ListenQuery>, QueryRejection>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(bad_query)?;
    let wish = wish(&mut request, LISTEN_PROTOCOL)?;
    let listening = shared.channels.listeners().listen(query).await?;
    let mut response = wish.response();
    let headers = response.headers_mut();
    if let Some(port) = listening.port() {
        headers.insert(PORT_HEADER, HeaderValue::from(port));
    }
    if let Some(path) = listening.path() {
        let path = percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC).to_string();
        headers.extend(HeaderValue::try_from(path).ok().map(|path| (HeaderName::from_static(PATH_HEADER), path)));
    }
    shared.upgraded.spawn(|stop| announced(wish, listening, stop));
    Ok(response)
}

async fn announced(wish: Wish, listening: Listening, stop: CancellationToken) {
    if let Some(operator) = upgraded::opened(&stop, wish.open()).await {
        listening.announce(operator, &stop).await;
    }
    listening.end().await;
}

fn wish(request: &mut Request, protocol: &'static str) -> Result<Wish, ApiError> {
    let missing = || ApiError::new(SidecarRefusal::UpgradeRequired, format!("ask for an upgrade to {protocol}"));
    Wish::of(request, protocol).ok_or_else(missing)
}
