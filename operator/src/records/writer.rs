//! One thread commits what many tasks write: a group per sync.
//!
//! The first commit that fails is the last: sled answers every later one with the same error, and a sync that failed once
//! may succeed the next time without having written anything. What holds is on disk; the next start reads it.

use std::sync::Arc;
use std::thread::JoinHandle;

use sandbox_protocol::CallKey;
use sled::IVec;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::changes::Changes;
use super::copy::CopyOrder;
use super::disk::Disk;
use super::events::{EventLog, Happened};
use super::{COMMIT, RecordsError, vault};
use crate::failpoint::Failpoint;
use crate::limits::{WRITE_GROUP_MAX, WRITE_QUEUE_MAX};

/// What is written whole or not at all.
#[derive(Default)]
pub(super) struct Write {
    pub(super) batch: Batch,
    /// What it is mainly of, in a word.
    pub(super) what: &'static str,
    /// Calls whose records it changes.
    pub(super) calls: Vec<CallKey>,
    /// What it tells the owners of sandboxes.
    pub(super) events: Vec<Happened>,
    /// A copy of everything, to be made once this is on disk.
    pub(super) copy: Option<CopyOrder>,
}

/// Changes of the store in their order. One of sled's own could not be joined to another.
#[derive(Default)]
pub(super) struct Batch(Vec<(IVec, Option<IVec>)>);

impl Batch {
    pub(super) fn insert(&mut self, key: impl Into<IVec>, value: impl Into<IVec>) {
        let (key, value) = (key.into(), value.into());
        debug_assert!(vault::is_fit(&key, &value), "a secret is not sealed");
        self.0.push((key, Some(value)));
    }

    pub(super) fn remove(&mut self, key: impl Into<IVec>) {
        self.0.push((key.into(), None));
    }

    fn join(self, group: &mut sled::Batch) {
        for (key, value) in self.0 {
            match value {
                Some(value) => group.insert(key, value),
                None => group.remove(key),
            }
        }
    }
}

type Reply = oneshot::Sender<Result<(), Arc<RecordsError>>>;

/// The way to the writing thread.
#[derive(Clone)]
pub(super) struct Writer {
    queue: mpsc::Sender<(Write, Reply)>,
    changes: Changes,
}

/// The writing thread. Dropping it waits until everything queued is on disk.
pub(super) struct WriterThread {
    writer: Option<Writer>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread works with. Every change is told to `changes`, the first failure to `failed`.
pub(super) struct Committer {
    pub(super) disk: Arc<Disk>,
    pub(super) events: EventLog,
    pub(super) changes: Changes,
    pub(super) failed: CancellationToken,
    pub(super) failpoint: Failpoint,
}

/// A place in the queue. Writes are applied in the order in which places are used, so a question asked just before is still
/// true when the write is applied, if nobody else may write meanwhile.
pub(super) struct Place<'a> {
    place: mpsc::Permit<'a, (Write, Reply)>,
    changes: &'a Changes,
}

/// A write that is on its way.
pub(super) struct Written(oneshot::Receiver<Result<(), Arc<RecordsError>>>);

impl Writer {
    /// Applies `write`; it is on disk when this returns.
    pub(super) async fn write(&self, write: Write) -> Result<(), RecordsError> {
        self.place().await?.write(write).on_disk().await
    }

    /// Waits for a place in the queue.
    pub(super) async fn place(&self) -> Result<Place<'_>, RecordsError> {
        let place = self.queue.reserve().await.map_err(|_| RecordsError::Stopped)?;
        Ok(Place { place, changes: &self.changes })
    }
}

impl Place<'_> {
    /// Queues `write`.
    pub(super) fn write(self, write: Write) -> Written {
        let (reply, written) = oneshot::channel();
        self.changes.begin(&write.calls);
        self.place.send((write, reply));
        Written(written)
    }
}

impl Written {
    /// Returns when it is on disk.
    pub(super) async fn on_disk(self) -> Result<(), RecordsError> {
        self.0.await.map_err(|_| RecordsError::Stopped)?.map_err(RecordsError::Commit)
    }
}

