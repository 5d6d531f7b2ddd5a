//! What carries a move of a negotiation out: the port.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use async_trait::async_trait;
use sandbox_protocol::agent::negotiation::{ConversationLogs, Ledger, MoveReport, NegotiateBody, PolicyScore};
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

/// The report of a move of which nothing was said.
pub fn unbegun(move_id: &str, why: &str) -> MoveReport {
    let move_id = move_id.to_owned();
    MoveReport {
        score: PolicyScore { move_id: move_id.clone(), total_score: 0, scores_by_agent: BTreeMap::new() },
        logs: ConversationLogs { move_id, ..ConversationLogs::default() },
        rounds: 0,
        error: Some(why.to_owned()),
        transcript_hash: String::new(),
        ledger: Ledger::default(),
        warnings: Vec::new(),
    }
}
