//! `/v1/workflows` and below: the workflows of who asks, their runs, the secrets of their webhooks. And `/v1/hooks`, which need no token:
//! who asks there proves to know a secret.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::IntoResponse;
use sandbox_protocol::CallKey;
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::limits::{HOOK_BODY_BYTES_MAX, WAIT_S_MAX};
use sandbox_protocol::session::Scope;
use sandbox_protocol::workflow::{
    HOOK_DELIVERY, HOOK_SIGNATURE, HOOK_TIMESTAMP, HookBody, HookHeaders, RunBody, RunQuery, RunsPage, RunsQuery,
    SecretBody, WorkflowEntry, WorkflowsBody, WorkflowsQuery, body,
};
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::document::{OpenErrors, SessionErrors};
use super::extract::{InPath, InQuery};
use super::seats::Seats;
use super::session::Session;
use super::{ApiError, page};
use crate::limits::API_BODY_READ_MAX;
use crate::records::RunKey;
use crate::workflows::{Hook, WorkflowError, Workflows};

/// What the routes work with.
pub(super) struct Flows {
    workflows: Workflows,
    seats: Seats,
}

impl Flows {
    /// These workflows; who waits for a run has one of these places.
    pub(super) const fn new(workflows: Workflows, seats: Seats) -> Self {
        Self { workflows, seats }
    }
}

/// The routes, as a value.
pub(super) fn routes() -> OpenApiRouter<Arc<Flows>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(schema))
        .routes(routes!(show))
        .routes(routes!(runs))
        .routes(routes!(run))
        .routes(routes!(cancel))
        .routes(routes!(secret, renew))
        .routes(routes!(hook))
}

/// Lists the caller's workflows that this operator fires, by service and number.
#[utoipa::path(
    get, path = "/v1/workflows", operation_id = "workflows", tag = "workflows", security(("token" = [])),
    params(WorkflowsQuery), responses((status = 200, description = "A page of them", body = WorkflowsBody), SessionErrors)
)]
async fn list(
    State(flows): State<Arc<Flows>>,
    session: Session,
    InQuery(query): InQuery<WorkflowsQuery>,
) -> Result<Json<WorkflowsBody>, ApiError> {
    let owner = session.may(Scope::WorkflowsRead)?;
    let count = page(query.limit)?;
    let wrong = || ApiError::BadRequest("cursor: not one that this operator gave".into());
    let after = query.cursor.map(|text| place(&text).ok_or_else(wrong)).transpose()?;
    let (workflows, next) = flows.workflows.list(owner, (after, count)).await?;
    Ok(Json(WorkflowsBody { workflows, next: next.map(|last| last.to_string()) }))
}

/// The workflow behind which a page begins, as it is printed.
fn place(text: &str) -> Option<CallKey> {
    let (service, call) = text.split_once('/')?;
    Some(CallKey { service: service.parse().ok()?, call: call.parse().ok()? })
}

/// The JSON Schema of `workflow_json`.
#[utoipa::path(
    get, path = "/v1/workflows/schema", operation_id = "workflow_schema", tag = "workflows",
    responses((status = 200, description = "The schema", body = String, content_type = "application/schema+json"), OpenErrors)
)]
async fn schema() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/schema+json")], body::schema())
}

/// Shows a workflow.
#[utoipa::path(
    get, path = "/v1/services/{service}/workflows/{workflow}", operation_id = "workflow", tag = "workflows",
    security(("token" = [])),
    params(("service" = u64, Path, description = "Service id"), ("workflow" = u64, Path, description = "Call that created it")),
    responses(
        (status = 200, description = "The workflow", body = WorkflowEntry),
        (status = 404, description = "This operator fires no such workflow of the caller", body = ErrorBody),
        SessionErrors,
    )
)]
async fn show(
    State(flows): State<Arc<Flows>>,
    session: Session,
    InPath((service, call)): InPath<(u64, u64)>,
) -> Result<Json<WorkflowEntry>, ApiError> {
    let owner = session.may(Scope::WorkflowsRead)?;
    Ok(Json(flows.workflows.show(CallKey { service, call }, owner).await?))
}