impl WriterThread {
    /// Starts writing.
    pub(super) fn start(committer: Committer) -> Result<Self, RecordsError> {
        let (queue, waiting) = mpsc::channel(WRITE_QUEUE_MAX);
        let (stop, stopped) = oneshot::channel();
        let changes = committer.changes.clone();
        let thread = std::thread::Builder::new()
            .name("records".into())
            .spawn(move || futures::executor::block_on(committer.run(waiting, stopped)))
            .map_err(RecordsError::Sync)?;
        Ok(Self { writer: Some(Writer { queue, changes }), stop: Some(stop), thread: Some(thread) })
    }

    /// The way to this thread.
    pub(super) fn writer(&self) -> Writer {
        match &self.writer {
            Some(writer) => writer.clone(),
            None => unreachable!("taken only by drop"),
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.writer.take();
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the record writer panicked");
        }
    }
}

impl Committer {
    async fn run(mut self, mut waiting: mpsc::Receiver<(Write, Reply)>, mut stopped: oneshot::Receiver<()>) {
        let mut group = Vec::with_capacity(WRITE_GROUP_MAX);
        loop {
            let received = tokio::select! {
                biased;
                received = waiting.recv_many(&mut group, WRITE_GROUP_MAX) => received,
                _ = &mut stopped => 0,
            };
            if received == 0 || !self.commit(&mut group) {
                return;
            }
        }
    }

    /// Gets a group onto the disk and tells those who wait; whether it succeeded.
    fn commit(&mut self, group: &mut Vec<(Write, Reply)>) -> bool {
        let (writes, replies): (Vec<Write>, Vec<Reply>) = group.drain(..).unzip();
        let committed = self.sync(writes).map_err(Arc::new);
        if let Err(error) = &committed {
            tracing::error!(error = %crate::error_chain(error.as_ref()), "the record store failed");
            self.failed.cancel();
        }
        for reply in replies {
            if reply.send(committed.clone()).is_err() {
                tracing::debug!("the writer of a record no longer waits");
            }
        }
        committed.is_ok()
    }

    fn sync(&mut self, writes: Vec<Write>) -> Result<(), RecordsError> {
        let what = writes.iter().map(|write| write.what).find(|what| !what.is_empty());
        let _step = self.failpoint.step(COMMIT, what.unwrap_or("the cursor"));
        let (mut calls, mut copies, mut group) = (Vec::new(), Vec::new(), sled::Batch::default());
        for mut write in writes {
            self.events.enter(&mut write)?;
            write.batch.join(&mut group);
            calls.extend(write.calls);
            copies.extend(write.copy);
        }
        // One for the whole group: each costs the log an entry of its own.
        self.disk.tree().apply_batch(group).map_err(RecordsError::Write)?;
        self.disk.sync()?;
        self.events.publish();
        copies.into_iter().for_each(|copy| copy.fulfil(self.disk.tree()));
        self.changes.end(&calls);
        Ok(())
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.failed.cancel();
        }
        if self.failed.is_cancelled() {
            // A store that broke off in a write waits for its end for ever when it is closed.
            std::mem::forget(self.disk.tree().clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_group_changes_twice_the_last_change_counts() {
        let dir = tempfile::tempdir().unwrap();
        let tree = sled::open(dir.path()).unwrap();
        let mut writes = [Batch::default(), Batch::default()];
        writes[0].insert("changed", "one");
        writes[0].insert("removed", "one");
        writes[0].remove("returned");
        writes[1].insert("changed", "two");
        writes[1].remove("removed");
        writes[1].insert("returned", "two");
        let mut group = sled::Batch::default();
        writes.into_iter().for_each(|write| write.join(&mut group));
        tree.apply_batch(group).unwrap();
        let found = ["changed", "removed", "returned"].map(|key| tree.get(key).unwrap());
        assert_eq!(found, [Some("two".into()), None, Some("two".into())]);
    }
}
