//! What is told of a run: a file of events, and who follows it.
//!
//! The file is the queue: a reader has a place in it and nothing else, so one that is slow, or comes back, costs nothing.
//! A line that a crash tore is cut off; nobody was told of it.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::Stream;
use sandbox_protocol::agent::event::{RunEvent, Told};
use tokio::io::AsyncBufReadExt as _;
use tokio::sync::watch;

use super::now_ms;
use crate::limits::EVENTS_BYTES_MAX;

/// The events of one run.
#[derive(Debug)]
pub(crate) struct Feed {
    path: PathBuf,
    writer: Mutex<Writer>,
    told: watch::Sender<Mark>,
}

/// How far a run has been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    seq: u64,
    /// Nothing follows.
    over: bool,
}

#[derive(Debug)]
struct Writer {
    file: File,
    bytes: u64,
    /// A piece was left out, which was said.
    full: bool,
    /// Halves of rounds that were told: a debate that is taken up again tells them anew.
    rounds: HashSet<(u32, String)>,
}

impl Feed {
    /// The events at `path`, as far as they were told; none where there is no file.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut rounds = HashSet::new();
        let (bytes, last) = whole(&file, |told| rounds.extend(round(told)))?;
        file.set_len(bytes)?;
        let over = last.as_ref().is_some_and(|event| event.told.is_last());
        let seq = last.map_or(0, |event| event.seq);
        let writer = Writer { file, bytes, full: bytes >= EVENTS_BYTES_MAX, rounds };
        Ok(Self { path: path.to_owned(), writer: Mutex::new(writer), told: watch::Sender::new(Mark { seq, over }) })
    }

    /// Number of the last event.
    pub(crate) fn last_seq(&self) -> u64 {
        self.told.borrow().seq
    }

    /// Tells all readers. What cannot be written is lost to them, never to the run.
    pub(crate) fn tell(&self, told: Told) {
        let mut writer = self.writer();
        if round(&told).is_some_and(|half| !writer.rounds.insert(half)) {
            return;
        }
        let is_piece = matches!(told, Told::Message { .. } | Told::Reasoning { .. });
        if is_piece && writer.bytes >= EVENTS_BYTES_MAX {
            if !writer.full {
                writer.full = true;
                let message = format!("words beyond {EVENTS_BYTES_MAX} bytes of events are left out");
                self.write(&mut writer, Told::Warning { message });
            }
            return;
        }
        self.write(&mut writer, told);
    }

    /// Says that nothing follows, to readers that wait for more.
    pub(crate) fn close(&self) {
        self.told.send_modify(|mark| mark.over = true);
    }

    fn write(&self, writer: &mut Writer, told: Told) {
        let over = told.is_last();
        let event = RunEvent { seq: self.last_seq() + 1, time_ms: now_ms(), told };
        // All keys are text and all numbers finite, so it can be written.
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        match writer.file.write_all(&line) {
            Ok(()) => {
                writer.bytes += line.len() as u64;
                self.told.send_replace(Mark { seq: event.seq, over });
            }
            Err(error) => {
                tracing::warn!(%error, "an event of a run is lost");
                // Whatever part of it was written is no line.
                let _cut = writer.file.set_len(writer.bytes);
                if over {
                    self.close();
                }
            }
        }
    }

    /// Nothing panics while it holds the lock.
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All events behind the one with the number `after`, to the last of the run.
    pub(crate) fn follow(&self, after: u64) -> impl Stream<Item = io::Result<RunEvent>> + Send + use<> {
        let start = Reader::NotOpen(self.path.clone());
        futures::stream::try_unfold((start, self.told.subscribe(), after), |(mut reader, mut told, after)| async move {
            loop {
                let mark = *told.borrow_and_update();
                if after >= mark.seq {
                    // Its sender is gone with the run: what is in the file is all there will be.
                    if mark.over || told.changed().await.is_err() {
                        return Ok(None);
                    }
                    continue;
                }
                let event = reader.next().await?;
                if event.seq > after {
                    let seq = event.seq;
                    return Ok(Some((event, (reader, told, seq))));
                }
            }
        })
    }
}

/// A reader's place in the file. It reads only what was told, so it never meets the end or half a line.
enum Reader {
    NotOpen(PathBuf),
    Open(tokio::io::BufReader<tokio::fs::File>),
}

