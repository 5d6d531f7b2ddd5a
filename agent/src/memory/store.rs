//! A session on disk: its messages as lines that are only ever added to, its lock, and what can be made anew from them.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use sandbox_protocol::agent::is_id;
use serde::{Deserialize, Serialize};

use super::error::MemoryError;
use crate::limits::{MEMORY_LOCK_WAIT_MS_MAX, MEMORY_SESSION_BYTES_MAX};
use crate::model::Message;

const MESSAGES: &str = "messages.jsonl";
const SUMMARY: &str = "summary.json";
const VECTORS: &str = "vectors";
const LOCK: &str = "lock";
/// Between two attempts at the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Nobody else has a customer's words to read.
const OWNER_ONLY: u32 = 0o700;

/// A message as it is kept, with its tokens, so that nobody counts them again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) at_ms: u64,
    /// Name of the tokenizer.
    pub(super) counted_by: String,
    pub(super) tokens: usize,
    /// Tokens with the attribution.
    pub(super) attributed_tokens: usize,
    pub(super) message: Message,
}

/// A session as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub id: String,
    /// Its messages.
    pub messages: u64,
    /// When its first message was stored, in milliseconds since 1970; 0 without one.
    pub began_ms: u64,
}

/// Where a session's files are.
#[derive(Debug, Clone)]
pub(super) struct Place(PathBuf);

impl Place {
    /// The directory of this session, which need not exist.
    pub(super) fn of(root: &Path, session: &str) -> Result<Self, MemoryError> {
        if !is_id(session) {
            return Err(MemoryError::SessionId);
        }
        Ok(Self(root.join(session)))
    }

    fn messages(&self) -> PathBuf {
        self.0.join(MESSAGES)
    }

    pub(super) fn vectors(&self) -> PathBuf {
        self.0.join(VECTORS)
    }

    /// What was kept beside the messages; `None` where it is not there or cannot be used.
    pub(super) fn read_summary(&self) -> Option<Vec<u8>> {
        fs::read(self.0.join(SUMMARY)).ok()
    }

    /// Puts the summary in the place of the one before, whole or not at all.
    pub(super) fn write_summary(&self, bytes: &[u8]) -> io::Result<()> {
        let (new, place) = (self.0.join(format!("{SUMMARY}.new")), self.0.join(SUMMARY));
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(new, place)?;
        File::open(&self.0)?.sync_all()
    }

    /// The lock, held until it is dropped. The kernel lets it go when the program ends, however it does.
    fn lock(&self) -> Result<File, MemoryError> {
        let lock = File::options().create(true).truncate(false).write(true).open(self.0.join(LOCK));
        let lock = lock.map_err(MemoryError::Lock)?;
        let until = Instant::now() + Duration::from_millis(MEMORY_LOCK_WAIT_MS_MAX);
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => return Err(MemoryError::Busy),
                Err(TryLockError::Error(error)) => return Err(MemoryError::Lock(error)),
            }
        }
    }
}

/// The file of messages, open for more.
pub(super) struct Journal {
    file: File,
    bytes: u64,
    in_doubt: bool,
    _lock: File,
}

impl Journal {
    /// Opens a session, or begins it, and reads what it has. A last line that a crash tore is cut off.
    pub(super) fn open(place: &Place) -> Result<(Self, Vec<Stored>), MemoryError> {
        let made = DirBuilder::new().recursive(true).mode(OWNER_ONLY).create(&place.0);
        made.map_err(MemoryError::Create)?;
        let lock = place.lock()?;
        let file = File::options().create(true).truncate(false).read(true).write(true).open(place.messages());
        let file = file.map_err(MemoryError::Create)?;
        sync_names(&place.0).map_err(MemoryError::Create)?;
        let mut journal = Self { file, bytes: 0, in_doubt: false, _lock: lock };
        let messages = journal.read()?;
        Ok((journal, messages))
    }

