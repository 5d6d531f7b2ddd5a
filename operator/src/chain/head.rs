//! The newest block: told by a subscription where the node offers one, looked for where not.

use std::time::{Duration, SystemTime};

use alloy::network::Ethereum;
use alloy::providers::{Provider as _, ProviderBuilder, WsConnect};
use alloy::transports::http::reqwest::Url;
use alloy::transports::{TransportError, TransportErrorKind};
use futures::StreamExt as _;
use sandbox_sdk::Chain;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::blocks::{self, Block, BlockError};
use super::until_answered_within;
use crate::limits::{HEAD_LOOKS_MAX, HEAD_PAUSE, HEAD_RECHECK, HEAD_SILENCE_MAX, SUBSCRIBE_TIMEOUT, VIEW_AGE_MAX};

/// What is known of the newest block.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// Its number as far as it has risen: where the chain went back, that of the longer fork.
    pub(crate) height: watch::Receiver<u64>,
    /// Every look at it.
    pub(crate) looks: watch::Receiver<Look>,
}

/// One look at the newest block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// The block.
    pub(crate) block: Block,
    /// When the block itself was last read, and not its number alone.
    checked: Instant,
    /// When the node last said that it is the newest.
    pub(crate) at: Instant,
}

impl Look {
    /// A look now at a block of this number, for what is measured without a chain.
    #[cfg(test)]
    pub(crate) fn now(number: u64) -> Self {
        let (time_s, now) = (0, Instant::now());
        Self {
            block: Block { number, hash: Default::default(), parent: Default::default(), time_s },
            checked: now,
            at: now,
        }
    }

    /// Why no effect may begin on what this look showed; `None` where it may. `age_s_max` bounds the block's own age; zero
    /// is without bound.
    pub(crate) fn staleness(&self, now: (Instant, SystemTime), age_s_max: u64) -> Option<Staleness> {
        if now.0.saturating_duration_since(self.at) > VIEW_AGE_MAX {
            return Some(Staleness::NoAnswer);
        }
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(self.block.time_s);
        let age = now.1.duration_since(made).unwrap_or_default();
        (age_s_max != 0 && age.as_secs() > age_s_max).then_some(Staleness::OldBlock)
    }
}

/// Why a sight of the chain is too old to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staleness {
    /// The node has not answered for a while.
    NoAnswer,
    /// The node answers, but its newest block is old.
    OldBlock,
}

struct Publisher {
    height: watch::Sender<u64>,
    looks: watch::Sender<Look>,
}

/// Follows the head until `stop`, starting from the block it first finds.
pub(crate) async fn follow(chain: Chain, ws_url: Option<Url>, stop: CancellationToken) -> Head {
    let (block, now) = (newest(&chain).await, Instant::now());
    let (height, heights) = watch::channel(block.number);
    let (looks, looked) = watch::channel(Look { block, checked: now, at: now });
    let publish = Publisher { height, looks };
    tokio::spawn(stop.run_until_cancelled_owned(async move {
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
    }));
    Head { height: heights, looks: looked }
}

/// Publishes what the node tells, until it tells no more. Silence is checked, since a dead link is silent too.
async fn subscribed(chain: &Chain, url: &Url, publish: &Publisher) -> Result<(), TransportError> {
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
            // Only the fact is taken from it: the block is asked of the node that everything else is asked of.
            Ok(Some(_)) => drop(look(chain, publish).await),
            Ok(None) => return Ok(()),
            Err(_) if look(chain, publish).await => return Ok(()),
            Err(_) => {}
        }
    }
}

/// Looks at the head; whether it had moved on. While its number stays, the block is looked at only now and then.
async fn look(chain: &Chain, publish: &Publisher) -> bool {
    let known = *publish.looks.borrow();
    let number = until_answered_within("head", HEAD_SILENCE_MAX, || chain.head()).await;
    let now = Instant::now();
    let look = if number == known.block.number && now.duration_since(known.checked) < HEAD_RECHECK {
        Look { at: now, ..known }
    } else {
        Look { block: newest(chain).await, checked: now, at: now }
    };
    publish.looks.send_replace(look);
    let moved = look.block.number > *publish.height.borrow();
    if moved {
        publish.height.send_replace(look.block.number);
    }
    moved
}

async fn newest(chain: &Chain) -> Block {
    let ask = || async { blocks::at(chain, chain.head().await?).await?.ok_or(BlockError::NotYet) };
    until_answered_within("newest block", HEAD_SILENCE_MAX, ask).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answered_ago: Duration, made_ago: Duration, age_s_max: u64, expected: Option<Staleness>) {
        let now = (Instant::now() + answered_ago, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000) + made_ago);
        let block = Block { number: 1, hash: Default::default(), parent: Default::default(), time_s: 1_000_000 };
        let at = now.0 - answered_ago;
        assert_eq!(Look { block, checked: at, at }.staleness(now, age_s_max), expected);
    }

    #[test]
    fn a_sight_is_too_old_when_the_node_is_silent_or_its_newest_block_is_of_long_ago() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        check(VIEW_AGE_MAX, minute, 60, None);
        check(VIEW_AGE_MAX + second, minute, 60, Some(Staleness::NoAnswer));
        check(second, minute + second, 60, Some(Staleness::OldBlock));
        check(second, minute * 60, 0, None);
    }
}
