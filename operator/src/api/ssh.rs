//! `/v1/ssh` and the SSH keys of sandboxes: where to come, and who may. The keys are those that jobs 40 and 41 change.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sandbox_fleet::Fleet;
use sandbox_fleet::keys::Standing;
use sandbox_fleet::request::ssh_key;
use sandbox_fleet::sandbox::Sandbox;
use sandbox_protocol::SandboxId;
use sandbox_protocol::holdings::{SshBody, SshKeyBody, SshKeyQuery, SshKeyRequest, SshKeysBody};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::session::Scope;
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiError;
use super::document::{OpenErrors, SessionErrors};
use super::extract::{InBody, InPath, InQuery};
use super::sandboxes::within;
use super::session::Session;
use crate::limits::{API_ACT_TIMEOUT, API_KEEPER_TIMEOUT, API_SMALL_BODY_BYTES_MAX};
use crate::ssh::SshOffer;

/// What the routes work with.
pub(super) struct Keys {
    fleet: Fleet,
    head: watch::Receiver<u64>,
    offer: Option<SshOffer>,
}

impl Keys {
    /// The keys of the sandboxes of `fleet`.
    pub(super) const fn new(fleet: Fleet, head: watch::Receiver<u64>, offer: Option<SshOffer>) -> Self {
        Self { fleet, head, offer }
    }

    fn offer(&self) -> Result<&SshOffer, ApiError> {
        self.offer.as_ref().ok_or(ApiError::NoSsh)
    }

    fn body(&self, sandbox: &Sandbox) -> Json<SshKeysBody> {
        let head = Some(*self.head.borrow());
        let entries = sandbox.ssh_keys.iter().map(|entry| SshKeyBody {
            fingerprint: entry.key.fingerprint(),
            key: entry.key.clone(),
            expires_at_block: entry.expires_at_block,
            expired: matches!(entry.standing(head), Standing::Expired { .. }),
        });
        Json(SshKeysBody { keys: entries.collect() })
    }
}

/// The routes, as a value.
pub(super) fn routes() -> OpenApiRouter<Arc<Keys>> {
    OpenApiRouter::new().routes(routes!(place)).routes(routes!(list, admit, revoke))
}

/// Where customers come over SSH, and the keys by which they know the host.
#[utoipa::path(
    get, path = "/v1/ssh", operation_id = "ssh", tag = "ssh",
    responses(
        (status = 200, description = "Host, port and host keys", body = SshBody),
        (status = 404, description = "This operator lets nobody in over SSH", body = ErrorBody),
        OpenErrors,
    )
)]
async fn place(State(keys): State<Arc<Keys>>) -> Result<Json<SshBody>, ApiError> {
    let offer = keys.offer()?;
    let host_keys = offer.host_keys().map_err(|error| ApiError::Internal(error.into()))?;
    Ok(Json(SshBody { host: offer.host().to_owned(), port: offer.port(), host_keys }))
}

/// Lists the SSH keys that a sandbox has on record, also those that have expired.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ssh-keys", operation_id = "ssh_keys", tag = "ssh", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the sandbox")),
    responses(
        (status = 200, description = "The keys", body = SshKeysBody),
        (status = 404, description = "The caller has no such sandbox here", body = ErrorBody),
        SessionErrors,
    )
)]
async fn list(
    State(keys): State<Arc<Keys>>,
    session: Session,
    InPath(id): InPath<SandboxId>,
) -> Result<Json<SshKeysBody>, ApiError> {
    let owner = session.may(Scope::SandboxesSsh)?;
    let found = within(API_KEEPER_TIMEOUT, keys.fleet.find(id, owner)).await?;
    Ok(keys.body(&found))
}

/// Has an SSH key open a sandbox; one that does already gets a new end.
#[utoipa::path(
    put, path = "/v1/sandboxes/{id}/ssh-keys", operation_id = "ssh_key_admit", tag = "ssh", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the sandbox")), request_body = SshKeyRequest,
    responses(
        (status = 200, description = "It opens the sandbox; all of its keys", body = SshKeysBody),
        (status = 404, description = "The caller has no such sandbox here, or nobody is let in over SSH", body = ErrorBody),
        (status = 422, description = "It is no key that is taken, or one too many", body = ErrorBody),
        SessionErrors,
    )
)]
async fn admit(
    State(keys): State<Arc<Keys>>,
    session: Session,
    InPath(id): InPath<SandboxId>,
    InBody(asked): InBody<SshKeyRequest, API_SMALL_BODY_BYTES_MAX>,
) -> Result<Json<SshKeysBody>, ApiError> {
    let owner = session.may(Scope::SandboxesSsh)?;
    keys.offer()?;
    let key = ssh_key(&asked.key).map_err(ApiError::NotDone)?;
    let expires_at_block = (asked.ttl_blocks != 0).then(|| keys.head.borrow().saturating_add(asked.ttl_blocks));
    let admitting = keys.fleet.admit_key(id, owner, key, expires_at_block);
    Ok(keys.body(&within(API_ACT_TIMEOUT, admitting).await?.sandbox))
}

/// Has an SSH key open a sandbox no more, and ends what it has opened. One that opens nothing is revoked already.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/ssh-keys", operation_id = "ssh_key_revoke", tag = "ssh",
    security(("token" = [])),
    params(("id" = String, Path, description = "Id of the sandbox"), SshKeyQuery),
    responses(
        (status = 200, description = "It opens the sandbox no more; the keys that are left", body = SshKeysBody),
        (status = 404, description = "The caller has no such sandbox here", body = ErrorBody),
        SessionErrors,
    )
)]
async fn revoke(
    State(keys): State<Arc<Keys>>,
    session: Session,
    InPath(id): InPath<SandboxId>,
    InQuery(query): InQuery<SshKeyQuery>,
) -> Result<Json<SshKeysBody>, ApiError> {
    let owner = session.may(Scope::SandboxesSsh)?;
    let found = within(API_KEEPER_TIMEOUT, keys.fleet.find(id, owner)).await?;
    let named = found.ssh_keys.iter().find(|entry| entry.key.fingerprint() == query.fingerprint);
    let Some(named) = named else { return Ok(keys.body(&found)) };
    let revoking = keys.fleet.revoke_key(id, owner, named.key.clone());
    Ok(keys.body(&within(API_ACT_TIMEOUT, revoking).await?.sandbox))
}
