//! A durable log: one JSON text a line, each on the disk before its writer goes on.
//!
//! A line that was being written as the process or the machine died is cut off at the next opening; nobody was told that it
//! had been kept. Any other line that cannot be read is an error: what follows it may rest on it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinError;

use crate::limits::LOG_BYTES_MAX;

/// Why a log is of no use.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be opened or read.
    #[error("cannot open {}", path.display())]
    Open {
        /// Of the file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line that is not the last is no entry.
    #[error("line {line} of {} is no entry", path.display())]
    Corrupt {
        /// Of the file.
        path: PathBuf,
        /// From 1 on.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The entry cannot be written as JSON.
    #[error("an entry cannot be encoded")]
    Encode(#[source] serde_json::Error),
    /// The entry is not on the disk.
    #[error("an entry cannot be written")]
    Append(#[source] io::Error),
    /// The log is as long as it may be.
    #[error("the log is longer than {bytes_max} bytes")]
    Full {
        /// The bound.
        bytes_max: u64,
    },
    /// The thread that wrote it ended before it had.
    #[error("the writer of the log ended")]
    Ended(#[source] JoinError),
}

/// A log that is open for more.
#[derive(Debug, Clone)]
pub struct Log {
    writer: Arc<Mutex<Writer>>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    /// Length of all whole lines.
    bytes: u64,
}

impl Log {
    /// Opens the log, or begins it, and reads what it holds.
    ///
    /// # Errors
    /// The file cannot be read, or is none of ours.
    pub async fn open<T: DeserializeOwned + Send + 'static>(path: PathBuf) -> Result<(Self, Vec<T>), LogError> {
        tokio::task::spawn_blocking(move || {
            let (writer, entries) = opened(&path)?;
            Ok((Self { writer: Arc::new(Mutex::new(writer)) }, entries))
        })
        .await
        .map_err(LogError::Ended)?
    }

    /// Adds an entry. It is on the disk when this returns, and may be when its caller was not there to hear of it.
    ///
    /// # Errors
    /// The entry is not kept.
    pub async fn append(&self, entry: &impl Serialize) -> Result<(), LogError> {
        let mut line = serde_json::to_vec(entry).map_err(LogError::Encode)?;
        line.push(b'\n');
        let writer = Arc::clone(&self.writer);
        let written = move || writer.lock().unwrap_or_else(PoisonError::into_inner).append(&line);
        tokio::task::spawn_blocking(written).await.map_err(LogError::Ended)?
    }
}

impl Writer {
    fn append(&mut self, line: &[u8]) -> Result<(), LogError> {
        let bytes = self.bytes + line.len() as u64;
        if bytes > LOG_BYTES_MAX {
            return Err(LogError::Full { bytes_max: LOG_BYTES_MAX });
        }
        self.file.write_all(line).and_then(|()| self.file.sync_data()).map_err(|error| {
            // Half a line must not stand before the next one; where this fails too, the next opening finds it.
            self.cut_to(self.bytes).err();
            LogError::Append(error)
        })?;
        self.bytes = bytes;
        Ok(())
    }

    fn cut_to(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.file.seek(SeekFrom::Start(bytes))?;
        self.file.sync_data()
    }
}

fn opened<T: DeserializeOwned>(path: &Path) -> Result<(Writer, Vec<T>), LogError> {
    let failed = |source| LogError::Open { path: path.to_owned(), source };
    let mut content = Vec::new();
    let mut file = open_file(path).map_err(failed)?;
    file.read_to_end(&mut content).map_err(failed)?;
    let (entries, bytes) = entries(path, &content)?;
    let mut writer = Writer { file, bytes };
    if bytes < content.len() as u64 {
        writer.cut_to(bytes).map_err(failed)?;
    }
    Ok((writer, entries))
}

/// The file, and its name on the disk with it.
fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()?;
    Ok(file)
}

/// All entries, and the length of their lines.
fn entries<T: DeserializeOwned>(path: &Path, content: &[u8]) -> Result<(Vec<T>, u64), LogError> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let mut lines = content.split_inclusive(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        if !line.ends_with(b"\n") {
            break;
        }
        match serde_json::from_slice(line) {
            Ok(entry) => entries.push(entry),
            Err(_) if lines.peek().is_none() => break,
            Err(source) => {
                return Err(LogError::Corrupt { path: path.to_owned(), line: entries.len() + 1, source });
            }
        }
        bytes += line.len() as u64;
    }
    Ok((entries, bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn read(path: &Path) -> Result<(Log, Vec<u32>), LogError> {
        Log::open(path.to_owned()).await
    }

    #[tokio::test]
    async fn what_was_appended_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (log, entries) = read(&path).await.unwrap();
        assert!(entries.is_empty());
        log.append(&1_u32).await.unwrap();
        log.append(&2_u32).await.unwrap();
        let (log, entries) = read(&path).await.unwrap();
        assert_eq!(entries, [1, 2]);
        log.append(&3_u32).await.unwrap();
        assert_eq!(read(&path).await.unwrap().1, [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_torn_tail_is_cut_wherever_it_tore() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        for (content, kept) in [("10\n20\n3", vec![10, 20]), ("10\n2\0x\n", vec![10]), ("1", vec![]), ("", vec![])] {
            fs::write(&path, content).unwrap();
            let (log, entries) = read(&path).await.unwrap();
            assert_eq!(entries, kept, "{content:?}");
            log.append(&99_u32).await.unwrap();
            assert_eq!(read(&path).await.unwrap().1, [kept, vec![99]].concat(), "{content:?}");
        }
    }

    #[tokio::test]
    async fn a_line_within_that_is_no_entry_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "1\nx\n3\n").unwrap();
        assert!(matches!(read(&path).await.unwrap_err(), LogError::Corrupt { line: 2, .. }));
    }

    #[tokio::test]
    async fn a_full_log_takes_no_more_and_keeps_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (log, _) = read(&path).await.unwrap();
        log.append(&1_u32).await.unwrap();
        log.writer.lock().unwrap().bytes = LOG_BYTES_MAX - 2;
        log.append(&2_u32).await.unwrap();
        assert!(matches!(log.append(&3_u32).await.unwrap_err(), LogError::Full { .. }));
        assert_eq!(read(&path).await.unwrap().1, [1, 2]);
    }

    #[tokio::test]
    async fn a_log_is_for_its_owner_alone_and_must_have_its_directory() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        read(&path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(read(&directory.path().join("none/log")).await.unwrap_err(), LogError::Open { .. }));
    }
}
