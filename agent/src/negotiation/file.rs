//! Checkpoints in a file: a line of JSON per call, on disk before the call's result is used.
//!
//! Calls that end together are written together: whoever finds the file free takes all that wait with it and syncs once.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::Mutex as Turn;
use tokio::task::{spawn_blocking, yield_now};

use super::call::Completed;
use super::checkpoints::{CheckpointError, Checkpoints};
use crate::limits::NEGOTIATION_RECORD_BYTES_MAX;

/// Checkpoints in a file of one move.
#[derive(Debug)]
pub struct FileCheckpoints {
    former: Vec<Completed>,
    waiting: Mutex<Waiting>,
    disk: Arc<Turn<Disk>>,
}

/// Lines that nobody has taken to the disk yet.
#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Number of the last of them, counted from the opening of the file.
    last: u64,
}

#[derive(Debug)]
struct Disk {
    file: File,
    /// Number of the last line that is on disk.
    synced: u64,
    broken: bool,
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
        let disk = Disk { file, synced: 0, broken: false };
        Ok(Self { former, waiting: Mutex::default(), disk: Arc::new(Turn::new(disk)) })
    }

    fn wait_in_line(&self, mut line: Vec<u8>) -> u64 {
        line.push(b'\n');
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.lines.append(&mut line);
        waiting.last += 1;
        waiting.last
    }

    fn take_all(&self) -> (Vec<u8>, u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut waiting.lines), waiting.last)
    }
}

#[async_trait]
impl Checkpoints for FileCheckpoints {
    fn load(&self) -> Vec<Completed> {
        self.former.clone()
    }

    async fn record(&self, completed: &Completed) -> Result<(), CheckpointError> {
        let line = serde_json::to_vec(completed).map_err(CheckpointError::Encode)?;
        let mine = self.wait_in_line(line);
        // Those that have ended at the same moment come into the same write.
        yield_now().await;
        let mut disk = self.disk.clone().lock_owned().await;
        if disk.synced >= mine {
            return Ok(());
        }
        if disk.broken {
            return Err(CheckpointError::BrokenOff);
        }
        let (lines, last) = self.take_all();
        // The turn goes along: nobody else writes before this is through, even if nobody waits for it any more.
        let written = spawn_blocking(move || disk.write(&lines, last)).await;
        written.map_err(|crashed| CheckpointError::Write(io::Error::other(crashed)))?
    }
}

impl Disk {
    fn write(&mut self, lines: &[u8], last: u64) -> Result<(), CheckpointError> {
        let written = self.file.write_all(lines).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.synced = last,
            Err(_) => self.broken = true,
        }
        written.map_err(CheckpointError::Write)
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

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_broken_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("move.jsonl");
        let kept = FileCheckpoints::open(&path).unwrap();
        kept.disk.lock().await.file = File::open(&path).unwrap();
        let outcome = Outcome::Answered { text: String::new(), usage: Usage::default() };
        let opening = Completed { call: Call::Opening, retries: 0, outcome };
        assert!(matches!(kept.record(&opening).await, Err(CheckpointError::Write(_))));
        // Also where the file itself could be written again: a torn line would hide what comes behind it.
        kept.disk.lock().await.file = OpenOptions::new().append(true).open(&path).unwrap();
        assert!(matches!(kept.record(&opening).await, Err(CheckpointError::BrokenOff)));
        assert!(FileCheckpoints::open(&path).unwrap().load().is_empty());
    }
}
