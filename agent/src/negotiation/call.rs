//! The calls of a move, and what came of them: what checkpoints hold and ledgers are summed from.

use std::fmt;

use sandbox_protocol::agent::negotiation::{DECISION_MAKERS, Ledger};
use serde::{Deserialize, Serialize};

use crate::model::Usage;

/// A decision maker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Maker {
    /// The first, whose conversation is `i1`.
    D1,
    /// The second, `i2`.
    D2,
    /// The third, `i3`.
    D3,
}

impl Maker {
    /// All of them, in their order.
    pub const ALL: [Self; DECISION_MAKERS.len()] = [Self::D1, Self::D2, Self::D3];

    /// Its place among [`Maker::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its role in a conversation.
    pub const fn id(self) -> &'static str {
        DECISION_MAKERS[self.index()]
    }
}

/// A call of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// The critic's counterpoints, which open all three conversations.
    Opening,
    /// The critic answers a decision maker.
    Critique {
        /// From 2 on.
        round: u32,
        /// Whom.
        maker: Maker,
    },
    /// A decision maker answers the critic.
    Defence {
        /// From 1 on.
        round: u32,
        /// Which.
        maker: Maker,
    },
    /// A decision maker scores the move.
    Scoring {
        /// Which.
        maker: Maker,
    },
    /// A conversation is shortened.
    Summary {
        /// Whose.
        maker: Maker,
        /// The last round that the summary speaks of; the first is 2.
        through: u32,
    },
}

impl Call {
    /// Whose conversation it is about; the opening is about all.
    pub(super) const fn maker(self) -> Option<Maker> {
        match self {
            Self::Opening => None,
            Self::Critique { maker, .. }
            | Self::Defence { maker, .. }
            | Self::Scoring { maker }
            | Self::Summary { maker, .. } => Some(maker),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => write!(f, "round 1, critic"),
            Self::Critique { round, maker } => write!(f, "round {round}, critic to {}", maker.id()),
            Self::Defence { round, maker } => write!(f, "round {round}, {}", maker.id()),
            Self::Scoring { maker } => write!(f, "scoring, {}", maker.id()),
            Self::Summary { maker, through } => write!(f, "summary for {} through round {through}", maker.id()),
        }
    }
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// Which.
    #[serde(flatten)]
    pub call: Call,
    /// Attempts that failed before the last.
    pub retries: u32,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An answer.
    Answered {
        /// The words.
        text: String,
        /// What the provider counted.
        usage: Usage,
    },
    /// None, for good: it is not asked for again.
    Failed {
        /// Why, without secrets.
        reason: String,
    },
}

impl Completed {
    /// Adds itself to a ledger.
    pub(super) fn count(&self, ledger: &mut Ledger) {
        match self.call {
            Call::Summary { .. } => ledger.summaries += 1,
            Call::Opening | Call::Critique { .. } | Call::Defence { .. } | Call::Scoring { .. } => {
                ledger.logical_calls += 1;
            }
        }
        ledger.retries += self.retries;
        match &self.outcome {
            Outcome::Answered { usage, .. } => {
                ledger.input_tokens += usage.input_tokens;
                ledger.output_tokens += usage.output_tokens;
            }
            Outcome::Failed { .. } => ledger.failed_calls += 1,
        }
    }
}
