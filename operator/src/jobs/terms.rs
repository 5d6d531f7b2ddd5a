//! How long each job may take, in one table: what the contract gives for an answer, and what of it the work may use.

use std::time::Duration;

use sandbox_protocol::Job;

use crate::limits::{CREATE_TIMEOUT, REPORT_RESERVE};

/// From the assignment on, the time in which the contract expects the answer: `JobTable.answerMs`.
pub(crate) const fn answer_within(job: Job) -> Duration {
    Duration::from_secs(match job {
        Job::Task | Job::BatchTask => 3_600,
        Job::Prompt | Job::SandboxSnapshot | Job::BatchExec => 1_800,
        Job::SandboxCreate | Job::BatchCreate | Job::SandboxResume | Job::Exec | Job::WorkflowTrigger => 600,
        Job::SandboxStop
        | Job::SandboxDelete
        | Job::BatchCollect
        | Job::WorkflowCreate
        | Job::WorkflowCancel
        | Job::SshProvision
        | Job::SshRevoke => 300,
    })
}

/// Time for the work itself. What has not ended by then is answered as failed, with enough time left for that answer.
pub(crate) const fn work_within(job: Job) -> Duration {
    answer_within(job).saturating_sub(REPORT_RESERVE)
}

/// Time that must be left for a job to begin that another operator may be given instead; `None` for jobs that stay with
/// theirs, late or not.
pub(crate) const fn needed(job: Job) -> Option<Duration> {
    match job {
        Job::SandboxCreate => Some(CREATE_TIMEOUT.saturating_add(REPORT_RESERVE)),
        Job::WorkflowCreate => Some(REPORT_RESERVE.saturating_add(REPORT_RESERVE)),
        _ => None,
    }
}

/// Whether enough blocks are left. Blocks are told in time by what the contract gave: from `assigned` to `deadline` it is the
/// whole time for the answer.
pub(crate) fn is_time_left(job: Job, assigned: u64, deadline: u64, head: u64) -> bool {
    let Some(needed) = needed(job) else { return true };
    let (given, left) = (deadline.saturating_sub(assigned), deadline.saturating_sub(head));
    u128::from(left) * answer_within(job).as_millis() >= u128::from(given) * needed.as_millis() && left > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{DELETE_TIMEOUT, RESUME_TIMEOUT, SNAPSHOT_TIMEOUT, STOP_TIMEOUT};

    #[test]
    fn the_contract_gives_the_same_times() {
        let solidity = include_str!("../../../contracts/src/JobTable.sol");
        let body = solidity.split("function answerMs").nth(1).unwrap();
        let default = body.lines().filter_map(|line| line.trim().strip_prefix("return ")).next_back().unwrap();
        let of = |job: Job| {
            let name = format!("JOB_{}", job.name().to_uppercase());
            let is_named =
                |line: &&str| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == name);
            let line = body.lines().find(is_named).map_or(default, |line| line.split("return ").nth(1).unwrap());
            line.trim_end_matches(';').replace('_', "").parse::<u64>().unwrap()
        };
        for job in Job::ALL {
            assert_eq!(answer_within(job).as_millis(), u128::from(of(job)), "{}", job.name());
        }
    }

    #[test]
    fn every_job_ends_in_time_for_its_answer_to_be_sent() {
        for job in Job::ALL {
            assert!(work_within(job) + REPORT_RESERVE <= answer_within(job));
            assert!(needed(job).is_none_or(|needed| needed <= answer_within(job)));
        }
        assert!(CREATE_TIMEOUT < work_within(Job::SandboxCreate));
        for (job, bound) in [
            (Job::SandboxStop, STOP_TIMEOUT),
            (Job::SandboxResume, RESUME_TIMEOUT),
            (Job::SandboxDelete, DELETE_TIMEOUT),
            (Job::SandboxSnapshot, SNAPSHOT_TIMEOUT),
        ] {
            assert!(bound < work_within(job), "{} has words of its own for being late", job.name());
        }
    }

    #[test]
    fn a_create_begins_only_with_enough_blocks_left_and_a_command_always() {
        // 300 blocks of 2 s; 135 s are 67.5 blocks.
        let check = |job, head, expected| assert_eq!(is_time_left(job, 1_000, 1_300, head), expected, "{head}");
        let needed = needed(Job::SandboxCreate).unwrap().as_secs().div_ceil(2);
        check(Job::SandboxCreate, 1_300 - needed, true);
        check(Job::SandboxCreate, 1_301 - needed, false);
        check(Job::SandboxCreate, 1_300, false);
        check(Job::SandboxCreate, 5_000, false);
        check(Job::Exec, 5_000, true);
    }
}
