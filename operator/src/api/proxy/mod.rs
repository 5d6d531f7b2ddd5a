//! `/sandboxes/{id}/…`: what is served inside a sandbox, for its owner: its sidecar, and programs at its ports.
//!
//! | module | what it is |
//! |---|---|
//! | `route` | which paths lead whereto, and by what right |
//! | `headers`, `body` | what of a request and its answer passes, and how |
//! | `reach` | the connection to what a request is for |
//! | `tunnel`, `relay` | connections that are not HTTP any more: as bytes, and as messages of the execution protocol |
//! | `lease` | for how long what was opened may stay open |
//! | `passage`, `pulse` | what passes is counted, told in the log, and keeps the sandbox awake |
//! | `describe` | the routes for the API's document |
//!
//! Nothing is gathered: bodies flow, and who does not read holds up who writes. Nothing is trusted that comes out: a
//! program's answer is what its customer, or whoever talked an agent into it, makes of it, at the operator's origin. So
//! there are no cookies of the operator's, the session's token never goes in, and a page that comes out is confined.

mod body;
mod describe;
mod headers;
mod lease;
mod passage;
mod pulse;
mod reach;
mod relay;
mod route;
#[cfg(test)]
mod tests;
mod tunnel;

use std::sync::Arc;

use alloy::primitives::Address;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap, LOCATION, UPGRADE};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use hyper::body::Incoming;
use hyper::upgrade::{self, OnUpgrade};
use ipnet::IpNet;
use sandbox_fleet::ports::Sidecars;
use sandbox_fleet::{Fleet, Unfinished, Visit};
use sandbox_process::websocket::names;
use sandbox_protocol::FailureCode;
use sandbox_protocol::fsp::{EXTENSIONS_HEADER, Extension, Extensions};
use sandbox_protocol::session::Scope;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ApiError;
use super::peer::asker;
use super::seats::{RELAYS, Seat, Seats, TUNNELS};
use super::session::Session;
use crate::limits::{API_ACT_TIMEOUT, API_KEEPER_TIMEOUT, API_PROXY_ANSWER_MAX};
use crate::records::Records;
use crate::sidecars::outdated;

use body::{Download, Upload};
pub(super) use describe::document;
use headers::{RESUME_HEADER, Way};
use lease::Lease;
use passage::Passage;
use pulse::Kind;
use reach::{Reached, key, reach, unreachable};
use relay::{Fate, Inquiry, Relay};
use route::{Inside, Resumes, Target, Upgrade};
use tunnel::Tunnel;

/// What the routes work with.
pub(super) struct Proxy {
    fleet: Fleet,
    sidecars: Arc<dyn Sidecars>,
    records: Records,
    /// Proxies before this operator, which speak for others.
    trusted: Vec<IpNet>,
    public: Public,
    tunnels: Seats,
    relays: Seats,
    upgraded: Upgraded,
}

/// Where customers reach the API.
#[derive(Debug, Clone)]
struct Public {
    scheme: String,
    /// Path of the API itself, without a closing slash.
    path: String,
}

/// Connections that are not HTTP any more, and until when. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Upgraded {
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

/// A connection that is to become something else.
struct Becoming {
    protocol: &'static str,
    client: OnUpgrade,
    seat: Seat,
}

impl Proxy {
    /// Ways into the sandboxes of `fleet` for who comes to the API at `url`, by themselves or through `trusted` proxies.
    pub(super) fn new(
        (fleet, sidecars, records): (Fleet, Arc<dyn Sidecars>, Records),
        url: &str,
        trusted: Vec<IpNet>,
        upgraded: Upgraded,
    ) -> Self {
        let url: Uri = url.parse().unwrap_or_default();
        let scheme = url.scheme_str().unwrap_or("http").to_owned();
        let public = Public { scheme, path: url.path().trim_end_matches('/').to_owned() };
        let (tunnels, relays) = (Seats::new(TUNNELS), Seats::new(RELAYS));
        Self { fleet, sidecars, records, trusted, public, tunnels, relays, upgraded }
    }
}

/// The routes, as a value.
pub(super) fn routes(proxy: Proxy) -> Router {
    Router::new().route("/sandboxes/{id}/{*inside}", any(pass)).with_state(Arc::new(proxy))
}

async fn pass(State(proxy): State<Arc<Proxy>>, session: Session, request: Request) -> Result<Response, ApiError> {
    let target = Target::of(request.uri()).ok_or(ApiError::NoRoute)?;
    let owner = session.may(target.inside.scope())?;
    let visit = proxy.enter(&target, (owner, &session), request.headers()).await?;
    if let Some(elsewhere) = with_slash(&request, &target.inside) {
        return Ok(elsewhere);
    }
    let passage =
        Passage::new((owner, target.sandbox), &target.inside, request.method().clone(), visit.activity.clone());
    let (records, stop) = (proxy.records.clone(), proxy.upgraded.stop.clone());
    let lease = Lease { session, records, stay: visit.stay(), stop };
    let passing = Passing { proxy, target, visit, lease, passage: Arc::new(passage) };
    passing.pass(owner, request).await
}

