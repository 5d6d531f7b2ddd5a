//! Negotiations: what is asked for, what runs in a sandbox for one move of it, and what comes out, in the shapes of the design.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::context::{nothing_left, taken};
use super::{BadContext, Provider};
use crate::limits::{
    MOVE_CONTENT_BYTES_MAX, MOVE_ID_BYTES_MAX, NEGOTIATION_CONCURRENCY_DEFAULT, NEGOTIATION_CONCURRENCY_MAX,
    NEGOTIATION_MOVES_MAX, NEGOTIATION_ROUNDS_DEFAULT, NEGOTIATION_ROUNDS_MAX, PERSONA_BYTES_MAX, RUN_ID_BYTES_MAX,
    TASK_TIMEOUT_MS_MAX, TICKER_BYTES_MAX,
};

mod result;

pub use self::result::{Plan, plan};

/// The metrics of a score, in the order in which they are told.
pub const METRICS: [&str; 4] = ["impact", "feasibility", "risk_adjusted_return", "strategic_alignment"];
/// A score that nobody could read: the middle.
pub const NEUTRAL: u32 = 5;
/// Who attacks.
pub const CRITIC: &str = "critic";
/// The decision makers.
pub const DECISION_MAKERS: [&str; 3] = ["D1", "D2", "D3"];
/// Their conversations with the critic, in the same order.
pub const LOGS: [&str; 3] = ["i1", "i2", "i3"];
/// Directory of the conversations, below the workspace: `<log>.json` each.
pub const LOGS_DIRECTORY: &str = "logs";

/// A move that is argued about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Names it within the negotiation.
    #[serde(alias = "id")]
    pub move_id: String,
    /// What is proposed.
    pub content: String,
}

/// A negotiation, as `context_json` asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Negotiation {
    /// Of the company; part of its sandboxes' names.
    pub ticker: String,
    /// What is argued about, each by itself.
    pub moves: Vec<Move>,
    /// Rounds of each.
    #[serde(default = "rounds_default")]
    pub max_rounds: u32,
    /// Moves at a time.
    #[serde(default = "concurrency_default")]
    pub concurrency: u32,
    /// Personas other than those of the design, by `critic`, `D1`, `D2`, `D3`: their system prompts.
    #[serde(default)]
    pub personas: BTreeMap<String, String>,
}

const fn rounds_default() -> u32 {
    NEGOTIATION_ROUNDS_DEFAULT
}

const fn concurrency_default() -> u32 {
    NEGOTIATION_CONCURRENCY_DEFAULT
}

impl Negotiation {
    /// The negotiation of this object.
    pub(super) fn parse(mut object: Map<String, Value>) -> Result<Self, BadContext> {
        let max_rounds = taken(&mut object, "max_rounds", "a whole number")?;
        let concurrency = taken(&mut object, "concurrency", "a whole number")?;
        let read = Self {
            ticker: demanded(&mut object, "ticker", "a text")?,
            moves: moves(demanded(&mut object, "moves", "a list")?)?,
            max_rounds: max_rounds.unwrap_or(NEGOTIATION_ROUNDS_DEFAULT),
            concurrency: concurrency.unwrap_or(NEGOTIATION_CONCURRENCY_DEFAULT),
            personas: taken(&mut object, "personas", "an object of texts")?.unwrap_or_default(),
        };
        nothing_left(&object)?;
        read.check()?;
        Ok(read)
    }

    /// Refuses, by its field, what cannot be carried out.
    ///
    /// # Errors
    /// The first field that is not what its description demands.
    pub fn check(&self) -> Result<(), BadContext> {
        check_ticker(&self.ticker)?;
        within("max_rounds", self.max_rounds, NEGOTIATION_ROUNDS_MAX)?;
        within("concurrency", self.concurrency, NEGOTIATION_CONCURRENCY_MAX)?;
        if self.moves.is_empty() || self.moves.len() > NEGOTIATION_MOVES_MAX {
            return Err(BadContext::new("moves", format!("1 to {NEGOTIATION_MOVES_MAX} are argued about")));
        }
        let mut seen = BTreeSet::new();
        for (index, one) in self.moves.iter().enumerate() {
            let of_move = |error: BadContext| error.within(&format!("moves[{index}]"));
            one.check().map_err(of_move)?;
            if !seen.insert(one.move_id.to_ascii_lowercase()) {
                let message = format!("{} names another move already", one.move_id);
                return Err(of_move(BadContext::new("move_id", message)));
            }
        }
        check_personas(&self.personas)
    }
}

