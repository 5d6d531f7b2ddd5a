//! What is said, apart from how it is written.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::refusal::ErrorCode;
use super::words::{Language, Signal, Stream};
use crate::limits::{
    EXEC_ID_BYTES_MAX, EXEC_TIMEOUT_MS_DEFAULT, FSP_CPU_SHARES_DEFAULT, FSP_MEMORY_MB_DEFAULT, FSP_OUTPUT_BYTES_DEFAULT,
};

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage {
    /// Run this. Under `replay`, a known id with the same request attaches to what runs or ran.
    Execute(Box<Execute>),
    /// End it, with all that it started.
    Cancel {
        /// Of the execution.
        id: String,
    },
    /// Are you there?
    Ping,
    /// `replay`: send what came after this number, and what is to come.
    Attach {
        /// Of the execution.
        id: String,
        /// Number of the last message that the client has; 0 for none.
        after_seq: u64,
        /// `credit`: bytes of output that may be sent at once.
        credit_bytes: Option<u64>,
    },
    /// `replay`: send no more of it; it goes on.
    Detach {
        /// Of the execution.
        id: String,
    },
    /// `credit`: so many more bytes of output may be sent.
    Credit {
        /// Of the execution.
        id: String,
        /// Added to what is left of earlier grants.
        bytes: u64,
    },
    /// `stdin`: what the program is to read.
    Stdin {
        /// Of the execution.
        id: String,
        /// Next bytes.
        data: Bytes,
        /// Nothing comes after them.
        eof: bool,
    },
    /// `signal`: send this to its process group.
    Signal {
        /// Of the execution.
        id: String,
        /// Which.
        signal: Signal,
    },
}

/// An execution that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute {
    /// Chosen by the client: [`is_execution_id`].
    pub id: String,
    /// Of `code`.
    pub language: Language,
    /// Source code.
    pub code: String,
    /// Written to stdin, which is then closed unless it is streamed.
    pub stdin: Option<String>,
    /// Added to the clean environment.
    pub env: BTreeMap<String, String>,
    /// What it may take.
    pub limits: Limits,
    /// What goes beyond version 1.
    pub extra: Extra,
}

/// The parts of an [`Execute`] that extensions bring.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extra {
    /// `cwd`: where it runs, instead of a fresh directory: absolute, or beneath the workspace.
    pub cwd: Option<String>,
    /// `stdin`: keep stdin open for `stdin` messages.
    pub stream_stdin: bool,
    /// `replay`: start it, and send nothing of it.
    pub detach: bool,
    /// `credit`: bytes of output that may be sent at once.
    pub credit_bytes: Option<u64>,
}

/// What an execution may take. Bounds are in [`crate::limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Wall-clock time from `ack`, in milliseconds.
    pub timeout_ms: u64,
    /// Memory of all its processes together; 0, with `cwd` only, leaves it to the sandbox's own limit.
    pub memory_mb: u64,
    /// Its weight among others that want the processor.
    #[serde(default = "cpu_shares_default")]
    pub cpu_shares: u64,
    /// Bytes of stdout and stderr together.
    #[serde(default = "output_bytes_default")]
    pub max_output_bytes: u64,
}

const fn cpu_shares_default() -> u64 {
    FSP_CPU_SHARES_DEFAULT
}

const fn output_bytes_default() -> u64 {
    FSP_OUTPUT_BYTES_DEFAULT
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout_ms: EXEC_TIMEOUT_MS_DEFAULT,
            memory_mb: FSP_MEMORY_MB_DEFAULT,
            cpu_shares: FSP_CPU_SHARES_DEFAULT,
            max_output_bytes: FSP_OUTPUT_BYTES_DEFAULT,
        }
    }
}

/// What a sandbox says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerMessage {
    /// Of the execution; `None` in a `pong`, and in an `error` that ends no execution.
    pub id: Option<String>,
    /// `replay`: its number among those of the execution.
    pub seq: Option<u64>,
    /// The rest.
    pub body: ServerBody,
}

/// A [`ServerMessage`] without its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerBody {
    /// The execution is accepted and will be told of.
    Ack,
    /// It has come to this state.
    Status(Status),
    /// It wrote this. As text it is valid UTF-8, no character is cut, and bytes that are none are U+FFFD.
    Output(Stream, Bytes),
    /// It has ended.
    Result(Ended),
    /// It has no result, or a message was not taken.
    Error {
        /// Why.
        code: ErrorCode,
        /// In words.
        message: String,
        /// Whether the same request may succeed later.
        retryable: bool,
    },
    /// I am.
    Pong(Load),
    /// `replay`: what follows is of this execution, from this number on.
    Attached {
        /// Number of the next message.
        next_seq: u64,
    },
    /// `replay`: nothing of it is sent any more.
    Detached,
    /// `replay`: these messages are not kept any more.
    Gap {
        /// The first of them.
        from_seq: u64,
        /// The last of them.
        to_seq: u64,
        /// Bytes of output before the next message, from the execution's beginning: less what the client has, they
        /// are what it lost.
        bytes: u64,
    },
    /// `stdin`: so many more bytes may be sent.
    StdinCredit {
        /// Added to what is left of earlier grants.
        bytes: u64,
    },
}

/// State of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It has started.
    Running,
    /// It ended with exit code 0.
    Completed,
    /// It ended with another exit code, or by a signal that was not the sandbox's.
    Failed,
    /// It was ended by `cancel`.
    Cancelled,
    /// Its time was over.
    Timeout,
    /// Its memory was used up.
    Oom,
}

impl Status {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Oom => "oom",
        }
    }

    /// Whether a `result` comes next.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Running => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout | Self::Oom => true,
        }
    }
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Exit code of the program; `None` for one that was killed.
    pub exit_code: Option<i32>,
    /// `signal`: number of the signal that ended the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Wall-clock time from its start.
    pub duration_ms: u64,
    /// What it took, as far as the kernel told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_usage: Option<Usage>,
}

/// What an execution took, with all its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Most memory at one time, in MiB, rounded up.
    pub peak_memory_mb: u64,
    /// Processor time, in user and kernel mode.
    pub cpu_time_ms: u64,
}

/// How busy a sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Load {
    /// Executions that run.
    pub active_executions: usize,
    /// Executions that wait for a place.
    pub queue_depth: usize,
}

/// Whether a text may be an execution's id: 1 to [`EXEC_ID_BYTES_MAX`] printable ASCII characters without spaces.
pub fn is_execution_id(text: &str) -> bool {
    (1..=EXEC_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