impl Reader {
    async fn next(&mut self) -> io::Result<RunEvent> {
        if let Self::NotOpen(path) = self {
            *self = Self::Open(tokio::io::BufReader::new(tokio::fs::File::open(path).await?));
        }
        let Self::Open(file) = self else { return Err(io::ErrorKind::NotFound.into()) };
        let mut line = Vec::new();
        file.read_until(b'\n', &mut line).await?;
        Ok(serde_json::from_slice(&line)?)
    }
}

/// Which half of which round is told.
fn round(told: &Told) -> Option<(u32, String)> {
    match told {
        Told::SandboxRound { round, status, .. } => Some((*round, status.clone())),
        _ => None,
    }
}

/// Length of the file up to its last whole event, and that event; every one is seen.
fn whole(file: &File, mut see: impl FnMut(&Told)) -> io::Result<(u64, Option<RunEvent>)> {
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    let (mut bytes, mut last) = (0, None);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        match serde_json::from_slice::<RunEvent>(&line) {
            Ok(event) if line.ends_with(b"\n") => {
                see(&event.told);
                last = Some(event);
            }
            _ => return Ok((bytes, last)),
        }
        bytes += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, TryStreamExt as _};
    use sandbox_protocol::agent::RunReply;

    use super::*;

    fn words(text: &str) -> Told {
        Told::Message { text: text.into() }
    }

    fn feed() -> (Feed, PathBuf, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        (Feed::open(&path).unwrap(), path, dir)
    }

    async fn all(feed: &Feed, after: u64) -> Vec<u64> {
        feed.follow(after).map_ok(|event| event.seq).try_collect().await.unwrap()
    }

    #[tokio::test]
    async fn who_comes_late_or_comes_back_reads_what_who_was_there_reads() {
        let (feed, _, _dir) = feed();
        let mut early = Box::pin(feed.follow(0));
        feed.tell(words("a"));
        assert_eq!(early.next().await.unwrap().unwrap().told, words("a"));
        feed.tell(words("b"));
        feed.tell(Told::Done { reply: RunReply::default() });
        assert_eq!(early.map(|event| event.unwrap().seq).collect::<Vec<_>>().await, [2, 3]);
        assert_eq!(all(&feed, 0).await, [1, 2, 3]);
        assert_eq!(all(&feed, 2).await, [3]);
        assert!(all(&feed, 3).await.is_empty());
    }

    #[tokio::test]
    async fn numbers_go_on_after_a_torn_line() {
        let (feed, path, _dir) = feed();
        feed.tell(words("a"));
        drop(feed);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"seq\":2,\"time").unwrap();
        let feed = Feed::open(&path).unwrap();
        assert_eq!(feed.last_seq(), 1);
        feed.tell(words("b"));
        feed.close();
        let told: Vec<Told> = feed.follow(0).map_ok(|event| event.told).try_collect().await.unwrap();
        assert_eq!(told, [words("a"), words("b")]);
    }

    #[tokio::test]
    async fn a_round_is_told_once_in_however_many_lives() {
        let (feed, path, _dir) = feed();
        let half = |round, status: &str| Told::SandboxRound { move_id: "m1".into(), round, status: status.into() };
        feed.tell(half(1, "critic_responded"));
        feed.tell(half(1, "critic_responded"));
        drop(feed);
        let feed = Feed::open(&path).unwrap();
        feed.tell(half(1, "critic_responded"));
        feed.tell(half(1, "dm_responded"));
        feed.close();
        assert_eq!(all(&feed, 0).await, [1, 2]);
    }

    #[tokio::test]
    async fn beyond_its_bytes_words_are_left_out_and_that_is_said_once() {
        let (feed, _, _dir) = feed();
        let piece = "x".repeat(1024 * 1024);
        let fits = (0..).take_while(|_| {
            feed.tell(words(&piece));
            feed.writer().bytes < EVENTS_BYTES_MAX
        });
        let before = fits.count() as u64 + 1;
        assert_eq!(feed.last_seq(), before);
        feed.tell(words("lost"));
        feed.tell(words("lost"));
        feed.tell(Told::Done { reply: RunReply::default() });
        let end: Vec<&str> = feed.follow(before).map(|event| event.unwrap().told.name()).collect().await;
        assert_eq!(end, ["warning", "done"]);
    }
}
