//! What every hook costs where the core calls it, each in a transaction of its own: at 16 operators in a service, and at the most.

use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::rpc::types::TransactionReceipt;
use alloy::sol_types::{SolCall, SolValue};
use anyhow::{Context, Result};
use sandbox_protocol::abi::{JobReceipt, SandboxCreateRequest};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::calls::{self, ServiceTerms};
use sandbox_tests::actors::offer;
use sandbox_tests::hooks::Scale;
use sandbox_tests::stage::{Stage, receipt, submitted};
use sandbox_tests::tangle::IHooks::{onJobCallCall, onJobResultCall, onRequestCall, onServiceTerminationCall};

use super::requests::{self, slot};
use super::{DONE, FIRST_SLOT, OPERATOR, live};

const SMALL_SELECTION_GAS_MAX: u64 = 70_000;
const LARGE_SELECTION_GAS_MAX: u64 = 140_000;
const HOOK_GAS_MAX: u64 = 250_000;
const CORE_GAS_MAX: u64 = 500_000;
const RESULT_GAS_MAX: u64 = 100_000;
const WORKFLOW_CREATE_GAS_MAX: u64 = 200_000;
const TRIGGER_GAS_MAX: u64 = 45_000;
const CANCEL_GAS_MAX: u64 = 40_000;

/// A body that does not fit into the row.
const LARGE_BODY_BYTES: usize = 4_096;

struct Weighed<'a> {
    stage: &'a Stage,
    scale: &'a mut Scale,
    operators: usize,
}

