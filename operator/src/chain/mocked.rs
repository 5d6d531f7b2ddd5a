//! A chain of which only the answers exist, in the order in which they will be asked for.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::providers::ProviderBuilder;
use alloy::sol_types::SolValue as _;
use alloy::transports::mock::Asserter;
use sandbox_protocol::Job;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::Assignment;
use sandbox_sdk::contracts::ITangleCore::Blueprint;
use sandbox_sdk::{Chain, Deployment};

/// A chain whose node has said what a client asks first.
pub(crate) async fn chain(answers: &Asserter) -> Chain {
    let deployment = Deployment {
        chain_id: 31_337,
        rpc_url: "http://node.example".parse().unwrap(),
        core: Address::repeat_byte(0xc0),
        manager: Address::repeat_byte(0xb0),
        blueprint_id: 1,
    };
    let blueprint = Blueprint {
        owner: Address::ZERO,
        manager: deployment.manager,
        createdAt: 1,
        membership: 0,
        pricing: 2,
        active: true,
    };
    answers.push_success(&"0x7a69");
    answers.push_success(&"0x01");
    answers.push_success(&"0x01");
    answers.push_success(&Bytes::from(blueprint.abi_encode()));
    let provider = ProviderBuilder::default().connect_mocked_client(answers.clone());
    Chain::with_provider(deployment, provider).await.unwrap()
}

/// What the contract says of an open call of `caller`'s that is `operator`'s to answer.
pub(crate) const fn assignment(job: Job, operator: Address, caller: Address, deadline_block: u64) -> Assignment {
    Assignment {
        operator,
        caller,
        deadlineBlock: deadline_block,
        job: job.id(),
        answered: false,
        outcome: 0,
        responseHash: B256::ZERO,
        detail: U256::ZERO,
        epoch: 0,
        parts: 0,
        answers: 0,
    }
}
