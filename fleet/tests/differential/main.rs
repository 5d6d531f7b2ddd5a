//! What is written twice, in Solidity and in Rust, says the same: the compiled libraries run in an EVM beside their twins.
//!
//! The cases are random but always the same ones. `forge build` has to have run.

#![allow(clippy::unwrap_used)] // helpers of tests end a test as its own body would

mod batch_plan;
mod evm;
mod sandbox_ids;
mod selection;

use std::fmt::Debug;

/// Asks both sides about every case, `batch` cases a call of the contract.
///
/// # Panics
/// With the first case on which they differ.
fn compare<Case: Debug, Answer: Debug + PartialEq>(
    cases: &[Case],
    batch: usize,
    rust: impl Fn(&Case) -> Answer,
    mut solidity: impl FnMut(&[Case]) -> Vec<Answer>,
) {
    for cases in cases.chunks(batch) {
        let answers = solidity(cases);
        assert_eq!(answers.len(), cases.len());
        for (case, answer) in cases.iter().zip(answers) {
            assert_eq!(rust(case), answer, "left Rust, right Solidity: {case:?}");
        }
    }
}