impl Proxy {
    /// Enters a sandbox, which is woken first if that is asked for.
    async fn enter(
        &self,
        target: &Target,
        (owner, session): (Address, &Session),
        headers: &HeaderMap,
    ) -> Result<Visit, ApiError> {
        let visit = || async {
            let visit = timeout(API_KEEPER_TIMEOUT, self.fleet.visit(target.sandbox, owner)).await;
            visit.map_err(|_| ApiError::TooSlow("sandbox keeper"))
        };
        let wakes = target.resumes == Resumes::Yes || headers.get(RESUME_HEADER).is_some_and(|value| value == "true");
        match visit().await? {
            Err(Unfinished::Failed(failure)) if failure.code == FailureCode::SandboxStopped && wakes => {
                session.may(Scope::SandboxesWrite)?;
                let resumed = timeout(API_ACT_TIMEOUT, self.fleet.resume(target.sandbox, owner, None)).await;
                resumed.map_err(|_| ApiError::TooSlow("start of the sandbox"))??;
                Ok(visit().await??)
            }
            found => Ok(found?),
        }
    }

    /// What a program at `port` is told of the way to it.
    fn way(&self, request: &Request, target: &Target, port: u16) -> Way {
        Way {
            asker: asker(request.headers(), request.extensions(), &self.trusted),
            scheme: self.public.scheme.clone(),
            prefix: format!("{}{}", self.public.path, target.prefix(port)),
            port,
        }
    }

    /// A place for a connection that is to become something else.
    fn seat(&self, upgrade: Upgrade, owner: Address) -> Result<Seat, ApiError> {
        match upgrade {
            Upgrade::Never | Upgrade::Bytes(_) => self.tunnels.take(owner),
            Upgrade::Executions => self.relays.take(owner),
        }
    }
}

/// A program's pages name others relatively, so its root ends in a slash.
fn with_slash(request: &Request, inside: &Inside) -> Option<Response> {
    let Inside::Port(port, _) = inside else { return None };
    let (path, headers) = (request.uri().path(), request.headers());
    let reads = [Method::GET, Method::HEAD].contains(request.method()) && !headers.contains_key(UPGRADE);
    // `/sandboxes/{id}/ports/{port}`, and nothing behind it.
    if !reads || path.matches('/').count() > 4 {
        return None;
    }
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    Some((StatusCode::PERMANENT_REDIRECT, [(LOCATION, format!("{port}/{query}"))]).into_response())
}

/// A request whose sandbox was entered.
struct Passing {
    proxy: Arc<Proxy>,
    target: Target,
    visit: Visit,
    lease: Lease,
    passage: Arc<Passage>,
}

