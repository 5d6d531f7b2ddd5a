//! What a move's debate is given: what is argued about, and everything around it.

use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::{Move, NegotiateBody};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::checkpoints::Checkpoints;
use super::personas::Personas;
use super::prompts::Words;
use crate::limits::{NEGOTIATION_ANSWER_TOKENS_MIN, NEGOTIATION_FRAME_TOKENS};
use crate::model::{Model, Usage};

/// What is argued about, and by whom.
#[derive(Debug, Clone)]
pub struct Brief {
    /// Of the company.
    pub ticker: String,
    /// The move.
    pub one: Move,
    /// Rounds.
    pub rounds: u32,
    /// Who argues.
    pub personas: Personas,
    /// What the marks of quoted blocks are derived from.
    pub(super) seed: [u8; 32],
    /// Whether words of others are quoted; only a test that shows what quoting is for turns it off.
    pub(super) quotes: bool,
}

impl Brief {
    /// What a body asks for; [`NegotiateBody::check`] is its caller's.
    pub fn of(body: &NegotiateBody) -> Self {
        let mut hash = Sha256::new();
        for part in [&body.ticker, &body.one.move_id, &body.one.content] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        Self {
            ticker: body.ticker.clone(),
            one: body.one.clone(),
            rounds: body.max_rounds,
            personas: Personas::with(&body.personas),
            seed: hash.finalize().into(),
            quotes: true,
        }
    }
}

/// Everything around a debate.
pub struct Room<'a> {
    /// The model that everybody speaks by. It retries for itself.
    pub model: &'a dyn Model,
    /// What survives the process.
    pub checkpoints: &'a dyn Checkpoints,
    /// Who hears of rounds and scores. A debate that is taken up again tells its rounds anew, from the first.
    pub tell: &'a (dyn Fn(Told) + Send + Sync),
    /// What the model takes at once.
    pub budget: Budget<'a>,
    /// Millionths of a US dollar for so many tokens, where prices are known.
    pub price: &'a (dyn Fn(Usage) -> Option<u64> + Send + Sync),
    /// Cancelled when nobody wants the report any more.
    pub cancel: CancellationToken,
    /// When its time is over. Rounds that would leave no time for scores are not begun.
    pub deadline: Option<Instant>,
}

/// What the model takes at once.
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    /// Tokens of a call and its answer; without it, the provider's word counts alone.
    pub context_tokens: Option<usize>,
    /// Tokens of a text; never more than its bytes.
    pub count: &'a (dyn Fn(&str) -> usize + Send + Sync),
}

impl Budget<'_> {
    /// Whether the words leave room for an answer.
    pub(super) fn holds(&self, words: &Words) -> bool {
        let Some(context) = self.context_tokens else { return true };
        let left = context.saturating_sub(NEGOTIATION_FRAME_TOKENS + NEGOTIATION_ANSWER_TOKENS_MIN.min(context / 4));
        // Most conversations are so far from the bound that nothing need be counted.
        words.system.len() + words.user.len() <= left || (self.count)(&words.system) + (self.count)(&words.user) <= left
    }
}
