//! What a quote is asked for, read from a job's inputs: how much it is, and in which sandbox.
//!
//! What is sealed stays sealed: anybody may ask for a quote with inputs that he saw on chain, and a refusal would tell him of
//! what is in them. Prices do not depend on it.
//!
//! Refused are here the requests that the contract refuses, or that this operator would answer as the caller's mistake.

use alloy::sol_types::{SolType, SolValue};
use sandbox_fleet::pricing::{Life, Work};
use sandbox_fleet::request::{Menu, Resources, command, sandbox_spec, ssh_key};
use sandbox_protocol::abi::{self, SandboxCreateRequest};
use sandbox_protocol::limits::JOB_INPUT_BYTES_MAX;
use sandbox_protocol::sealed::{self, Field, SealKey, Sealable, is_sealed};
use sandbox_protocol::{Failure, FailureCode, Job, SandboxId};

use crate::jobs::not_opened;

/// A request as far as its quote depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// The job.
    pub(super) job: Job,
    /// How much it is.
    pub(super) work: Work,
    /// The sandbox that it is done in.
    pub(super) sandbox: Option<SandboxId>,
}

impl Asked {
    /// How many new sandboxes of what size.
    pub(super) const fn room(&self) -> Option<(u32, Resources)> {
        match self.work {
            Work::Sandboxes { count, each, .. } => Some((count, each)),
            Work::Turns(_) | Work::Listed => None,
        }
    }
}

/// What job `id` with these inputs asks for.
pub(super) fn asked(id: u8, inputs: &[u8], (menu, keys): (&Menu, &[SealKey])) -> Result<Asked, Failure> {
    let offered = Job::from_id(id).filter(|job| Job::OFFERED.contains(job));
    let job = offered.ok_or_else(|| Failure::new(FailureCode::Unsupported, format!("job {id} is not offered")))?;
    if inputs.len() > JOB_INPUT_BYTES_MAX {
        return Err(bad(format!("the inputs are {} bytes long, at most {JOB_INPUT_BYTES_MAX}", inputs.len())));
    }
    let (work, sandbox) = read(job, inputs, (menu, keys))?;
    Ok(Asked { job, work, sandbox })
}

fn read(job: Job, inputs: &[u8], (menu, keys): (&Menu, &[SealKey])) -> Result<(Work, Option<SandboxId>), Failure> {
    let listed_in = |sandbox: &str| Ok((Work::Listed, Some(id_in(sandbox)?)));
    match job {
        Job::SandboxCreate => Ok((sandboxes(1, &unopened(decode(inputs)?, keys)?, menu)?, None)),
        Job::BatchCreate => {
            let batch: abi::BatchCreateRequest = unopened(decode(inputs)?, keys)?;
            Ok((sandboxes(batch.count, &batch.template, menu)?, None))
        }
        Job::Exec => Ok((Work::Listed, Some(command(unopened(decode(inputs)?, keys)?)?.sandbox))),
        Job::Task => {
            let task: abi::TaskRequest = decode(inputs)?;
            Ok((Work::Turns(task.max_turns), Some(id_in(&task.sidecar_endpoint)?)))
        }
        Job::Prompt => listed_in(&decode::<abi::PromptRequest>(inputs)?.sidecar_endpoint),
        Job::SandboxSnapshot => listed_in(&decode::<abi::SandboxSnapshotRequest>(inputs)?.sidecar_endpoint),
        Job::SandboxStop | Job::SandboxDelete => listed_in(&decode::<abi::SandboxIdRequest>(inputs)?.sandbox_id),
        Job::SandboxResume => listed_in(&decode::<abi::ResumeRequest>(inputs)?.sandbox_id),
        Job::SshProvision => {
            let request: abi::SshProvisionRequest = decode(inputs)?;
            if !menu.ssh {
                return Err(Failure::new(FailureCode::Unsupported, "this operator lets nobody in over SSH"));
            }
            ssh_key(&request.ssh_public_key)?;
            listed_in(&request.sandbox_id)
        }
        Job::SshRevoke => {
            let request: abi::SshRevokeRequest = decode(inputs)?;
            ssh_key(&request.ssh_public_key)?;
            listed_in(&request.sandbox_id)
        }
        Job::BatchTask => listed::<abi::BatchTaskRequest>(inputs),
        Job::BatchExec => listed::<abi::BatchExecRequest>(inputs),
        Job::BatchCollect => listed::<abi::BatchCollectRequest>(inputs),
        Job::WorkflowCreate => listed::<abi::WorkflowCreateRequest>(inputs),
        Job::WorkflowTrigger | Job::WorkflowCancel => listed::<abi::WorkflowControlRequest>(inputs),
    }
}

