//! What a deployment would send. Nothing is sent: the node is asked to try the transactions one after another on the state
//! that it has (`eth_simulateV1`); one that cannot is asked about the first of them only.

use alloy::primitives::Address;
use alloy::providers::{DynProvider, Provider as _};
use alloy::rpc::types::TransactionRequest;
use alloy::rpc::types::simulate::{SimBlock, SimCallResult, SimulatePayload};
use serde::Serialize;

use super::DeployError;
use super::describe::Sending;
use super::steps::Step;
use crate::chain::SendError;
use crate::reverts::Refusal;

/// Every transaction that a deployment would send now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// The chain.
    pub chain_id: u64,
    /// Who would send them.
    pub from: Address,
    /// What a unit of gas costs now, in wei, by the node.
    pub gas_price: u128,
    /// The transactions, in their order; none where nothing is left to do.
    pub transactions: Vec<Sending>,
}

impl Preview {
    /// Gas of all transactions; `None` where it is not known of each.
    pub fn gas(&self) -> Option<u64> {
        self.transactions.iter().map(|sending| sending.gas).sum()
    }
}

/// Describes the steps and tries them.
pub(super) async fn preview(
    provider: &DynProvider,
    from: Address,
    steps: &[Step],
) -> Result<Vec<Sending>, DeployError> {
    let mut sendings: Vec<Sending> = steps.iter().map(Step::sending).collect();
    let transactions: Vec<_> = steps.iter().map(|step| step.invocation().transaction(from)).collect();
    let used = match simulated(provider, transactions.clone()).await {
        Some(results) => each(&sendings, results)?,
        None => first(provider, &sendings, transactions.into_iter().next()).await?,
    };
    for (sending, used) in sendings.iter_mut().zip(used) {
        sending.gas = Some(used);
    }
    Ok(sendings)
}

/// One block for each; `None` where the node does not do this.
async fn simulated(provider: &DynProvider, transactions: Vec<TransactionRequest>) -> Option<Vec<SimCallResult>> {
    let block_state_calls = transactions.into_iter().map(|transaction| SimBlock::default().call(transaction)).collect();
    let payload = SimulatePayload { block_state_calls, ..Default::default() };
    match provider.simulate(&payload).await {
        Ok(blocks) => Some(blocks.into_iter().flat_map(|block| block.calls).collect()),
        Err(error) => {
            tracing::debug!(%error, "the node did not simulate the deployment");
            None
        }
    }
}

fn each(sendings: &[Sending], results: Vec<SimCallResult>) -> Result<Vec<u64>, DeployError> {
    let of = |(sending, result): (&Sending, SimCallResult)| match result.status {
        true => Ok(result.gas_used),
        false => {
            let refusal = Refusal::decode(&result.return_data);
            Err(DeployError::Step { what: sending.what.clone(), source: SendError::Refused(Box::new(refusal)) })
        }
    };
    sendings.iter().zip(results).map(of).collect()
}

async fn first(
    provider: &DynProvider,
    sendings: &[Sending],
    transaction: Option<TransactionRequest>,
) -> Result<Vec<u64>, DeployError> {
    let (Some(sending), Some(transaction)) = (sendings.first(), transaction) else { return Ok(Vec::new()) };
    let estimated = provider.estimate_gas(transaction).await.map_err(|error| {
        let refusal = Refusal::of(&error).map(|refusal| SendError::Refused(Box::new(refusal)));
        DeployError::Step { what: sending.what.clone(), source: refusal.unwrap_or(SendError::Simulate(error)) }
    });
    Ok(vec![estimated?])
}

#[cfg(test)]
mod tests {
    use alloy::providers::ProviderBuilder;
    use alloy::transports::mock::Asserter;

    use super::super::asset::Asset;
    use super::*;

    #[tokio::test]
    async fn a_node_that_cannot_simulate_tells_the_gas_of_the_first_transaction_only() {
        let answers = Asserter::new();
        answers.push_failure_msg("the method eth_simulateV1 does not exist");
        answers.push_success(&"0xc350");
        let provider = ProviderBuilder::default().connect_mocked_client(answers).erased();
        let step = Step::SetAsset { core: Address::ZERO, blueprint: 1, asset: Asset::coin() };
        let sendings = preview(&provider, Address::ZERO, &[step.clone(), step]).await.unwrap();
        let gas: Vec<_> = sendings.iter().map(|sending| sending.gas).collect();
        assert_eq!(gas, [Some(50_000), None]);
        let preview = Preview { chain_id: 1, from: Address::ZERO, gas_price: 1, transactions: sendings };
        assert_eq!(preview.gas(), None, "a part is not the whole");
    }
}
