//! What the API offers, as an OpenAPI document: generated from the routes, kept beside them, compared by a test.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use sandbox_protocol::holdings::{GapEvent, SandboxEvent};
use sandbox_protocol::http::ErrorBody;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use super::{auth, batches, calls, events, open, proxy, quotes, sandboxes, ssh, workflows};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Operator of agent sandboxes",
        description = "Answers of calls, sandboxes and what happens to them, and quotes. Every error has the body `ErrorBody`; \
                       what is `retryable` may succeed later."
    ),
    components(schemas(ErrorBody, SandboxEvent, GapEvent)),
    modifiers(&Schemes)
)]
struct Frame;

struct Schemes;

impl Modify for Schemes {
    fn modify(&self, document: &mut Document) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token of `POST /v1/auth/token`."))
            .build();
        let proof = ApiKeyValue::with_description(
            "Authorization",
            "`EIP712 address=0x…,expires=…,signature=0x…`: a signature over the one call that is read.",
        );
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
        components.add_security_scheme("proof", SecurityScheme::ApiKey(ApiKey::Header(proof)));
    }
}

/// Errors of what anybody may ask for.
pub(super) struct OpenErrors;

/// Errors of what only those may ask for who signed in.
pub(super) struct SessionErrors;

const OPEN: [(StatusCode, &str); 6] = [
    (StatusCode::BAD_REQUEST, "A part of the request is not what it should be"),
    (StatusCode::PAYLOAD_TOO_LARGE, "The body is too long"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is no JSON by its own word"),
    (StatusCode::TOO_MANY_REQUESTS, "Asked too often, or by too many at once; `Retry-After` says when to come back"),
    (StatusCode::INTERNAL_SERVER_ERROR, "A defect of the operator's; the message holds a reference for its log"),
    (StatusCode::SERVICE_UNAVAILABLE, "The operator is starting or ending, or what it stands on does not answer"),
];
const SESSION: [(StatusCode, &str); 2] = [
    (StatusCode::UNAUTHORIZED, "The request proves no caller"),
    (StatusCode::FORBIDDEN, "The token has no scope for this"),
];

impl IntoResponses for OpenErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        OPEN.into_iter().map(refusal).collect()
    }
}

impl IntoResponses for SessionErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        OPEN.into_iter().chain(SESSION).map(refusal).collect()
    }
}

/// A refusal of this status.
pub(super) fn refusal((status, description): (StatusCode, &str)) -> (String, RefOr<Response>) {
    let content = Content::new(Some(Ref::from_schema_name("ErrorBody")));
    let response = ResponseBuilder::new().description(description).content("application/json", content).build();
    (status.as_str().to_owned(), response.into())
}

/// The document.
pub(super) fn document() -> Document {
    let mut document = Frame::openapi();
    for part in [
        open::routes().into_openapi(),
        auth::routes().into_openapi(),
        calls::routes().into_openapi(),
        batches::routes().into_openapi(),
        sandboxes::routes().into_openapi(),
        ssh::routes().into_openapi(),
        events::routes().into_openapi(),
        workflows::routes().into_openapi(),
        quotes::routes().into_openapi(),
        proxy::document(),
    ] {
        document.merge(part);
    }
    document
}

/// The document as it is kept and served.
pub(crate) fn text() -> Result<String, serde_json::Error> {
    document().to_pretty_json().map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_that_is_kept_is_that_of_the_routes() {
        let kept = include_str!("../../openapi.json");
        let found = text().unwrap();
        assert!(kept == found, "rewrite it: cargo run --bin operator -- openapi > operator/openapi.json");
    }

    #[test]
    fn every_route_names_its_errors() {
        for (path, item) in document().paths.paths {
            let item = serde_json::to_value(item).unwrap();
            for (method, operation) in item.as_object().unwrap() {
                let responses = operation["responses"].as_object().unwrap();
                let refused = responses.keys().any(|status| status.starts_with('4') || status.starts_with('5'));
                assert!(refused || path == "/health", "{method} {path}");
            }
        }
    }
}
