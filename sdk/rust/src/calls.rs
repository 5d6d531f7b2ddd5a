//! Every transaction of ours as calldata: no provider, no signer, no nonce.
//!
//! The senders (an [`Account`](crate::Account), an operator's own queue) differ; what they send is built here.

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::rpc::types::TransactionRequest;
use alloy::sol_types::{SolCall, SolValue as _};
use sandbox_protocol::CallKey;
use sandbox_protocol::abi::{JobReceipt, OperatorProfile, SelectionRequest};

use crate::chain::Cost;
use crate::contracts::IAgentSandboxBlueprint::Firing;
use crate::contracts::IStatusRegistry::Metric;
use crate::contracts::ITangleCore::SignedJobQuote;
use crate::contracts::{IAgentSandboxBlueprint, IERC20, IExits, IStaking, IStatusRegistry, ITangleCore};
use crate::deployment::Deployment;

/// One call of a contract, ready to be simulated or signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The contract.
    pub to: Address,
    /// Selector and arguments.
    pub input: Bytes,
    /// Native coin that goes with it, in wei.
    pub value: U256,
}

impl Invocation {
    /// `call` of the contract at `to`, without value.
    pub fn new(to: Address, call: &impl SolCall) -> Self {
        Self { to, input: call.abi_encode().into(), value: U256::ZERO }
    }

    /// The transaction that `from` would sign.
    pub fn transaction(&self, from: Address) -> TransactionRequest {
        TransactionRequest::default()
            .with_from(from)
            .with_to(self.to)
            .with_input(self.input.clone())
            .with_value(self.value)
    }
}

/// What a service request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTerms {
    /// Every one of them must approve; the order is kept.
    pub operators: Vec<Address>,
    /// How the list came about, for the blueprint to check.
    pub selection: SelectionRequest,
    /// Accounts besides the requester that may submit jobs.
    pub callers: Vec<Address>,
    /// Life of the service in seconds; 0 is without end.
    pub ttl_s: u64,
    /// What is paid for all of it at once; nothing where calls are paid one by one.
    pub payment: Cost,
}

impl ServiceTerms {
    /// Terms for operators that the customer names.
    pub fn named(operators: Vec<Address>) -> Self {
        let selection = selection(&operators, B256::ZERO, false);
        Self { operators, selection, callers: Vec::new(), ttl_s: 0, payment: Cost::NOTHING }
    }

    /// Terms for the operators that `seed` drew; the blueprint refuses any others.
    pub fn drawn(operators: Vec<Address>, seed: B256) -> Self {
        let selection = selection(&operators, seed, true);
        Self { operators, selection, callers: Vec::new(), ttl_s: 0, payment: Cost::NOTHING }
    }
}

fn selection(operators: &[Address], seed: B256, enforced: bool) -> SelectionRequest {
    let count = u32::try_from(operators.len()).unwrap_or(u32::MAX);
    SelectionRequest { operatorCount: count, seed, enforceDeterministic: enforced }
}

/// Requests a service, and pays for it where it is paid as a whole; a token must be allowed to the core before.
pub fn request_service(deployment: &Deployment, terms: &ServiceTerms) -> Invocation {
    let call = ITangleCore::requestServiceCall {
        blueprintId: deployment.blueprint_id,
        operators: terms.operators.clone(),
        config: terms.selection.abi_encode().into(),
        permittedCallers: terms.callers.clone(),
        ttl: terms.ttl_s,
        paymentToken: terms.payment.asset,
        paymentAmount: terms.payment.amount,
        confidentiality: 0,
    };
    let value = if terms.payment.is_native() { terms.payment.amount } else { U256::ZERO };
    Invocation { value, ..Invocation::new(deployment.core, &call) }
}

/// Submits a job with `value` of native coin, which must be the job's rate exactly, or nothing where the service is paid in
/// a token. The id is raw: the chain judges it.
pub fn submit_job(deployment: &Deployment, service: u64, job: u8, inputs: Bytes, value: U256) -> Invocation {
    let call = ITangleCore::submitJobCall { serviceId: service, jobIndex: job, inputs };
    Invocation { value, ..Invocation::new(deployment.core, &call) }
}