impl Passing {
    async fn pass(mut self, owner: Address, mut request: Request) -> Result<Response, ApiError> {
        let way = match &self.target.inside {
            Inside::Port(port, _) => Some(self.proxy.way(&request, &self.target, *port)),
            Inside::Sidecar(..) => None,
        };
        let upgrade = self.target.inside.upgrade();
        let becoming = match headers::upgrade(request.method(), request.headers(), upgrade.protocols()) {
            Some(protocol) => {
                let seat = self.proxy.seat(upgrade, owner)?;
                Some(Becoming { protocol, client: upgrade::on(&mut request), seat })
            }
            None => None,
        };
        let asked = self.asked(request, way.as_ref(), becoming.as_ref())?;
        let is_work = self.target.inside.is_work(asked.method());
        let (response, reached) = self.exchange(asked).await?;
        self.passage.answered(response.status());
        let sent = way
            .as_ref()
            .map_or_else(|| headers::outward(response.headers()), |way| headers::from_program(response.headers(), way));
        match (response.status(), becoming) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(becoming)) => self.switch(response, sent, becoming),
            (StatusCode::SWITCHING_PROTOCOLS, None) => Err(unreachable("it became something nobody asked for")),
            // A sidecar takes its tickets, unless it is of a release without.
            (StatusCode::UNAUTHORIZED, _) if way.is_none() => Err(ApiError::NotDone(outdated())),
            _ => Ok(self.answer(response, sent, reached, is_work)),
        }
    }

    /// The request as it is made inside.
    fn asked(
        &self,
        request: Request,
        way: Option<&Way>,
        becoming: Option<&Becoming>,
    ) -> Result<hyper::Request<Upload>, ApiError> {
        let (parts, inner) = request.into_parts();
        let (path, mut headers) = match (&self.target.inside, way) {
            (Inside::Port(_, path), Some(way)) => (path, headers::to_program(&parts.headers, way)),
            (Inside::Port(_, path), None) => return Err(ApiError::Internal(format!("no way to {path}").into())),
            (Inside::Sidecar(route, path), _) => {
                (path, headers::to_sidecar(&parts.headers, key(&self.visit.instance, route.ticket)?))
            }
        };
        if let Some(becoming) = becoming {
            headers::set_upgrade(&mut headers, becoming.protocol);
        }
        if self.target.inside.upgrade() == Upgrade::Executions {
            headers::legible(&mut headers);
        }
        let body = Upload { inner, passage: Arc::clone(&self.passage) };
        let mut asked = hyper::Request::new(body);
        *asked.method_mut() = parts.method;
        *asked.uri_mut() = path.parse().map_err(|_| ApiError::BadRequest("the path cannot be passed on".into()))?;
        *asked.headers_mut() = headers;
        Ok(asked)
    }

    /// The head of the answer. A sandbox that does not give one is looked after.
    async fn exchange(
        &mut self,
        asked: hyper::Request<Upload>,
    ) -> Result<(hyper::Response<Incoming>, Reached), ApiError> {
        let answering = async {
            let mut reached = reach(self.proxy.sidecars.as_ref(), &self.visit.instance, &self.target.inside).await?;
            let response = reached.sender.send_request(asked).await.map_err(unreachable)?;
            Ok((response, reached))
        };
        let answered = tokio::select! {
            answered = timeout(API_PROXY_ANSWER_MAX, answering) => answered,
            over = self.lease.lost() => return Err(over.into()),
        };
        let answered = answered.map_err(|_| ApiError::Silent(API_PROXY_ANSWER_MAX.as_secs()))?;
        if let (Err(ApiError::Unreachable(_)), Inside::Sidecar(..)) = (&answered, &self.target.inside) {
            self.proxy.fleet.check(self.target.sandbox).await;
        }
        answered
    }

    /// The answer as it comes.
    fn answer(self, response: hyper::Response<Incoming>, sent: HeaderMap, reached: Reached, is_work: bool) -> Response {
        let is_events = sent.get(CONTENT_TYPE).is_some_and(|media| media.as_bytes().starts_with(b"text/event-stream"));
        let kind = if is_events { Kind::Events } else { Kind::Plain };
        let in_use = is_work.then(|| self.visit.activity.begin());
        let (parts, incoming) = response.into_parts();
        let body = Download::new((incoming, reached.driver), self.passage, kind, self.lease, in_use);
        let mut answer = Response::new(Body::new(body));
        *answer.status_mut() = parts.status;
        *answer.headers_mut() = sent;
        answer
    }

    /// The connection becomes something else: the answer that says so, after which it is passed on by itself.
    fn switch(
        self,
        mut response: hyper::Response<Incoming>,
        mut sent: HeaderMap,
        becoming: Becoming,
    ) -> Result<Response, ApiError> {
        let Becoming { protocol, client, seat } = becoming;
        if !names(response.headers(), &UPGRADE, protocol) {
            return Err(unreachable("it became something else than was asked for"));
        }
        headers::set_upgrade(&mut sent, protocol);
        let inside = upgrade::on(&mut response);
        let tasks = self.proxy.upgraded.tasks.clone();
        let Self { proxy, target, lease, passage, .. } = self;
        match target.inside.upgrade() {
            Upgrade::Executions => {
                let sandbox =
                    Inquiry { id: target.sandbox, fleet: proxy.fleet.clone(), sidecars: proxy.sidecars.clone() };
                let fate = fate(&sent);
                drop(tasks.spawn(Relay { client, inside, fate, sandbox, passage, lease, seat }.run()));
            }
            Upgrade::Never | Upgrade::Bytes(_) => {
                let kind = if Upgrade::is_websocket(protocol) { Kind::WebSocket } else { Kind::Plain };
                drop(tasks.spawn(Tunnel { client, inside, kind, passage, lease, seat }.run()));
            }
        }
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *answer.headers_mut() = sent;
        Ok(answer)
    }
}

/// What becomes of executions, by the extensions that a sandbox grants.
fn fate(granted: &HeaderMap) -> Fate {
    let granted = granted.get(EXTENSIONS_HEADER).and_then(|value| value.to_str().ok());
    let has_replay = granted.is_some_and(|names| Extensions::from_header(names).has(Extension::Replay));
    if has_replay { Fate::Replay } else { Fate::End }
}
