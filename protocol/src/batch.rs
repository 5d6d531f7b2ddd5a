//! Batches: what is asked of many sandboxes at once, and what is told of it.
//!
//! Several calls may be one batch, each operator with calls and parts of its own: they share a batch id, which is its owner's within a
//! service. A part is what one operator makes of one call; its items are the places of the call's list, of a batch create its
//! slots. The JSON of [`BatchReport`] is `results_json` of job 23, and the answer to `GET /v1/services/{service}/batches/{id}`.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};

use crate::exec::ByteText;
use crate::failure::Failure;
use crate::limits::{BATCH_ID_BYTES_MAX, BATCH_ITEM_BYTES_MAX, BATCH_ITEM_TEXTS_MAX};
use crate::receipt::Outcome;
use crate::sandbox_id::{CallKey, SandboxId};

/// What a response says of an item that is another operator's: the error of a task, the stderr of a command.
pub const ELSEWHERE: &str = "elsewhere";
/// Exit code, in a response, of a command that was not run; its stderr says why.
pub const NOT_RUN: i32 = -1;
/// What a task's words, or a failure's, end with where there were more. Of a command's streams `truncated` says so.
pub const CUT: &str = " […]";

/// How long each text of an item may be, in bytes, where so many items share `bytes_max`.
pub const fn share(bytes_max: usize, items: usize) -> usize {
    let texts = BATCH_ITEM_TEXTS_MAX * if items == 0 { 1 } else { items };
    let share = bytes_max / texts;
    if share < BATCH_ITEM_BYTES_MAX { share } else { BATCH_ITEM_BYTES_MAX }
}

/// When a batch of tasks or commands is over, and what it comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Aggregation {
    /// With the end of every item.
    All,
    /// With the first item that succeeds; the others are cancelled. A part in which none does answers `no_success`, so that
    /// outcome 0 of any part says that there is a success.
    FirstSuccess,
    /// With the end of every item; what most successful items answered is the batch's answer.
    Majority,
}

/// A text that names no aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such aggregation; there are all, first_success and majority")]
pub struct NotAnAggregation;

impl Aggregation {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::All, Self::FirstSuccess, Self::Majority];

    /// As requests have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::FirstSuccess => "first_success",
            Self::Majority => "majority",
        }
    }
}

impl fmt::Display for Aggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Aggregation {
    type Err = NotAnAggregation;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|one| one.name() == text).ok_or(NotAnAggregation)
    }
}

/// What a batch is called by its owner: 1 to 64 letters, digits, `-`, `_` and, not in front, `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct BatchId(String);

/// A text that cannot be a batch's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("batch_id: 1 to {BATCH_ID_BYTES_MAX} letters, digits, `-`, `_` and, not in front, `.`")]
pub struct NotABatchId;

impl BatchId {
    /// The id of a call's batch that names none.
    pub fn of_call(call: CallKey) -> Self {
        Self(format!("batch-{}-{}", call.service, call.call))
    }

