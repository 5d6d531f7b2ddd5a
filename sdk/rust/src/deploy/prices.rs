//! The price table: what a submitted job costs whatever its size. What depends on size and time is for quotes.
//!
//! Every rate is above zero. A call makes its operator send a receipt, which costs gas; and a rate of zero would let
//! anybody fill an operator's queue for free.

use alloy::primitives::U256;
use sandbox_protocol::Job;

const GWEI: u64 = 1_000_000_000;

/// The least that a job costs: an operator's share of it (40 %) covers the receipt's gas at 0.01 gwei.
pub(super) const RECEIPT_WEI: U256 = U256::from_limbs([10_000 * GWEI, 0, 0, 0]);

/// The rate of a job id in wei. Reserved ids, which the contract refuses, have the least.
pub fn price_wei(id: u8) -> U256 {
    Job::from_id(id).map_or(RECEIPT_WEI, |job| U256::from(price_gwei(job)) * U256::from(GWEI))
}

const fn price_gwei(job: Job) -> u64 {
    match job {
        Job::SandboxStop | Job::SandboxDelete | Job::BatchCollect | Job::WorkflowCancel | Job::SshRevoke => 10_000,
        Job::Exec | Job::SshProvision => 50_000,
        Job::SandboxResume | Job::WorkflowCreate => 100_000,
        Job::SandboxSnapshot | Job::Prompt | Job::WorkflowTrigger => 200_000,
        Job::SandboxCreate | Job::BatchExec => 500_000,
        Job::Task => 1_000_000,
        Job::BatchCreate | Job::BatchTask => 5_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The core refuses smaller payments, which it could not split.
    const CORE_PAYMENT_WEI: u64 = 100;

    #[test]
    fn no_job_is_free_and_each_can_be_split() {
        for id in 0..Job::TABLE_LENGTH {
            assert!(price_wei(id) >= RECEIPT_WEI && price_wei(id) > U256::from(CORE_PAYMENT_WEI), "job {id}");
        }
    }

    #[test]
    fn the_table_reads_as_published() {
        let ether = |id: u8| alloy::primitives::utils::format_ether(price_wei(id));
        assert_eq!(ether(Job::SandboxCreate.id()), "0.000500000000000000");
        assert_eq!(ether(Job::Exec.id()), "0.000050000000000000");
        assert_eq!(ether(Job::SandboxDelete.id()), "0.000010000000000000");
    }

    #[test]
    fn ending_something_never_costs_more_than_beginning_it() {
        assert!(price_wei(Job::SandboxDelete.id()) < price_wei(Job::SandboxCreate.id()));
        assert!(price_wei(Job::WorkflowCancel.id()) < price_wei(Job::WorkflowCreate.id()));
        assert!(price_wei(Job::SshRevoke.id()) < price_wei(Job::SshProvision.id()));
    }
}
