//! What carries a move of a negotiation out: the port.

use std::path::Path;
use std::time::Instant;

use async_trait::async_trait;
use sandbox_protocol::agent::negotiation::{MoveReport, NegotiateBody};
use tokio_util::sync::CancellationToken;

use crate::backend::Desk;

/// Carries moves out.
#[async_trait]
pub trait Negotiator: Send + Sync {
    /// Carries one out, and tells what happens meanwhile. What was done of it before is in `place`, and is not done again.
    async fn negotiate(&self, body: &NegotiateBody, place: &Path, until: &Until, desk: &dyn Desk) -> MoveReport;
}

/// When a move ends, whether it is done or not.
#[derive(Debug, Clone)]
pub struct Until {
    /// When its time is over.
    pub deadline: Instant,
    /// Cancelled when nobody wants it any more.
    pub cancel: CancellationToken,
}
