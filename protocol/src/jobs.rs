//! The job table: ids 0–41, of which 17 are live.

/// A live job. The discriminant is the id on chain, hence the index in the blueprint's job array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[allow(missing_docs)] // the names are the documentation; the structs stand in JobTypes.sol
pub enum Job {
    SandboxCreate = 0,
    SandboxStop = 1,
    SandboxResume = 2,
    SandboxDelete = 3,
    SandboxSnapshot = 4,
    Exec = 10,
    Prompt = 11,
    Task = 12,
    BatchCreate = 20,
    BatchTask = 21,
    BatchExec = 22,
    BatchCollect = 23,
    WorkflowCreate = 30,
    WorkflowTrigger = 31,
    WorkflowCancel = 32,
    SshProvision = 40,
    SshRevoke = 41,
}

impl Job {
    /// Every live job, by rising id.
    pub const ALL: [Self; 17] = [
        Self::SandboxCreate,
        Self::SandboxStop,
        Self::SandboxResume,
        Self::SandboxDelete,
        Self::SandboxSnapshot,
        Self::Exec,
        Self::Prompt,
        Self::Task,
        Self::BatchCreate,
        Self::BatchTask,
        Self::BatchExec,
        Self::BatchCollect,
        Self::WorkflowCreate,
        Self::WorkflowTrigger,
        Self::WorkflowCancel,
        Self::SshProvision,
        Self::SshRevoke,
    ];

    /// Length of the job array that the blueprint declares.
    pub const TABLE_LENGTH: u8 = 42;

    /// The id on chain.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The live job of an id; `None` for a reserved one.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|job| job.id() == id)
    }

    /// The name that the blueprint's job array declares.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SandboxCreate => "sandbox_create",
            Self::SandboxStop => "sandbox_stop",
            Self::SandboxResume => "sandbox_resume",
            Self::SandboxDelete => "sandbox_delete",
            Self::SandboxSnapshot => "sandbox_snapshot",
            Self::Exec => "exec",
            Self::Prompt => "prompt",
            Self::Task => "task",
            Self::BatchCreate => "batch_create",
            Self::BatchTask => "batch_task",
            Self::BatchExec => "batch_exec",
            Self::BatchCollect => "batch_collect",
            Self::WorkflowCreate => "workflow_create",
            Self::WorkflowTrigger => "workflow_trigger",
            Self::WorkflowCancel => "workflow_cancel",
            Self::SshProvision => "ssh_provision",
            Self::SshRevoke => "ssh_revoke",
        }
    }

    /// One sentence for the blueprint's job array.
    pub const fn description(self) -> &'static str {
        match self {
            Self::SandboxCreate => "Provision a hardened sandbox with a sidecar",
            Self::SandboxStop => "Stop a sandbox and keep its files",
            Self::SandboxResume => "Resume a stopped sandbox",
            Self::SandboxDelete => "Delete a sandbox and everything in it",
            Self::SandboxSnapshot => "Write a sandbox's state to the customer's storage",
            Self::Exec => "Run a shell command in a sandbox",
            Self::Prompt => "Run one agent turn in a sandbox",
            Self::Task => "Run an agent task in a sandbox until it is done",
            Self::BatchCreate => "Provision many sandboxes over several operators",
            Self::BatchTask => "Run one agent task in many sandboxes",
            Self::BatchExec => "Run one command in many sandboxes",
            Self::BatchCollect => "Gather the results of a batch",
            Self::WorkflowCreate => "Define a workflow and its trigger",
            Self::WorkflowTrigger => "Run a workflow now",
            Self::WorkflowCancel => "Deactivate a workflow and cancel its runs",
            Self::SshProvision => "Admit an SSH key to a sandbox",
            Self::SshRevoke => "Revoke an SSH key and end its sessions",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_ids_are_live_and_twenty_five_are_reserved() {
        let live: Vec<u8> = (0..Job::TABLE_LENGTH).filter(|id| Job::from_id(*id).is_some()).collect();
        assert_eq!(live, [0, 1, 2, 3, 4, 10, 11, 12, 20, 21, 22, 23, 30, 31, 32, 40, 41]);
        assert_eq!(usize::from(Job::TABLE_LENGTH) - live.len(), 25);
    }

    #[test]
    fn solidity_gives_every_job_the_same_id() {
        let solidity = include_str!("../../contracts/src/JobTypes.sol");
        for job in Job::ALL {
            let line = format!("uint8 constant JOB_{} = {};", job.name().to_uppercase(), job.id());
            assert!(solidity.contains(&line), "JobTypes.sol lacks `{line}`");
        }
        let declared = solidity.matches("uint8 constant JOB_").count();
        assert_eq!(declared, Job::ALL.len() + 1, "the live jobs and JOB_COUNT");
        assert!(solidity.contains(&format!("uint8 constant JOB_COUNT = {};", Job::TABLE_LENGTH)));
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Job::ALL.iter().map(|job| job.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Job::ALL.len());
    }
}
