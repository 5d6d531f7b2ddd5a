//! A consistent copy of the records, and records made from one.
//!
//! The writing thread makes the copy between two groups, so it is what a restart at that instant would have found. A line
//! per record: key and value in hex. What is sealed stays so: it takes no key to copy it.

use std::fs::File;
use std::io::{self, BufRead, BufWriter, Seek as _, Write as _};
use std::path::Path;

use tokio::sync::oneshot;

use super::{Records, RecordsError, STORE_DIR, VERSION_KEY, Vault, Write};

/// Set for good where the records came from a copy.
const RESTORED_KEY: &[u8] = b"restored";
/// The layout of records that are being restored: whatever opens them half-way refuses them.
const HALF_RESTORED: u64 = u64::MAX;

/// A copy that is to be made.
pub(super) struct CopyOrder {
    file: File,
    done: oneshot::Sender<io::Result<u64>>,
}

impl CopyOrder {
    /// Makes the copy. What fails concerns it alone, and not the store.
    pub(super) fn fulfil(self, tree: &sled::Tree) {
        if self.done.send(write_lines(tree, self.file)).is_err() {
            tracing::debug!("nobody waits for a copy of the records any more");
        }
    }
}

impl Records {
    /// Writes a copy of everything into `file`, from its current position; gives the number of records.
    pub(crate) async fn copy_to(&self, file: File) -> Result<u64, RecordsError> {
        let (done, copied) = oneshot::channel();
        let order = Some(CopyOrder { file, done });
        self.writer.write(Write { copy: order, ..Write::default() }).await?;
        copied.await.map_err(|_| RecordsError::Stopped)?.map_err(RecordsError::Copy)
    }

    /// Makes the records of `dir`, which must hold none, from a copy; gives their number.
    pub(crate) fn restore(dir: &Path, copy: impl BufRead) -> Result<u64, RecordsError> {
        // Disks of sandboxes may be there still: they are what the records speak of.
        if dir.join(STORE_DIR).exists() {
            return Err(RecordsError::InTheWay { dir: dir.into() });
        }
        let (records, _guard) = Self::open_with(dir, Vault::locked())?;
        records.write_now(VERSION_KEY, &HALF_RESTORED)?;
        let mut version = None;
        let mut count = 0;
        for line in copy.lines() {
            let line = line.map_err(RecordsError::Copy)?;
            let (key, value) = parse(&line).ok_or(RecordsError::Damaged { line: count + 1 })?;
            count += 1;
            if key == VERSION_KEY {
                version = Some(value);
                continue;
            }
            records.tree.insert(key, value).map_err(RecordsError::Write)?;
        }
        records.disk.sync()?;
        records.write_now(RESTORED_KEY, &true)?;
        let version = version.ok_or(RecordsError::Damaged { line: count })?;
        records.tree.insert(VERSION_KEY, version).map_err(RecordsError::Write)?;
        records.disk.sync()?;
        records.check_version()?;
        Ok(count)
    }

    /// Whether these records came from a copy, so that what was made after it is not in them.
    pub(crate) fn are_restored(&self) -> Result<bool, RecordsError> {
        Ok(self.read(RESTORED_KEY)?.unwrap_or(false))
    }
}

fn write_lines(tree: &sled::Tree, file: File) -> io::Result<u64> {
    let mut out = BufWriter::new(file);
    let mut count = 0;
    for entry in tree.iter() {
        let (key, value) = entry.map_err(io::Error::other)?;
        writeln!(out, "{} {}", hex::encode(key), hex::encode(value))?;
        count += 1;
    }
    let mut file = out.into_inner()?;
    file.sync_all()?;
    file.rewind()?;
    Ok(count)
}

fn parse(line: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (key, value) = line.split_once(' ')?;
    Some((hex::decode(key).ok()?, hex::decode(value).ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use sandbox_protocol::CallKey;

    use super::super::CallRecord;
    use super::*;

    fn call(call: u64) -> CallRecord {
        CallRecord::seen(CallKey { service: 1, call }, 0, [1; 20].into(), vec![1, 2].into(), 5)
    }

    /// Records with two calls, and a copy of them.
    async fn copied(dir: &Path) -> (File, u64) {
        let (records, _guard) = Records::open(dir).unwrap();
        records.take_in(&[call(1), call(2)], 9).await.unwrap();
        let copy = dir.join("copy");
        let file = File::options().create_new(true).read(true).write(true).open(&copy).unwrap();
        let count = records.copy_to(file).await.unwrap();
        (File::open(copy).unwrap(), count)
    }

    #[tokio::test]
    async fn records_made_from_a_copy_are_those_that_were_copied() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (copy, count) = copied(from.path()).await;
        assert_eq!(Records::restore(to.path(), BufReader::new(copy)).unwrap(), count);
        let (records, _guard) = Records::open(to.path()).unwrap();
        assert!(records.are_restored().unwrap());
        assert!(!Records::open(from.path()).unwrap().0.are_restored().unwrap());
        assert_eq!(records.open_calls().unwrap(), [call(1), call(2)]);
        assert_eq!(records.cursor().unwrap(), Some(9));
    }

    #[tokio::test]
    async fn a_directory_in_use_takes_no_copy() {
        let from = tempfile::tempdir().unwrap();
        let (copy, _) = copied(from.path()).await;
        let refused = Records::restore(from.path(), BufReader::new(copy));
        assert!(matches!(refused, Err(RecordsError::InTheWay { .. })), "{refused:?}");
    }

    #[tokio::test]
    async fn a_damaged_copy_leaves_nothing_that_a_node_would_open() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (copy, _) = copied(from.path()).await;
        let lines: Vec<String> = BufReader::new(copy).lines().map(Result::unwrap).collect();
        let damaged = format!("{}\n{}\nzz", lines[0], lines[1]);
        let refused = Records::restore(to.path(), damaged.as_bytes());
        assert!(matches!(refused, Err(RecordsError::Damaged { line: 3 })), "{refused:?}");
        assert!(matches!(Records::open(to.path()), Err(RecordsError::Version { .. })));
    }
}
