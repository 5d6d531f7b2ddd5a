//! The operator's HTTP API: who asks is found out, counted, and served what is theirs; quotes and health are for everybody.
//!
//! | module | what it is |
//! |---|---|
//! | `lobby` | health from the first moment, the rest once there is something to serve |
//! | `gate`, `session`, `rate`, `peer`, `crowd` | who asks, how often, from how many connections |
//! | `auth` | signing in with Ethereum |
//! | `calls`, `batches`, `sandboxes`, `ssh`, `events`, `workflows`, `quotes`, `open` | the routes |
//! | `proxy` | the ways into sandboxes |
//! | `document` | the OpenAPI document of the routes |
//! | `extract`, `error` | requests in, refusals out: the one place of each |
//! | `tls` | certificates |

mod auth;
mod batches;
mod calls;
mod crowd;
mod document;
mod error;
mod events;
mod extract;
mod gate;
mod lobby;
mod open;
mod peer;
mod proof;
mod proxy;
mod quotes;
mod rate;
mod sandboxes;
mod seats;
mod session;
mod ssh;
#[cfg(test)]
mod tests;
mod tls;
mod workflows;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use alloy::primitives::Address;
use axum::Router;
use axum::http::header::{ACCEPT_RANGES, CONTENT_RANGE, RETRY_AFTER};
use axum::http::{HeaderName, Method};
use axum::middleware;
use hyper_util::service::TowerToHyperService;
use sandbox_fleet::Fleet;
use sandbox_fleet::ports::{Sidecars, Snapshots};
use sandbox_process::serve::{Bounds, Doorway};
use sandbox_protocol::limits::PAGE_ENTRIES_MAX;
use sandbox_sdk::Chain;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::config::ApiConfig;
use crate::jobs::Collector;
use crate::limits::{
    API_CONNECTION_AGE_MAX, API_HEADER_BYTES_MAX, API_HEADER_READ_MAX, API_HEADERS_MAX, API_LAST_REQUEST_MAX,
    DRAIN_TIMEOUT,
};
use crate::metrics::Metrics;
use crate::records::Records;
use crate::ssh::SshOffer;
use crate::stories::Stories;
use crate::workflows::Workflows;

use auth::Auth;
pub(crate) use auth::NoHost;
use calls::Calls;
use crowd::Crowd;
pub(crate) use document::text as openapi;
pub(crate) use error::ApiError;
use events::Feed;
use gate::Gate;
use lobby::Lobby;
use open::Open;
use proof::Asked;
use proxy::{Proxy, Upgraded};
pub(crate) use quotes::QuoteParts;
pub(crate) use quotes::Quoting;
use rate::Rates;
use sandboxes::Holdings;
use seats::{STREAMS, Seats};
use tls::TlsListener;
pub(crate) use tls::{TlsError, TlsFiles};
use workflows::Flows;

/// What one connection may take.
const BOUNDS: Bounds = Bounds {
    header_bytes_max: API_HEADER_BYTES_MAX,
    headers_max: API_HEADERS_MAX,
    header_read_max: API_HEADER_READ_MAX,
    age_max: API_CONNECTION_AGE_MAX,
    last_request_max: API_LAST_REQUEST_MAX,
};

/// Headers that pages of other origins may set.
const ASKED_HEADERS: [&str; 6] =
    ["authorization", "content-type", "last-event-id", "range", "x-sandbox-token", "x-sandbox-resume"];

/// What the routes work with.
pub(crate) struct Api {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) snapshots: Arc<dyn Snapshots>,
    pub(crate) sidecars: Arc<dyn Sidecars>,
    pub(crate) head: watch::Receiver<u64>,
    pub(crate) metrics: Metrics,
    /// This operator.
    pub(crate) me: Address,
    /// Where customers reach the API.
    pub(crate) url: String,
    pub(crate) quoting: Arc<Quoting>,
    /// Where customers come over SSH, if they may.
    pub(crate) ssh: Option<SshOffer>,
    pub(crate) stories: Stories,
    pub(crate) workflows: Workflows,
}

/// The door of the API, open from the first moment on.
pub(crate) struct Door {
    lobby: Lobby,
    config: ApiConfig,
    upgraded: Upgraded,
    drained: AbortOnDropHandle<()>,
}

