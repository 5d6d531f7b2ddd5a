//! The newest block, followed by polling.

use std::time::Duration;

use sandbox_sdk::Chain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::until_answered;

/// Pause between two looks.
const POLL_PAUSE: Duration = Duration::from_millis(200);

/// Follows the head until `stop`, starting from the block it first finds.
pub(crate) async fn follow(chain: Chain, stop: CancellationToken) -> watch::Receiver<u64> {
    let first = until_answered("head", || chain.head()).await;
    let (publish, head) = watch::channel(first);
    tokio::spawn(async move {
        let polling = async {
            loop {
                tokio::time::sleep(POLL_PAUSE).await;
                let found = until_answered("head", || chain.head()).await;
                publish.send_if_modified(|head| std::mem::replace(head, found) != found);
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = polling => {}
        }
    });
    head
}