    fn read(&mut self) -> Result<Vec<Stored>, MemoryError> {
        let mut content = Vec::new();
        self.file.read_to_end(&mut content).map_err(MemoryError::Read)?;
        let mut messages = Vec::new();
        let mut rest = content.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, others) = rest.split_at(end + 1);
            match serde_json::from_slice(line) {
                Ok(message) => messages.push(message),
                Err(_) if others.is_empty() => break,
                Err(source) => return Err(MemoryError::Damaged { line: messages.len() + 1, source }),
            }
            rest = others;
            self.bytes += line.len() as u64;
        }
        if !rest.is_empty() {
            tracing::warn!(bytes = rest.len(), "the end of a session's file was torn, and is cut off");
        }
        self.cut().map_err(MemoryError::Read)?;
        Ok(messages)
    }

    /// Adds messages; they are on disk when this returns, or none of them counts.
    pub(super) fn add(&mut self, messages: &[Stored]) -> Result<(), MemoryError> {
        if self.in_doubt {
            return Err(MemoryError::InDoubt);
        }
        let mut lines = Vec::new();
        for message in messages {
            serde_json::to_writer(&mut lines, message).map_err(MemoryError::Encode)?;
            lines.push(b'\n');
        }
        if self.bytes + lines.len() as u64 > MEMORY_SESSION_BYTES_MAX {
            return Err(MemoryError::Full);
        }
        let written = self.file.write_all(&lines).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.in_doubt = self.cut().is_err();
            return Err(MemoryError::Write(error));
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// Back to what is known to be whole.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.bytes)?;
        self.file.seek(SeekFrom::Start(self.bytes))?;
        self.file.sync_data()
    }
}

/// The names of a directory's files, and its own, outlast a crash.
fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()?;
    directory.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// The sessions below a directory, oldest first. What does not look like one is left out. Reads files: not for a thread that
/// others wait for.
///
/// # Errors
/// [`MemoryError::List`].
pub fn sessions(root: &Path) -> Result<Vec<SessionInfo>, MemoryError> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(MemoryError::List(error)),
    };
    let mut sessions = Vec::new();
    for entry in entries {
        let name = entry.map_err(MemoryError::List)?.file_name();
        let Some((id, place)) = name.to_str().and_then(|id| Some((id, Place::of(root, id).ok()?))) else { continue };
        sessions.extend(info(id, &place).map_err(MemoryError::List)?);
    }
    sessions.sort_by(|one, other| (one.began_ms, &one.id).cmp(&(other.began_ms, &other.id)));
    Ok(sessions)
}

fn info(id: &str, place: &Place) -> io::Result<Option<SessionInfo>> {
    let file = match File::open(place.messages()) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut lines = BufReader::new(file);
    let mut first = Vec::new();
    lines.read_until(b'\n', &mut first)?;
    let began_ms = serde_json::from_slice(&first).map_or(0, |first: Stored| first.at_ms);
    let mut messages = u64::from(first.ends_with(b"\n"));
    loop {
        let read = lines.fill_buf()?;
        if read.is_empty() {
            return Ok(Some(SessionInfo { id: id.to_string(), messages, began_ms }));
        }
        messages += read.iter().filter(|byte| **byte == b'\n').count() as u64;
        let consumed = read.len();
        lines.consume(consumed);
    }
}

/// Deletes a session, and says whether there was one. An open one is not deleted.
///
/// # Errors
/// [`MemoryError::SessionId`], [`MemoryError::Busy`], [`MemoryError::Lock`], [`MemoryError::Delete`].
pub fn delete(root: &Path, session: &str) -> Result<bool, MemoryError> {
    let place = Place::of(root, session)?;
    if !place.0.is_dir() {
        return Ok(false);
    }
    let _lock = place.lock()?;
    fs::remove_dir_all(&place.0).map_err(MemoryError::Delete)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Role;

    #[test]
    fn after_a_write_that_cannot_be_undone_nothing_is_written_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::of(directory.path(), "a").unwrap();
        let (mut journal, _) = Journal::open(&place).unwrap();
        let message = Message::new(Role::User, "one");
        let stored = Stored { at_ms: 1, counted_by: "estimate".into(), tokens: 5, attributed_tokens: 16, message };
        journal.file = File::open(place.messages()).unwrap();
        assert!(matches!(journal.add(std::slice::from_ref(&stored)), Err(MemoryError::Write(_))));
        journal.file = File::options().write(true).open(place.messages()).unwrap();
        assert!(matches!(journal.add(std::slice::from_ref(&stored)), Err(MemoryError::InDoubt)));
        drop(journal);
        let (mut journal, messages) = Journal::open(&place).unwrap();
        assert!(messages.is_empty());
        journal.add(&[stored]).unwrap();
    }
}