/// New sandboxes, which this operator would hold all by itself.
fn sandboxes(count: u32, request: &SandboxCreateRequest, menu: &Menu) -> Result<Work, Failure> {
    if count == 0 {
        return Err(bad("a batch of nothing".into()));
    }
    let each = sandbox_spec(request, menu)?.resources;
    Ok(Work::Sandboxes { count, each, life: Life::of_ttl(request.ttl_blocks) })
}

/// The request with something harmless in the place of what is sealed, if that is sealed to one of our keys.
fn unopened<T: Sealable>(mut request: T, keys: &[SealKey]) -> Result<T, Failure> {
    for (field, text) in request.sealable() {
        if is_sealed(text) {
            sealed::check(text, keys).map_err(|error| not_opened(field, error))?;
            *text = match field {
                Field::Command | Field::Prompt => "true".into(),
                Field::EnvJson | Field::Stdin | Field::ContextJson | Field::SandboxConfigJson => String::new(),
            };
        }
    }
    Ok(request)
}

fn listed<T>(inputs: &[u8]) -> Result<(Work, Option<SandboxId>), Failure>
where
    T: SolValue + From<<T::SolType as SolType>::RustType>,
{
    decode::<T>(inputs).map(|_| (Work::Listed, None))
}

fn decode<T>(inputs: &[u8]) -> Result<T, Failure>
where
    T: SolValue + From<<T::SolType as SolType>::RustType>,
{
    abi::decode(inputs).map_err(|error| bad(error.to_string()))
}

fn id_in(text: &str) -> Result<SandboxId, Failure> {
    SandboxId::from_endpoint(text).map_err(|error| bad(error.to_string()))
}