/// Submits a job by quotes of one or more operators of the service, which alone may answer it. `value` must be the sum of
/// their prices, or nothing where the service is paid in a token.
pub fn submit_quoted(
    deployment: &Deployment,
    (service, job): (u64, u8),
    inputs: Bytes,
    quotes: Vec<SignedJobQuote>,
    value: U256,
) -> Invocation {
    let call = ITangleCore::submitJobFromQuoteCall { serviceId: service, jobIndex: job, inputs, quotes };
    Invocation { value, ..Invocation::new(deployment.core, &call) }
}

/// Ends a service. Its owner's only.
pub fn terminate_service(deployment: &Deployment, service: u64) -> Invocation {
    Invocation::new(deployment.core, &ITangleCore::terminateServiceCall { serviceId: service })
}

/// Pays out what the sender has earned in native coin.
pub fn claim_rewards(deployment: &Deployment) -> Invocation {
    Invocation::new(deployment.core, &ITangleCore::claimRewardsCall {})
}

/// Pays out what the sender has earned, in native coin and in every token.
pub fn claim_all_rewards(deployment: &Deployment) -> Invocation {
    Invocation::new(deployment.core, &ITangleCore::claimRewardsAllCall {})
}

/// Registers an operator: its 65-byte uncompressed public key, the URL of its API and its profile.
pub fn register_operator(deployment: &Deployment, public_key: Bytes, profile: &OperatorProfile) -> Invocation {
    let call = ITangleCore::registerOperatorCall {
        blueprintId: deployment.blueprint_id,
        ecdsaPublicKey: public_key,
        rpcAddress: profile.apiUrl.clone(),
        registrationInputs: profile.abi_encode().into(),
    };
    Invocation::new(deployment.core, &call)
}

/// Replaces the sender's profile.
pub fn set_operator_profile(deployment: &Deployment, profile: &OperatorProfile) -> Invocation {
    let call = IAgentSandboxBlueprint::setOperatorProfileCall {
        capacity: profile.capacity,
        pricePerHour: profile.pricePerHour,
        sealKey: profile.sealKey,
        apiUrl: profile.apiUrl.clone(),
    };
    Invocation::new(deployment.manager, &call)
}

/// Takes the sender out of selections and new assignments, or back in.
pub fn set_paused(deployment: &Deployment, paused: bool) -> Invocation {
    Invocation::new(deployment.manager, &IAgentSandboxBlueprint::setPausedCall { paused })
}

/// Reports firings of the sender's workflows. Those that do not hold are left out, the others count.
pub fn record_firings(deployment: &Deployment, firings: Vec<Firing>) -> Invocation {
    Invocation::new(deployment.manager, &IAgentSandboxBlueprint::recordFiringsCall { firings })
}

/// Approves a service request with the core's default security commitments.
pub fn approve_service(deployment: &Deployment, request: u64) -> Invocation {
    let params = ITangleCore::Approval { requestId: request, ..Default::default() };
    Invocation::new(deployment.core, &ITangleCore::approveServiceCall { params })
}

/// Rejects a service request, which ends it for every operator.
pub fn reject_service(deployment: &Deployment, request: u64) -> Invocation {
    Invocation::new(deployment.core, &ITangleCore::rejectServiceCall { requestId: request })
}

/// Begins the sender's way out of a service; the core says from when on it can be ended.
pub fn schedule_exit(deployment: &Deployment, service: u64) -> Invocation {
    Invocation::new(deployment.core, &IExits::scheduleExitCall { serviceId: service })
}

/// Ends the sender's way out of a service, once its time has come.
pub fn execute_exit(deployment: &Deployment, service: u64) -> Invocation {
    Invocation::new(deployment.core, &IExits::executeExitCall { serviceId: service })
}

/// Tells the status registry that the sender serves `service` and is well. The transaction's own signature is the proof.
pub fn heartbeat(deployment: &Deployment, registry: Address, service: u64, metrics: &[Metric]) -> Invocation {
    const WELL: u8 = 0;
    let call = IStatusRegistry::submitHeartbeatDirectCall {
        serviceId: service,
        blueprintId: deployment.blueprint_id,
        statusCode: WELL,
        metrics: metrics.to_vec().abi_encode().into(),
    };
    Invocation::new(registry, &call)
}

