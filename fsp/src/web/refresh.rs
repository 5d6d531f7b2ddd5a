//! Keys renewed by `POST {token}` → `{token, expires_at}`.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use http::Uri;
use serde::{Deserialize, Serialize};

use crate::limits::{REFRESH_BODY_BYTES_MAX, REFRESH_TIMEOUT_MS, TOKEN_BYTES_MAX};
use crate::token::{Refresh, RefreshError, Renewed};

/// Renews keys at one address.
#[derive(Debug, Clone)]
pub struct HttpRefresh {
    client: reqwest::Client,
    url: String,
}

#[derive(Serialize)]
struct Asked<'a> {
    token: &'a str,
}

#[derive(Deserialize)]
struct Answered {
    token: String,
    expires_at: Instant,
}

/// A point in time, as each service has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Instant {
    Text(String),
    Number(u64),
}

impl HttpRefresh {
    /// Renews keys at `url`.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(url: &Uri) -> Result<Self, RefreshError> {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_millis(REFRESH_TIMEOUT_MS))
            // A key is shown to nobody else.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(unusable)?;
        Ok(Self { client, url: url.to_string() })
    }
}

#[async_trait]
impl Refresh for HttpRefresh {
    async fn refresh(&self, token: &str) -> Result<Renewed, RefreshError> {
        let mut response = self.client.post(&self.url).json(&Asked { token }).send().await.map_err(unusable)?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(RefreshError::Status(response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unusable)? {
            if body.len() + chunk.len() > REFRESH_BODY_BYTES_MAX {
                return Err(unusable("the answer is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        let Answered { token, expires_at } = serde_json::from_slice(&body).map_err(unusable)?;
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(unusable("the new key fits no header"));
        }
        let expires_at = match expires_at {
            Instant::Text(text) => text,
            Instant::Number(number) => number.to_string(),
        };
        Ok(Renewed { token, expires_at })
    }
}

fn unusable(error: impl Into<Box<dyn Error + Send + Sync>>) -> RefreshError {
    RefreshError::Answer(error.into())
}
