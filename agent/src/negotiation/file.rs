//! Checkpoints in a file: a line of JSON per call, written when the call ends.
//!
//! Each write is followed by a sync at once, in the background: whoever gets to the disk syncs for all that have written by
//! then. A debate waits for syncs where it has to wait for the model anyway.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::call::Completed;
use super::checkpoints::{CheckpointError, Checkpoints};
use crate::limits::NEGOTIATION_RECORD_BYTES_MAX;

/// Checkpoints in a file of one move.
#[derive(Debug)]
pub struct FileCheckpoints {
    former: Vec<Completed>,
    disk: Arc<Disk>,
}

#[derive(Debug)]
struct Disk {
    file: File,
    written: Mutex<Written>,
    /// Held by who syncs.
    turn: Mutex<()>,
    synced: watch::Sender<Synced>,
}

/// How far the file is written.
#[derive(Debug, Default)]
struct Written {
    lines: u64,
    is_broken: bool,
}

/// How far it is on disk.
#[derive(Debug, Default)]
struct Synced {
    lines: u64,
    is_broken: bool,
}

impl FileCheckpoints {
    /// Opens the record of a move, or begins it. What a crash left half written at its end is cut off. It blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be read, or is no move's.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        // What was said is its customer's alone.
        let opened = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
        let file = opened.map_err(CheckpointError::Open)?;
        let bytes = file.metadata().map_err(CheckpointError::Open)?.len();
        if bytes > NEGOTIATION_RECORD_BYTES_MAX {
            return Err(CheckpointError::TooLong { bytes, bytes_max: NEGOTIATION_RECORD_BYTES_MAX });
        }
        let mut text = Vec::new();
        (&file).take(bytes).read_to_end(&mut text).map_err(CheckpointError::Open)?;
        let (former, whole) = whole_lines(&text);
        settle(&file, path, whole).map_err(CheckpointError::Open)?;
        Ok(Self { former, disk: Arc::new(Disk::of(file)) })
    }
}

#[async_trait]
impl Checkpoints for FileCheckpoints {
    fn load(&self) -> Vec<Completed> {
        self.former.clone()
    }

    async fn record(&self, completed: &Completed) -> Result<(), CheckpointError> {
        let mut line = serde_json::to_vec(completed).map_err(CheckpointError::Encode)?;
        line.push(b'\n');
        // Some kilobytes into the page cache: less than handing them to another thread takes.
        let number = self.disk.write(&line)?;
        let disk = self.disk.clone();
        spawn_blocking(move || disk.sync(number));
        Ok(())
    }

    async fn settle(&self) -> Result<(), CheckpointError> {
        let lines = self.disk.written().lines;
        let mut synced = self.disk.synced.subscribe();
        let reached = synced.wait_for(|synced| synced.is_broken || synced.lines >= lines).await;
        match reached.is_ok_and(|synced| synced.lines >= lines) {
            true => Ok(()),
            false => Err(CheckpointError::BrokenOff),
        }
    }
}

impl Disk {
    fn of(file: File) -> Self {
        let (synced, _) = watch::channel(Synced::default());
        Self { file, written: Mutex::default(), turn: Mutex::default(), synced }
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line; its number, from 1 on.
    fn write(&self, line: &[u8]) -> Result<u64, CheckpointError> {
        let mut written = self.written();
        if written.is_broken {
            return Err(CheckpointError::BrokenOff);
        }
        let wrote = (&self.file).write_all(line);
        written.is_broken = wrote.is_err();
        wrote.map_err(CheckpointError::Write)?;
        written.lines += 1;
        Ok(written.lines)
    }

    /// Returns when the line of this number is on disk, or cannot be.
    fn sync(&self, number: u64) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.synced.borrow().lines >= number {
            return;
        }
        let lines = self.written().lines;
        let synced = self.file.sync_data();
        if let Err(error) = &synced {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "the record of a negotiation's calls is not on disk"
            );
            self.written().is_broken = true;
        }
        self.synced.send_modify(|known| match synced {
            Ok(()) => known.lines = lines,
            Err(_) => known.is_broken = true,
        });
    }
}

/// The calls of all lines up to the first that is none, and the length of these lines.
fn whole_lines(text: &[u8]) -> (Vec<Completed>, usize) {
    let mut whole = 0;
    let mut former = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(json) = line.strip_suffix(b"\n") else { break };
        let Ok(completed) = serde_json::from_slice(json) else { break };
        former.push(completed);
        whole += line.len();
    }
    (former, whole)
}

/// Cuts the file to its whole lines, and has file and name on disk.
fn settle(file: &File, path: &Path, whole: usize) -> io::Result<()> {
    file.set_len(whole as u64)?;
    file.sync_all()?;
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => File::open(directory)?.sync_all(),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Usage;
    use crate::negotiation::{Call, Outcome};

    fn opening() -> Completed {
        let outcome = Outcome::Answered { text: String::new(), usage: Usage::default() };
        Completed { call: Call::Opening, retries: 0, outcome }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_broken_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("move.jsonl");
        drop(FileCheckpoints::open(&path).unwrap());
        let disk = Arc::new(Disk::of(File::open(&path).unwrap()));
        let kept = FileCheckpoints { former: Vec::new(), disk };
        assert!(matches!(kept.record(&opening()).await, Err(CheckpointError::Write(_))));
        assert!(matches!(kept.record(&opening()).await, Err(CheckpointError::BrokenOff)));
        assert!(kept.settle().await.is_ok(), "of what was written nothing is missing");
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_synced_is_broken_off() {
        // A pipe takes lines and has no disk.
        let (_reader, writer) = std::io::pipe().unwrap();
        let disk = Arc::new(Disk::of(File::from(std::os::fd::OwnedFd::from(writer))));
        let kept = FileCheckpoints { former: Vec::new(), disk };
        assert!(kept.settle().await.is_ok(), "nothing was written");
        assert!(kept.record(&opening()).await.is_ok());
        assert!(matches!(kept.settle().await, Err(CheckpointError::BrokenOff)));
        assert!(matches!(kept.record(&opening()).await, Err(CheckpointError::BrokenOff)));
    }
}
