//! Which conversation of a program is which session of ours: a small file that only this process reads.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::limits::{SESSIONS_FILE_BYTES_MAX, SESSIONS_MAX};

/// The sessions of one backend.
#[derive(Debug)]
pub(super) struct Sessions {
    path: PathBuf,
    /// Held while the file is changed.
    changing: Mutex<()>,
}

/// What is known of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    /// What the program calls its conversation.
    theirs: String,
    /// When it was used last, in seconds since 1970.
    used_s: u64,
}

type Book = BTreeMap<String, Known>;

impl Sessions {
    /// Those in this file, which need not be there yet.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, changing: Mutex::default() }
    }

    /// What the program calls this session's conversation.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) async fn theirs(&self, ours: &str) -> io::Result<Option<String>> {
        Ok(read(&self.path).await?.remove(ours).map(|known| known.theirs))
    }

    /// Notes what the program calls it.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(super) async fn note(&self, ours: &str, theirs: &str) -> io::Result<()> {
        let used_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let known = Known { theirs: theirs.to_owned(), used_s };
        self.change(|book| drop(book.insert(ours.to_owned(), known))).await
    }

    /// Forgets it.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(super) async fn forget(&self, ours: &str) -> io::Result<()> {
        self.change(|book| drop(book.remove(ours))).await
    }

    async fn change(&self, change: impl FnOnce(&mut Book)) -> io::Result<()> {
        let _alone = self.changing.lock().await;
        let mut book = read(&self.path).await?;
        change(&mut book);
        while book.len() > SESSIONS_MAX {
            let oldest = book.iter().min_by_key(|(_, known)| known.used_s).map(|(ours, _)| ours.clone());
            book.remove(&oldest.unwrap_or_default());
        }
        let written = self.path.with_extension("new");
        tokio::fs::write(&written, serde_json::to_vec(&book)?).await?;
        tokio::fs::rename(&written, &self.path).await
    }
}

async fn read(path: &Path) -> io::Result<Book> {
    let bytes = match tokio::fs::read(path).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Book::new()),
        Err(error) => return Err(error),
    };
    if bytes.len() > SESSIONS_FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file of sessions is too long"));
    }
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_is_known_until_it_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions.json");
        let sessions = Sessions::at(path.clone());
        assert_eq!(sessions.theirs("s").await.unwrap(), None);
        sessions.note("s", "ses_1").await.unwrap();
        assert_eq!(Sessions::at(path).theirs("s").await.unwrap().as_deref(), Some("ses_1"));
        sessions.forget("s").await.unwrap();
        assert_eq!(sessions.theirs("s").await.unwrap(), None);
    }

    #[tokio::test]
    async fn no_more_are_kept_than_may_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions.json");
        let known = |index: usize| Known { theirs: String::new(), used_s: index as u64 };
        let book: Book = (0..SESSIONS_MAX).map(|index| (format!("s{index}"), known(index))).collect();
        std::fs::write(&path, serde_json::to_vec(&book).unwrap()).unwrap();
        let sessions = Sessions::at(path.clone());
        assert!(sessions.theirs("s0").await.unwrap().is_some());
        sessions.note("new", "ses").await.unwrap();
        assert!(sessions.theirs("s0").await.unwrap().is_none() && sessions.theirs("s1").await.unwrap().is_some());
        assert_eq!(read(&path).await.unwrap().len(), SESSIONS_MAX);
    }
}
