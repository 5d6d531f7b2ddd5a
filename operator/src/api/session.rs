//! Who asks, by the token that a request shows; a handler that takes a [`Session`] is for those who signed in.

use alloy::primitives::{Address, B256, keccak256};
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use sandbox_protocol::session::Scope;

use super::{ApiError, now};
use crate::records::Records;

/// Bytes of a token's secret.
pub(super) const SECRET_BYTES: usize = 32;
/// What tokens begin with, so that they are known for what they are where they lie about.
const PREFIX: &str = "sbt_";
const SCHEME: &str = "Bearer ";
/// Where the token stands alone, so that `Authorization` is free for a program in a sandbox.
pub(super) const TOKEN_HEADER: &str = "x-sandbox-token";
/// Bytes of the hash that name a token.
const ID_BYTES: usize = 8;

/// An open session.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// Who asks.
    pub(super) address: Address,
    /// What they may do.
    scopes: Vec<Scope>,
    hash: B256,
    expires_at: u64,
}

/// A token was shown that opens nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Void;

impl Session {
    /// The session of the token that these headers show; `None` where they show none.
    pub(super) fn of(headers: &HeaderMap, records: &Records) -> Result<Option<Result<Self, Void>>, ApiError> {
        let alone = headers.get(TOKEN_HEADER).map(|value| value.to_str().unwrap_or_default());
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = shown.and_then(|shown| shown.strip_prefix(SCHEME));
        let Some(text) = alone.or(bearer) else { return Ok(None) };
        let Some(hash) = hash_of(text) else { return Ok(Some(Err(Void))) };
        let found = records.token(hash)?.filter(|token| now() <= token.expires_at);
        let session = found.map(|token| Self {
            address: token.address,
            scopes: token.scopes,
            hash,
            expires_at: token.expires_at,
        });
        Ok(Some(session.ok_or(Void)))
    }

    /// Whether these headers show a token at all.
    pub(super) fn is_shown(headers: &HeaderMap) -> bool {
        headers.contains_key(TOKEN_HEADER)
            || headers.get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(SCHEME.as_bytes()))
    }

    /// The address, if the token opens this.
    pub(super) fn may(&self, scope: Scope) -> Result<Address, ApiError> {
        if self.scopes.contains(&scope) { Ok(self.address) } else { Err(ApiError::NoScope(scope)) }
    }

    /// Whether the token still opens anything: what lasts asks again.
    pub(super) fn is_open(&self, records: &Records) -> bool {
        now() <= self.expires_at && records.token(self.hash).is_ok_and(|token| token.is_some())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Session {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match parts.extensions.get::<Result<Self, Void>>() {
            Some(Ok(session)) => Ok(session.clone()),
            Some(Err(Void)) => Err(ApiError::Unauthorized("the token is not good, or not any more; sign in".into())),
            None => Err(ApiError::Unauthorized("a token is needed: Authorization: Bearer …; sign in".into())),
        }
    }
}

/// A token as its holder is told it.
pub(super) fn text(secret: [u8; SECRET_BYTES]) -> String {
    format!("{PREFIX}{}", hex::encode(secret))
}

/// By what a token is listed and revoked.
pub(super) fn id(hash: B256) -> String {
    hex::encode(&hash[..ID_BYTES])
}

fn hash_of(text: &str) -> Option<B256> {
    let secret = hex::decode(text.strip_prefix(PREFIX)?).ok()?;
    (secret.len() == SECRET_BYTES).then(|| keccak256(secret))
}
