//! What a quote is asked for, read from a job's inputs: how much it is, and in which sandbox.
//!
//! What is sealed stays sealed: anybody may ask for a quote with inputs that he saw on chain, and a refusal would tell him of
//! what is in them. Prices do not depend on it.
//!
//! Refused are here the requests that the contract refuses, or that this operator would answer as the caller's mistake.

use alloy::sol_types::{SolType, SolValue};
use sandbox_fleet::pricing::{Life, Work};
use sandbox_fleet::request::{Menu, Resources, batch_template, command, sandbox_spec, ssh_key};
use sandbox_protocol::abi::{self, SandboxCreateRequest};
use sandbox_protocol::batch::Aggregation;
use sandbox_protocol::limits::{BATCH_ENDPOINTS_MAX, BATCH_SANDBOXES_MAX, JOB_INPUT_BYTES_MAX};
use sandbox_protocol::sealed::{self, Field, SealKey, Sealable, is_sealed};
use sandbox_protocol::{Failure, FailureCode, Job, SandboxId};

use crate::jobs::not_opened;

/// A request as far as its quote depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// The job.
    pub(super) job: Job,
    /// How much it is.
    pub(super) work: Work,
    /// The sandbox that it is done in.
    pub(super) sandbox: Option<SandboxId>,
    /// Those that a batch of tasks names: an operator does those that it holds.
    pub(super) tasks_in: Vec<SandboxId>,
}

impl Asked {
    /// How many new sandboxes of what size.
    pub(super) const fn room(&self) -> Option<(u32, Resources)> {
        match self.work {
            Work::Sandboxes { count, each, .. } => Some((count, each)),
            Work::Turns(_) | Work::Tasks(_) | Work::Listed => None,
        }
    }
}

/// What job `id` with these inputs asks for.
pub(super) fn asked(id: u8, inputs: &[u8], (menu, keys): (&Menu, &[SealKey])) -> Result<Asked, Failure> {
    let job =
        Job::from_id(id).ok_or_else(|| Failure::new(FailureCode::Unsupported, format!("job {id} is not offered")))?;
    if inputs.len() > JOB_INPUT_BYTES_MAX {
        return Err(bad(format!("the inputs are {} bytes long, at most {JOB_INPUT_BYTES_MAX}", inputs.len())));
    }
    let (work, sandbox) = read(job, inputs, (menu, keys))?;
    let tasks_in = if job == Job::BatchTask { named(&decode::<abi::BatchTaskRequest>(inputs)?) } else { Vec::new() };
    Ok(Asked { job, work, sandbox, tasks_in })
}

fn read(job: Job, inputs: &[u8], (menu, keys): (&Menu, &[SealKey])) -> Result<(Work, Option<SandboxId>), Failure> {
    let listed_in = |sandbox: &str| Ok((Work::Listed, Some(id_in(sandbox)?)));
    match job {
        Job::SandboxCreate => {
            let request: SandboxCreateRequest = unopened(decode(inputs)?, keys)?;
            let each = sandbox_spec(&request, menu)?.resources;
            Ok((Work::Sandboxes { count: 1, each, life: Life::of_ttl(request.ttl_blocks) }, None))
        }
        Job::BatchCreate => Ok((sandboxes(&unopened(decode(inputs)?, keys)?, menu)?, None)),
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
        Job::BatchTask => {
            let batch: abi::BatchTaskRequest = decode(inputs)?;
            check_batch(&batch.sidecar_endpoints, &batch.aggregation)?;
            let tasks = u32::try_from(batch.sidecar_endpoints.len()).unwrap_or(u32::MAX);
            Ok((Work::Tasks(tasks), None))
        }
        Job::BatchExec => {
            let batch: abi::BatchExecRequest = decode(inputs)?;
            check_batch(&batch.sidecar_endpoints, &batch.aggregation)?;
            Ok((Work::Listed, None))
        }
        Job::BatchCollect => listed::<abi::BatchCollectRequest>(inputs),
        Job::WorkflowCreate => listed::<abi::WorkflowCreateRequest>(inputs),
        Job::WorkflowTrigger | Job::WorkflowCancel => listed::<abi::WorkflowControlRequest>(inputs),
    }
}