    /// The id that a request asks for; an empty text is the call's own.
    ///
    /// # Errors
    /// [`NotABatchId`].
    pub fn asked(text: &str, call: CallKey) -> Result<Self, NotABatchId> {
        if text.is_empty() { Ok(Self::of_call(call)) } else { text.parse() }
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for BatchId {
    type Err = NotABatchId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let fits = (1..=BATCH_ID_BYTES_MAX).contains(&text.len());
        if !fits || text.starts_with('.') || !text.bytes().all(is_plain) {
            return Err(NotABatchId);
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for BatchId {
    type Error = NotABatchId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<BatchId> for String {
    fn from(id: BatchId) -> Self {
        id.0
    }
}

/// Where an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ItemState {
    /// Its turn has not come.
    Waiting,
    /// It is being carried out.
    Running,
    /// Done: a sandbox runs, a command exited with 0, a task was successful.
    Succeeded,
    /// Not done; its failure says why, unless the command's exit code or the task's own words do.
    Failed,
    /// Not done, since it was not needed any more.
    Cancelled,
}

impl ItemState {
    /// Whether it stays so.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Waiting | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
        }
    }

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ItemExec {
    /// Exit code; 128 + signal for one that a signal ended.
    pub exit_code: i32,
    /// What it wrote.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub stdout: ByteText,
    /// What it complained of.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub stderr: ByteText,
    /// Whether it wrote more than is kept, or told here.
    pub truncated: bool,
    /// Wall-clock time in milliseconds.
    pub duration_ms: u64,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ItemTask {
    /// Whether the agent was successful.
    pub success: bool,
    /// Its last words.
    pub result: String,
    /// What went wrong.
    pub error: String,
    /// By which logs name the run.
    pub trace_id: String,
    /// Turns taken.
    pub turns_used: u32,
    /// Wall-clock time in milliseconds.
    pub duration_ms: u64,
    /// Tokens sent.
    pub input_tokens: u32,
    /// Tokens answered.
    pub output_tokens: u32,
    /// The session, to go on with.
    pub session_id: String,
}

/// One item of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ItemReport {
    /// Its place in the call's list of endpoints; of a batch create its slot.
    pub index: u32,
    /// The sandbox; of an endpoint that names none, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub sandbox: Option<SandboxId>,
    /// Where it is.
    pub state: ItemState,
    /// Why it was not done, where it does not say so itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub failure: Option<Failure>,
    /// What came of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ItemExec>,
    /// What came of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<ItemTask>,
}

/// What most successful items answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Majority {
    /// The answer, normalised: Unicode white space at both ends gone and in between one blank, JSON in its canonical form. Of
    /// several that are tied, the one whose first item comes first.
    pub answer: String,
    /// Items that gave it.
    pub items: Vec<u32>,
    /// Items that succeeded.
    pub of: u32,
    /// Whether another answer was given as often.
    pub tied: bool,
}

/// What one operator made of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PartReport {
    /// The call.
    pub call: u64,
    /// Its job: 20, 21 or 22.
    pub job: u8,
    /// Whose part it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub operator: Address,
    /// How the call's parts are taken together; of a batch create nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
    /// Whether nothing of it is to come.
    pub is_over: bool,
    /// The operator's own items, by index.
    pub items: Vec<ItemReport>,
    /// Items that are left out here, since the report tells of newer parts: the answer to the call has them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u32,
    /// What most of this part's items answered, once it is over, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub majority: Option<Majority>,
    /// Until when it is kept, in milliseconds since 1970; while it goes on, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until_ms: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde asks it
const fn is_none(left_out: &u32) -> bool {
    *left_out == 0
}

/// Another operator's part, as the chain tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OtherPart {
    /// The call.
    pub call: u64,
    /// Whose part it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub operator: Address,
    /// Its receipt's outcome, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Whether its time was over without a receipt.
    pub is_silent: bool,
}

/// Where a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BatchStatus {
    /// The operator that is asked works on it.
    Running,
    /// The operator that is asked is through with it.
    Done,
    /// The operator that is asked has nothing of it: not its owner's, not its own, or not kept any more.
    Unknown,
}

impl BatchStatus {
    /// `status` of job 23.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Unknown => "unknown",
        }
    }
}

/// What one operator knows of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchReport {
    /// The batch.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub batch_id: BatchId,
    /// Its service.
    pub service: u64,
    /// Where it is.
    pub status: BatchStatus,
    /// The operator's own parts, by call.
    pub parts: Vec<PartReport>,
    /// The parts of others in the same calls, as far as these are told item by item.
    pub others: Vec<OtherPart>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{BATCH_ENDPOINTS_MAX, BATCH_PART_BYTES_MAX};

    #[test]
    fn an_aggregation_is_known_by_its_word_alone() {
        for one in Aggregation::ALL {
            assert_eq!((one.to_string().parse(), serde_json::to_value(one).unwrap()), (Ok(one), one.name().into()));
        }
        assert_eq!("most".parse::<Aggregation>(), Err(NotAnAggregation));
    }

    #[test]
    fn items_share_what_a_part_may_keep_and_none_has_more_than_one_may() {
        assert_eq!([0, 1, 4].map(|items| share(8, items)), [4, 4, 1]);
        let few = BATCH_PART_BYTES_MAX / (BATCH_ITEM_TEXTS_MAX * BATCH_ITEM_BYTES_MAX);
        assert_eq!(share(BATCH_PART_BYTES_MAX, few), BATCH_ITEM_BYTES_MAX);
        assert_eq!(share(BATCH_PART_BYTES_MAX, 1), BATCH_ITEM_BYTES_MAX);
        for items in [few + 1, BATCH_ENDPOINTS_MAX] {
            let each = share(BATCH_PART_BYTES_MAX, items);
            assert!(each < BATCH_ITEM_BYTES_MAX && each * items * BATCH_ITEM_TEXTS_MAX <= BATCH_PART_BYTES_MAX);
        }
    }

    #[test]
    fn a_batch_id_has_a_form_and_a_bound_and_the_call_gives_one_where_none_is_asked_for() {
        let call = CallKey { service: 3, call: 7 };
        assert_eq!(BatchId::asked("", call).unwrap().as_str(), "batch-3-7");
        assert_eq!(BatchId::asked("night.2", call).unwrap().as_str(), "night.2");
        assert!(BatchId::asked(&"b".repeat(BATCH_ID_BYTES_MAX), call).is_ok());
        for bad in [".b", "a/b", "a b", "ü", &"b".repeat(BATCH_ID_BYTES_MAX + 1)] {
            assert_eq!(BatchId::asked(bad, call), Err(NotABatchId), "{bad}");
        }
    }
}
