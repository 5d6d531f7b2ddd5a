//! The audit of the gateway: a line of JSON for each thing that happened, written by one thread.
//!
//! Each line has the SHA-256 of the line before, so a line that was changed or taken out is found. A file that has grown to
//! its bound is moved aside, over the one that was moved before; the chain goes on in the next. Nobody waits for the disk:
//! what finds the queue full is left out, and the next line says how many were.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime};

use sandbox_gateway::ports::AuditEntry;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::limits::{SSH_AUDIT_BYTES_MAX, SSH_AUDIT_LINE_BYTES_MAX, SSH_AUDIT_QUEUE_MAX};

/// What the file is called.
const FILE: &str = "ssh-audit.log";
/// What the one that was moved aside is called.
const FORMER_FILE: &str = "ssh-audit.log.1";
/// What stands for the line before the first.
const NOTHING_BEFORE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The way to the audit. Clones share it; the thread ends when the last is dropped.
#[derive(Clone)]
pub(crate) struct Audit {
    queue: SyncSender<Order>,
    left_out: Arc<AtomicU64>,
}

/// What the thread is asked.
enum Order {
    Note(SystemTime, AuditEntry),
    /// To say when all before it is written.
    Tell(SyncSender<()>),
}

/// Why there is no audit.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the audit of the SSH gateway in {}", path.display())]
pub(crate) struct AuditError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A line, as it is written.
#[derive(Serialize)]
struct Line<'a> {
    at: String,
    previous: &'a str,
    /// Entries before this one that found no room.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
    #[serde(flatten)]
    entry: &'a AuditEntry,
}

struct Writer {
    dir: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    previous: String,
}

impl Audit {
    /// The audit in `dir`, which goes on where a former life left it.
    pub(crate) fn open(dir: &Path) -> Result<Self, AuditError> {
        Self::open_bounded(dir, SSH_AUDIT_BYTES_MAX)
    }

    fn open_bounded(dir: &Path, bytes_max: u64) -> Result<Self, AuditError> {
        let failed = |source| AuditError { path: dir.join(FILE), source };
        let writer = Writer::open(dir, bytes_max).map_err(failed)?;
        let (queue, waiting) = sync_channel(SSH_AUDIT_QUEUE_MAX);
        let left_out = Arc::<AtomicU64>::default();
        let told = left_out.clone();
        std::thread::Builder::new()
            .name("ssh-audit".into())
            .spawn(move || writer.run(&waiting, &told))
            .map_err(failed)?;
        Ok(Self { queue, left_out })
    }

    /// Keeps an entry, unless too many wait.
    pub(crate) fn note(&self, entry: AuditEntry) {
        let AuditEntry { connection, ref peer, sandbox, ref key, ref event } = entry;
        let sandbox = sandbox.map(tracing::field::display);
        tracing::info!(target: "operator::ssh", connection, peer, sandbox, key, ?event, "ssh");
        match self.queue.try_send(Order::Note(SystemTime::now(), entry)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                let left_out = self.left_out.fetch_add(1, Ordering::Relaxed) + 1;
                tracing::warn!(left_out, "the audit of the SSH gateway is behind; an entry is left out");
            }
        }
    }
}

impl Audit {
    /// Returns once all that was noted is on disk, or the time for it is over. Holds its thread up.
    pub(crate) fn finish(&self, within: Duration) {
        let (tell, told) = sync_channel(1);
        // A queue that is full is waited for no longer than what is in it.
        let asked = self.queue.try_send(Order::Tell(tell)).is_ok();
        if !asked || told.recv_timeout(within).is_err() {
            tracing::warn!("the audit of the SSH gateway may lack its last entries");
        }
    }
}

impl Writer {
    fn open(dir: &Path, bytes_max: u64) -> io::Result<Self> {
        let mut file = File::options().create(true).read(true).append(true).open(dir.join(FILE))?;
        let bytes = file.metadata()?.len();
        let previous = match last_line(&mut file, bytes)? {
            // Nothing was written yet, or all of it was moved aside just before a former life ended.
            None => match File::open(dir.join(FORMER_FILE)) {
                Ok(mut former) => {
                    let bytes = former.metadata()?.len();
                    last_line(&mut former, bytes)?.map(|(line, _)| line)
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            },
            Some((line, is_whole)) => {
                if !is_whole {
                    file.write_all(b"\n")?;
                }
                Some(line)
            }
        };
        let previous = previous.map_or_else(|| NOTHING_BEFORE.to_owned(), |line| hash(&line));
        Ok(Self { dir: dir.into(), bytes: file.metadata()?.len(), file, bytes_max, previous })
    }

    fn run(mut self, waiting: &Receiver<Order>, left_out: &AtomicU64) {
        while let Ok(order) = waiting.recv() {
            let done = match order {
                Order::Note(at, entry) => self.write(at, left_out.swap(0, Ordering::Relaxed), &entry),
                Order::Tell(tell) => self.file.sync_all().and_then(|()| tell.try_send(()).map_err(io::Error::other)),
            };
            if let Err(error) = done {
                tracing::error!(%error, "the SSH gateway's audit cannot be written");
            }
        }
    }

    fn write(&mut self, at: SystemTime, left_out: u64, entry: &AuditEntry) -> io::Result<()> {
        let at = OffsetDateTime::from(at).format(&Rfc3339).map_err(io::Error::other)?;
        let mut line = serde_json::to_vec(&Line { at, previous: &self.previous, left_out, entry })?;
        let hash = hash(&line);
        line.push(b'\n');
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
            self.file.sync_all()?;
            std::fs::rename(self.dir.join(FILE), self.dir.join(FORMER_FILE))?;
            self.file = File::options().create(true).append(true).open(self.dir.join(FILE))?;
            self.bytes = 0;
        }
        self.file.write_all(&line)?;
        self.bytes += line.len() as u64;
        self.previous = hash;
        Ok(())
    }
}

