//! Ten thousand active workflows on the chain, without ten thousand creates: the blueprint's code is replaced for a moment.
//!
//! `contracts/test/WorkflowSeeder.sol` writes the rows by the code that the blueprint writes them with. Afterwards the blueprint itself is
//! asked for all of them.

use std::time::Duration;

use alloy::primitives::{Address, Bytes};
use alloy::providers::Provider as _;
use alloy::sol;
use alloy::sol_types::{SolCall as _, SolValue as _};
use anyhow::{Context, Result, ensure};
use sandbox_protocol::abi::WorkflowCreateRequest;
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::WorkflowStatus;
use sandbox_sdk::devchain::checkout;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::wait::until;
use serde_json::{Value, json};
use time::OffsetDateTime;

sol! {
    function seed(address operator, address owner, uint64 serviceId, uint64 first, bytes[] inputs) external;
}

/// Workflows.
pub(super) const WORKFLOWS: u64 = 10_000;
/// The first one's call: beyond those that the service has.
const FIRST: u64 = 1_000_000;
/// Rows that a transaction writes.
const AT_ONCE: u64 = 250;
/// Gas of such a transaction, within a block of the local chain.
const GAS: u64 = 90_000_000;
/// Time for such a transaction to be in a block.
const MINED_WITHIN: Duration = Duration::from_secs(60);
/// Rows that are looked at one by one.
const LOOKED_AT: [u64; 5] = [0, 1, 4_999, 5_006, 9_999];

/// What is written.
pub(super) struct Field {
    pub(super) service: u64,
    /// Where all of them run a command.
    pub(super) sandbox: SandboxId,
    /// An instant for which each of them is due, a full minute in seconds since 1970.
    pub(super) due_s: i64,
}

impl Field {
    /// The call that would have created the workflow at `index`.
    pub(super) const fn key(&self, index: u64) -> CallKey {
        CallKey { service: self.service, call: FIRST + index }
    }

    /// What fires the workflow at `index`: schedules of eight forms that have one instant in common.
    pub(super) fn schedule(&self, index: u64) -> Result<String> {
        let due = OffsetDateTime::from_unix_timestamp(self.due_s)?;
        let (minute, hour, day, month) = (due.minute(), due.hour(), due.day(), u8::from(due.month()));
        let weekday = due.weekday().number_days_from_sunday();
        Ok(match index % 8 {
            0 => format!("{minute} * * * *"),
            1 => format!("{minute} {hour} * * *"),
            2 => format!("{minute} {hour} {day} * *"),
            3 => format!("{minute} {hour} * {month} *"),
            4 => format!("0 {minute} {hour} * * *"),
            5 => format!("{minute} * * * {weekday}"),
            6 => json!({"cron": format!("{minute} * * * *"), "tz": "Europe/Berlin", "catch_up": "all"}).to_string(),
            _ => json!({"cron": format!("{minute} */1 * * *"), "tz": "Asia/Tokyo", "overlap": "queue"}).to_string(),
        })
    }

    fn inputs(&self, index: u64) -> Result<Bytes> {
        let step = json!({"id": "s", "kind": "exec", "with": {"command": "true"}});
        let request = WorkflowCreateRequest {
            name: format!("w{index}"),
            workflow_json: json!({"steps": [step], "sandbox_id": self.sandbox.to_string()}).to_string(),
            trigger_type: "cron".into(),
            trigger_config: self.schedule(index)?,
            ..Default::default()
        };
        Ok(request.abi_encode().into())
    }

    /// Writes them all; returns the gas of it.
    pub(super) async fn write(&self, ground: &Ground) -> Result<u64> {
        let (provider, manager) = (ground.chain.provider(), ground.deployment.manager);
        let own = provider.get_code_at(manager).await.context("the blueprint's code")?;
        set_code(ground, &seeder()?).await?;
        let mut gas = 0;
        for first in (0..WORKFLOWS).step_by(AT_ONCE as usize) {
            gas += self.write_some(ground, first).await?;
        }
        set_code(ground, &own).await?;
        self.look(ground).await?;
        Ok(gas)
    }

    async fn write_some(&self, ground: &Ground, first: u64) -> Result<u64> {
        let inputs = (first..first + AT_ONCE).map(|index| self.inputs(index)).collect::<Result<_>>()?;
        let (operator, owner) = (Ground::address(OPERATOR), Ground::address(CUSTOMER));
        let call = seedCall { operator, owner, serviceId: self.service, first: FIRST + first, inputs };
        let (to, data): (Address, Bytes) = (ground.deployment.manager, call.abi_encode().into());
        let transaction = json!({"from": owner, "to": to, "data": data, "gas": format!("{GAS:#x}"), "gasPrice": "0x0"});
        let provider = ground.chain.provider();
        let hash = provider.raw_request("eth_sendTransaction".into(), (transaction,)).await.context("rows")?;
        let mined = || async { provider.get_transaction_receipt(hash).await.ok().flatten() };
        let receipt = until("rows to be in a block", MINED_WITHIN, mined).await?;
        ensure!(receipt.status(), "rows were refused, {} gas used", receipt.gas_used);
        Ok(receipt.gas_used)
    }

    /// Asks the blueprint itself for what was written.
    async fn look(&self, ground: &Ground) -> Result<()> {
        let chain = ground.account(CUSTOMER).await?.chain().clone();
        let all = chain.active_workflows(Ground::address(OPERATOR)).await?;
        ensure!(all.len() as u64 == WORKFLOWS, "the blueprint has {} active workflows", all.len());
        for index in LOOKED_AT {
            let (row, body) = chain.workflow(self.key(index)).await?.context("no such workflow")?;
            let is_right = row.status == WorkflowStatus::Active
                && row.operator == Ground::address(OPERATOR)
                && row.owner == Ground::address(CUSTOMER)
                && row.triggerConfig == self.schedule(index)?
                && body.stored
                && body.name == format!("w{index}");
            ensure!(is_right, "workflow {index} is {row:?} {body:?}");
        }
        Ok(())
    }
}

async fn set_code(ground: &Ground, code: &Bytes) -> Result<()> {
    let provider = ground.chain.provider();
    let set = provider.raw_request::<_, Value>("anvil_setCode".into(), (ground.deployment.manager, code)).await;
    set.map(drop).context("the code in the blueprint's place")
}

/// Its code as it would be deployed, by forge.
fn seeder() -> Result<Bytes> {
    let path = checkout().join("contracts/out/WorkflowSeeder.sol/WorkflowSeeder.json");
    let artifact = std::fs::read(&path).with_context(|| format!("no {}", path.display()))?;
    let artifact: Value = serde_json::from_slice(&artifact).context("forge's artifact")?;
    artifact["deployedBytecode"]["object"].as_str().context("no code")?.parse().context("code")
}