/// Lists the runs of a workflow, the newest first.
#[utoipa::path(
    get, path = "/v1/services/{service}/workflows/{workflow}/runs", operation_id = "workflow_runs", tag = "workflows",
    security(("token" = [])),
    params(
        ("service" = u64, Path, description = "Service id"), ("workflow" = u64, Path, description = "Call that created it"),
        RunsQuery
    ),
    responses(
        (status = 200, description = "A page of them", body = RunsPage),
        (status = 404, description = "This operator fires no such workflow of the caller", body = ErrorBody),
        SessionErrors,
    )
)]
async fn runs(
    State(flows): State<Arc<Flows>>,
    session: Session,
    InPath((service, call)): InPath<(u64, u64)>,
    InQuery(query): InQuery<RunsQuery>,
) -> Result<Json<RunsPage>, ApiError> {
    let owner = session.may(Scope::WorkflowsRead)?;
    let count = page(query.limit)?;
    Ok(Json(flows.workflows.runs(CallKey { service, call }, owner, (query.cursor, count)).await?))
}

/// Shows a run with its steps and what came of them; with `wait`, once it is further than `after`, or over.
#[utoipa::path(
    get, path = "/v1/services/{service}/workflows/{workflow}/runs/{number}", operation_id = "workflow_run",
    tag = "workflows", security(("token" = [])),
    params(
        ("service" = u64, Path, description = "Service id"), ("workflow" = u64, Path, description = "Call that created it"),
        ("number" = u64, Path, description = "Number of the run"), RunQuery
    ),
    responses(
        (status = 200, description = "The run", body = RunBody),
        (status = 404, description = "There is no such run of a workflow of the caller", body = ErrorBody),
        SessionErrors,
    )
)]
async fn run(
    State(flows): State<Arc<Flows>>,
    session: Session,
    InPath((service, call, number)): InPath<(u64, u64, u64)>,
    InQuery(query): InQuery<RunQuery>,
) -> Result<Json<RunBody>, ApiError> {
    let owner = session.may(Scope::WorkflowsRead)?;
    if query.wait > WAIT_S_MAX {
        return Err(ApiError::BadRequest(format!("wait is at most {WAIT_S_MAX}")));
    }
    let _seat = if query.wait == 0 { None } else { Some(flows.seats.take(owner)?) };
    let key = RunKey { workflow: CallKey { service, call }, number };
    Ok(Json(flows.workflows.run_body(key, owner, query).await?))
}

/// Cancels a run, and returns once it has ended.
#[utoipa::path(
    post, path = "/v1/services/{service}/workflows/{workflow}/runs/{number}/cancel", operation_id = "workflow_run_cancel",
    tag = "workflows", security(("token" = [])),
    params(
        ("service" = u64, Path, description = "Service id"), ("workflow" = u64, Path, description = "Call that created it"),
        ("number" = u64, Path, description = "Number of the run")
    ),
    responses(
        (status = 200, description = "The run as it is then", body = RunBody),
        (status = 404, description = "There is no such run of a workflow of the caller", body = ErrorBody),
        SessionErrors,
    )
)]
async fn cancel(
    State(flows): State<Arc<Flows>>,
    session: Session,
    InPath((service, call, number)): InPath<(u64, u64, u64)>,
) -> Result<Json<RunBody>, ApiError> {
    let owner = session.may(Scope::WorkflowsWrite)?;
    let _seat = flows.seats.take(owner)?;
    let key = RunKey { workflow: CallKey { service, call }, number };
    Ok(Json(flows.workflows.cancel_run(key, owner).await?))
}

/// Tells where the webhook of a workflow is, and what its senders sign with.
#[utoipa::path(
    get, path = "/v1/services/{service}/workflows/{workflow}/secret", operation_id = "workflow_secret", tag = "workflows",
    security(("token" = [])),
    params(("service" = u64, Path, description = "Service id"), ("workflow" = u64, Path, description = "Call that created it")),
    responses(
        (status = 200, description = "The secret", body = SecretBody),
        (status = 404, description = "No request fires a workflow of that id of the caller here", body = ErrorBody),
        SessionErrors,
    )
)]
async fn secret(
    State(flows): State<Arc<Flows>>,
    session: Session,
    InPath((service, call)): InPath<(u64, u64)>,
) -> Result<Json<SecretBody>, ApiError> {
    let owner = session.may(Scope::WorkflowsWrite)?;
    Ok(Json(flows.workflows.secret(CallKey { service, call }, owner, false).await?))
}

