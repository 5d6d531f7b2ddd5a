//! Commands on the operator itself: its offer and its earnings.

use alloy::primitives::{Address, B256, U256};
use sandbox_process::source::Source;
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::chain::Mined;
use sandbox_sdk::{Account, Chain};
use serde_json::json;

use super::{CommandError, Output};
use crate::chain::counted::Questions;
use crate::chain::key::SealKeys;
use crate::chain::registration::{self, Standing};
use crate::chain::sender::Sender;
use crate::chain::{connect, key};
use crate::config::{self, Config};
use crate::failpoint::Failpoint;

/// The operator's account on its chain, sending in turn with a running node.
pub(super) struct Hands {
    pub(super) chain: Chain,
    pub(super) me: Address,
    pub(super) seal_keys: SealKeys,
    sender: Sender,
}

impl Hands {
    /// The account, once the node of the chain answers.
    pub(super) async fn new(source: &impl Source) -> Result<Self, CommandError> {
        let keystore = config::read_keystore(source)?;
        let key = key::load(&keystore)?;
        let chain = connect::find(&config::read_chain(source)?, &Questions::new()?).await?;
        let me = key.address();
        let seal_keys = SealKeys::of(&keystore, &key);
        let sender = Sender::start(Account::new(chain.clone(), key), key::lock_path(&keystore), Failpoint::default());
        Ok(Self { chain, me, seal_keys, sender })
    }

    /// Sends and waits until it is in a block.
    pub(super) async fn send(&self, invocation: Invocation) -> Result<Mined, CommandError> {
        Ok(self.sender.send(invocation).await??)
    }

    /// Sends, and says what was done by it.
    pub(super) async fn send_and_say(
        &self,
        invocation: Invocation,
        done: &str,
        output: &Output,
    ) -> Result<(), CommandError> {
        let transaction = self.send(invocation).await?.transaction;
        output.say(&format!("{done} in {transaction}"), &json!({ "done": done, "transaction": transaction }))
    }
}

/// Says what registering did.
pub(super) fn say_published(mined: Option<Mined>, output: &Output) -> Result<(), CommandError> {
    let transaction: Option<B256> = mined.map(|mined| mined.transaction);
    let line = match transaction {
        Some(transaction) => format!("published the offer in {transaction}"),
        None => "the offer is published already".to_owned(),
    };
    output.say(&line, &json!({ "transaction": transaction }))
}

/// Publishes the offer of an operator that is registered.
pub(super) async fn update(source: &impl Source, output: &Output) -> Result<(), CommandError> {
    let config = Config::read(source)?;
    let hands = Hands::new(source).await?;
    let profile = registration::profile(&config.offer, hands.seal_keys.current()?.public());
    match registration::standing(&hands.chain, hands.me, &profile).await? {
        Standing::Unregistered => Err(CommandError::Unregistered(hands.me)),
        Standing::AsOffered(_) => say_published(None, output),
        Standing::Outdated(_) => {
            let mined = hands.send(registration::publishing(&hands.chain, &profile)).await?;
            say_published(Some(mined), output)
        }
    }
}

/// Claims what was earned, in every asset.
pub(super) async fn claim(source: &impl Source, output: &Output) -> Result<(), CommandError> {
    let hands = Hands::new(source).await?;
    let pending = hands.chain.all_pending_rewards(hands.me).await?;
    let pending: Vec<_> = pending.into_iter().filter(|cost| cost.amount > U256::ZERO).collect();
    let mined = hands.send(calls::claim_all_rewards(hands.chain.deployment())).await?;
    let amounts: Vec<String> = pending
        .iter()
        .map(|cost| match cost.is_native() {
            true => format!("{} wei", cost.amount),
            false => format!("{} of token {}", cost.amount, cost.asset),
        })
        .collect();
    let amounts = if amounts.is_empty() { "nothing".to_owned() } else { amounts.join(" and ") };
    let claimed: Vec<_> = pending.iter().map(|cost| json!({ "asset": cost.asset, "amount": cost.amount })).collect();
    let value = json!({ "claimed": claimed, "transaction": mined.transaction });
    output.say(&format!("claimed {amounts} in {}", mined.transaction), &value)
}
