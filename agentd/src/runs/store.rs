//! What of runs and sessions outlasts the process: one directory each, below the storage that only the sidecar reads.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use sandbox_protocol::agent::negotiation::{MoveReport, NegotiateBody};
use sandbox_protocol::agent::{RunKind, RunReply, TaskBody};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Nobody but the owner may look.
const DIRECTORY_MODE: u32 = 0o700;
const RECORD: &str = "record.json";
const SESSION: &str = "session.json";
/// What the native agent has done in a run.
pub(crate) const STEPS: &str = "steps.jsonl";
/// What was said about a move.
pub(crate) const CALLS: &str = "calls.jsonl";

/// A run, as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) kind: RunKind,
    /// Empty for a move.
    pub(crate) session_id: String,
    pub(crate) trace_id: String,
    /// Of the request, by which a repeat is known.
    pub(crate) hash: String,
    /// Milliseconds since 1970.
    pub(crate) began_ms: u64,
    /// What was asked; forgotten at the end, since it may hold a key.
    pub(crate) request: Option<Request>,
    /// How it ended.
    pub(crate) end: Option<End>,
}

/// What was asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Task(TaskBody),
    Move(NegotiateBody),
}

/// How a run ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    Reply(RunReply),
    Report(Box<MoveReport>),
}

/// What is known of a session besides its messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) backend: String,
    /// Milliseconds since 1970.
    pub(crate) began_ms: u64,
}

/// The directories.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    runs: PathBuf,
    sessions: PathBuf,
}

impl Store {
    /// Those below `root`, made where they are missing.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let store = Self { runs: root.join("runs"), sessions: root.join("sessions") };
        make(&store.runs)?;
        make(&store.sessions)?;
        Ok(store)
    }

    /// The directory of a run. The id was [checked](sandbox_protocol::agent::is_id).
    pub(crate) fn run(&self, id: &str) -> PathBuf {
        self.runs.join(id)
    }

    /// The directory of all sessions; each has one of its name there.
    pub(crate) fn sessions(&self) -> &Path {
        &self.sessions
    }

    /// All runs that can be read, oldest first.
    pub(crate) fn records(&self) -> io::Result<Vec<Record>> {
        let mut records: Vec<Record> = entries(&self.runs)?.iter().filter_map(|dir| read(&dir.join(RECORD))).collect();
        records.sort_by(|one, other| (one.began_ms, &one.id).cmp(&(other.began_ms, &other.id)));
        Ok(records)
    }

    /// Keeps a run; it is on disk when this returns.
    pub(crate) fn keep(&self, record: &Record) -> io::Result<()> {
        let directory = self.run(&record.id);
        make(&directory)?;
        write(&directory.join(RECORD), record)
    }

    /// Removes what a run needed to be taken up again.
    pub(crate) fn clear(&self, id: &str) {
        for name in [STEPS, CALLS] {
            match fs::remove_file(self.run(id).join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(run = id, name, %error, "what an ended run leaves is not removed");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Forgets a run.
    pub(crate) fn forget(&self, id: &str) -> io::Result<()> {
        fs::remove_dir_all(self.run(id))
    }

    /// What is known of a session.
    pub(crate) fn session(&self, id: &str) -> Option<SessionRecord> {
        read(&self.sessions.join(id).join(SESSION))
    }

    /// Keeps a session.
    pub(crate) fn keep_session(&self, id: &str, record: &SessionRecord) -> io::Result<()> {
        let directory = self.sessions.join(id);
        make(&directory)?;
        write(&directory.join(SESSION), record)
    }

    /// All sessions that can be read, oldest first.
    pub(crate) fn all_sessions(&self) -> io::Result<Vec<(String, SessionRecord)>> {
        let named = |dir: &PathBuf| Some((dir.file_name()?.to_str()?.to_owned(), read(&dir.join(SESSION))?));
        let mut sessions: Vec<(String, SessionRecord)> = entries(&self.sessions)?.iter().filter_map(named).collect();
        sessions.sort_by_key(|(_, record)| record.began_ms);
        Ok(sessions)
    }

    /// Forgets a session with all that was said in it.
    pub(crate) fn forget_session(&self, id: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.sessions.join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// `None` for what is not there or was never finished.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = fs::read(path).ok()?;
    serde_json::from_slice(&bytes).map_err(|error| tracing::warn!(path = %path.display(), %error, "not readable")).ok()
}

/// The file is the old or the new one, whatever happens meanwhile.
fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_data()?;
    fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_data())
}