/// Replaces the secret: what is signed with the former one fires nothing any more.
#[utoipa::path(
    post, path = "/v1/services/{service}/workflows/{workflow}/secret", operation_id = "workflow_secret_renew",
    tag = "workflows", security(("token" = [])),
    params(("service" = u64, Path, description = "Service id"), ("workflow" = u64, Path, description = "Call that created it")),
    responses(
        (status = 200, description = "The new secret", body = SecretBody),
        (status = 404, description = "No request fires a workflow of that id of the caller here", body = ErrorBody),
        SessionErrors,
    )
)]
async fn renew(
    State(flows): State<Arc<Flows>>,
    session: Session,
    InPath((service, call)): InPath<(u64, u64)>,
) -> Result<Json<SecretBody>, ApiError> {
    let owner = session.may(Scope::WorkflowsWrite)?;
    Ok(Json(flows.workflows.secret(CallKey { service, call }, owner, true).await?))
}

/// Fires a workflow. The body is given to its run, as JSON where it is.
#[utoipa::path(
    post, path = "/v1/hooks/{service}/{workflow}", operation_id = "hook", tag = "workflows",
    params(
        ("service" = u64, Path, description = "Service id"), ("workflow" = u64, Path, description = "Call that created it"),
        ("X-Sandbox-Timestamp" = u64, Header, description = "Seconds since 1970 in which it is sent"),
        ("X-Sandbox-Signature" = String, Header, description = "`v1=` and the hex HMAC-SHA256 of `<timestamp>.<body>`"),
        ("X-Sandbox-Delivery" = Option<String>, Header, description = "What its sender calls it: one name fires once")
    ),
    request_body(content = String, content_type = "application/octet-stream"),
    responses(
        (status = 202, description = "The run that it fired", body = HookBody),
        (status = 401, description = "It is not signed, or not with the secret of such a workflow here, or too long ago", body = ErrorBody),
        OpenErrors,
    )
)]
async fn hook(
    State(flows): State<Arc<Flows>>,
    InPath((service, call)): InPath<(u64, u64)>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<HookBody>), ApiError> {
    let read = timeout(API_BODY_READ_MAX, to_bytes(body, HOOK_BODY_BYTES_MAX)).await;
    let read = read.map_err(|_| ApiError::BadRequest("the body did not come in time".into()))?;
    let body = read.map_err(|_| ApiError::TooLarge(HOOK_BODY_BYTES_MAX))?;
    let header = |name: &'static str| headers.get(HeaderName::from_static(name)).and_then(|value| value.to_str().ok());
    let proof = HookHeaders { timestamp: header(HOOK_TIMESTAMP), signature: header(HOOK_SIGNATURE) };
    let hook = Hook { headers: proof, delivery: header(HOOK_DELIVERY), body: &body };
    let fired = flows.workflows.hook(CallKey { service, call }, hook).await?;
    Ok((StatusCode::ACCEPTED, Json(fired)))
}

impl From<WorkflowError> for ApiError {
    fn from(error: WorkflowError) -> Self {
        match error {
            WorkflowError::Unknown => Self::NoWorkflow,
            WorkflowError::NoRun => Self::NoRun,
            WorkflowError::Hook(fault) => Self::Unauthorized(fault.to_string()),
            WorkflowError::Paused | WorkflowError::FiredBefore | WorkflowError::NoHook(_) => {
                Self::Conflict(error.to_string())
            }
            WorkflowError::Text(failure) => Self::NotDone(failure),
            WorkflowError::Chain(error) => Self::Chain(error),
            WorkflowError::NoText | WorkflowError::Blind(_) => Self::TooSlow("node"),
            WorkflowError::Keeper => Self::TooSlow("sandbox keeper"),
            WorkflowError::Crowded => Self::Busy("too many webhooks of this workflow"),
            WorkflowError::BrokeOff(error) => Self::Internal(Box::new(error)),
            WorkflowError::Records(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_behind_the_workflow_that_the_one_before_names() {
        let key = CallKey { service: 7, call: 20 };
        assert_eq!(place(&key.to_string()), Some(key));
        for wrong in ["", "7", "7/", "/20", "7/20/1", "7/x", "-7/20"] {
            assert_eq!(place(wrong), None, "{wrong:?}");
        }
    }
}