/// The moves of a list, in its order. What else a move's document says is not looked at.
fn moves(list: Vec<Map<String, Value>>) -> Result<Vec<Move>, BadContext> {
    let one = |(index, mut object): (usize, Map<String, Value>)| {
        let of_move = |error: BadContext| error.within(&format!("moves[{index}]"));
        let by_short_name = taken(&mut object, "id", "a text").map_err(of_move)?;
        let move_id = match by_short_name {
            Some(id) if !object.contains_key("move_id") => id,
            Some(_) | None => demanded(&mut object, "move_id", "a text").map_err(of_move)?,
        };
        let content = demanded(&mut object, "content", "a text").map_err(of_move)?;
        Ok(Move { move_id, content })
    };
    list.into_iter().enumerate().map(one).collect()
}

fn demanded<T: for<'de> Deserialize<'de>>(
    object: &mut Map<String, Value>,
    key: &str,
    expected: &str,
) -> Result<T, BadContext> {
    taken(object, key, expected)?.ok_or_else(|| BadContext::new(key, "missing"))
}

fn check_ticker(ticker: &str) -> Result<(), BadContext> {
    let message = || format!("1 to {TICKER_BYTES_MAX} letters, digits, dots and dashes");
    if is_name(ticker, TICKER_BYTES_MAX) { Ok(()) } else { Err(BadContext::new("ticker", message())) }
}

fn check_personas(personas: &BTreeMap<String, String>) -> Result<(), BadContext> {
    let refused = |name: &str, message: String| Err(BadContext::new(&format!("personas.{name}"), message));
    for (name, system_prompt) in personas {
        if name != CRITIC && !DECISION_MAKERS.contains(&name.as_str()) {
            return refused(name, "critic, D1, D2 or D3".to_owned());
        }
        if system_prompt.trim().is_empty() || system_prompt.len() > PERSONA_BYTES_MAX {
            return refused(name, format!("a text of at most {PERSONA_BYTES_MAX} bytes"));
        }
    }
    Ok(())
}