/// The last line of a file of so many bytes, and whether its end was written; nothing of an empty one.
fn last_line(file: &mut File, bytes: u64) -> io::Result<Option<(Vec<u8>, bool)>> {
    file.seek(SeekFrom::Start(bytes.saturating_sub(SSH_AUDIT_LINE_BYTES_MAX)))?;
    let mut end = Vec::new();
    file.take(SSH_AUDIT_LINE_BYTES_MAX).read_to_end(&mut end)?;
    let is_whole = end.pop_if(|last| *last == b'\n').is_some();
    let begin = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let line = end.split_off(begin);
    Ok((bytes > 0).then_some((line, is_whole)))
}

fn hash(line: &[u8]) -> String {
    hex::encode(Sha256::digest(line))
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde asks
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sandbox_gateway::ports::AuditEvent;

    use super::*;

    fn entry(connection: u64) -> AuditEntry {
        let event = AuditEvent::Entered { client: "SSH-2.0-test".into() };
        AuditEntry { connection, peer: "192.0.2.1:5".into(), sandbox: None, key: None, event }
    }

    fn lines(path: &Path) -> Vec<String> {
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Writes so many entries and returns when the thread is done with them.
    fn written(dir: &Path, bytes_max: u64, connections: std::ops::Range<u64>) {
        let mut writer = Writer::open(dir, bytes_max).unwrap();
        for connection in connections {
            writer.write(SystemTime::UNIX_EPOCH, 0, &entry(connection)).unwrap();
        }
    }

    fn assert_chained(lines: &[String], mut previous: String) {
        for line in lines {
            let found: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(found["previous"], previous, "{line}");
            previous = hash(line.as_bytes());
        }
    }

    #[test]
    fn each_line_has_the_hash_of_the_one_before_also_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path(), 1 << 20, 0..3);
        written(dir.path(), 1 << 20, 3..5);
        let lines = lines(&dir.path().join(FILE));
        assert_eq!(lines.len(), 5);
        assert_chained(&lines, NOTHING_BEFORE.to_owned());
        let first: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((&first["at"], &first["connection"]), (&"1970-01-01T00:00:00Z".into(), &0.into()));
        assert_eq!(first["event"]["event"], "entered");
    }

    #[test]
    fn a_file_that_has_grown_to_its_bound_is_moved_aside_and_the_chain_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path(), 1 << 20, 0..2);
        let bound = std::fs::metadata(dir.path().join(FILE)).unwrap().len();
        written(dir.path(), bound, 2..3);
        let (former, present) = (lines(&dir.path().join(FORMER_FILE)), lines(&dir.path().join(FILE)));
        assert_eq!((former.len(), present.len()), (2, 1));
        assert_chained(&[former.clone(), present].concat(), NOTHING_BEFORE.to_owned());
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        written(dir.path(), bound, 3..4);
        assert_chained(&[former, lines(&dir.path().join(FILE))].concat(), NOTHING_BEFORE.to_owned());
    }

    #[test]
    fn a_line_that_was_cut_short_stays_and_is_in_the_chain() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{\"cut").unwrap();
        written(dir.path(), 1 << 20, 0..1);
        let lines = lines(&dir.path().join(FILE));
        assert_eq!(lines[0], "{\"cut");
        assert_chained(&lines[1..], hash(b"{\"cut"));
    }

    #[test]
    fn nobody_waits_for_the_disk_and_what_is_left_out_is_counted() {
        let (queue, waiting) = sync_channel(1);
        let audit = Audit { queue, left_out: Arc::default() };
        let begun = Instant::now();
        (0..3).for_each(|connection| audit.note(entry(connection)));
        assert!(begun.elapsed().as_secs() < 10);
        assert_eq!(audit.left_out.load(Ordering::Relaxed), 2);
        let (dir, left_out) = (tempfile::tempdir().unwrap(), audit.left_out.clone());
        drop(audit);
        Writer::open(dir.path(), 1 << 20).unwrap().run(&waiting, &left_out);
        let found: serde_json::Value = serde_json::from_str(&lines(&dir.path().join(FILE))[0]).unwrap();
        assert_eq!(found["left_out"], 2);
    }

    #[test]
    fn what_is_noted_comes_onto_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path()).unwrap();
        audit.note(entry(7));
        audit.finish(Duration::from_secs(10));
        assert_eq!(lines(&dir.path().join(FILE)).len(), 1);
        assert_chained(&lines(&dir.path().join(FILE)), NOTHING_BEFORE.to_owned());
    }
}
