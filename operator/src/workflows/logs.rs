//! The logs that workflows wait for, as far as the node gives them.
//!
//! A range that it refuses is halved. Of a single block, what it refuses for all is asked for apart: who waits for a contract of which no
//! node gives the logs misses them, and nobody else does.

use alloy::primitives::{Address, B256};
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, Log};
use alloy::transports::TransportError;
use sandbox_sdk::Chain;
use tokio::time::sleep;

use crate::limits::{RETRY_PAUSE_MIN, WORKFLOW_FILTERS_MAX, WORKFLOW_LOG_TRIES_MAX};

/// A contract, and the first topic of an event of it.
pub(super) type Place = (Address, B256);

/// Logs in their order.
pub(super) struct Read {
    pub(super) logs: Vec<Log>,
    /// The block up to which they are all.
    pub(super) to: u64,
}

/// Reads the logs that may be of these places, from `from` on to `to` or as far as the node gives them at once.
pub(super) async fn read(chain: &Chain, places: &[Place], (from, mut to): (u64, u64)) -> Result<Read, TransportError> {
    let mut logs = loop {
        let error = match ask(chain, places, (from, to)).await {
            Ok(logs) => break logs,
            Err(error) => error,
        };
        answers(chain).await?;
        if from == to {
            break read_apart(chain, places, from).await?;
        }
        tracing::warn!(from, to, %error, "logs that may fire are refused; asking for less");
        to = from + (to - from) / 2;
    };
    logs.retain(|log| !log.removed);
    logs.sort_by_key(|log| (log.block_number, log.log_index));
    Ok(Read { logs, to })
}

/// Reads the logs of a block of which the node does not give all at once, without those of places that it refuses by themselves.
async fn read_apart(chain: &Chain, places: &[Place], block: u64) -> Result<Vec<Log>, TransportError> {
    let (mut logs, mut refused) = (Vec::new(), Vec::new());
    let mut rest = vec![places];
    while let Some(some) = rest.pop() {
        match (ask(chain, some, (block, block)).await, some) {
            (Ok(found), _) => logs.extend(found),
            (Err(_), [place]) => match ask_again(chain, place, block).await {
                Ok(found) => logs.extend(found),
                Err(error) => refused.push((place, error)),
            },
            (Err(_), some) => {
                answers(chain).await?;
                let (first, second) = some.split_at(some.len() / 2);
                rest.extend([second, first]);
            }
        }
    }
    let all_refused = refused.len() == places.len();
    for ((address, topic), error) in refused {
        if all_refused {
            // It may have none of that block now.
            return Err(error);
        }
        tracing::error!(block, %address, %topic, %error, "logs that the node does not give fire nothing");
    }
    Ok(logs)
}

/// Asks for the logs of one place a few times more.
async fn ask_again(chain: &Chain, place: &Place, block: u64) -> Result<Vec<Log>, TransportError> {
    let mut tries = 1;
    loop {
        sleep(RETRY_PAUSE_MIN).await;
        tries += 1;
        match ask(chain, std::slice::from_ref(place), (block, block)).await {
            Err(_) if tries < WORKFLOW_LOG_TRIES_MAX => answers(chain).await?,
            asked => return asked,
        }
    }
}

async fn ask(chain: &Chain, places: &[Place], (from, to): (u64, u64)) -> Result<Vec<Log>, TransportError> {
    let mut logs = Vec::new();
    for some in places.chunks(WORKFLOW_FILTERS_MAX) {
        let (addresses, topics): (Vec<Address>, Vec<B256>) = some.iter().copied().unzip();
        let asked = Filter::new().from_block(from).to_block(to).address(addresses).event_signature(topics);
        logs.extend(chain.provider().get_logs(&asked).await?);
    }
    Ok(logs)
}

/// Whether the node answers at all: one that does not has refused nothing.
async fn answers(chain: &Chain) -> Result<(), TransportError> {
    chain.provider().get_block_number().await.map(drop)
}
