//! Signing in: a message of EIP-4361, signed by an account or its contract wallet, for a token that lives for a while.

mod nonces;
mod sign_in;
#[cfg(test)]
mod tests;
mod wallets;

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes, Signature, eip191_hash_message, keccak256};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::limits::WALLET_SIGNATURE_BYTES_MAX;
use sandbox_protocol::session::{NonceBody, TokenBody, TokenInfo, TokenRequest, TokensBody};
use sandbox_sdk::Chain;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::document::{OpenErrors, SessionErrors};
use super::extract::{InBody, InPath};
use super::session::{self, Session};
use super::{ApiError, now};
use crate::limits::{
    API_CHAIN_TIMEOUT, API_SIGN_IN_BODY_BYTES_MAX, API_WALLET_CHECKS_MAX, TOKENS_EACH_MAX, TOKENS_MAX,
};
use crate::records::{Records, TokenRecord};

use nonces::{Nonces, Refused};
use sign_in::{Grant, Place};
use wallets::Wallets;

const STATEMENT: &str = "Sign in to this operator of agent sandboxes.";

/// What the routes work with.
pub(super) struct Auth {
    place: Place,
    nonces: Nonces,
    records: Records,
    wallets: Box<dyn Wallets>,
    /// Questions to contract wallets, each of which asks the node.
    checks: Semaphore,
    /// Held while a token is given, so that no two are counted as one.
    giving: Mutex<()>,
    chain_timeout: Duration,
}

/// An URL at which nobody can sign in.
#[derive(Debug, thiserror::Error)]
#[error("API_URL {0} has no host")]
pub(crate) struct NoHost(String);

impl Auth {
    /// Signing in at `url` for what is in `records`; contract wallets live on `chain`.
    pub(super) fn new(url: &str, token_life_s: u64, records: Records, chain: Chain) -> Result<Self, NoHost> {
        let place = Place::at(url, chain.deployment().chain_id, token_life_s).ok_or_else(|| NoHost(url.to_owned()))?;
        Ok(Self::with(place, records, Box::new(chain)))
    }

    fn with(place: Place, records: Records, wallets: Box<dyn Wallets>) -> Self {
        Self {
            place,
            nonces: Nonces::new(),
            records,
            wallets,
            checks: Semaphore::const_new(API_WALLET_CHECKS_MAX),
            giving: Mutex::const_new(()),
            chain_timeout: API_CHAIN_TIMEOUT,
        }
    }
}

/// The routes, as a value.
pub(super) fn routes() -> OpenApiRouter<Arc<Auth>> {
    OpenApiRouter::new().routes(routes!(nonce)).routes(routes!(sign_in)).routes(routes!(list)).routes(routes!(revoke))
}

/// A nonce for one sign-in message, and what else the message must say.
#[utoipa::path(
    post, path = "/v1/auth/nonce", operation_id = "auth_nonce", tag = "auth",
    responses((status = 200, description = "What a sign-in message must say", body = NonceBody), OpenErrors)
)]
async fn nonce(State(auth): State<Arc<Auth>>) -> Json<NonceBody> {
    let (nonce, expires_at) = auth.nonces.give(now());
    let Place { domain, uri, chain_id, .. } = auth.place.clone();
    Json(NonceBody { nonce, expires_at, domain, uri, chain_id, statement: STATEMENT.to_owned() })
}

/// Signs in: a token for a signed EIP-4361 message, whose resources name the scopes. The token is told this once.
#[utoipa::path(
    post, path = "/v1/auth/token", operation_id = "auth_token", tag = "auth", request_body = TokenRequest,
    responses(
        (status = 200, description = "The token", body = TokenBody),
        (status = 401, description = "The message or its signature is not good here", body = ErrorBody),
        OpenErrors,
    )
)]
async fn sign_in(
    State(auth): State<Arc<Auth>>,
    InBody(request): InBody<TokenRequest, API_SIGN_IN_BODY_BYTES_MAX>,
) -> Result<Json<TokenBody>, ApiError> {
    let now = now();
    let unauthorized = |reason: &dyn std::fmt::Display| ApiError::Unauthorized(reason.to_string());
    let grant = auth.place.judge(&request.message, now).map_err(|refusal| unauthorized(&refusal))?;
    let void = || ApiError::Unauthorized("the message's nonce was not given out here, is used, or has expired".into());
    if !auth.nonces.is_good(&grant.nonce, now) {
        return Err(void());
    }
    if !auth.is_signed(&grant, &request).await? {
        return Err(ApiError::Unauthorized("the signature is not this address's for this message".into()));
    }
    auth.nonces.take(&grant.nonce, now).map_err(|refused| match refused {
        Refused::Void => void(),
        Refused::TooMany => ApiError::Busy("too many sign in"),
    })?;
    auth.give(grant, now).await.map(Json)
}

