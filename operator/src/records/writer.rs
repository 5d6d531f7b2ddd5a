//! One thread commits what many tasks write: a group per sync.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::RecordsError;
use crate::limits::{WRITE_GROUP_MAX, WRITE_QUEUE_MAX};

type Reply = oneshot::Sender<Result<(), Arc<RecordsError>>>;

/// The way to the writing thread.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<(sled::Batch, Reply)>,
}

/// The writing thread. Dropping it waits until everything queued is on disk.
pub(crate) struct WriterThread {
    writer: Option<Writer>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Applies `batch` whole; it is on disk when this returns.
    pub(crate) async fn write(&self, batch: sled::Batch) -> Result<(), RecordsError> {
        let (reply, written) = oneshot::channel();
        self.queue.send((batch, reply)).await.map_err(|_| RecordsError::Stopped)?;
        let written = written.await.map_err(|_| RecordsError::Stopped)?;
        written.map_err(|error| match Arc::try_unwrap(error) {
            Ok(error) => error,
            Err(shared) => RecordsError::Sync(io::Error::other(shared.to_string())),
        })
    }
}

impl WriterThread {
    /// Starts writing into `db`, whose pages are in `file`.
    pub(crate) fn start(db: sled::Db, file: &Path) -> Result<Self, RecordsError> {
        let file = File::open(file).map_err(RecordsError::Sync)?;
        let (queue, mut waiting) = mpsc::channel::<(sled::Batch, Reply)>(WRITE_QUEUE_MAX);
        let (stop, mut stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("records".into())
            .spawn(move || {
                let mut group = Vec::with_capacity(WRITE_GROUP_MAX);
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                let Ok(runtime) = runtime else { return };
                loop {
                    let received = runtime.block_on(async {
                        tokio::select! {
                            biased;
                            received = waiting.recv_many(&mut group, WRITE_GROUP_MAX) => received,
                            _ = &mut stopped => 0,
                        }
                    });
                    if received == 0 {
                        return;
                    }
                    commit(&db, &file, group.drain(..));
                }
            })
            .map_err(RecordsError::Sync)?;
        Ok(Self { writer: Some(Writer { queue }), stop: Some(stop), thread: Some(thread) })
    }

    /// The way to this thread.
    pub(crate) fn writer(&self) -> Writer {
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

fn commit(db: &sled::Db, file: &File, group: impl Iterator<Item = (sled::Batch, Reply)>) {
    let mut replies = Vec::new();
    let mut applied = Ok(());
    for (batch, reply) in group {
        if applied.is_ok() {
            applied = db.apply_batch(batch).map_err(RecordsError::Write);
        }
        replies.push(reply);
    }
    let synced = applied
        .and_then(|()| db.flush().map(drop).map_err(RecordsError::Write))
        .and_then(|()| file.sync_data().map_err(RecordsError::Sync))
        .map_err(Arc::new);
    for reply in replies {
        if reply.send(synced.clone()).is_err() {
            tracing::debug!("the writer of a record no longer waits");
        }
    }
}
