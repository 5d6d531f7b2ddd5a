//! Checks of the chain, and of what it says of this operator.

use std::time::{SystemTime, UNIX_EPOCH};

use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::signers::local::PrivateKeySigner;
use sandbox_protocol::abi::OperatorProfile;
use sandbox_sdk::Chain;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IStaking::IStakingInstance;
use sandbox_sdk::reverts::Refusal;

use super::{Finding, bounded};
use crate::chain::connect::{FindError, find_now};
use crate::chain::counted::Questions;
use crate::chain::key::SealKeys;
use crate::chain::registration::{self, Standing};
use crate::config::Config;
use crate::limits::{BALANCE_WEI_LOW, CHECK_TIMEOUT, CLOCK_SKEW_S_MAX};

/// The node and the contracts, then what they say of the operator.
pub(super) async fn checks(config: &Config, key: Option<&PrivateKeySigner>) -> Vec<Finding> {
    const CHECK: &str = "chain";
    let questions = match Questions::new() {
        Ok(questions) => questions,
        Err(error) => return vec![Finding::failed(CHECK, &error, "this is a defect")],
    };
    let chain = match tokio::time::timeout(CHECK_TIMEOUT, find_now(&config.chain, &questions)).await {
        Ok(Ok(chain)) => chain,
        Ok(Err(error)) => return vec![Finding::failed(CHECK, &error, advice(&error))],
        Err(_) => return vec![Finding::failure(CHECK, "the node does not answer in time", UNREACHABLE)],
    };
    let deployment = chain.deployment();
    let said = format!("blueprint {} on chain {}", deployment.blueprint_id, deployment.chain_id);
    let mut findings = vec![Finding::ok(CHECK, said)];
    let Some(key) = key else {
        findings.push(bounded("clock", clock(&chain)).await);
        return findings;
    };
    let (balance, stake, offer, clock) = tokio::join!(
        bounded("balance", balance(&chain, key.address())),
        bounded("stake", stake(config, &chain, key.address())),
        bounded("offer", offer(config, &chain, key)),
        bounded("clock", clock(&chain)),
    );
    findings.extend([balance, stake, offer, clock]);
    findings
}

const UNREACHABLE: &str = "see that the node runs, and that HTTP_RPC_URL names it";

const fn advice(error: &FindError) -> &'static str {
    match error {
        FindError::WrongChain { .. } => "name a node of the right chain by HTTP_RPC_URL, or correct CHAIN_ID",
        FindError::NoCore { .. } => "correct TANGLE_CONTRACT, or name a node of its chain by HTTP_RPC_URL",
        FindError::NoBlueprint { .. } | FindError::Unmanaged { .. } | FindError::NotOurs { .. } => {
            "correct BLUEPRINT_ID: its number is in the deployment's addresses file"
        }
        FindError::Connect(_) | FindError::Unreachable(_) => UNREACHABLE,
    }
}

fn unread(check: &'static str, error: &ReadError) -> Finding {
    Finding::failed(check, error, UNREACHABLE)
}

async fn balance(chain: &Chain, me: Address) -> Finding {
    const CHECK: &str = "balance";
    let advice = format!("send coin to {me}: every answer is a transaction");
    match chain.provider().get_balance(me).await.map_err(ReadError::node("eth_getBalance")) {
        Ok(wei) if wei.is_zero() => Finding::failure(CHECK, "no coin to send transactions with", advice),
        Ok(wei) if wei < U256::from(BALANCE_WEI_LOW) => Finding::warning(CHECK, format!("{wei} wei are left"), advice),
        Ok(wei) => Finding::ok(CHECK, format!("{wei} wei")),
        Err(error) => unread(CHECK, &error),
    }
}

