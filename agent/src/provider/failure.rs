//! What a failure means: from genai's errors, statuses and words to [`ModelError`].

use std::error::Error;
use std::time::Duration;

use genai::webc;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use sandbox_protocol::agent::Secret;
use sandbox_protocol::egress::EGRESS_UNAVAILABLE;
use serde_json::Value;

use super::words::{Words, is_overflow, message, shown};
use crate::model::ModelError;

/// Whose word it is, in `Proxy-Status`, when the operator's proxy answers and not the provider.
const PROXY: &str = "agent-sandbox";
/// Not a standard one, but what two of the three say when a second is too coarse.
const RETRY_AFTER_MS: &str = "retry-after-ms";
/// What Anthropic answers when it has too much to do.
const OVERLOADED: u16 = 529;

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: ModelError,
    /// When the provider said to come back, also where the error has no place for it.
    pub(super) retry_after: Option<Duration>,
    /// Nothing reached the provider: the way out of the sandbox is shut, as it is while its operator is started anew.
    pub(super) is_shut_in: bool,
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        let retry_after = if let ModelError::RateLimited { retry_after } = &error { *retry_after } else { None };
        Self { error, retry_after, is_shut_in: false }
    }
}

impl Failure {
    pub(super) fn malformed(words: &str) -> Self {
        ModelError::Malformed(Words::boxed(words)).into()
    }

    pub(super) fn cut() -> Self {
        ModelError::Unreachable(Words::boxed("the answer ended before it was whole")).into()
    }

    pub(super) fn timed_out(limit: Duration) -> Self {
        ModelError::TimedOut { after_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }.into()
    }

    /// What genai's error means.
    pub(super) fn of(error: genai::Error, key: Option<&Secret>) -> Self {
        match error {
            genai::Error::HttpError { status, body, headers, .. } => of_status(status.as_u16(), &body, &headers, key),
            genai::Error::WebStream { error, .. } => of_stream(error, key),
            genai::Error::WebModelCall { webc_error, .. } | genai::Error::WebAdapterCall { webc_error, .. } => {
                of_call(webc_error, key)
            }
            genai::Error::ChatResponse { body, .. } => of_event(&body, key),
            // The rest is of answers that do not say what they should. Their words hold the answer.
            genai::Error::StreamParse { serde_error, .. } => Self::malformed(&serde_error.to_string()),
            other => Self::malformed(&shown(&other.to_string(), key)),
        }
    }
}

fn of_stream(error: Box<dyn Error + Send + Sync>, key: Option<&Secret>) -> Failure {
    let error = match error.downcast::<genai::Error>() {
        Ok(error) => return Failure::of(*error, key),
        Err(error) => error,
    };
    match error.downcast::<reqwest::Error>() {
        Ok(error) => of_transport(*error),
        Err(error) => Failure::malformed(&shown(&error.to_string(), key)),
    }
}

fn of_call(error: webc::Error, key: Option<&Secret>) -> Failure {
    match error {
        webc::Error::ResponseFailedStatus { status, body, headers } => of_status(status.as_u16(), &body, &headers, key),
        webc::Error::Reqwest(error) => of_transport(error),
        webc::Error::ResponseFailedNotJson { .. } => Failure::malformed("the body is not called JSON"),
        webc::Error::ResponseFailedInvalidJson { cause, .. } => Failure::malformed(&shown(&cause, key)),
        webc::Error::JsonValueExt(error) => Failure::malformed(&shown(&error.to_string(), key)),
    }
}

fn of_transport(error: reqwest::Error) -> Failure {
    let error = error.without_url();
    if error.is_builder() {
        return ModelError::Settings("no request can be made of the provider's settings").into();
    }
    ModelError::Unreachable(Box::new(error)).into()
}

fn of_status(status: u16, body: &str, headers: &HeaderMap, key: Option<&Secret>) -> Failure {
    if is_of_proxy(headers) {
        return of_proxy(status, body, key);
    }
    let retry_after = retry_after(headers);
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    if status == 503 && parsed["code"] == EGRESS_UNAVAILABLE {
        let error = ModelError::Unreachable(Words::boxed("the way out of the sandbox is shut"));
        return Failure { error, retry_after: None, is_shut_in: true };
    }
    let words = || shown(message(&parsed).unwrap_or(body), key);
    let error = match status {
        401 | 403 => ModelError::Refused,
        // An account that is used up is told by the status of haste, and no haste is the cause.
        429 if body.contains("insufficient_quota") => ModelError::Rejected(words()),
        429 => ModelError::RateLimited { retry_after },
        413 => ModelError::ContextOverflow,
        400..=599 if is_overflow(body) => ModelError::ContextOverflow,
        300..=399 => ModelError::Rejected("it redirects elsewhere".to_owned()),
        408 | 409 | 425 | 500.. => ModelError::Failed { status },
        _ => ModelError::Rejected(words()),
    };
    Failure { error, retry_after, is_shut_in: false }
}

