//! A workflow's webhook, sent: signed for this second, and again with the same delivery where nobody answered.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::CONTENT_TYPE;
use sandbox_protocol::limits::HOOK_BODY_BYTES_MAX;
use sandbox_protocol::workflow::{HOOK_DELIVERY, HOOK_SIGNATURE, HOOK_TIMESTAMP, HookBody, SecretBody, sign_hook};

use crate::answers::client::http;
use crate::api::{ApiError, answer};
use crate::limits::API_WITHIN;
use crate::requests::shell_quoted;

/// Why a webhook was not taken.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// Its body is longer than one may be.
    #[error("the body has {0} bytes, at most {HOOK_BODY_BYTES_MAX} are taken")]
    TooLong(usize),
    /// The operator was not reached, or refused it.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// Who sends to one webhook.
#[derive(Debug, Clone)]
pub struct HookSender {
    http: reqwest::Client,
    hook: SecretBody,
}

impl HookSender {
    /// A sender to the webhook that [`Session::hook_secret`](crate::api::Session::hook_secret) told of.
    ///
    /// # Errors
    /// [`ApiError::Client`].
    pub fn new(hook: SecretBody) -> Result<Self, ApiError> {
        Ok(Self { http: http().map_err(ApiError::Client)?, hook })
    }

    /// Fires the workflow with this body, which its steps can read. The same delivery twice fires once.
    ///
    /// # Errors
    /// [`HookError`].
    pub async fn send(&self, delivery: &str, body: Vec<u8>) -> Result<HookBody, HookError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.send_at(since.as_secs(), delivery, body).await
    }

    /// The same, signed for another second: refused where that is too far from the operator's clock.
    ///
    /// # Errors
    /// [`HookError`].
    pub async fn send_at(&self, timestamp_s: u64, delivery: &str, body: Vec<u8>) -> Result<HookBody, HookError> {
        if body.len() > HOOK_BODY_BYTES_MAX {
            return Err(HookError::TooLong(body.len()));
        }
        let url = &self.hook.url;
        let signature = sign_hook(&self.hook.secret, timestamp_s, &body);
        let request = self.http.post(url).timeout(API_WITHIN).body(body);
        let request = request.header(CONTENT_TYPE, "application/json").header(HOOK_DELIVERY, delivery);
        Ok(answer(url, request.header(HOOK_TIMESTAMP, timestamp_s).header(HOOK_SIGNATURE, signature)).await?)
    }
}

/// A line for a shell that signs and sends `body` with `openssl` and `curl`.
pub fn signed_curl(hook: &SecretBody, body: &str) -> String {
    let (url, secret, body) = (shell_quoted(&hook.url), shell_quoted(&hook.secret), shell_quoted(body));
    format!(
        "body={body}; t=$(date +%s); s=$(printf '%s.%s' \"$t\" \"$body\" | openssl dgst -sha256 -hmac {secret} -r | \
         cut -d' ' -f1); curl -sS -H \"{HOOK_TIMESTAMP}: $t\" -H \"{HOOK_SIGNATURE}: v1=$s\" \
         -H 'content-type: application/json' --data-binary \"$body\" {url}"
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_line_for_a_shell_signs_as_the_library_does() {
        let hook = SecretBody { url: "https://o/hook?a=1&b=2".into(), secret: "it's $ecret".into() };
        let body = r#"{"who":"O'Neill","n":"$1 \n"}"#;
        let line = signed_curl(&hook, body);
        // The program that sends is replaced by one that tells what it would send, each word behind a mark.
        let script = format!("curl() {{ for word in \"$@\"; do printf '%s\\036' \"$word\"; done; }}; {line}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let words: Vec<_> = said.split('\u{1e}').collect();
        let header = |name: &str| {
            let found = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix(": "));
            found.unwrap_or_else(|| panic!("{said} {}", String::from_utf8_lossy(&output.stderr)))
        };
        let timestamp_s = header(HOOK_TIMESTAMP).parse().unwrap();
        assert_eq!(header(HOOK_SIGNATURE), sign_hook(&hook.secret, timestamp_s, body.as_bytes()));
        assert!(words.contains(&body) && words.contains(&hook.url.as_str()), "{words:?}");
    }
}
