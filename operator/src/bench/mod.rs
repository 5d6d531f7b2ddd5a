//! What the benches measure of the node's inside: ignored tests, each of which prints its samples as lines of JSON.
//!
//! `devkit bench` runs them, judges the figures and keeps the samples. They stand here because what they measure is
//! nobody's but the node's.

mod journal;
mod route;

use alloy::primitives::{Address, B256, Bytes, Signature, U256};
use alloy::sol_types::SolValue as _;
use sandbox_protocol::abi::{ExecRequest, ExecResponse};
use sandbox_protocol::receipt::{SandboxReceipt, SignedReceipt};
use sandbox_protocol::{CallKey, Job, SandboxId};
use serde_json::json;

use crate::records::{Answer, CallRecord};

/// Prints the samples of a figure, on a line of their own: the test harness begins one and leaves it.
fn print(figure: &str, ours: &[f64], baseline: &[f64]) {
    println!("\n{}", json!({ "figure": figure, "ours": ours, "baseline": baseline }));
}

/// A call for `true` in a sandbox, as the chain tells it.
fn call_for_true(key: CallKey, caller: Address, sandbox: SandboxId) -> CallRecord {
    let request = ExecRequest {
        sidecar_endpoint: format!("https://operator.example/sandboxes/{sandbox}"),
        command: "true".into(),
        ..ExecRequest::default()
    };
    CallRecord::seen(key, Job::Exec.id(), caller, request.abi_encode().into(), 1_000)
}

/// Its answer.
fn answer(call: &CallRecord) -> Answer {
    let response =
        ExecResponse { exit_code: 0, stdout: Bytes::new(), stderr: Bytes::new(), truncated: false, duration_ms: 3 };
    let receipt = SandboxReceipt {
        service: call.key.service,
        call: call.key.call,
        job: call.job,
        operator: Address::repeat_byte(0x70),
        caller: call.caller,
        inputs_hash: call.inputs_hash,
        response_hash: B256::repeat_byte(0x5a),
        outcome: 0,
        detail: U256::ZERO,
        failure: String::new(),
        runtime: "runc".into(),
        image_digest: format!("sha256:{}", "a".repeat(64)),
        started_block: 1_000,
        ended_block: 1_001,
        duration_ms: 12,
    };
    let signature = Signature::test_signature();
    let receipt = SignedReceipt { chain_id: 31_337, core: Address::repeat_byte(0xc0), receipt, signature };
    Answer { response: response.abi_encode().into(), failure: None, receipt }
}
