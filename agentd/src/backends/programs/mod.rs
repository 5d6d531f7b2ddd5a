//! The port by which backends start programs: as the sandbox's agent user, in its environment, each with all that it starts.

mod fsp;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use self::fsp::{FspPrograms, PROGRAM_EXTENSIONS};
use super::limits::COMPLAINT_BYTES_MAX;

/// Starts programs.
#[async_trait]
pub trait Programs: Send + Sync {
    /// Starts one.
    ///
    /// # Errors
    /// It does not run.
    async fn start(&self, launch: Launch) -> Result<Box<dyn Program>, ProgramError>;

    /// Ends what was started under this id and is not over, also in a former life of this process.
    ///
    /// # Errors
    /// Whether it has ended is not known.
    async fn end(&self, id: &str) -> Result<(), ProgramError>;
}

/// A program that runs. Dropped, it is ended with all that it started.
#[async_trait]
pub trait Program: Send {
    /// What it does next. After [`Heard::Ended`] nothing comes. May be dropped before it is done.
    ///
    /// # Errors
    /// What became of it cannot be told.
    async fn next(&mut self) -> Result<Heard, ProgramError>;

    /// Writes to its stdin, and closes it where nothing follows.
    ///
    /// # Errors
    /// It does not read any more.
    async fn say(&mut self, text: Bytes, is_last: bool) -> Result<(), ProgramError>;

    /// Ends it with all that it started; [`next`](Self::next) tells when it is gone.
    ///
    /// # Errors
    /// It cannot be told so.
    async fn end(&mut self) -> Result<(), ProgramError>;
}

/// What is to be started. Its environment may hold a key, so it is not printed.
pub struct Launch {
    /// By which it is ended: printable ASCII without spaces.
    pub id: String,
    /// Name or path of the program, and its arguments.
    pub argv: Vec<String>,
    /// Added to the environment of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Where it runs: absolute.
    pub cwd: PathBuf,
    /// It is ended after this time.
    pub time_max: Duration,
}

/// What a program does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It wrote this to stdout.
    Out(Bytes),
    /// It wrote this to stderr.
    Err(Bytes),
    /// It has ended.
    Ended(Ended),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ended {
    /// Its exit code; `None` where it was killed.
    pub exit_code: Option<i32>,
    /// Whether it was killed since memory was used up.
    pub out_of_memory: bool,
}

/// Why a program does not run, or is not heard.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is no such program.
    #[error("there is no such program")]
    Missing,
    /// As many run as may.
    #[error("too many programs run")]
    Busy(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It cannot be started.
    #[error("the program cannot be started")]
    Start(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It runs and is heard no more, or did not end well.
    #[error("the program is lost")]
    Lost(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A chore did not end with 0.
#[derive(Debug, thiserror::Error)]
#[error("exit code {exit_code:?}: {complaint}")]
struct ChoreFailed {
    exit_code: Option<i32>,
    complaint: String,
}

/// Runs a small program to its end, with this on its stdin.
///
/// # Errors
/// It does not run, or does not end with 0.
pub async fn run_to_end(programs: &dyn Programs, launch: Launch, stdin: Bytes) -> Result<(), ProgramError> {
    let mut program = programs.start(launch).await?;
    program.say(stdin, true).await?;
    let mut complaint = Vec::new();
    loop {
        match program.next().await? {
            Heard::Out(_) => {}
            Heard::Err(bytes) => {
                let room = COMPLAINT_BYTES_MAX - complaint.len();
                complaint.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Heard::Ended(Ended { exit_code: Some(0), .. }) => return Ok(()),
            Heard::Ended(Ended { exit_code, .. }) => {
                let complaint = String::from_utf8_lossy(&complaint).into_owned();
                return Err(ProgramError::Lost(Box::new(ChoreFailed { exit_code, complaint })));
            }
        }
    }
}
