//! Whether every contract can be deployed: the sizes that a chain takes.

use super::Verdict;
use super::sources::{Contract, Sources};
use crate::limits::{INITCODE_BYTES_MAX, RUNTIME_BYTES_MAX};

/// One line a deployable contract; none at all is a fault too.
pub(super) fn judge(sources: &Sources) -> Verdict {
    let mut verdict = Verdict::default();
    for (name, contract) in sources.deployable() {
        let (runtime, initcode) = (contract.runtime_bytes(), contract.initcode_bytes());
        verdict.summaries.push(format!(
            "size: {name}: {runtime} of {RUNTIME_BYTES_MAX} bytes deployed, {initcode} of {INITCODE_BYTES_MAX} to deploy"
        ));
        verdict.faults.extend(too_large(name, contract));
    }
    if verdict.summaries.is_empty() {
        verdict.faults.push("size: no contract can be deployed".to_string());
    }
    verdict
}

fn too_large(name: &str, contract: &Contract) -> Vec<String> {
    let judged = [
        ("the code of", contract.runtime_bytes(), RUNTIME_BYTES_MAX),
        ("the deployment of", contract.initcode_bytes(), INITCODE_BYTES_MAX),
    ];
    let over = judged.into_iter().filter(|(_, bytes, most)| bytes > most);
    over.map(|(what, bytes, most)| format!("size: {what} {name} is {} bytes too large", bytes - most)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sources::tests::example;
    use super::*;

    fn contract(runtime: usize, initcode: usize) -> Contract {
        let evm = serde_json::json!({ "evm": {
            "bytecode": { "object": "00".repeat(initcode) },
            "deployedBytecode": { "object": "00".repeat(runtime) },
        } });
        serde_json::from_value(evm).unwrap()
    }

    #[test]
    fn every_deployable_contract_has_a_line() {
        let verdict = judge(&example());
        assert_eq!(verdict.summaries, ["size: A: 3 of 24576 bytes deployed, 36 of 49152 to deploy"]);
        assert_eq!(verdict.faults, Vec::<String>::new());
    }

    #[test]
    fn one_byte_over_either_limit_is_too_large() {
        assert_eq!(too_large("A", &contract(24_576, 49_152)), Vec::<String>::new());
        assert_eq!(too_large("A", &contract(24_577, 1)), ["size: the code of A is 1 bytes too large"]);
        assert_eq!(too_large("A", &contract(1, 49_153)), ["size: the deployment of A is 1 bytes too large"]);
    }
}