fn bad(message: String) -> Failure {
    Failure::new(FailureCode::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, Bytes};
    use sandbox_protocol::CallKey;
    use sandbox_protocol::sealed::Binding;
    use sandbox_sdk::requests::{CreateBuilder, ExecBuilder, delete};

    use super::*;

    const SANDBOX: SandboxId = SandboxId { origin: CallKey { service: 1, call: 9 }, slot: 0 };

    fn key() -> SealKey {
        SealKey::derive(&[1; 32], 0)
    }

    fn read_one(id: u8, inputs: &Bytes) -> Result<Asked, String> {
        let menu = Menu::of("sidecar:1");
        asked(id, inputs, (&menu, &[key()])).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_create_is_as_large_and_long_as_it_asks_for_defaults_included() {
        let request = CreateBuilder::new().cpu_cores(2).ttl_blocks(7).build().unwrap();
        let each = Resources { cpu_cores: 2, memory_mb: 1_024, disk_gb: 10 };
        let work = Work::Sandboxes { count: 1, each, life: Life::Blocks(7) };
        let found = read_one(0, &request.inputs).unwrap();
        assert_eq!(found, Asked { job: Job::SandboxCreate, work, sandbox: None });
        assert_eq!(found.room(), Some((1, each)));
    }

    #[test]
    fn a_job_in_a_sandbox_names_it() {
        for request in [ExecBuilder::new(SANDBOX, "true").build().unwrap(), delete(SANDBOX)] {
            let found = read_one(request.job.id(), &request.inputs).unwrap();
            assert_eq!((found.work, found.sandbox, found.room()), (Work::Listed, Some(SANDBOX), None));
        }
    }

    #[test]
    fn what_the_contract_or_this_operator_would_refuse_is_not_quoted() {
        let create = CreateBuilder::new().build().unwrap().inputs;
        assert_eq!(read_one(5, &create), Err("unsupported: job 5 is not offered".into()));
        assert_eq!(read_one(42, &create), Err("unsupported: job 42 is not offered".into()));
        let cut = Bytes::copy_from_slice(&create[1..]);
        assert_eq!(
            read_one(0, &cut),
            Err("bad_request: not the canonical ABI encoding of SandboxCreateRequest".into())
        );
        let long = Bytes::from(vec![0; JOB_INPUT_BYTES_MAX + 1]);
        assert!(read_one(0, &long).unwrap_err().contains("bytes long"));
        let image = CreateBuilder::new().image("evil").build().unwrap();
        assert!(read_one(0, &image.inputs).unwrap_err().starts_with("image_not_allowed: "));
        let dear = SandboxCreateRequest { cpu_cores: 1_000_000, ..Default::default() }.abi_encode();
        assert!(read_one(0, &dear.into()).unwrap_err().starts_with("resources_out_of_range: "));
        let nowhere = abi::SandboxIdRequest { sandbox_id: "sbx-1".into() }.abi_encode();
        assert!(read_one(3, &nowhere.into()).unwrap_err().starts_with("bad_request: not a sandbox id"));
    }

    #[test]
    fn what_is_sealed_is_quoted_without_being_opened() {
        let binding = Binding { chain_id: 1, core: Address::ZERO, service: 1, caller: Address::ZERO, job: 10 };
        let sealed = |text: &str, field, key: &SealKey| {
            sealed::seal(text, &[key.public()], (&binding, field), &mut rand::rng()).unwrap()
        };
        // Opened, the environment would be refused: another job's, and no JSON.
        let create =
            |key: &SealKey| SandboxCreateRequest { env_json: sealed("?", Field::EnvJson, key), ..Default::default() };
        let bare = CreateBuilder::new().build().unwrap();
        let plain = read_one(0, &bare.inputs);
        assert_eq!(read_one(0, &create(&key()).abi_encode().into()), plain);
        let command = sealed("true", Field::Command, &key());
        let exec = abi::ExecRequest { sidecar_endpoint: SANDBOX.to_string(), command, ..Default::default() };
        assert_eq!(read_one(10, &exec.abi_encode().into()).unwrap().sandbox, Some(SANDBOX));
        let theirs = create(&SealKey::derive(&[2; 32], 0)).abi_encode();
        let refused = "sealed_unreadable: env_json: not sealed to a key of this operator";
        assert_eq!(read_one(0, &theirs.into()), Err(refused.into()));
    }

    /// Also those that are not offered yet: what is read must fit the struct of the job.
    #[test]
    fn every_job_has_its_own_request() {
        let menu = Menu::of("sidecar:1");
        for job in Job::ALL {
            let refused = read(job, b"nonsense", (&menu, &[])).unwrap_err();
            assert!(refused.message.starts_with("not the canonical ABI encoding of "), "{job:?}: {refused}");
        }
        let none = abi::BatchCreateRequest::default().abi_encode();
        assert_eq!(read(Job::BatchCreate, &none, (&menu, &[])).unwrap_err().message, "a batch of nothing");
        let task = abi::TaskRequest { sidecar_endpoint: SANDBOX.to_string(), max_turns: 4, ..Default::default() };
        assert_eq!(read(Job::Task, &task.abi_encode(), (&menu, &[])).unwrap(), (Work::Turns(4), Some(SANDBOX)));
    }
}
