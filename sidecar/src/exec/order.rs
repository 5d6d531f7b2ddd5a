//! What is to be run, whoever asked for it: past this file nothing is empty, too long or doubtful.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use sandbox_protocol::fsp::{self, Language};
use sandbox_protocol::limits::{
    ENV_VAR_BYTES_MAX, ENV_VARS_MAX, EXEC_COMMAND_BYTES_MAX, EXEC_CWD_BYTES_MAX, EXEC_DETACHED_TIMEOUT_MS_MAX,
    EXEC_ID_BYTES_MAX, EXEC_TIMEOUT_MS_MAX, FSP_CODE_BYTES_MAX, FSP_CPU_SHARES_DEFAULT,
};

/// An execution that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Order {
    /// Of `code`.
    pub language: Language,
    /// Source code.
    pub code: String,
    /// Where it runs.
    pub place: Place,
    /// Added to the clean environment.
    pub env: BTreeMap<String, String>,
    /// Written to stdin.
    pub stdin: Bytes,
    /// Whether more of it comes.
    pub stream_stdin: bool,
    /// What it may take.
    pub limits: Limits,
}

/// Where an execution runs, and what becomes of what it leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a directory of its own; with it goes everything, also what still runs.
    Fresh,
    /// In this directory, absolute. What it leaves running at its own end goes on.
    In(PathBuf),
}

/// What an execution may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Time from its acceptance until its process tree is killed.
    pub timeout: Duration,
    /// Bytes of memory; `None` leaves it to the sandbox's own limit.
    pub memory_bytes: Option<u64>,
    /// Weight among others that want the processor.
    pub cpu_shares: u64,
    /// What it may write.
    pub output: OutputLimit,
}

/// What happens to those who write much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputLimit {
    /// More than so many bytes of stdout and stderr together end it.
    End(u64),
    /// What goes beyond so many bytes of each is read and dropped.
    Cut(u64),
}

/// Why a request is refused as it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The id is not usable.
    #[error("id: give 1 to {EXEC_ID_BYTES_MAX} printable ASCII characters without spaces")]
    Id,
    /// Attaching needs an id.
    #[error("attach_only: give the id to attach to")]
    AttachWithoutId,
    /// The command is empty.
    #[error("{field}: must not be empty")]
    Empty {
        /// Which text.
        field: &'static str,
    },
    /// A text is longer than its bound.
    #[error("{field}: {bytes} bytes, at most {bytes_max}")]
    TooLong {
        /// Which text.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// Its bound.
        bytes_max: usize,
    },
    /// A text holds a NUL character, which no process can be given.
    #[error("{field}: must not hold NUL")]
    Nul {
        /// Which text.
        field: &'static str,
    },
    /// An environment variable's name is empty or holds `=`.
    #[error("env: {name:?} is no variable name")]
    EnvName {
        /// The name.
        name: String,
    },
    /// There are more environment variables than may be.
    #[error("env: {count} variables, at most {ENV_VARS_MAX}")]
    EnvCount {
        /// How many.
        count: usize,
    },
    /// The working directory leads out of the workspace, or into the kernel's file systems.
    #[error("cwd: give a path beneath the workspace, or an absolute one outside /proc and /sys and without ..")]
    Directory,
    /// The timeout is longer than may be asked for.
    #[error("timeout_ms: {timeout_ms}, at most {timeout_ms_max}")]
    Timeout {
        /// What was asked for.
        timeout_ms: u64,
        /// The bound.
        timeout_ms_max: u64,
    },
}

impl Order {
    /// The order of a message, whose own bounds the protocol has checked; relative directories start at `workspace`.
    ///
    /// # Errors
    /// The first field that is not what its description demands.
    pub fn of_message(execute: fsp::Execute, workspace: &Path) -> Result<Self, Invalid> {
        let fsp::Execute { id: _, language, code, stdin, env, limits, extra } = execute;
        let place = match extra.cwd {
            None => Place::Fresh,
            Some(cwd) => Place::In(checked_directory(cwd, workspace)?),
        };
        let limits = Limits {
            timeout: Duration::from_millis(limits.timeout_ms),
            memory_bytes: (limits.memory_mb != 0).then(|| limits.memory_mb.saturating_mul(1024 * 1024)),
            cpu_shares: limits.cpu_shares,
            output: OutputLimit::End(limits.max_output_bytes),
        };
        let code = checked_code("code", code, language, &place)?;
        let (env, stdin) = (checked_env(env)?, Bytes::from(stdin.unwrap_or_default()));
        Ok(Self { language, code, place, env, stdin, stream_stdin: extra.stream_stdin, limits })
    }

