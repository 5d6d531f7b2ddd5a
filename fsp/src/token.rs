//! The key that a sandbox asks for, and its renewal.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::limits::{REFRESH_INTERVAL_MS, REFRESH_RETRY_MS};

/// The key as it is at the moment: every handshake asks anew.
#[derive(Clone)]
pub struct Token {
    current: watch::Receiver<Arc<str>>,
}

impl Token {
    /// A key that stays.
    pub fn fixed(token: impl Into<Arc<str>>) -> Self {
        // A receiver goes on answering when nobody can send any more.
        Self { current: watch::channel(token.into()).1 }
    }

    /// The key.
    pub fn get(&self) -> Arc<str> {
        Arc::clone(&self.current.borrow())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A renewed key.
#[derive(Clone, PartialEq, Eq)]
pub struct Renewed {
    /// To be used from now on.
    pub token: String,
    /// When it becomes void, in the words of who gave it.
    pub expires_at: String,
}

/// Why a key was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// It was not answered with 200.
    #[error("answered with status {0}")]
    Status(u16),
    /// It was not answered, or not with what was asked for.
    #[error("no usable answer")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Renews keys.
#[async_trait]
pub trait Refresh: Send + Sync {
    /// A new key for the present one.
    ///
    /// # Errors
    /// There is none; the present one goes on being used.
    async fn refresh(&self, token: &str) -> Result<Renewed, RefreshError>;
}

/// Renews a [`Token`] until it is dropped.
#[derive(Debug)]
pub struct Keeper {
    token: Token,
    _task: AbortOnDropHandle<()>,
}

impl Keeper {
    /// Renews `first` every [`REFRESH_INTERVAL_MS`], after a failure in [`REFRESH_RETRY_MS`].
    pub fn start(first: impl Into<Arc<str>>, refresh: impl Refresh + 'static) -> Self {
        let (sender, current) = watch::channel(first.into());
        let task = AbortOnDropHandle::new(tokio::spawn(keep(sender, refresh)));
        Self { token: Token { current }, _task: task }
    }

    /// The key.
    pub fn token(&self) -> Token {
        self.token.clone()
    }
}

async fn keep(sender: watch::Sender<Arc<str>>, refresh: impl Refresh) {
    let mut wait_ms = REFRESH_INTERVAL_MS;
    loop {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let present = Arc::clone(&sender.borrow());
        wait_ms = match refresh.refresh(&present).await {
            Ok(Renewed { token, expires_at }) => {
                tracing::debug!(expires_at, "the sandbox key was renewed");
                sender.send_replace(token.into());
                REFRESH_INTERVAL_MS
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the sandbox key was not renewed");
                REFRESH_RETRY_MS
            }
        };
    }
}