impl Weighed<'_> {
    async fn add<H: SolCall>(&mut self, case: &str, receipt: &TransactionReceipt, gas_max: u64) -> Result<()> {
        let gas = self.stage.hook_gas::<H>(receipt).await.with_context(|| case.to_owned())?;
        let dearest = gas.into_iter().max().unwrap_or_default();
        self.scale.add(case, self.operators, dearest, gas_max);
        Ok(())
    }

    /// A call, weighed.
    async fn call(&mut self, case: &str, (service, job): (u64, Job), inputs: Vec<u8>, gas_max: u64) -> Result<CallKey> {
        let call = self.stage.submission(service, job.id(), inputs.into()).await?;
        let mined = self.stage.send(self.stage.customer(), &call).await?;
        self.add::<onJobCallCall>(case, &mined, gas_max).await?;
        submitted(&mined)
    }

    /// An answer, weighed.
    async fn answer(
        &mut self,
        case: &str,
        (by, key): (Address, CallKey),
        answer: JobReceipt,
        gas_max: u64,
    ) -> Result<()> {
        let mined = self.stage.answer(by, key, &answer).await?;
        self.add::<onJobResultCall>(case, &mined, gas_max).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drawn_request_costs_the_same_however_many_operators_there_are() -> Result<()> {
    let mut stage = Stage::new(10).await?;
    let mut scale = Scale::default();
    for (size, counts) in [(10, &[5_u32][..]), (100, &[5, 20]), (1_000, &[5, 20])] {
        stage.enlist(size - stage.operators().len(), |_| offer(4, 1)).await?;
        for count in counts {
            let seed = keccak256(count.to_be_bytes());
            let terms = ServiceTerms::drawn(stage.chain().preview(*count, seed).await?, seed);
            let request = calls::request_service(stage.deployment(), &terms);
            let mined = stage.send(stage.customer(), &request).await?;
            let gas_max = if *count == 5 { SMALL_SELECTION_GAS_MAX } else { LARGE_SELECTION_GAS_MAX };
            let mut weighed = Weighed { stage: &stage, scale: &mut scale, operators: size };
            weighed.add::<onRequestCall>(&format!("request of {count} drawn"), &mined, gas_max).await?;
        }
    }
    scale.read_out("selection")
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_and_everyday_calls_are_cheap() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let operator = stage.operators()[0];
    let mut scale = Scale::default();
    let mut weighed = Weighed { stage: &stage, scale: &mut scale, operators: 1 };

    let large = requests::workflow(LARGE_BODY_BYTES).abi_encode();
    let of = |job| (service, job);
    let key = weighed.call("workflow create, 4 KB", of(Job::WorkflowCreate), large, WORKFLOW_CREATE_GAS_MAX).await?;
    weighed.answer("its receipt", (operator, key), receipt(DONE, 0), RESULT_GAS_MAX).await?;
    let control = requests::control(key).abi_encode();
    weighed.call("workflow trigger", of(Job::WorkflowTrigger), control.clone(), TRIGGER_GAS_MAX).await?;
    weighed.call("workflow cancel", of(Job::WorkflowCancel), control, CANCEL_GAS_MAX).await?;

    let create = requests::create().abi_encode();
    let key = weighed.call("create", of(Job::SandboxCreate), create, HOOK_GAS_MAX).await?;
    weighed.answer("its receipt", (operator, key), receipt(DONE, FIRST_SLOT), RESULT_GAS_MAX).await?;
    let sandbox = slot(key, 0);
    let exec = weighed.call("exec", of(Job::Exec), requests::exec(sandbox).abi_encode(), HOOK_GAS_MAX).await?;
    weighed.answer("its receipt", (operator, exec), receipt(DONE, 0), RESULT_GAS_MAX).await?;
    let delete = requests::delete(sandbox).abi_encode();
    let key = weighed.call("delete", of(Job::SandboxDelete), delete, HOOK_GAS_MAX).await?;
    weighed.answer("its receipt", (operator, key), receipt(DONE, 0), RESULT_GAS_MAX).await?;
    scale.read_out("everyday")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hook_is_dear_at_sixteen_operators_in_a_service() -> Result<()> {
    crowded(16, HOOK_GAS_MAX).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hook_exceeds_the_cores_cap_at_the_most_operators_in_a_service() -> Result<()> {
    crowded(32, CORE_GAS_MAX).await
}

/// Every hook whose cost grows with the operators of a service, at its worst.
async fn crowded(size: usize, gas_max: u64) -> Result<()> {
    let mut scale = Scale::default();
    all_full(size, gas_max, &mut scale).await?;
    batches(size, gas_max, &mut scale).await?;
    scale.read_out(&format!("{size}-operators"))
}

/// Operators with one slot each, all but one of them full.
async fn all_full(size: usize, gas_max: u64, scale: &mut Scale) -> Result<()> {
    let mut stage = Stage::new(0).await?;
    stage.enlist(size, |_| offer(1, 1)).await?;
    let everybody = stage.operators().to_vec();
    let mut weighed = Weighed { stage: &stage, scale, operators: size };
    let named = calls::request_service(stage.deployment(), &ServiceTerms::named(everybody.clone()));
    let mined = stage.send(stage.customer(), &named).await?;
    weighed.add::<onRequestCall>("request, named one by one", &mined, gas_max).await?;
    let service = stage.service(&everybody).await?;
    for _ in 2..size {
        live(&stage, service).await?;
    }
    let timed = SandboxCreateRequest { ttl_blocks: 1_000, ..requests::create() };
    let workflow = requests::workflow(216).abi_encode();
    weighed.call("workflow create, stored whole, two free", (service, Job::WorkflowCreate), workflow, gas_max).await?;
    let key = stage.submit(service, Job::SandboxCreate, &timed).await?;
    let first = stage.assigned(key).await?;
    weighed.answer("a create moves to the last one free", (first, key), receipt(OPERATOR, 0), gas_max).await?;
    let second = stage.assigned(key).await?;
    stage.answer(second, key, &receipt(DONE, FIRST_SLOT)).await?;
    let key = weighed.call("create, one free", (service, Job::SandboxCreate), timed.abi_encode(), gas_max).await?;
    let last = stage.assigned(key).await?;
    weighed.answer("a create moves to nobody", (last, key), receipt(OPERATOR, 0), gas_max).await?;
    live(&stage, service).await?;
    let mined = stage.send(stage.customer(), &calls::terminate_service(stage.deployment(), service)).await?;
    weighed.add::<onServiceTerminationCall>("termination, all full", &mined, gas_max).await
}

/// Batches over everybody, at falling prices and with some that cannot take an equal share.
async fn batches(size: usize, gas_max: u64, scale: &mut Scale) -> Result<()> {
    let mut stage = Stage::new(0).await?;
    stage.enlist(size, |index| offer(24 - index as u32 % 16, 1_000 - index as u64)).await?;
    let everybody = stage.operators().to_vec();
    let service = stage.service(&everybody).await?;
    let mut weighed = Weighed { stage: &stage, scale, operators: size };
    let mut keys = Vec::new();
    for (distribution, named) in [("cheapest", false), ("round_robin", true), ("random", true)] {
        let operators = if named { everybody.clone() } else { Vec::new() };
        let mut request = requests::batch_create(200, operators, distribution);
        request.template.ttl_blocks = 1_000;
        let case = format!("batch create, {distribution}{}", if named { ", named" } else { "" });
        keys.push(weighed.call(&case, (service, Job::BatchCreate), request.abi_encode(), gas_max).await?);
    }
    // The cheapest operators are filled to the brim, so that they leave the set of those that may be drawn.
    let key = *keys.first().context("a batch")?;
    let parts = stage.chain().parts(key).await?;
    for (case, place) in [("first part of a batch, which fills its operator", 1), ("another part", 2)] {
        let part = parts.get(place).context("a part")?;
        let slots = ((U256::ONE << usize::from(part.slots)) - U256::ONE) << usize::from(part.firstSlot);
        let answer = JobReceipt { outcome: DONE, responseHash: B256::repeat_byte(1), detail: slots };
        weighed.answer(case, (part.operator, key), answer, RESULT_GAS_MAX).await?;
    }
    let collect = requests::collect().abi_encode();
    let key = weighed.call("batch collect", (service, Job::BatchCollect), collect, gas_max).await?;
    for operator in &everybody[1..] {
        stage.answer(*operator, key, &receipt(DONE, 0)).await?;
    }
    weighed.answer("its last part", (everybody[0], key), receipt(DONE, 0), RESULT_GAS_MAX).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receipt_of_the_largest_batch_that_one_operator_makes_alone_is_cheap() -> Result<()> {
    let mut stage = Stage::new(0).await?;
    stage.enlist(1, |_| offer(200, 1)).await?;
    let service = stage.service_of(1).await?;
    let key = stage.submit(service, Job::BatchCreate, &requests::batch_create(200, Vec::new(), "cheapest")).await?;
    let slots = (U256::ONE << 200_usize) - U256::ONE;
    let answer = JobReceipt { outcome: DONE, responseHash: B256::repeat_byte(1), detail: slots };
    let mut scale = Scale::default();
    let mut weighed = Weighed { stage: &stage, scale: &mut scale, operators: 1 };
    weighed.answer("receipt of 200 sandboxes", (stage.operators()[0], key), answer, RESULT_GAS_MAX).await?;
    scale.read_out("largest-batch")
}