impl Door {
    /// Serves health through `listener` at once, and everything else once it is [opened](Self::open), until `stop`.
    pub(crate) fn new(listener: TcpListener, config: ApiConfig, stop: CancellationToken) -> Result<Self, TlsError> {
        let lobby = Lobby::default();
        let service = TowerToHyperService::new(lobby.router());
        let doorway = Doorway::new(service, Crowd::new(&config.trusted_proxies), BOUNDS, stop.clone());
        match &config.tls {
            Some(files) => doorway.serve(TlsListener::new(listener, files.clone(), stop.clone())?),
            None => doorway.serve(listener),
        }
        let upgraded = Upgraded { tasks: TaskTracker::new(), stop };
        let (tasks, stopping) = (upgraded.tasks.clone(), upgraded.stop.clone());
        let drained = tokio::spawn(async move {
            stopping.cancelled().await;
            tasks.close();
            let closed = async { tokio::join!(doorway.closed(), tasks.wait()) };
            if timeout(DRAIN_TIMEOUT, closed).await.is_err() {
                tracing::error!("requests were open when the time for them was over");
            }
        });
        Ok(Self { lobby, config, upgraded, drained: AbortOnDropHandle::new(drained) })
    }

    /// Serves everything from now on.
    pub(crate) fn open(&self, api: Api) -> Result<(), NoHost> {
        self.lobby.open(router(api, &self.config, &self.upgraded)?);
        Ok(())
    }

    /// Returns when, after the signal to stop, what was open has ended, or the time for it is over.
    pub(crate) async fn closed(self) {
        if let Err(error) = self.drained.await {
            tracing::error!(%error, "nobody waited for open requests");
        }
    }
}

/// The routes, as a value.
fn router(api: Api, config: &ApiConfig, upgraded: &Upgraded) -> Result<Router, NoHost> {
    let Api { chain, records, fleet, snapshots, sidecars, head, metrics, me, url, quoting, ssh, stories, workflows } =
        api;
    let stop = &upgraded.stop;
    let trusted = config.trusted_proxies.clone();
    let proxy = Proxy::new((fleet.clone(), sidecars, records.clone()), &url, trusted, upgraded.clone());
    let deployment = chain.deployment();
    let asked = Asked { operator: me, chain_id: deployment.chain_id, core: deployment.core };
    let collector = Collector { chain: chain.clone(), records: records.clone(), me, head: head.clone() };
    let seats = Seats::new(STREAMS);
    let calls = Calls::new((records.clone(), stories), asked, seats.clone(), stop.clone());
    let auth = Auth::new(&url, config.token_life_s, records.clone(), chain)?;
    let open_head = head.clone();
    let open = Open { fleet: fleet.clone(), head, metrics, stop: stop.clone() };
    let routes = Router::from(open::routes().with_state(Arc::new(open)))
        .merge(auth::routes().with_state(Arc::new(auth)))
        .merge(calls::routes().with_state(Arc::new(calls)))
        .merge(batches::routes().with_state(Arc::new(collector)))
        .merge(ssh::routes().with_state(Arc::new(ssh::Keys::new(fleet.clone(), open_head, ssh))))
        .merge(sandboxes::routes().with_state(Arc::new(Holdings::new(fleet, snapshots))))
        .merge(events::routes().with_state(Arc::new(Feed::new(records.clone(), seats.clone(), stop.clone()))))
        .merge(workflows::routes().with_state(Arc::new(Flows::new(workflows, seats))))
        .merge(quotes::routes().with_state(quoting))
        .merge(proxy::routes(proxy));
    let gate = Gate { records, rates: Rates::new(), trusted: config.trusted_proxies.clone() };
    Ok(guarded(routes, gate, config))
}

/// Routes behind the gate, with refusals of our own for what is not among them.
fn guarded(routes: Router, gate: Gate, config: &ApiConfig) -> Router {
    let routes = routes
        .fallback(async || ApiError::NoRoute)
        .method_not_allowed_fallback(async |method: Method| ApiError::NoMethod(method))
        .layer(middleware::from_fn_with_state(Arc::new(gate), gate::pass));
    if config.cors_origins.is_empty() { routes } else { routes.layer(cors(config)) }
}

/// Pages of these origins may ask. Tokens travel in a header that a page must set itself, so no credentials are allowed.
fn cors(config: &ApiConfig) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(config.cors_origins.clone()))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(ASKED_HEADERS.map(HeaderName::from_static))
        .expose_headers([RETRY_AFTER, CONTENT_RANGE, ACCEPT_RANGES])
}

/// What quotes are made with, put together.
pub(crate) fn quoting(parts: QuoteParts) -> Arc<Quoting> {
    Arc::new(Quoting::new(parts))
}

/// The number of entries of a page.
fn page(limit: u64) -> Result<usize, ApiError> {
    match usize::try_from(limit) {
        Ok(entries) if (1..=PAGE_ENTRIES_MAX).contains(&limit) => Ok(entries),
        _ => Err(ApiError::BadRequest(format!("limit is 1 to {PAGE_ENTRIES_MAX}"))),
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    now_ms() / 1_000
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
