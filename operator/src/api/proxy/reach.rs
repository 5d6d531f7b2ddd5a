//! The way to what is served in a sandbox: its sidecar, or through that a program at a port.

use axum::body::Bytes;
use axum::http::Request;
use axum::http::header::{AUTHORIZATION, HOST, HeaderValue};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use sandbox_fleet::ports::Sidecars;
use sandbox_fleet::sandbox::Instance;
use sandbox_process::link::{Driver, link};
use sandbox_process::upgrade::{UpgradeError, upgrade};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::ticket::{SidecarScope, mint};
use sandbox_protocol::tunnel;

use super::body::Upload;
use super::headers::bearer;
use super::route::Inside;
use crate::api::{ApiError, now};
use crate::limits::{SIDECAR_ERROR_BYTES_MAX, SIDECAR_TICKET_LIFE_S};
use crate::sidecars::outdated;

/// A connection to what a request is for.
pub(super) struct Reached {
    pub(super) sender: SendRequest<Upload>,
    pub(super) driver: Driver,
}

/// What a sidecar is shown: good for one thing, and not for long.
pub(super) fn key(instance: &Instance, scope: SidecarScope) -> Result<HeaderValue, ApiError> {
    let ticket = mint(instance.token.reveal().as_bytes(), scope.into(), now() + SIDECAR_TICKET_LIFE_S);
    bearer(&ticket).map_err(|error| ApiError::Internal(error.into()))
}

/// Connects to what a request is for.
pub(super) async fn reach(sidecars: &dyn Sidecars, instance: &Instance, inside: &Inside) -> Result<Reached, ApiError> {
    let pipe = sidecars.connect(instance).await.map_err(unreachable)?;
    let linked = match inside {
        Inside::Sidecar(..) => link(pipe).await,
        Inside::Port(port, _) => {
            let (mut sender, _driver) = link(pipe).await.map_err(unreachable)?;
            let request = Request::get(format!("{}/{port}", tunnel::ROUTE))
                .header(HOST, "sidecar")
                .header(AUTHORIZATION, key(instance, SidecarScope::Exec)?)
                .body(Empty::<Bytes>::new())
                .map_err(|error| ApiError::Internal(error.into()))?;
            match upgrade(&mut sender, request, tunnel::PROTOCOL).await {
                Ok(stream) => link(stream).await,
                Err(UpgradeError::Broken(error)) => return Err(unreachable(error)),
                Err(UpgradeError::Refused(response)) => return Err(refused(*port, *response).await),
            }
        }
    };
    linked.map(|(sender, driver)| Reached { sender, driver }).map_err(unreachable)
}

pub(super) fn unreachable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ApiError {
    ApiError::Unreachable(error.into())
}

/// Why a sidecar gives no way to a port.
async fn refused(port: u16, response: Response<Incoming>) -> ApiError {
    let body = match Limited::new(response.into_body(), SIDECAR_ERROR_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return unreachable(error),
    };
    let refused: ErrorBody = match serde_json::from_slice(&body) {
        Ok(refused) => refused,
        Err(error) => return unreachable(error),
    };
    match SidecarRefusal::from_code(&refused.code) {
        Some(SidecarRefusal::PortClosed) => ApiError::PortClosed(port),
        Some(SidecarRefusal::PortReserved | SidecarRefusal::BadRequest) => ApiError::BadRequest(refused.message),
        Some(SidecarRefusal::Busy) => ApiError::Busy("too many connections lead to ports of the sandbox"),
        // One that knows no tickets, or no such route.
        Some(SidecarRefusal::Unauthorized | SidecarRefusal::NotFound) => ApiError::NotDone(outdated()),
        Some(_) | None => unreachable(refused),
    }
}
