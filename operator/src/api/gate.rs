//! What every request passes: who asks is found out, and whether they may ask so often.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use ipnet::IpNet;

use super::ApiError;
use super::peer::{asker, is_trusted, place};
use super::rate::{Principal, Rates};
use super::session::Session;
use crate::records::Records;

/// What the gate works with.
pub(super) struct Gate {
    pub(super) records: Records,
    pub(super) rates: Rates,
    /// Proxies that speak for others.
    pub(super) trusted: Vec<IpNet>,
}

/// Lets a request in, with its session if it shows a token.
pub(super) async fn pass(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let session = Session::of(request.headers(), &gate.records)?;
    let principal = match &session {
        Some(Ok(session)) => Some(Principal::Address(session.address)),
        Some(Err(_)) | None => gate.place_of(&request),
    };
    if let Some(principal) = principal {
        gate.rates.take(principal)?;
    }
    if let Some(session) = session {
        request.extensions_mut().insert(session);
    }
    Ok(next.run(request).await)
}

impl Gate {
    /// The place that a request comes from. This host's own programs, and a proxy that names nobody, are not counted.
    fn place_of(&self, request: &Request) -> Option<Principal> {
        let ip = asker(request.headers(), request.extensions(), &self.trusted)?;
        if is_trusted(ip, &self.trusted) { None } else { place(ip).map(Principal::Place) }
    }
}
