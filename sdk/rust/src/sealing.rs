//! Inputs are public on chain, so what a customer confides is sealed to the operators that may answer: those of the service,
//! the one that holds the sandbox, or those that a batch names. Environments and prompts are, unless the account is told otherwise.

use alloy::primitives::{Address, B256, Bytes};
use alloy::sol_types::{SolType, SolValue};
use sandbox_protocol::Job;
use sandbox_protocol::abi;
use sandbox_protocol::limits::JOB_INPUT_BYTES_MAX;
use sandbox_protocol::sealed::{self, Binding, Field, SealError, Sealable};

use crate::chain::{Account, Chain, ReadError};
use crate::requests::JobRequest;

/// Which fields of a request are sealed before it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sealing {
    /// None: everything is public.
    Plain,
    /// Those that hold keys and confidences as a rule: environments, prompts and their context.
    #[default]
    Secrets,
    /// Every field that can be: commands and their stdin as well.
    Everything,
}

/// A request that was not sealed, and so not sent.
#[derive(Debug, thiserror::Error)]
pub enum SealingError {
    /// Who may answer could not be asked.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An operator opens no sealed fields; unsealed, they would be public.
    #[error(
        "operator {0} publishes no seal key, so everybody could read the environment or prompt; send it plain to allow that"
    )]
    NoKey(Address),
    /// A field was not sealed.
    #[error("{field} cannot be sealed")]
    Field {
        /// Its name.
        field: Field,
        /// Why.
        source: SealError,
    },
    /// Sealed, the inputs are too long for a job.
    #[error("sealed, the inputs are {0} bytes long, a job takes at most {JOB_INPUT_BYTES_MAX}")]
    TooLarge(usize),
}

impl Sealing {
    /// Whether this text of this field is to be sealed. What is sealed already stays as it is.
    fn seals(self, field: Field, text: &str) -> bool {
        let asked = match self {
            Self::Plain => false,
            Self::Secrets => field.is_secret(),
            Self::Everything => true,
        };
        asked && !text.is_empty() && !sealed::is_sealed(text)
    }
}

impl Account {
    /// The request as it is sent to the service: with those fields sealed that this account seals, to all that may answer.
    ///
    /// # Errors
    /// [`SealingError`].
    pub async fn sealed(&self, service: u64, request: JobRequest) -> Result<JobRequest, SealingError> {
        if !self.seals_of(&request)? {
            return Ok(request);
        }
        let openers = self.chain().openers(service, &request).await?;
        self.sealed_to(service, request, &openers).await
    }

    /// As [`Account::sealed`], to these operators: where a quote says who alone answers.
    ///
    /// # Errors
    /// [`SealingError`].
    pub async fn sealed_to(
        &self,
        service: u64,
        request: JobRequest,
        openers: &[Address],
    ) -> Result<JobRequest, SealingError> {
        if !self.seals_of(&request)? {
            return Ok(request);
        }
        let recipients = self.chain().seal_keys(openers).await?;
        let (chain_id, core) = (self.deployment().chain_id, self.deployment().core);
        let binding = Binding { chain_id, core, service, caller: self.address(), job: request.job.id() };
        let sealing = self.sealing();
        let inputs = rewritten(&request, &mut |field, text| {
            if sealing.seals(field, text) {
                let sealed = sealed::seal(text, &recipients, (&binding, field), &mut rand::rng());
                *text = sealed.map_err(|source| SealingError::Field { field, source })?;
            }
            Ok(())
        });
        match inputs? {
            Some(inputs) if inputs.len() > JOB_INPUT_BYTES_MAX => Err(SealingError::TooLarge(inputs.len())),
            inputs => Ok(JobRequest { inputs: inputs.unwrap_or(request.inputs), ..request }),
        }
    }

    /// Whether anything of a request is to be sealed.
    fn seals_of(&self, request: &JobRequest) -> Result<bool, SealingError> {
        let (sealing, mut any) = (self.sealing(), false);
        let look = &mut |field, text: &mut String| {
            any |= sealing.seals(field, text);
            Ok(())
        };
        Ok(rewritten(request, look)?.is_some() && any)
    }
}

impl Chain {
    /// Those that may answer: the sandbox's holder, the operators that a batch is to be made by, or all of the service.
    async fn openers(&self, service: u64, request: &JobRequest) -> Result<Vec<Address>, SealingError> {
        let named = match request.job {
            Job::BatchCreate => abi::decode(&request.inputs).map(|batch: abi::BatchCreateRequest| batch.operators),
            _ => Ok(Vec::new()),
        };
        let named = named.unwrap_or_default();
        if !named.is_empty() {
            return Ok(named);
        }
        let holder = match request.sandbox() {
            Some(sandbox) => Some(self.sandbox(sandbox).await?.operator).filter(|holder| !holder.is_zero()),
            None => None,
        };
        match holder {
            Some(holder) => Ok(vec![holder]),
            None => Ok(self.operators(service).await?),
        }
    }

    async fn seal_keys(&self, operators: &[Address]) -> Result<Vec<B256>, SealingError> {
        let mut keys = Vec::with_capacity(operators.len());
        for operator in operators {
            let key = self.operator(*operator).await?.sealKey;
            if key.is_zero() {
                return Err(SealingError::NoKey(*operator));
            }
            keys.push(key);
        }
        Ok(keys)
    }
}

