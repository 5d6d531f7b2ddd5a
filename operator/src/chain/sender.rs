//! The one task that owns the operator's key and its nonces.
//!
//! Processes that share a key (one per service under the Blueprint Manager) take turns by a lock that names the address.

use std::fs::File;
use std::path::PathBuf;

use crate::limits::SENDER_QUEUE_MAX;
use alloy::primitives::Address;
use fs4::FileExt;
use sandbox_sdk::Account;
use sandbox_sdk::calls::Invocation;
use sandbox_sdk::chain::{Mined, SendError};
use tokio::sync::{mpsc, oneshot};

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
    /// Starts the task for `account`. It ends when nobody can reach it any more.
    pub(crate) fn start(account: Account) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Request>(SENDER_QUEUE_MAX);
        tokio::spawn(async move {
            while let Some((invocation, reply)) = waiting.recv().await {
                let turn = take_turn(account.address()).await;
                let sent = account.send(&invocation).await;
                drop(turn);
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

/// The turn of this process; dropping it gives it on. Without a place for the lock there are no others to wait for.
async fn take_turn(address: Address) -> Option<File> {
    let path = lock_path(address);
    let locked = tokio::task::spawn_blocking(move || {
        let file = File::create(&path)?;
        FileExt::lock(&file)?;
        Ok::<_, std::io::Error>(file)
    });
    match locked.await {
        Ok(Ok(file)) => Some(file),
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot lock the key against other processes; going on");
            None
        }
        Err(error) => {
            tracing::error!(%error, "locking the key panicked; going on");
            None
        }
    }
}

fn lock_path(address: Address) -> PathBuf {
    std::env::temp_dir().join(format!("agent-sandbox-{address}.lock"))
}