    /// A number that is the same for the same order and, but for chance, for no other.
    pub fn fingerprint(&self, hasher: &impl BuildHasher) -> u64 {
        hasher.hash_one(self)
    }
}

impl Limits {
    /// Those of a shell command that runs in the sandbox as it is.
    pub const fn of_command(timeout: Duration, output: OutputLimit) -> Self {
        Self { timeout, memory_bytes: None, cpu_shares: FSP_CPU_SHARES_DEFAULT, output }
    }
}

/// Whether code is handed over in a file: it may then be longer than the kernel lets an argument be. Shell code that
/// fits is not, so that there is one file less to clear away.
pub(super) fn is_in_a_file(code: &str, language: Language, place: &Place) -> bool {
    *place == Place::Fresh && (language != Language::Shell || code.len() > EXEC_COMMAND_BYTES_MAX)
}

pub(super) fn checked_code(
    field: &'static str,
    code: String,
    language: Language,
    place: &Place,
) -> Result<String, Invalid> {
    if language == Language::Shell && code.trim().is_empty() {
        return Err(Invalid::Empty { field });
    }
    let bytes_max = if is_in_a_file(&code, language, place) { FSP_CODE_BYTES_MAX } else { EXEC_COMMAND_BYTES_MAX };
    checked_text(field, code, bytes_max)
}

/// A text that a process can be given.
pub(crate) fn checked_text(field: &'static str, text: String, bytes_max: usize) -> Result<String, Invalid> {
    if text.len() > bytes_max {
        return Err(Invalid::TooLong { field, bytes: text.len(), bytes_max });
    }
    if text.contains('\0') {
        return Err(Invalid::Nul { field });
    }
    Ok(text)
}

/// An environment that a process can be given.
pub(crate) fn checked_env(env: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Invalid> {
    if env.len() > ENV_VARS_MAX {
        return Err(Invalid::EnvCount { count: env.len() });
    }
    for (name, value) in &env {
        if name.is_empty() || name.contains('=') {
            return Err(Invalid::EnvName { name: name.clone() });
        }
        if name.contains('\0') || value.contains('\0') {
            return Err(Invalid::Nul { field: "env" });
        }
        let bytes = name.len() + value.len();
        if bytes > ENV_VAR_BYTES_MAX {
            return Err(Invalid::TooLong { field: "env", bytes, bytes_max: ENV_VAR_BYTES_MAX });
        }
    }
    Ok(env)
}

/// A directory to start in; relative ones start at `workspace`. Links on the way are the file system's to resolve, as the user that commands run as (see `leader`).
pub(crate) fn checked_directory(cwd: String, workspace: &Path) -> Result<PathBuf, Invalid> {
    let cwd = checked_text("cwd", cwd, EXEC_CWD_BYTES_MAX)?;
    let given = Path::new(&cwd);
    let climbs = given.components().any(|part| part == Component::ParentDir);
    let directory: PathBuf = workspace.join(given).components().collect();
    let of_the_kernel = ["/proc", "/sys", "/dev"].iter().any(|root| directory.starts_with(root));
    if climbs || of_the_kernel { Err(Invalid::Directory) } else { Ok(directory) }
}

/// A time for who waits, or for what goes on alone; 0 is the default of the one and the most of the other.
pub(super) fn checked_timeout(timeout_ms: u64, alone: bool, default_ms: u64) -> Result<Duration, Invalid> {
    let timeout_ms_max = if alone { EXEC_DETACHED_TIMEOUT_MS_MAX } else { EXEC_TIMEOUT_MS_MAX };
    match timeout_ms {
        0 => Ok(Duration::from_millis(if alone { timeout_ms_max } else { default_ms })),
        _ if timeout_ms <= timeout_ms_max => Ok(Duration::from_millis(timeout_ms)),
        _ => Err(Invalid::Timeout { timeout_ms, timeout_ms_max }),
    }
}