/// What is done to each field that may be sealed.
type Act<'a> = &'a mut dyn FnMut(Field, &mut String) -> Result<(), SealingError>;

/// The inputs after `act` was done to each of their fields that may be sealed; `None` where they are not the job's.
fn rewritten(JobRequest { job, inputs }: &JobRequest, act: Act<'_>) -> Result<Option<Bytes>, SealingError> {
    match job {
        Job::SandboxCreate => rewritten_as::<abi::SandboxCreateRequest>(inputs, act),
        Job::SandboxStop | Job::SandboxDelete => rewritten_as::<abi::SandboxIdRequest>(inputs, act),
        Job::SandboxResume => rewritten_as::<abi::ResumeRequest>(inputs, act),
        Job::SandboxSnapshot => rewritten_as::<abi::SandboxSnapshotRequest>(inputs, act),
        Job::Exec => rewritten_as::<abi::ExecRequest>(inputs, act),
        Job::Prompt => rewritten_as::<abi::PromptRequest>(inputs, act),
        Job::Task => rewritten_as::<abi::TaskRequest>(inputs, act),
        Job::BatchCreate => rewritten_as::<abi::BatchCreateRequest>(inputs, act),
        Job::BatchTask => rewritten_as::<abi::BatchTaskRequest>(inputs, act),
        Job::BatchExec => rewritten_as::<abi::BatchExecRequest>(inputs, act),
        Job::BatchCollect => rewritten_as::<abi::BatchCollectRequest>(inputs, act),
        Job::WorkflowCreate => rewritten_as::<abi::WorkflowCreateRequest>(inputs, act),
        Job::WorkflowTrigger | Job::WorkflowCancel => rewritten_as::<abi::WorkflowControlRequest>(inputs, act),
        Job::SshProvision => rewritten_as::<abi::SshProvisionRequest>(inputs, act),
        Job::SshRevoke => rewritten_as::<abi::SshRevokeRequest>(inputs, act),
    }
}

fn rewritten_as<T>(inputs: &Bytes, act: Act<'_>) -> Result<Option<Bytes>, SealingError>
where
    T: Sealable + SolValue + From<<T::SolType as SolType>::RustType>,
{
    let Ok(mut request) = abi::decode::<T>(inputs) else { return Ok(None) };
    for (field, text) in request.sealable() {
        act(field, text)?;
    }
    Ok(Some(request.abi_encode().into()))
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::{CallKey, SandboxId};

    use super::*;
    use crate::requests::{AgentBuilder, CreateBuilder, ExecBuilder, delete};

    const SANDBOX: SandboxId = SandboxId { origin: CallKey { service: 1, call: 9 }, slot: 0 };

    fn sealed_of(sealing: Sealing, request: &JobRequest) -> Vec<Field> {
        let mut found = Vec::new();
        let look = &mut |field, text: &mut String| {
            if sealing.seals(field, text) {
                found.push(field);
            }
            Ok(())
        };
        assert_eq!(rewritten(request, look).unwrap().as_ref(), Some(&request.inputs), "looking changes nothing");
        found
    }

    #[test]
    fn an_environment_is_sealed_and_a_command_only_when_asked_for() {
        let exec = ExecBuilder::new(SANDBOX, "true").env("A", "1").stdin("in").build().unwrap();
        assert_eq!(sealed_of(Sealing::Plain, &exec), []);
        assert_eq!(sealed_of(Sealing::Secrets, &exec), [Field::EnvJson]);
        assert_eq!(sealed_of(Sealing::Everything, &exec), [Field::Command, Field::EnvJson, Field::Stdin]);
        let bare = ExecBuilder::new(SANDBOX, "true").build().unwrap();
        assert_eq!(sealed_of(Sealing::Secrets, &bare), []);
        assert_eq!(sealed_of(Sealing::default(), &CreateBuilder::new().image("x").build().unwrap()), [Field::EnvJson]);
        assert_eq!(sealed_of(Sealing::Everything, &delete(SANDBOX)), []);
    }

    #[test]
    fn what_the_agent_is_told_is_sealed_as_a_rule() {
        let task = AgentBuilder::task(SANDBOX, "do it", 0);
        let prompt = AgentBuilder::prompt(SANDBOX, "do it").context_json("{}").build().unwrap();
        assert_eq!(sealed_of(Sealing::default(), &prompt), [Field::Prompt, Field::ContextJson]);
        assert_eq!(sealed_of(Sealing::Plain, &prompt), []);
        assert_eq!(sealed_of(Sealing::default(), &task.clone().build().unwrap()), [Field::Prompt]);
        let confided = task.context_json(r#"{"provider":{"api_key":"k"}}"#).build().unwrap();
        assert_eq!(sealed_of(Sealing::default(), &confided), [Field::Prompt, Field::ContextJson]);
    }

    #[test]
    fn what_is_sealed_already_stays_as_it_is() {
        let request = abi::SandboxCreateRequest { env_json: "sealed:v1:AAAA".into(), ..Default::default() };
        let request = JobRequest { job: Job::SandboxCreate, inputs: request.abi_encode().into() };
        assert_eq!(sealed_of(Sealing::Everything, &request), []);
    }

    #[test]
    fn inputs_of_another_job_are_left_to_the_chain() {
        let request = JobRequest { job: Job::Exec, ..delete(SANDBOX) };
        assert_eq!(rewritten(&request, &mut |_, _| Ok(())).unwrap(), None);
    }
}