/// The tokens of the caller that are good now, without their secrets.
#[utoipa::path(
    get, path = "/v1/auth/tokens", operation_id = "auth_tokens", tag = "auth", security(("token" = [])),
    responses((status = 200, description = "The caller's tokens", body = TokensBody), SessionErrors)
)]
async fn list(State(auth): State<Arc<Auth>>, session: Session) -> Result<Json<TokensBody>, ApiError> {
    let now = now();
    let good = auth.records.tokens_of(session.address)?.into_iter().filter(|(_, token)| now <= token.expires_at);
    let info = |(hash, token): (B256, TokenRecord)| TokenInfo {
        id: session::id(hash),
        scopes: token.scopes,
        issued_at: token.issued_at,
        expires_at: token.expires_at,
    };
    Ok(Json(TokensBody { tokens: good.map(info).collect() }))
}

/// Revokes a token of the caller's, at once.
#[utoipa::path(
    delete, path = "/v1/auth/tokens/{id}", operation_id = "auth_revoke", tag = "auth", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the token")),
    responses(
        (status = 204, description = "It opens nothing any more"),
        (status = 404, description = "There is no such token of the caller", body = ErrorBody),
        SessionErrors,
    )
)]
async fn revoke(
    State(auth): State<Arc<Auth>>,
    session: Session,
    InPath(id): InPath<String>,
) -> Result<StatusCode, ApiError> {
    let tokens = auth.records.tokens_of(session.address)?;
    let (hash, token) = tokens.iter().find(|(hash, _)| session::id(*hash) == id).ok_or(ApiError::NoToken)?;
    auth.records.remove_token(*hash, token).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Auth {
    /// Whether the signature is the address's: of its key, or of the contract that lives there.
    async fn is_signed(&self, grant: &Grant, request: &TokenRequest) -> Result<bool, ApiError> {
        let hash = eip191_hash_message(&request.message);
        if is_of_key(grant.address, hash, &request.signature) {
            return Ok(true);
        }
        if request.signature.len() > WALLET_SIGNATURE_BYTES_MAX {
            return Err(ApiError::BadRequest(format!(
                "a signature is at most {WALLET_SIGNATURE_BYTES_MAX} bytes long"
            )));
        }
        let _turn = self.checks.try_acquire().map_err(|_| ApiError::Busy("too many wallets are asked"))?;
        let asked = timeout(self.chain_timeout, self.wallets.takes(grant.address, hash, &request.signature)).await;
        asked.map_err(|_| ApiError::TooSlow("node"))?.map_err(ApiError::Chain)
    }

    async fn give(&self, grant: Grant, now: u64) -> Result<TokenBody, ApiError> {
        let secret: [u8; session::SECRET_BYTES] = rand::random();
        let hash = keccak256(secret);
        let Grant { address, scopes, expires_at, .. } = grant;
        let token = TokenRecord { address, scopes: scopes.clone(), issued_at: now, expires_at };
        let _giving = self.giving.lock().await;
        let good = self.records.tokens_of(address)?.iter().filter(|(_, token)| now <= token.expires_at).count();
        if good >= TOKENS_EACH_MAX {
            return Err(ApiError::Busy("this address has as many tokens as it may; revoke one"));
        }
        if self.records.tokens_up_to(TOKENS_MAX)? >= TOKENS_MAX {
            return Err(ApiError::Busy("there are as many tokens as there may be"));
        }
        self.records.put_token(hash, &token, now).await?;
        Ok(TokenBody { token: session::text(secret), id: session::id(hash), address, scopes, expires_at })
    }
}

fn is_of_key(address: Address, hash: B256, signature: &Bytes) -> bool {
    let signature = Signature::try_from(signature.as_ref()).ok();
    signature.and_then(|signature| signature.recover_address_from_prehash(&hash).ok()) == Some(address)
}