impl Move {
    fn check(&self) -> Result<(), BadContext> {
        if !is_name(&self.move_id, MOVE_ID_BYTES_MAX) {
            let message = format!("1 to {MOVE_ID_BYTES_MAX} letters, digits, dots and dashes");
            return Err(BadContext::new("move_id", message));
        }
        if self.content.trim().is_empty() || self.content.len() > MOVE_CONTENT_BYTES_MAX {
            return Err(BadContext::new("content", format!("a text of at most {MOVE_CONTENT_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    /// What the sandbox of this move is called among its parent's.
    pub fn sandbox_name(&self, ticker: &str) -> String {
        format!("negotiate-{}-{}", ticker, self.move_id).to_ascii_lowercase()
    }
}

fn within(field: &str, value: u32, max: u32) -> Result<(), BadContext> {
    if (1..=max).contains(&value) { Ok(()) } else { Err(BadContext::new(field, format!("1 to {max}"))) }
}

/// Whether it can be part of a container's name.
fn is_name(text: &str, bytes_max: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    (1..=bytes_max).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Body of `POST /negotiate`: one move, in the sandbox that is its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NegotiateBody {
    /// Id of the run, chosen by the caller. One that is known is attached to and not run again.
    pub id: String,
    /// Of the company.
    pub ticker: String,
    /// What is argued about.
    #[serde(rename = "move")]
    pub one: Move,
    /// Rounds.
    pub max_rounds: u32,
    /// System prompts other than those of the design.
    #[serde(default)]
    pub personas: BTreeMap<String, String>,
    /// Where the model is, if not where the sandbox says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    /// Model of the provider; the sandbox's where empty.
    #[serde(default)]
    pub model: String,
    /// Read for a provider's settings.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Time for all of it, in milliseconds; 0 is the default of tasks.
    #[serde(default)]
    pub timeout_ms: u64,
    /// Refuse an id that is not known instead of starting it.
    #[serde(default)]
    pub attach_only: bool,
}

impl NegotiateBody {
    /// Refuses, by its field, what cannot be carried out.
    ///
    /// # Errors
    /// The first field that is not what its description demands.
    pub fn check(&self) -> Result<(), BadContext> {
        if self.id.is_empty() || self.id.len() > RUN_ID_BYTES_MAX {
            return Err(BadContext::new("id", format!("a text of at most {RUN_ID_BYTES_MAX} bytes")));
        }
        check_ticker(&self.ticker)?;
        self.one.check().map_err(|error| error.within("move"))?;
        within("max_rounds", self.max_rounds, NEGOTIATION_ROUNDS_MAX)?;
        if self.timeout_ms > TASK_TIMEOUT_MS_MAX {
            return Err(BadContext::new("timeout_ms", format!("at most {TASK_TIMEOUT_MS_MAX}")));
        }
        check_personas(&self.personas)
    }
}

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationEntry {
    /// `critic`, `D1`, `D2` or `D3`.
    pub role: String,
    /// What was said.
    pub content: String,
    /// From 1 on.
    pub round: u32,
}

/// What a decision maker gives a move; each metric 1 to 10.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scores {
    /// On growth, revenue or market position.
    pub impact: u32,
    /// Of carrying it out.
    pub feasibility: u32,
    /// Upside against downside.
    pub risk_adjusted_return: u32,
    /// With the long-term direction.
    pub strategic_alignment: u32,
    /// In the decision maker's words; missing where it gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
}

impl Scores {
    /// Out of 40.
    pub const fn total(&self) -> u32 {
        self.impact + self.feasibility + self.risk_adjusted_return + self.strategic_alignment
    }
}

/// How a move came off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyScore {
    /// Of the move.
    pub move_id: String,
    /// Out of 120.
    pub total_score: u32,
    /// By `D1`, `D2`, `D3`.
    pub scores_by_agent: BTreeMap<String, Scores>,
}

/// The conversations about a move.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConversationLogs {
    /// Of the move.
    pub move_id: String,
    /// Critic and D1.
    pub i1: Vec<ConversationEntry>,
    /// Critic and D2.
    pub i2: Vec<ConversationEntry>,
    /// Critic and D3.
    pub i3: Vec<ConversationEntry>,
}

/// Calls and tokens of a move, or of all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Calls that the flow asks for: 6r+1 for r rounds.
    pub logical_calls: u32,
    /// Calls made again after a failure that may pass.
    pub retries: u32,
    /// Calls that shortened a conversation.
    pub summaries: u32,
    /// Calls that failed for good.
    pub failed_calls: u32,
    /// Scores read from JSON between other words, such as a fenced block.
    pub scores_from_fence: u32,
    /// Scores found number by number.
    pub scores_by_regex: u32,
    /// Scores that nobody could read, and that count as the neutral 5.
    pub scores_neutral: u32,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens answered.
    pub output_tokens: u64,
    /// Millionths of a US dollar, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<u64>,
}

/// What came of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    /// Its score: by whatever rounds were completed.
    pub score: PolicyScore,
    /// Its conversations.
    pub logs: ConversationLogs,
    /// Rounds that were completed.
    pub rounds: u32,
    /// Why it did not go to its end, where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// SHA-256 of its conversations, in hexadecimal digits.
    pub transcript_hash: String,
    /// Its calls and tokens.
    pub ledger: Ledger,
    /// What is to be known of how it was run.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// What came of a negotiation: `result` of the task's response, as JSON. Moves in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegotiationResult {
    /// Scores of all moves.
    pub policy_scores: Vec<PolicyScore>,
    /// Conversations about all moves.
    pub conversation_logs: Vec<ConversationLogs>,
    /// By move id: why it did not go to its end.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, String>,
    /// SHA-256 of the conversations' hashes, in hexadecimal digits.
    pub transcript_hash: String,
    /// Of all moves together.
    pub ledger: Ledger,
    /// What separated the moves from each other: `runc`, `runsc`, or `none` for those that ran in the operator's process.
    pub isolation: BTreeMap<String, String>,
    /// What is to be known of how it was run.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[cfg(test)]
mod tests;
