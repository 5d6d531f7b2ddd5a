//! What the chain shows of operators, services, prices, earnings and workflows. Long lists are read page by page.

use alloy::primitives::{Address, B256, U256};
use sandbox_protocol::CallKey;

use super::reads::absent_if_refused;
use super::{Chain, ReadError};
use crate::contracts::IAgentSandboxBlueprint::{
    JobView, OperatorView, ServiceView, WorkflowBody, WorkflowStatus, WorkflowView,
};
use crate::contracts::IBlockTime::IBlockTimeInstance;
use crate::contracts::IERC20::IERC20Instance;
use crate::contracts::ITokenRewards::ITokenRewardsInstance;
use crate::limits::PAGE_ENTRIES_MAX;

/// An amount of an asset, in its smallest unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The token; zero is the chain's coin.
    pub asset: Address,
    /// How much of it; zero is free.
    pub amount: U256,
}

impl Cost {
    /// Free.
    pub const NOTHING: Self = Self { asset: Address::ZERO, amount: U256::ZERO };

    /// Whether it is paid in the chain's coin, along with the transaction.
    pub const fn is_native(&self) -> bool {
        self.asset.const_eq(&Address::ZERO)
    }
}

/// The prices and the operators.
impl Chain {
    /// An operator's profile and load.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn operator(&self, operator: Address) -> Result<OperatorView, ReadError> {
        self.blueprint().operatorView(operator).call().await.map_err(ReadError::on("operatorView"))
    }

    /// Every operator that ever registered, oldest first.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn all_operators(&self) -> Result<Vec<OperatorView>, ReadError> {
        let mut all = Vec::new();
        let mut cursor = U256::ZERO;
        loop {
            let found = self.blueprint().operators(cursor, U256::from(PAGE_ENTRIES_MAX)).call().await;
            let found = found.map_err(ReadError::on("operators"))?;
            all.extend(found.page);
            if found.next <= cursor {
                return Ok(all);
            }
            cursor = found.next;
        }
    }

    /// How many operators selections are drawn from.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn eligible_count(&self) -> Result<U256, ReadError> {
        self.blueprint().eligibleCount().call().await.map_err(ReadError::on("eligibleCount"))
    }

    /// The operators that `seed` draws from those eligible now.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn preview(&self, count: u32, seed: B256) -> Result<Vec<Address>, ReadError> {
        let drawn = self.blueprint().previewOperatorSelection(count, seed).call().await;
        drawn.map_err(ReadError::on("previewOperatorSelection"))
    }

    /// A service of this blueprint with what its operators hold of it.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn service_view(&self, service: u64) -> Result<Option<ServiceView>, ReadError> {
        let found = self.blueprint().serviceView(service).call().await.map_err(ReadError::on("serviceView"));
        absent_if_refused(found, |service| service.owner == Address::ZERO)
    }

    /// The jobs that are offered, by id, with what a plain call of each costs.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn jobs(&self) -> Result<Vec<JobView>, ReadError> {
        self.blueprint().jobs().call().await.map_err(ReadError::on("jobs"))
    }

    /// The rate of a job by the core's table, in the blueprint's settlement asset.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn price(&self, job: u8) -> Result<U256, ReadError> {
        let blueprint = self.deployment().blueprint_id;
        self.core().getJobEventRate(blueprint, job).call().await.map_err(ReadError::on("getJobEventRate"))
    }

    /// Mean time between blocks that the blueprint counts with, in milliseconds.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn mean_block_time_ms(&self) -> Result<u64, ReadError> {
        let blueprint = IBlockTimeInstance::new(self.deployment().manager, self.provider());
        let ms = blueprint.BLOCK_TIME_MS().call().await.map_err(ReadError::on("BLOCK_TIME_MS"))?;
        Ok(ms.saturating_to())
    }

    /// What a plain call of a job costs in a service. Exactly this must be paid.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn call_cost(&self, service: u64, job: u8) -> Result<Cost, ReadError> {
        let cost = self.blueprint().callCost(service, job).call().await.map_err(ReadError::on("callCost"))?;
        Ok(Cost { asset: cost.asset, amount: cost.amount })
    }

    /// The least that a service of so many operators costs for `ttl_s` seconds; free where calls are paid one by one.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn service_floor(&self, operators: u32, ttl_s: u64) -> Result<Cost, ReadError> {
        let floor = self.blueprint().quoteService(operators, ttl_s).call().await;
        let floor = floor.map_err(ReadError::on("quoteService"))?;
        Ok(Cost { asset: floor.asset, amount: floor.amount })
    }

    /// What an account has earned and not claimed, in wei of native coin.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn pending_rewards(&self, account: Address) -> Result<U256, ReadError> {
        self.core().pendingRewards(account).call().await.map_err(ReadError::on("pendingRewards"))
    }

    /// What an account has earned and not claimed, by asset; zero is native coin.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn all_pending_rewards(&self, account: Address) -> Result<Vec<Cost>, ReadError> {
        let question = "rewardTokens";
        let assets = self.core().rewardTokens(account).call().await.map_err(ReadError::on(question))?;
        let rewards = ITokenRewardsInstance::new(self.deployment().core, self.provider());
        let mut pending = Vec::new();
        for asset in assets {
            let amount =
                rewards.pendingRewards(account, asset).call().await.map_err(ReadError::on("pendingRewards"))?;
            pending.push(Cost { asset, amount });
        }
        Ok(pending)
    }

    /// How much of `token` the core may take from `owner`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn allowance(&self, token: Address, owner: Address) -> Result<U256, ReadError> {
        let token = IERC20Instance::new(token, self.provider());
        token.allowance(owner, self.deployment().core).call().await.map_err(ReadError::on("allowance"))
    }
}

/// The workflows.
impl Chain {
    /// A workflow, named by the call that created it; its body only if it was small enough to be stored.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn workflow(&self, workflow: CallKey) -> Result<Option<(WorkflowView, WorkflowBody)>, ReadError> {
        let found = self.blueprint().getWorkflow(workflow.service, workflow.call).call().await;
        let found = found.map_err(ReadError::on("getWorkflow"))?;
        Ok((found.row.status != WorkflowStatus::Unknown).then_some((found.row, found.body)))
    }

    /// The workflows that `operator` must fire, oldest first.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn active_workflows(&self, operator: Address) -> Result<Vec<WorkflowView>, ReadError> {
        let mut all = Vec::new();
        let mut cursor = U256::ZERO;
        loop {
            let found = self.blueprint().activeWorkflows(operator, cursor, U256::from(PAGE_ENTRIES_MAX)).call().await;
            let found = found.map_err(ReadError::on("activeWorkflows"))?;
            all.extend(found.page);
            if found.next <= cursor {
                return Ok(all);
            }
            cursor = found.next;
        }
    }
}