/// What the operator's proxy says instead of the provider.
fn of_proxy(status: u16, body: &str, key: Option<&Secret>) -> Failure {
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    let words = shown(message(&parsed).unwrap_or(body), key);
    let error = match status {
        403 => ModelError::Forbidden,
        500.. => ModelError::Unreachable(Words::boxed(words)),
        _ => ModelError::Rejected(words),
    };
    error.into()
}

/// Whether the operator's proxy speaks, and not who is behind it.
pub(super) fn is_of_proxy(headers: &HeaderMap) -> bool {
    headers.get("proxy-status").is_some_and(|value| value.as_bytes().starts_with(PROXY.as_bytes()))
}

/// Whether a proxy would not let a tunnel be dug. By which status is nowhere told.
pub(super) fn is_refused_tunnel(error: &ModelError) -> bool {
    let ModelError::Unreachable(source) = error else { return false };
    let mut cause: Option<&dyn Error> = Some(&**source);
    while let Some(error) = cause {
        if error.to_string() == "tunnel error: unsuccessful" {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error that is told in the middle of an answer.
fn of_event(body: &Value, key: Option<&Secret>) -> Failure {
    let text = body.to_string();
    let told = |field: &str| body.get("error").and_then(|error| error.get(field)).or_else(|| body.get(field));
    let is = |word: &str| {
        ["type", "code"].iter().any(|field| told(field).and_then(Value::as_str).is_some_and(|told| told.contains(word)))
    };
    let error = if is_overflow(&text) {
        ModelError::ContextOverflow
    } else if let Some(status) = told("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()) {
        return of_status(status, &text, &HeaderMap::new(), key);
    } else if is("rate_limit") {
        ModelError::RateLimited { retry_after: None }
    } else if is("authentication") || is("permission") {
        ModelError::Refused
    } else if is("invalid_request") {
        let words = told("message").and_then(Value::as_str).unwrap_or(&text);
        ModelError::Rejected(shown(words, key))
    } else {
        ModelError::Failed { status: if is("overloaded") { OVERLOADED } else { 500 } }
    };
    error.into()
}

/// `Retry-After` in seconds; one that names a date is as good as none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    number(RETRY_AFTER_MS).map(Duration::from_millis).or_else(|| number(RETRY_AFTER.as_str()).map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, headers: &[(&'static str, &str)], body: &str, expected: &str) {
        let headers = headers.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect();
        let failure = of_status(status, body, &headers, Some(&Secret::new("hush-hush")));
        assert_eq!(format!("{:?}", failure.error), expected, "{status} {body}");
    }

    #[test]
    fn statuses_are_told_apart() {
        check(401, &[], "", "Refused");
        check(403, &[], r#"{"error": {"message": "no"}}"#, "Refused");
        check(404, &[], r#"{"error": "model 'hush-hush' not found"}"#, r#"Rejected("model '[redacted]' not found")"#);
        check(413, &[], "", "ContextOverflow");
        check(429, &[("retry-after", "7")], "", "RateLimited { retry_after: Some(7s) }");
        check(429, &[("retry-after", "1"), ("retry-after-ms", "250")], "", "RateLimited { retry_after: Some(250ms) }");
        check(429, &[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")], "", "RateLimited { retry_after: None }");
        check(429, &[], r#"{"error": {"message": "pay", "code": "insufficient_quota"}}"#, r#"Rejected("pay")"#);
        check(500, &[], r#"{"error": "the input length exceeds the context length"}"#, "ContextOverflow");
        check(529, &[], "", "Failed { status: 529 }");
        check(307, &[], "", r#"Rejected("it redirects elsewhere")"#);
    }

    #[test]
    fn the_proxy_is_not_taken_for_the_provider() {
        let denied = "agent-sandbox; error=http_request_denied; details=\"egress_denied\"";
        check(403, &[("proxy-status", denied)], r#"{"code": "egress_denied", "message": "m"}"#, "Forbidden");
        let dns = "agent-sandbox; error=dns_error; details=\"egress_unreachable\"";
        check(502, &[("proxy-status", dns)], r#"{"message": "no such name"}"#, r#"Unreachable(Words("no such name"))"#);
        check(403, &[("proxy-status", "another; error=x")], "", "Refused");
    }

    #[test]
    fn errors_in_the_middle_are_told_apart() {
        let check = |body: &str, expected: &str| {
            let failure = of_event(&serde_json::from_str(body).unwrap(), None);
            assert_eq!(format!("{:?}", failure.error), expected, "{body}");
        };
        check(r#"{"type": "error", "error": {"type": "overloaded_error", "message": "x"}}"#, "Failed { status: 529 }");
        check(r#"{"message": "x", "code": 429}"#, "RateLimited { retry_after: None }");
        check(r#"{"message": "x", "type": "server_error"}"#, "Failed { status: 500 }");
        check(r#"{"message": "x", "code": "context_length_exceeded"}"#, "ContextOverflow");
        check(r#"{"message": "x", "type": "invalid_request_error"}"#, r#"Rejected("x")"#);
    }
}
