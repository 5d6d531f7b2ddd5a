//! Blocks by their hashes: what tells one fork from another.

use alloy::consensus::BlockHeader as _;
use alloy::eips::BlockNumberOrTag;
use alloy::network::BlockResponse as _;
use alloy::network::primitives::HeaderResponse as _;
use alloy::primitives::B256;
use alloy::providers::Provider as _;
use alloy::transports::TransportError;
use sandbox_sdk::Chain;

/// What is read of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) number: u64,
    pub(crate) hash: B256,
    /// Hash of the block before it.
    pub(crate) parent: B256,
    /// Second since 1970 in which it was made.
    pub(crate) time_s: u64,
}

/// Why a block is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlockError {
    /// The node was not asked, or did not answer.
    #[error("the node did not answer for a block")]
    Node(#[from] TransportError),
    /// The node has no such block, though it spoke of it.
    #[error("the node does not know the block yet")]
    NotYet,
}

/// The newest block that the node has.
pub(crate) async fn newest(chain: &Chain) -> Result<Block, BlockError> {
    find(chain, BlockNumberOrTag::Latest).await?.ok_or(BlockError::NotYet)
}

/// The block of this number on the node's present fork.
pub(crate) async fn at(chain: &Chain, number: u64) -> Result<Option<Block>, BlockError> {
    find(chain, number.into()).await
}

async fn find(chain: &Chain, which: BlockNumberOrTag) -> Result<Option<Block>, BlockError> {
    let found = chain.provider().get_block_by_number(which).await?;
    Ok(found.map(|block| {
        let header = block.header();
        Block { number: header.number(), hash: header.hash(), parent: header.parent_hash(), time_s: header.timestamp() }
    }))
}
