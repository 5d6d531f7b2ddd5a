//! The one task that owns the operator's key and its nonces.
//!
//! Processes that share a key (one per service under the Blueprint Manager) take turns by a lock beside it.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs4::FileExt;
use sandbox_sdk::Account;
use sandbox_sdk::calls::Invocation;
use sandbox_sdk::chain::{Mined, SendError};
use tokio::sync::{mpsc, oneshot};

use crate::failpoint::Failpoint;
use crate::limits::{KEY_LOCK_TIMEOUT, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, SENDER_QUEUE_MAX};

type Request = (Invocation, oneshot::Sender<Result<Mined, SendError>>);

/// The way to the task. Clones share it.
#[derive(Clone)]
pub(crate) struct Sender {
    queue: mpsc::Sender<Request>,
}

/// A transaction that was not sent because the process is stopping.
#[derive(Debug, thiserror::Error)]
#[error("the sender has stopped")]
pub(crate) struct Stopped;

impl Sender {
    /// Starts the task for `account`, whose lock is `lock`. It ends when nobody can reach it any more.
    pub(crate) fn start(account: Account, lock: PathBuf, failpoint: Failpoint) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Request>(SENDER_QUEUE_MAX);
        tokio::spawn(async move {
            while let Some((invocation, reply)) = waiting.recv().await {
                let turn = take_turn(&lock).await;
                let step = failpoint.step("chain", "send");
                let sent = account.send(&invocation).await;
                drop((step, turn));
                if reply.send(sent).is_err() {
                    tracing::debug!("nobody waits for a transaction any more");
                }
            }
        });
        Self { queue }
    }

    /// Sends and waits until it is in a block.
    pub(crate) async fn send(&self, invocation: Invocation) -> Result<Result<Mined, SendError>, Stopped> {
        let (reply, sent) = oneshot::channel();
        self.queue.send((invocation, reply)).await.map_err(|_| Stopped)?;
        sent.await.map_err(|_| Stopped)
    }
}

/// The turn of this process; dropping it gives it on. Where it does not come in time, the send goes ahead: a nonce that two
/// processes used is refused and tried again, while a receipt that waits for ever is lost.
async fn take_turn(path: &Path) -> Option<File> {
    let taking = async {
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            match lock(path) {
                Ok(Some(file)) => return Some(file),
                Ok(None) => tracing::debug!("another process of this key is sending"),
                Err(error) => tracing::warn!(%error, lock = %path.display(), "cannot lock the key"),
            }
            tokio::time::sleep(pause).await;
            pause = Duration::min(pause * 2, RETRY_PAUSE_MAX);
        }
    };
    tokio::time::timeout(KEY_LOCK_TIMEOUT, taking).await.unwrap_or_else(|_| {
        tracing::warn!(lock = %path.display(), "the key's turn did not come; sending all the same");
        None
    })
}

/// `None` where another process holds it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    match FileExt::try_lock(&file) {
        Ok(()) => Ok(Some(file)),
        Err(fs4::TryLockError::WouldBlock) => Ok(None),
        Err(fs4::TryLockError::Error(error)) => Err(error),
    }
}
