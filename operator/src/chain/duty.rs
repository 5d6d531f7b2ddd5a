//! Whose a call is, by the contract's word. Silence is no word.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::providers::Provider as _;
use alloy::transports::TransportError;
use sandbox_protocol::CallKey;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::Assignment;
use sandbox_sdk::contracts::ITangleCore::ITangleCoreErrors;
use sandbox_sdk::reverts::Refusal;
use tokio::sync::watch;

use super::head::Look;
use crate::limits::STANDINGS_MAX;

/// Why the chain does not say what a call is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    /// The logs were not read.
    #[error("the logs were not read")]
    Logs(#[source] TransportError),
    /// A block was not read.
    #[error(transparent)]
    Block(#[from] super::blocks::BlockError),
    /// The node knows of none, though its own log speaks of it.
    #[error("the node does not know it yet")]
    NotYet,
    /// The node was on one fork when it was first asked, and on another when it was asked again.
    #[error("the chain changed while it was read")]
    Moved,
    /// The chain was not asked.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A contract was not asked about a block.
    #[error("the chain did not answer for a block")]
    Node(#[source] Box<alloy::contract::Error>),
    /// What a transaction would come to was not told.
    #[error("the chain did not answer")]
    Call(#[source] TransportError),
}

/// Asks the contract on behalf of one operator. Clones share what they learned.
#[derive(Debug, Clone)]
pub(crate) struct Duty {
    chain: Chain,
    me: Address,
    looks: watch::Receiver<Look>,
    learned: Arc<Mutex<Learned>>,
}

/// How calls stood while the block of this hash was the newest.
#[derive(Debug, Default)]
struct Learned {
    newest: B256,
    standings: HashMap<CallKey, Standing>,
}

/// How a call stands for this operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is waited for.
    Mine {
        /// Last block in which the answer is expected.
        deadline_block: u64,
    },
    /// It has this operator's answer.
    Answered,
    /// It is another operator's.
    Elsewhere,
}

impl Duty {
    /// The duty of `me`, by the looks at the newest block.
    pub(crate) fn new(chain: Chain, me: Address, looks: watch::Receiver<Look>) -> Self {
        Self { chain, me, looks, learned: Arc::default() }
    }

    /// How a call stands. A node that knows of none is behind.
    pub(crate) async fn standing(&self, key: CallKey) -> Result<Standing, LookupError> {
        let newest = self.newest();
        let assignment = self.chain.assignment(key).await?.ok_or(LookupError::NotYet)?;
        let standing = self.standing_by(key, &assignment).await?;
        // What was read between two blocks may be of either.
        if newest == self.newest() {
            self.with_learned(newest, |standings| standings.insert(key, standing));
        }
        Ok(standing)
    }

    /// How a call stands, without a question where that was learned since the newest block came.
    pub(crate) async fn standing_now(&self, key: CallKey) -> Result<Standing, LookupError> {
        match self.with_learned(self.newest(), |standings| standings.get(&key).copied()) {
            Some(standing) => Ok(standing),
            None => self.standing(key).await,
        }
    }

    fn newest(&self) -> B256 {
        self.looks.borrow().block.hash
    }

    /// What was learned while this block was the newest: nothing yet, where that was another one, or it is too much.
    fn with_learned<T>(&self, newest: B256, act: impl FnOnce(&mut HashMap<CallKey, Standing>) -> T) -> T {
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if learned.newest != newest || learned.standings.len() >= STANDINGS_MAX {
            *learned = Learned { newest, standings: HashMap::new() };
        }
        act(&mut learned.standings)
    }

    /// How a call with this assignment stands. Of a batch it may be one of many's.
    async fn standing_by(&self, key: CallKey, assignment: &Assignment) -> Result<Standing, LookupError> {
        let (is_mine, is_answered) = if assignment.parts == 0 {
            (assignment.operator == self.me, assignment.answered)
        } else {
            let parts = self.chain.parts(key).await?;
            let mine = parts.iter().find(|part| part.operator == self.me);
            (mine.is_some(), mine.is_some_and(|part| part.answered))
        };
        Ok(match (is_mine, is_answered) {
            (true, false) => Standing::Mine { deadline_block: assignment.deadlineBlock },
            (true, true) => Standing::Answered,
            (false, _) => Standing::Elsewhere,
        })
    }

    /// Whether another operator could be given the call now: what anybody's asking for it would come to.
    pub(crate) async fn could_move(&self, key: CallKey) -> Result<bool, LookupError> {
        let asking = calls::reassign(self.chain.deployment(), key).transaction(self.me);
        match self.chain.provider().call(asking).await {
            Ok(_) => Ok(true),
            Err(error) if Refusal::of(&error).is_some() => Ok(false),
            Err(error) => Err(LookupError::Call(error)),
        }
    }

    /// Whether anybody beside this operator serves the service.
    pub(crate) async fn is_alone(&self, service: u64) -> Result<bool, LookupError> {
        Ok(self.chain.operators(service).await?.iter().all(|operator| *operator == self.me))
    }

    /// Whether the core had a call of this id in the block of this hash. A node without that block gives no answer.
    pub(crate) async fn existed(&self, key: CallKey, block: B256) -> Result<bool, LookupError> {
        let core = self.chain.core();
        let found = core.getJobCall(key.service, key.call).block(BlockId::from(block)).call().await;
        match found {
            Ok(call) => Ok(call.caller != Address::ZERO),
            Err(error) => match Refusal::of_contract(&error) {
                Some(Refusal::Core(ITangleCoreErrors::JobCallNotFound(_))) => Ok(false),
                Some(_) | None => Err(LookupError::Node(Box::new(error))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Bytes;
    use alloy::sol_types::SolValue as _;
    use alloy::transports::mock::Asserter;
    use sandbox_protocol::Job;

    use super::*;
    use crate::chain::mocked;

    #[tokio::test]
    async fn how_a_call_stands_is_asked_once_for_each_newest_block() {
        let (key, me, answers) = (CallKey { service: 1, call: 2 }, Address::repeat_byte(7), Asserter::new());
        let chain = mocked::chain(&answers).await;
        let (looks, looked) = watch::channel(Look::now(10));
        let duty = Duty::new(chain, me, looked);
        let mine = mocked::assignment(Job::Exec, me, Address::repeat_byte(8), 90);
        let others = Assignment { operator: Address::repeat_byte(9), ..mine.clone() };

        answers.push_success(&Bytes::from(mine.abi_encode()));
        let is_mine = Standing::Mine { deadline_block: 90 };
        assert_eq!(duty.standing(key).await.unwrap(), is_mine);
        assert_eq!(duty.clone().standing_now(key).await.unwrap(), is_mine, "without an answer of the node's");
        assert!(duty.standing(key).await.is_err(), "who asks for what is so now gets no older word");

        looks.send_modify(|look| look.block.hash = B256::repeat_byte(1));
        answers.push_success(&Bytes::from(others.abi_encode()));
        assert_eq!(duty.standing_now(key).await.unwrap(), Standing::Elsewhere);
    }
}
