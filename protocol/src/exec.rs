//! What operator and sidecar say to each other over HTTP: `POST /exec`, `GET /health`.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::fsp::{Ended, Signal, Status};
use crate::http::ErrorBody;

/// Header-less name of the bearer scheme that every route but `/health` demands.
pub const BEARER: &str = "Bearer";

/// Body of `POST /exec`.
///
/// The id makes a repeat harmless: a sidecar that knows it answers for the execution that runs or ran under it and
/// starts nothing. With `attach_only` an unknown id is refused, so a caller that may have asked before never asks twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecBody {
    /// Id of the execution, chosen by the caller; `None` lets the sidecar choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Given to `/bin/sh -c`.
    pub command: String,
    /// Working directory; the workspace where empty, relative paths start there.
    #[serde(default)]
    pub cwd: String,
    /// Added to the clean environment of the command.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Written to the command's stdin, which is then closed.
    #[serde(default)]
    pub stdin: ByteText,
    /// Time until the command's whole process group is killed, in milliseconds; 0 is the default of 30,000.
    #[serde(default)]
    pub timeout_ms: u64,
    /// Refuse an id that is not known instead of starting it.
    #[serde(default)]
    pub attach_only: bool,
    /// Answer with the id at once; what becomes of it is asked for by that. It may take longer, and 0 is the most.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detach: bool,
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecEnd {
    /// The command ended by itself.
    Exited,
    /// Its time was over; its process group was killed.
    TimedOut,
    /// It was cancelled; its process group was killed.
    Cancelled,
    /// Memory was used up; its process group was killed.
    OutOfMemory,
}

/// Answer to `POST /exec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecReply {
    /// The id it ran under.
    pub id: String,
    /// How it ended.
    pub ended: ExecEnd,
    /// Exit code; 128 + signal for a command that a signal ended.
    pub exit_code: i32,
    /// The first bytes of its stdout.
    pub stdout: ByteText,
    /// The first bytes of its stderr.
    pub stderr: ByteText,
    /// More was written than is kept.
    pub truncated: bool,
    /// Wall-clock time in milliseconds.
    pub duration_ms: u64,
}

/// An execution that a sidecar knows, as `GET /exec` and `GET /exec/{id}` tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecSummary {
    /// Its id.
    pub id: String,
    /// The beginning of its code.
    pub command: String,
    /// `None` while it waits for a place.
    pub status: Option<Status>,
    /// How it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// Why it has no result, once that is certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Since it was accepted, in milliseconds; of one that has ended, until then.
    pub age_ms: u64,
    /// Number of the last event that it told.
    pub last_seq: u64,
}

/// Answer to `GET /exec`: the running, then the ended that are remembered, each oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecsBody {
    /// All of them.
    pub executions: Vec<ExecSummary>,
}

/// Query of `DELETE /exec/{id}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KillQuery {
    /// Send this to its process group instead of ending it with all that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
}

/// Answer to a detached `POST /exec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedReply {
    /// What it is asked for by.
    pub id: String,
}

/// Data of the SSE events `stdout` and `stderr` of an execution. The others are `status` and `result` as the messages of
/// the protocol, `gap`, and `error` with an [`ErrorBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputEvent {
    /// The bytes.
    pub base64: ByteText,
}

/// Data of the SSE event `gap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapEvent {
    /// First event that is not kept any more.
    pub from_seq: u64,
    /// Last of them.
    pub to_seq: u64,
    /// Bytes of output before the next event, from the beginning.
    pub bytes: u64,
}

/// Why a sidecar answers with an [`ErrorBody`](crate::http::ErrorBody); its `code` is the text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SidecarRefusal {
    /// The bearer token is missing or wrong.
    Unauthorized,
    /// The ticket is right, but of another scope.
    Forbidden,
    /// The request is not what its description demands, or names a directory that cannot be entered.
    BadRequest,
    /// The body is longer than [`EXEC_BODY_BYTES_MAX`](crate::limits::EXEC_BODY_BYTES_MAX).
    TooLarge,
    /// No such route.
    NotFound,
    /// The route does not know this method.
    MethodNotAllowed,
    /// `attach_only` named an execution that neither runs nor is remembered.
    UnknownExecution,
    /// The terminal is not there, or not any more.
    UnknownTerminal,
    /// The run is not there, or not any more.
    UnknownRun,
    /// The session is not there, or not any more.
    UnknownSession,
    /// The backend is none of those that the sandbox has.
    UnknownBackend,
    /// The profile is none of those that the sandbox has.
    UnknownProfile,
    /// The route is for a WebSocket, or another upgrade, and the request asks for none.
    UpgradeRequired,
    /// The port belongs to the sidecar.
    PortReserved,
    /// Nothing inside the sandbox takes connections at the port.
    PortClosed,
    /// The id belongs to an execution with another request.
    Conflict,
    /// As many commands run and wait, or as many processes run, as may, or the sidecar is about to end. Nothing was started.
    Busy,
    /// It wrote more than it may, and was killed.
    OutputLimit,
    /// The command was ended because the sidecar ends; it is not run again.
    Interrupted,
    /// A defect; the sidecar's log holds the cause.
    Internal,
}

impl SidecarRefusal {
    /// The refusal of a code; `None` for one of another version.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::deserialize(code.into_deserializer()).map_err(drop::<serde::de::value::Error>).ok()
    }

    /// Status of the HTTP answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden | Self::PortReserved => 403,
            Self::NotFound
            | Self::UnknownExecution
            | Self::UnknownTerminal
            | Self::UnknownRun
            | Self::UnknownSession => 404,
            Self::MethodNotAllowed => 405,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::OutputLimit | Self::UnknownBackend | Self::UnknownProfile => 422,
            Self::UpgradeRequired => 426,
            Self::Busy => 429,
            Self::Internal => 500,
            Self::PortClosed => 502,
            Self::Interrupted => 503,
        }
    }

    /// Whether the same request may succeed later.
    pub const fn retryable(self) -> bool {
        match self {
            Self::Busy | Self::PortClosed | Self::Internal => true,
            Self::Unauthorized
            | Self::Forbidden
            | Self::BadRequest
            | Self::TooLarge
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::UnknownExecution
            | Self::UnknownTerminal
            | Self::UnknownRun
            | Self::UnknownSession
            | Self::UnknownBackend
            | Self::UnknownProfile
            | Self::UpgradeRequired
            | Self::PortReserved
            | Self::Conflict
            | Self::OutputLimit
            | Self::Interrupted => false,
        }
    }
}

impl fmt::Display for SidecarRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Serialize::serialize(self, f)
    }
}

/// Answer to `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReply {
    /// Always `ok`: a sidecar that is not does not answer.
    pub status: String,
    /// Version of the sidecar.
    pub version: String,
    /// Executions that run now.
    pub running: usize,
}

/// Bytes that travel as base64 text, since JSON has no others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ByteText(pub Vec<u8>);

impl Serialize for ByteText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for ByteText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}
