//! `GET /fsp`: from a request to a session.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::get;
use sandbox_process::websocket::Handshake;
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::fsp::{EXTENSIONS_HEADER, Extensions, ROUTE, VERSION, VERSION_HEADER};
use sandbox_protocol::limits::FSP_CUT_BYTES_MAX;

use super::error::ApiError;
use super::upgraded::{Upgraded, opened};
use crate::fsp::Sessions;

/// What the route shares.
type Shared = (Sessions, Upgraded);

pub(super) fn routes<S: Clone + Send + Sync + 'static>(sessions: Sessions, upgraded: Upgraded) -> Router<S> {
    Router::new().route(ROUTE, get(open)).with_state((sessions, upgraded))
}

async fn open(State((sessions, upgraded)): State<Shared>, mut request: Request) -> Result<Response, ApiError> {
    let bad = |message: String| ApiError::new(SidecarRefusal::BadRequest, message);
    let version = request.headers().get(VERSION_HEADER).and_then(|version| version.to_str().ok());
    if version != Some(&VERSION.to_string()) {
        return Err(bad(format!("{VERSION_HEADER}: ask for version {VERSION}")));
    }
    let extensions = request.headers().get(EXTENSIONS_HEADER).and_then(|names| names.to_str().ok());
    let extensions = extensions.map(Extensions::from_header).unwrap_or_default();
    let handshake = Handshake::of(&mut request).map_err(|error| bad(error.to_string()))?;
    let seat = sessions
        .seat()
        .ok_or_else(|| ApiError::new(SidecarRefusal::Busy, "as many connections speak the protocol as may"))?;
    let mut response = handshake.response();
    if let Ok(granted) = HeaderValue::from_str(&extensions.to_header())
        && !extensions.is_empty()
    {
        response.headers_mut().insert(EXTENSIONS_HEADER, granted);
    }
    upgraded.spawn(|stop| async move {
        if let Some(socket) = opened(&stop, handshake.open(FSP_CUT_BYTES_MAX)).await {
            sessions.serve(seat, socket, extensions, &stop).await;
        }
    });
    Ok(response)
}