/// Submits the receipt of one call.
pub fn submit_receipt(deployment: &Deployment, key: CallKey, receipt: &JobReceipt) -> Invocation {
    let result = receipt.abi_encode().into();
    let call = ITangleCore::submitResultCall { serviceId: key.service, callId: key.call, result };
    Invocation::new(deployment.core, &call)
}

/// Submits the receipts of several calls of one service. One that is refused undoes the whole batch.
pub fn submit_receipts(deployment: &Deployment, service: u64, receipts: &[(u64, JobReceipt)]) -> Invocation {
    let call = ITangleCore::submitResultsCall {
        serviceId: service,
        callIds: receipts.iter().map(|(call, _)| *call).collect(),
        results: receipts.iter().map(|(_, receipt)| receipt.abi_encode().into()).collect(),
    };
    Invocation::new(deployment.core, &call)
}

/// Gives up what a creating call created, once it has expired. Open to anyone.
pub fn reap(deployment: &Deployment, key: CallKey) -> Invocation {
    let call = IAgentSandboxBlueprint::reapCall { serviceId: key.service, callId: key.call };
    Invocation::new(deployment.manager, &call)
}

/// Gives a call whose operator is late, or has left, to another operator of the service. Open to anyone.
pub fn reassign(deployment: &Deployment, key: CallKey) -> Invocation {
    let call = IAgentSandboxBlueprint::reassignCall { serviceId: key.service, callId: key.call };
    Invocation::new(deployment.manager, &call)
}

/// Stops a workflow from firing. It is named by the call that created it; for its owner and the service's.
pub fn pause_workflow(deployment: &Deployment, workflow: CallKey) -> Invocation {
    let call = IAgentSandboxBlueprint::pauseWorkflowCall { serviceId: workflow.service, workflowId: workflow.call };
    Invocation::new(deployment.manager, &call)
}

/// Lets a paused workflow fire again; for its owner and the service's.
pub fn resume_workflow(deployment: &Deployment, workflow: CallKey) -> Invocation {
    let call = IAgentSandboxBlueprint::resumeWorkflowCall { serviceId: workflow.service, workflowId: workflow.call };
    Invocation::new(deployment.manager, &call)
}

/// Sets the least that a service costs per operator and hour; nothing lifts it. For the blueprint's owner, and for
/// blueprints whose services are paid for as a whole.
pub fn set_service_floor(deployment: &Deployment, asset: Address, per_operator_hour: U256) -> Invocation {
    let call = IAgentSandboxBlueprint::setServiceFloorCall { asset, perOperatorHour: per_operator_hour };
    Invocation::new(deployment.manager, &call)
}

/// Sets the asset that later services are paid in; zero is the chain's coin. For the blueprint's owner, who then states the
/// rates of jobs in it.
pub fn set_settlement_asset(deployment: &Deployment, asset: Address) -> Invocation {
    let call = ITangleCore::setBlueprintSettlementAssetCall { blueprintId: deployment.blueprint_id, asset };
    Invocation::new(deployment.core, &call)
}

/// Sets the rates of jobs by id, in the settlement asset. For the blueprint's owner.
pub fn set_rates(deployment: &Deployment, rates: &[(u8, U256)]) -> Invocation {
    let (ids, rates) = rates.iter().copied().unzip();
    let call = ITangleCore::setJobEventRatesCall { blueprintId: deployment.blueprint_id, jobIndexes: ids, rates };
    Invocation::new(deployment.core, &call)
}

/// Lets `spender` take `amount` of the sender's `token`.
pub fn approve_token(token: Address, spender: Address, amount: U256) -> Invocation {
    Invocation::new(token, &IERC20::approveCall { spender, amount })
}

/// Makes the sender a staked operator with `amount` of `token`, which must be approved before.
pub fn stake(staking: Address, token: Address, amount: U256) -> Invocation {
    Invocation::new(staking, &IStaking::registerOperatorWithAssetCall { token, amount })
}
