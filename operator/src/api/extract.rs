//! Parts of a request as typed values. What does not parse is a refusal of our own kind, never the framework's.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::ApiError;
use crate::limits::API_BODY_READ_MAX;

const JSON: &str = "application/json";

/// What stands in the path.
pub(super) struct InPath<T>(pub(super) T);

/// What stands in the query.
pub(super) struct InQuery<T>(pub(super) T);

/// A body of JSON, at most `MAX` bytes long.
pub(super) struct InBody<T, const MAX: usize>(pub(super) T);

/// A body of JSON that may be left out.
pub(super) struct PerhapsInBody<T, const MAX: usize>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for InPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let found = Path::from_request_parts(parts, state).await;
        found.map(|Path(found)| Self(found)).map_err(|rejection| ApiError::BadRequest(rejection.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for InQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let found = Query::from_request_parts(parts, state).await;
        found.map(|Query(found)| Self(found)).map_err(|rejection| ApiError::BadRequest(rejection.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned, const MAX: usize> FromRequest<S> for InBody<T, MAX> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let bytes = read(request, MAX).await?;
        parse(&bytes).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Default, const MAX: usize> FromRequest<S> for PerhapsInBody<T, MAX> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let bytes = read(request, MAX).await?;
        if bytes.is_empty() { Ok(Self(T::default())) } else { parse(&bytes).map(Self) }
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::BadRequest(error.to_string()))
}

/// The whole body. One that does not come in time is not waited for.
async fn read(request: Request, max: usize) -> Result<Bytes, ApiError> {
    check_media_type(request.headers())?;
    let body: Body = request.into_body();
    let read = timeout(API_BODY_READ_MAX, to_bytes(body, max)).await;
    let bytes = read.map_err(|_| ApiError::BadRequest("the body did not come in time".into()))?;
    bytes.map_err(|_| ApiError::TooLarge(max))
}

/// A page of somebody else's can have a browser send other types without asking, so a type that is named must be ours.
fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(named) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let essence = named.to_str().ok().and_then(|named| named.split(';').next()).map(str::trim);
    if essence.is_some_and(|named| named.eq_ignore_ascii_case(JSON)) { Ok(()) } else { Err(ApiError::MediaType) }
}
