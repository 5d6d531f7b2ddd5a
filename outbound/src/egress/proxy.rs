//! The road of one request: what it asks for, whether that is allowed, and who answers it.
//!
//! Requests are taken apart and made anew, with the host of their URL and a body framed by our own client, so that
//! what was judged is what is sent.

use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy;

use super::Shared;
use super::headers::{check_framing, strip, wants_websocket};
use super::refusal::{Party, Refusal};
use super::rules::Rules;
use super::services::HostService;
use super::target::{HTTP_PORT, Target};
use super::tunnel::{FarEnd, Tunnel};
use super::upstream::{self, Upstream};
use super::usage::{Meter, Pulse};
use crate::address::AddressError;

/// Streamed in both directions, never whole in memory.
pub(super) type Body = BoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// What all connections of a sandbox have in common.
pub(super) struct Sandbox {
    pub key: String,
    pub rules: Rules,
    pub meter: Arc<Meter>,
    pub upstream: Upstream,
    pub shared: Arc<Shared>,
}

/// One connection of a sandbox.
#[derive(Clone)]
pub(super) struct Desk {
    sandbox: Arc<Sandbox>,
    pulse: Arc<Pulse>,
    /// What the connection becomes once its last response, the one that says so, is out.
    tunnel: Arc<Mutex<Option<Tunnel>>>,
}

impl Desk {
    pub(super) fn new(sandbox: Arc<Sandbox>, pulse: Arc<Pulse>) -> Self {
        Self { sandbox, pulse, tunnel: Arc::default() }
    }

    /// The tunnel that was agreed on, if any.
    pub(super) fn take_tunnel(&self) -> Option<Tunnel> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        self.sandbox.meter.asked();
        let answered = self.serve(request).await;
        Ok(answered.unwrap_or_else(|refusal| {
            self.sandbox.meter.refused();
            tracing::debug!(sandbox = self.sandbox.key, error = &refusal as &dyn Error, "egress refused");
            refusal.response()
        }))
    }

    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let target = Target::of(request.method(), request.uri())?;
        check_framing(request.headers())?;
        let tunnel = request.method() == Method::CONNECT;
        match self.sandbox.shared.services.get(&target.host) {
            Some(service) if !tunnel && target.port == HTTP_PORT => self.ask_service(service, request).await,
            Some(_) => Err(Refusal::ServiceByTunnel(target.host)),
            None => {
                self.judge(&target)?;
                if tunnel { self.connect(target, request).await } else { self.forward(target, request).await }
            }
        }
    }

    /// The sandbox's rules and the operator's policy must both allow what is asked for.
    fn judge(&self, target: &Target) -> Result<(), Refusal> {
        let parties = [(&self.sandbox.rules, Party::Sandbox), (&self.sandbox.shared.policy, Party::Operator)];
        match parties.into_iter().find(|(rules, _)| !rules.allow(&target.host, target.port)) {
            None => Ok(()),
            Some((_, by)) => Err(Refusal::Denied { target: target.clone(), by }),
        }
    }

    async fn ask_service(&self, service: &HostService, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        self.pulse.allow();
        self.sandbox.shared.services.ask(service, request).await
    }

    async fn connect(&self, target: Target, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let connecting = upstream::connect(&self.sandbox.shared.guard, &target);
        let stream = connecting.await.map_err(|error| Refusal::Address(Arc::new(error)))?;
        self.become_tunnel(hyper::upgrade::on(&mut request), FarEnd::Stream(stream));
        Ok(Response::new(empty()))
    }

    async fn forward(&self, target: Target, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let websocket = wants_websocket(request.headers());
        let ours = websocket.then(|| hyper::upgrade::on(&mut request));
        let sent = remake(&target, request, websocket)?;
        self.pulse.allow();
        let mut response = self.sandbox.upstream.request(sent).await.map_err(refusal_of)?;
        match (response.status(), ours) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(ours)) if wants_websocket(response.headers()) => {
                let theirs = hyper::upgrade::on(&mut response);
                strip(response.headers_mut());
                announce_websocket(response.headers_mut());
                self.become_tunnel(ours, FarEnd::Upgrade(theirs));
                Ok(response.map(|_| empty()))
            }
            (StatusCode::SWITCHING_PROTOCOLS, _) => Err(Refusal::Protocol),
            _ => {
                strip(response.headers_mut());
                Ok(response.map(|body| body.map_err(Into::into).boxed()))
            }
        }
    }

    fn become_tunnel(&self, near: OnUpgrade, far: FarEnd) {
        self.pulse.allow();
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(Tunnel { near, far });
    }
}

/// The request as it goes out: to the host of its URL, whatever its `Host` header said.
fn remake(target: &Target, request: Request<Incoming>, websocket: bool) -> Result<Request<Incoming>, Refusal> {
    let (mut parts, body) = request.into_parts();
    let authority = target.authority();
    strip(&mut parts.headers);
    if websocket {
        announce_websocket(&mut parts.headers);
    }
    let malformed = |_| Refusal::Malformed("not a URL");
    parts.headers.insert(HOST, authority.parse().map_err(|_| Refusal::Malformed("not a host"))?);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = Uri::builder().scheme("http").authority(authority).path_and_query(path).build().map_err(malformed)?;
    parts.version = Version::HTTP_11;
    // Whatever hyper noted about the way in is nothing to the way out.
    parts.extensions.clear();
    Ok(Request::from_parts(parts, body))
}

fn announce_websocket(headers: &mut http::HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// The guard's word, where it was the guard.
fn refusal_of(error: legacy::Error) -> Refusal {
    match error.source().and_then(|source| source.downcast_ref::<Arc<AddressError>>()) {
        Some(guards) => Refusal::Address(Arc::clone(guards)),
        None => Refusal::Upstream(error.into()),
    }
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}