/// By the staking contract where it is named; otherwise registration shows it.
async fn stake(config: &Config, chain: &Chain, me: Address) -> Finding {
    const CHECK: &str = "stake";
    let Some(contract) = config.staking else {
        return Finding::ok(CHECK, "STAKING_CONTRACT is not set: see the offer");
    };
    let staking = IStakingInstance::new(contract, chain.provider());
    let active = staking.isOperatorActive(me).call().await.map_err(ReadError::on("isOperatorActive"));
    let amount = staking.getOperatorStake(me).call().await.map_err(ReadError::on("getOperatorStake"));
    match (active, amount) {
        (Ok(true), Ok(amount)) => Finding::ok(CHECK, format!("{amount} of the smallest unit")),
        (Ok(false), Ok(_)) => {
            Finding::failure(CHECK, format!("{me} is not an active staked operator"), format!("stake at {contract}"))
        }
        (Err(error), _) | (_, Err(error)) => Finding::failed(CHECK, &error, "see that STAKING_CONTRACT is right"),
    }
}

/// Whether the offer is published, and if the account is no operator, whether it could become one.
async fn offer(config: &Config, chain: &Chain, key: &PrivateKeySigner) -> Finding {
    const CHECK: &str = "offer";
    let seal_key = match SealKeys::of(&config.keystore, key).current() {
        Ok(seal_key) => seal_key.public(),
        Err(error) => return Finding::failed(CHECK, &error, "put the keystore's seal.json back as it was"),
    };
    let profile = registration::profile(&config.offer, seal_key);
    match registration::standing(chain, key.address(), &profile).await {
        Ok(Standing::AsOffered(published)) if published.paused => {
            Finding::warning(CHECK, "the operator is paused: it gets nothing new", "`operator drain --end` ends that")
        }
        Ok(Standing::AsOffered(published)) if !published.eligible => {
            Finding::warning(CHECK, "published, but customers are not given this operator", "see the stake")
        }
        Ok(Standing::AsOffered(_)) => Finding::ok(CHECK, "published as it is set"),
        Ok(Standing::Outdated(_)) => Finding::warning(
            CHECK,
            "what is published is not what is set",
            "`operator update` publishes it, as the node's next start does",
        ),
        Ok(Standing::Unregistered) => could_register(&profile, chain, key).await,
        Err(error) => unread(CHECK, &error),
    }
}

async fn could_register(profile: &OperatorProfile, chain: &Chain, key: &PrivateKeySigner) -> Finding {
    const CHECK: &str = "offer";
    let transaction = registration::registering(chain, key, profile).transaction(key.address());
    match chain.provider().estimate_gas(transaction).await {
        Ok(_) => Finding::warning(CHECK, "not registered yet", "`operator register` does it, as does the node's start"),
        Err(error) => match Refusal::of(&error) {
            Some(refusal) => Finding::failure(
                CHECK,
                format!("not registered, and it would be refused: {refusal}"),
                "stake the account as an operator of Tangle first",
            ),
            None => unread(CHECK, &ReadError::node("eth_estimateGas")(error)),
        },
    }
}

async fn clock(chain: &Chain) -> Finding {
    match chain.time().await {
        Ok(block_s) => {
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            judged(block_s, now_s)
        }
        Err(error) => unread("clock", &error),
    }
}

/// A block of the future is a clock that is behind; an old one may as well be a chain that rests.
fn judged(block_s: u64, now_s: u64) -> Finding {
    const CHECK: &str = "clock";
    const ADVICE: &str = "synchronise this machine's clock by NTP, and see that the node is in step with its chain";
    if block_s > now_s + CLOCK_SKEW_S_MAX {
        let said = format!("this clock is {} s behind the newest block", block_s - now_s);
        Finding::failure(CHECK, said, ADVICE)
    } else if now_s > block_s + CLOCK_SKEW_S_MAX {
        Finding::warning(CHECK, format!("the newest block is {} s old", now_s - block_s), ADVICE)
    } else {
        Finding::ok(CHECK, "in step with the newest block")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_clock_is_judged_by_the_newest_block_on_both_sides_of_each_limit() {
        let skew = CLOCK_SKEW_S_MAX;
        for (block_s, now_s, verdict) in [
            (1_000 + skew, 1_000, Verdict::Ok),
            (1_001 + skew, 1_000, Verdict::Failure),
            (1_000, 1_000 + skew, Verdict::Ok),
            (1_000, 1_001 + skew, Verdict::Warning),
        ] {
            assert_eq!(judged(block_s, now_s).verdict, verdict, "block {block_s}, clock {now_s}");
        }
    }
}