/// New sandboxes, which this operator would hold all by itself.
fn sandboxes(batch: &abi::BatchCreateRequest, menu: &Menu) -> Result<Work, Failure> {
    if !(1..=BATCH_SANDBOXES_MAX).contains(&batch.count) {
        return Err(bad(format!("count: 1 to {BATCH_SANDBOXES_MAX}")));
    }
    let each = batch_template(&batch.template, menu)?.0.resources;
    Ok(Work::Sandboxes { count: batch.count, each, life: Life::of_ttl(batch.template.ttl_blocks) })
}

/// A batch of tasks or commands that the contract takes.
fn check_batch(endpoints: &[String], aggregation: &str) -> Result<(), Failure> {
    if !(1..=BATCH_ENDPOINTS_MAX).contains(&endpoints.len()) {
        return Err(bad(format!("sidecar_endpoints: 1 to {BATCH_ENDPOINTS_MAX}")));
    }
    aggregation.parse::<Aggregation>().map(drop).map_err(|error| bad(format!("aggregation: {error}")))
}

/// The sandboxes that a batch names, as far as it does.
fn named(batch: &abi::BatchTaskRequest) -> Vec<SandboxId> {
    batch.sidecar_endpoints.iter().filter_map(|text| SandboxId::from_endpoint(text).ok()).collect()
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
        assert_eq!(found, Asked { job: Job::SandboxCreate, work, sandbox: None, tasks_in: Vec::new() });
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

    #[test]
    fn every_job_has_its_own_request() {
        let menu = Menu::of("sidecar:1");
        for job in Job::ALL {
            let refused = read(job, b"nonsense", (&menu, &[])).unwrap_err();
            assert!(refused.message.starts_with("not the canonical ABI encoding of "), "{job:?}: {refused}");
        }
        let none = abi::BatchCreateRequest::default().abi_encode();
        assert_eq!(read(Job::BatchCreate, &none, (&menu, &[])).unwrap_err().message, "count: 1 to 200");
        let task = abi::TaskRequest { sidecar_endpoint: SANDBOX.to_string(), max_turns: 4, ..Default::default() };
        assert_eq!(read(Job::Task, &task.abi_encode(), (&menu, &[])).unwrap(), (Work::Turns(4), Some(SANDBOX)));
    }
    #[test]
    fn a_batch_is_as_much_as_its_sandboxes_and_tasks_and_no_more_than_the_contract_takes() {
        let batch = |count| abi::BatchCreateRequest { count, ..Default::default() }.abi_encode().into();
        let Work::Sandboxes { count, life, .. } = read_one(20, &batch(200)).unwrap().work else {
            panic!("no sandboxes")
        };
        assert_eq!((count, life), (200, Life::Service));
        assert_eq!(read_one(20, &batch(201)).unwrap_err(), "bad_request: count: 1 to 200");

        let endpoints = |count: usize| vec![SANDBOX.to_string(); count];
        let tasks = |count: usize, aggregation: &str| {
            let (sidecar_endpoints, aggregation) = (endpoints(count), aggregation.to_owned());
            let batch = abi::BatchTaskRequest { sidecar_endpoints, aggregation, ..Default::default() };
            read_one(21, &batch.abi_encode().into())
        };
        let found = tasks(BATCH_ENDPOINTS_MAX, "majority").unwrap();
        assert_eq!((found.work, found.tasks_in.len()), (Work::Tasks(128), 128));
        for (count, aggregation) in [(0, "all"), (BATCH_ENDPOINTS_MAX + 1, "all"), (1, "most")] {
            assert!(tasks(count, aggregation).is_err(), "{count} {aggregation}");
        }
        let batch = abi::BatchExecRequest { aggregation: "all".into(), ..Default::default() };
        assert!(read_one(22, &batch.abi_encode().into()).is_err());
        let batch = abi::BatchExecRequest { sidecar_endpoints: endpoints(2), ..batch };
        assert_eq!(read_one(22, &batch.abi_encode().into()).unwrap().work, Work::Listed);
        let collect = abi::BatchCollectRequest { batch_id: "b".into() };
        assert_eq!(read_one(23, &collect.abi_encode().into()).unwrap().work, Work::Listed);
    }
}
