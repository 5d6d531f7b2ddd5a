//! Prompts, tasks, runs and sessions: passed on to the process beside the sidecar, and its answers passed back. What is asked
//! is that process's to understand; here is only who may ask.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, TRANSFER_ENCODING};
use axum::response::Response;
use axum::routing::any;
use http_body_util::BodyExt as _;
use sandbox_process::link::link;
use sandbox_protocol::agent::{NEGOTIATE, PROMPT, RUNS, SESSIONS, TASK};
use sandbox_protocol::exec::SidecarRefusal;

use super::error::ApiError;
use super::sse::LAST_EVENT_ID;
use crate::agents::Agents;

/// What of a request the process is told, besides method, path and query.
const PASSED: [HeaderName; 4] = [ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderName::from_static(LAST_EVENT_ID)];

/// The routes; without agents they say why there are none.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(agents: Option<Agents>) -> Router<S> {
    let below = |root: &str| format!("{root}/{{*rest}}");
    Router::new()
        .route(PROMPT, any(forward))
        .route(TASK, any(forward))
        .route(NEGOTIATE, any(forward))
        .route(RUNS, any(forward))
        .route(&below(RUNS), any(forward))
        .route(SESSIONS, any(forward))
        .route(&below(SESSIONS), any(forward))
        .with_state(agents)
}

async fn forward(State(agents): State<Option<Agents>>, mut request: Request) -> Result<Response, ApiError> {
    let Some(agents) = agents else {
        let message = "there are no agents here: STORAGE_PATH is not set, or cannot be used";
        return Err(ApiError::new(SidecarRefusal::UnknownBackend, message));
    };
    let (mut sender, driver) = link(agents.connect().await?).await.map_err(broken_off)?;
    let known = std::mem::take(request.headers_mut());
    for name in PASSED {
        if let Some(value) = known.get(&name) {
            request.headers_mut().insert(name, value.clone());
        }
    }
    let (mut parts, body) = sender.send_request(request).await.map_err(broken_off)?.into_parts();
    for own in [CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(own);
    }
    // The connection is driven for as long as somebody reads.
    let body = body.map_frame(move |frame| {
        let _driven = &driver;
        frame
    });
    Ok(Response::from_parts(parts, Body::new(body)))
}

/// It ended with the request in hand, which may have begun something: its id tells.
fn broken_off(error: hyper::Error) -> ApiError {
    tracing::warn!(error = &error as &dyn std::error::Error, "sandbox-agentd broke off");
    ApiError::new(SidecarRefusal::Interrupted, "the agents' process ended; ask by the run's id what became of it")
}
