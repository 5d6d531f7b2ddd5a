//! Gets onto the disk what sled has only written.
//!
//! sled's log is one file, which its own flush does not sync for good. A page too long for the log, a quarter of a segment,
//! becomes a file in `blobs`, which sled never syncs. A page holds several records, so any write may bring such a file,
//! not only that of a long record; files are therefore looked for, not foreseen.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use super::RecordsError;

/// A store and its files.
pub(super) struct Disk {
    tree: sled::Tree,
    log: File,
    pages_dir: PathBuf,
    /// Newest page file that is on disk. Their names are places in the log, so they rise.
    newest_synced: AtomicI64,
}

impl Disk {
    /// The files of the store in `dir`, which itself is on disk when this returns.
    pub(super) fn open(tree: sled::Tree, dir: &Path) -> io::Result<Self> {
        File::open(dir)?.sync_all()?;
        let log = File::open(dir.join("db"))?;
        Ok(Self { tree, log, pages_dir: dir.join("blobs"), newest_synced: AtomicI64::new(i64::MIN) })
    }

    /// The store.
    pub(super) const fn tree(&self) -> &sled::Tree {
        &self.tree
    }

    /// Returns when all that was written before is on disk.
    pub(super) fn sync(&self) -> Result<(), RecordsError> {
        // Pages before the log that names them: one that names a file which is not there is cut there when read back.
        self.sync_pages().map_err(RecordsError::Sync)?;
        self.tree.flush().map_err(RecordsError::Write)?;
        self.log.sync_data().map_err(RecordsError::Sync)
    }

    /// Syncs the page files that came since the last time; returns how many.
    fn sync_pages(&self) -> io::Result<usize> {
        let before = self.newest_synced.load(Ordering::Relaxed);
        let (mut synced, mut newest) = (0, before);
        for entry in fs::read_dir(&self.pages_dir)? {
            let entry = entry?;
            let place = entry.file_name().to_str().and_then(|name| name.parse::<i64>().ok());
            let Some(place) = place.filter(|place| *place > before) else { continue };
            match File::open(entry.path()) {
                Ok(file) => file.sync_all()?,
                // Superseded in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            synced += 1;
            newest = newest.max(place);
        }
        if synced > 0 {
            File::open(&self.pages_dir)?.sync_all()?;
        }
        self.newest_synced.store(newest, Ordering::Relaxed);
        Ok(synced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn db(dir: &Path) -> sled::Db {
        sled::Config::new().path(dir).flush_every_ms(None).open().unwrap()
    }

    #[test]
    fn a_page_too_long_for_the_log_is_synced_once() {
        let dir = tempfile::tempdir().unwrap();
        let db = db(dir.path());
        let disk = Disk::open((*db).clone(), dir.path()).unwrap();
        db.insert("short", "value").unwrap();
        assert_eq!(disk.sync_pages().unwrap(), 0);
        db.insert("long", vec![7; 300_000]).unwrap();
        assert_eq!(disk.sync_pages().unwrap(), 1);
        assert_eq!(disk.sync_pages().unwrap(), 0);
    }

    #[test]
    fn short_writes_beside_a_long_record_bring_pages_that_are_synced_too() {
        let dir = tempfile::tempdir().unwrap();
        let db = db(dir.path());
        let disk = Disk::open((*db).clone(), dir.path()).unwrap();
        db.insert("long", vec![7; 300_000]).unwrap();
        disk.sync_pages().unwrap();
        let brought: usize = (0..100_u8)
            .map(|n| {
                db.insert([n], "short").unwrap();
                disk.sync_pages().unwrap()
            })
            .sum();
        assert!(brought > 0, "no short write rewrote the long page");
    }
}
