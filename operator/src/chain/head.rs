//! The newest block: told by a subscription where the node offers one, looked for where not.

use alloy::network::Ethereum;
use alloy::providers::{Provider as _, ProviderBuilder, WsConnect};
use alloy::transports::http::reqwest::Url;
use alloy::transports::{TransportError, TransportErrorKind};
use futures::StreamExt as _;
use sandbox_sdk::Chain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::until_answered;
use crate::limits::{HEAD_LOOKS_MAX, HEAD_PAUSE, HEAD_SILENCE_MAX, SUBSCRIBE_TIMEOUT};

/// Follows the head until `stop`, starting from the block it first finds.
pub(crate) async fn follow(chain: Chain, ws_url: Option<Url>, stop: CancellationToken) -> watch::Receiver<u64> {
    let first = until_answered("head", || chain.head()).await;
    let (publish, head) = watch::channel(first);
    tokio::spawn(async move {
        let following = async {
            loop {
                if let Some(url) = &ws_url {
                    match subscribed(&chain, url, &publish).await {
                        Ok(()) => tracing::warn!("the subscription to new blocks ended; looking for them"),
                        Err(error) => {
                            tracing::warn!(error = %crate::error_chain(&error), "cannot subscribe to new blocks")
                        }
                    }
                }
                for _ in 0..HEAD_LOOKS_MAX {
                    look(&chain, &publish).await;
                    tokio::time::sleep(HEAD_PAUSE).await;
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = following => {}
        }
    });
    head
}

/// Publishes what the node tells, until it tells no more. Silence is checked, since a dead link is silent too.
async fn subscribed(chain: &Chain, url: &Url, publish: &watch::Sender<u64>) -> Result<(), TransportError> {
    let connecting = async {
        let provider = ProviderBuilder::<_, _, Ethereum>::default().connect_ws(WsConnect::new(url.clone())).await?;
        let blocks = provider.subscribe_blocks().await?.into_stream();
        Ok::<_, TransportError>((provider, blocks))
    };
    let (_provider, mut blocks) = tokio::time::timeout(SUBSCRIBE_TIMEOUT, connecting)
        .await
        .map_err(|_| TransportErrorKind::custom_str("no subscription in time"))??;
    look(chain, publish).await;
    loop {
        match tokio::time::timeout(HEAD_SILENCE_MAX, blocks.next()).await {
            // Only the fact is taken from it: the height is asked of the node that everything else is asked of.
            Ok(Some(_)) => drop(look(chain, publish).await),
            Ok(None) => return Ok(()),
            Err(_) if look(chain, publish).await => return Ok(()),
            Err(_) => {}
        }
    }
}

/// Asks for the head; whether it had moved.
async fn look(chain: &Chain, publish: &watch::Sender<u64>) -> bool {
    let found = until_answered("head", || chain.head()).await;
    let moved = found > *publish.borrow();
    announce(publish, found);
    moved
}

fn announce(publish: &watch::Sender<u64>, block: u64) {
    publish.send_if_modified(|head| {
        let rises = block > *head;
        if rises {
            *head = block;
        }
        rises
    });
}
