//! Why a request goes nowhere, and how its sender is told: status, `ErrorBody`, `Proxy-Status` (RFC 9209), and the
//! reason in the status line, which is all that most clients show of a refused tunnel.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::ext::ReasonPhrase;
use sandbox_protocol::http::ErrorBody;

use super::proxy::Body;
use super::target::Target;
use crate::address::{AddressError, Host, HostError};

const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Whose rules refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Sandbox,
    Operator,
}

/// Why a request is not sent on, or not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Host(HostError),
    #[error("{} port {} is not allowed by {}", target.host, target.port, by.rules())]
    Denied { target: Target, by: Party },
    #[error("{0} is a service of this host: ask for it as http://{0}/")]
    ServiceByTunnel(Host),
    #[error("not a path of this service")]
    ServicePath,
    #[error(transparent)]
    Address(Arc<AddressError>),
    #[error("the other side did not answer")]
    Upstream(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the other side changed the protocol unasked")]
    Protocol,
    #[error("too many connections at a time")]
    Busy,
}

impl Party {
    const fn rules(self) -> &'static str {
        match self {
            Self::Sandbox => "the sandbox's rules (SANDBOX_EGRESS_ALLOW)",
            Self::Operator => "the operator's policy",
        }
    }
}

/// How a refusal is told: status, code, word for `Proxy-Status`, whether a later try may succeed.
type Told = (StatusCode, &'static str, &'static str, bool);

impl Refusal {
    fn told(&self) -> Told {
        match self {
            Self::Malformed(_) | Self::Host(_) | Self::ServicePath => {
                (StatusCode::BAD_REQUEST, "egress_malformed", "http_request_error", false)
            }
            Self::Denied { .. } | Self::ServiceByTunnel(_) => {
                (StatusCode::FORBIDDEN, "egress_denied", "http_request_denied", false)
            }
            Self::Address(error) => told_of_address(error),
            Self::Upstream(_) => (StatusCode::BAD_GATEWAY, "egress_unreachable", "connection_terminated", true),
            Self::Protocol => (StatusCode::BAD_GATEWAY, "egress_unreachable", "http_upgrade_failed", false),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "egress_busy", "connection_limit_reached", true),
        }
    }

    fn body(&self) -> ErrorBody {
        let (_, code, _, retryable) = self.told();
        ErrorBody { code: code.to_owned(), message: self.to_string(), retryable }
    }

    pub(super) fn response(&self) -> Response<Body> {
        let (status, code, word, _) = self.told();
        let json = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response = Response::new(Full::new(Bytes::from(json)).map_err(|never| match never {}).boxed());
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(value) = format!("agent-sandbox; error={word}; details=\"{code}\"").parse() {
            response.headers_mut().insert(PROXY_STATUS, value);
        }
        if let Ok(reason) = ReasonPhrase::try_from(Bytes::from(self.to_string())) {
            response.extensions_mut().insert(reason);
        }
        response
    }

    /// The whole response as bytes, for one who is told so instead of being served.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (status, _, word, _) = self.told();
        let json = serde_json::to_string(&self.body()).unwrap_or_default();
        let (status, length) = (status.as_u16(), json.len());
        format!(
            "HTTP/1.1 {status} {self}\r\ncontent-type: application/json\r\nproxy-status: agent-sandbox; error={word}\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{json}"
        )
        .into_bytes()
    }
}

const fn told_of_address(error: &AddressError) -> Told {
    match error {
        AddressError::Host(_) | AddressError::Url => {
            (StatusCode::BAD_REQUEST, "egress_malformed", "http_request_error", false)
        }
        AddressError::NotPublic { .. } | AddressError::Addresses { .. } => {
            (StatusCode::FORBIDDEN, "egress_address", "destination_ip_prohibited", false)
        }
        AddressError::Resolver(_) | AddressError::Lookup { .. } => {
            (StatusCode::BAD_GATEWAY, "egress_unreachable", "dns_error", true)
        }
        AddressError::Connect { .. } => (StatusCode::BAD_GATEWAY, "egress_unreachable", "connection_refused", true),
        AddressError::TooSlow { .. } => (StatusCode::GATEWAY_TIMEOUT, "egress_unreachable", "connection_timeout", true),
    }
}
