//! Job inputs, built and bounded. A request that is refused here costs nothing; the same bounds hold at the operator.

mod agents;
mod batches;
mod workflows;

use std::collections::BTreeMap;

use alloy::primitives::Bytes;
use alloy::sol_types::SolValue;
use sandbox_protocol::abi::{self, ExecRequest, SandboxCreateRequest, SandboxIdRequest};
use sandbox_protocol::agent::BadContext;
use sandbox_protocol::limits::{
    CPU_CORES_MAX, DISK_GB_MAX, ENV_VAR_BYTES_MAX, ENV_VARS_MAX, EXEC_TIMEOUT_MS_MAX, JOB_INPUT_BYTES_MAX,
    MEMORY_MB_MAX, MEMORY_MB_MIN, PROMPT_BYTES_MAX,
};
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::{CallKey, Job, SandboxId};

pub use self::agents::AgentBuilder;
pub(crate) use self::batches::BATCH_KEY;
pub use self::batches::{BatchBuilder, BatchCreateBuilder, batch_collect};
pub use self::workflows::{BadWorkflow, WorkflowBuilder, cancel_workflow, trigger_workflow};

/// Keys of the environment that carry what the request struct has no field for.
const IMAGE_KEY: &str = "SANDBOX_IMAGE";
const SNAPSHOT_KEY: &str = "SANDBOX_SNAPSHOT";
const NAME_KEY: &str = "SANDBOX_NAME";
const LABELS_KEY: &str = "SANDBOX_LABELS";

/// A job and its inputs, ready to be submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRequest {
    /// The job.
    pub job: Job,
    /// `abi.encode` of its request struct.
    pub inputs: Bytes,
}

impl JobRequest {
    /// The sandbox that the job is done in, whose operator alone can do it. `None` where any operator of the service may, or
    /// where the inputs are not the job's.
    pub fn sandbox(&self) -> Option<SandboxId> {
        let named = match self.job {
            Job::SandboxStop | Job::SandboxDelete => abi::decode::<SandboxIdRequest>(&self.inputs).ok()?.sandbox_id,
            Job::SandboxResume => abi::decode::<abi::ResumeRequest>(&self.inputs).ok()?.sandbox_id,
            Job::SandboxSnapshot => abi::decode::<abi::SandboxSnapshotRequest>(&self.inputs).ok()?.sidecar_endpoint,
            Job::Exec => abi::decode::<ExecRequest>(&self.inputs).ok()?.sidecar_endpoint,
            Job::Prompt => abi::decode::<abi::PromptRequest>(&self.inputs).ok()?.sidecar_endpoint,
            Job::Task => abi::decode::<abi::TaskRequest>(&self.inputs).ok()?.sidecar_endpoint,
            Job::SshProvision => abi::decode::<abi::SshProvisionRequest>(&self.inputs).ok()?.sandbox_id,
            Job::SshRevoke => abi::decode::<abi::SshRevokeRequest>(&self.inputs).ok()?.sandbox_id,
            Job::WorkflowCreate => return workflows::sandbox_of(&self.inputs),
            Job::SandboxCreate
            | Job::BatchCreate
            | Job::BatchTask
            | Job::BatchExec
            | Job::BatchCollect
            | Job::WorkflowTrigger
            | Job::WorkflowCancel => return None,
        };
        SandboxId::from_endpoint(&named).ok()
    }
}

impl JobRequest {
    /// The workflow of `service` that the job is about, whose operator alone can do it.
    pub fn workflow(&self, service: u64) -> Option<CallKey> {
        let is_control = matches!(self.job, Job::WorkflowTrigger | Job::WorkflowCancel);
        let named = abi::decode::<abi::WorkflowControlRequest>(&self.inputs).ok().filter(|_| is_control)?;
        Some(CallKey { service, call: named.workflow_id })
    }
}

/// A request that would be refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A number is out of its range.
    #[error("{field} is {given}, allowed is {min} to {max}, or 0 for the default")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What was given.
        given: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// The environment has too many variables.
    #[error("{0} environment variables, at most {ENV_VARS_MAX} are taken")]
    EnvVars(usize),
    /// An environment variable has no usable name or is too long.
    #[error("environment variable {0:?} has no valid name or is longer than {ENV_VAR_BYTES_MAX} bytes")]
    EnvVar(String),
    /// The command is empty.
    #[error("the command is empty")]
    NoCommand,
    /// There is nothing for the agent to do.
    #[error("the prompt is empty")]
    NoPrompt,
    /// The prompt is too long.
    #[error("the prompt is {0} bytes long, at most {PROMPT_BYTES_MAX} are taken")]
    Prompt(usize),
    /// The context is not what it must be.
    #[error(transparent)]
    Context(#[from] BadContext),
    /// A batch of nothing, or of more than one batch may hold.
    #[error("a batch of {given}, allowed is 1 to {max}")]
    BatchSize {
        /// What was given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// The workflow is not what it must be.
    #[error(transparent)]
    Workflow(#[from] BadWorkflow),
    /// The inputs are too long for a job.
    #[error("the inputs are {0} bytes long, a job takes at most {JOB_INPUT_BYTES_MAX}")]
    TooLarge(usize),
}

/// A sandbox to be created. What is not set is the operator's default.
#[derive(Debug, Clone, Default)]
pub struct CreateBuilder {
    request: SandboxCreateRequest,
    env: BTreeMap<String, String>,
}

impl CreateBuilder {
    /// A sandbox with every default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Processor cores.
    #[must_use]
    pub const fn cpu_cores(mut self, cores: u64) -> Self {
        self.request.cpu_cores = cores;
        self
    }

    /// Memory in MB.
    #[must_use]
    pub const fn memory_mb(mut self, memory_mb: u64) -> Self {
        self.request.memory_mb = memory_mb;
        self
    }

    /// Disk in GB.
    #[must_use]
    pub const fn disk_gb(mut self, disk_gb: u64) -> Self {
        self.request.disk_gb = disk_gb;
        self
    }

    /// Life in blocks; 0 lasts until the service ends.
    #[must_use]
    pub const fn ttl_blocks(mut self, blocks: u64) -> Self {
        self.request.ttl_blocks = blocks;
        self
    }

    /// A variable of the sandbox's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// An image on the operator's allow-list.
    #[must_use]
    pub fn image(self, image: impl Into<String>) -> Self {
        self.env(IMAGE_KEY, image)
    }

    /// What carries prompts and tasks out: `native`, `opencode` or `claude-agent`.
    #[must_use]
    pub fn agent_backend(mut self, backend: impl Into<String>) -> Self {
        self.request.agent_backend = backend.into();
        self
    }

    /// Profile of the agent that prompts and tasks are for.
    #[must_use]
    pub fn agent_identifier(mut self, profile: impl Into<String>) -> Self {
        self.request.agent_identifier = profile.into();
        self
    }

    /// A snapshot whose files it begins with.
    #[must_use]
    pub fn snapshot(self, uri: impl Into<String>) -> Self {
        self.env(SNAPSHOT_KEY, uri)
    }

    /// What it is called in lists.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        self.env(NAME_KEY, name)
    }

    /// What it is found by in lists, each as `name=value`.
    #[must_use]
    pub fn labels<S: AsRef<str>>(self, labels: &[S]) -> Self {
        let labels: Vec<_> = labels.iter().map(AsRef::as_ref).collect();
        if labels.is_empty() { self } else { self.env(LABELS_KEY, labels.join(",")) }
    }

    /// Has it entered over SSH; keys are admitted later.
    #[must_use]
    pub const fn ssh(mut self) -> Self {
        self.request.ssh_enabled = true;
        self
    }

    /// Has it entered over SSH with this key from its beginning.
    #[must_use]
    pub fn ssh_key(mut self, key: &PublicKey) -> Self {
        self.request.ssh_public_key = key.to_string();
        self.ssh()
    }

    /// Seconds without activity after which it is stopped.
    #[must_use]
    pub const fn idle_timeout_s(mut self, seconds: u64) -> Self {
        self.request.idle_timeout_seconds = seconds;
        self
    }

    /// The job.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn build(self) -> Result<JobRequest, RequestError> {
        bounded(Job::SandboxCreate, &self.request()?)
    }

    /// What is asked for.
    fn request(self) -> Result<SandboxCreateRequest, RequestError> {
        let mut request = self.request;
        in_range("cpu_cores", request.cpu_cores, 1, CPU_CORES_MAX)?;
        in_range("memory_mb", request.memory_mb, MEMORY_MB_MIN, MEMORY_MB_MAX)?;
        in_range("disk_gb", request.disk_gb, 1, DISK_GB_MAX)?;
        request.env_json = env_json(&self.env)?;
        Ok(request)
    }
}

/// A command to be run in a sandbox.
#[derive(Debug, Clone)]
pub struct ExecBuilder {
    request: ExecRequest,
    env: BTreeMap<String, String>,
}

impl ExecBuilder {
    /// `command` is given to `/bin/sh -c` in the sandbox.
    pub fn new(sandbox: SandboxId, command: impl Into<String>) -> Self {
        let request =
            ExecRequest { sidecar_endpoint: sandbox.to_string(), command: command.into(), ..Default::default() };
        Self { request, env: BTreeMap::new() }
    }

    /// A command by its words, each of which reaches it as it is.
    pub fn of_words<S: AsRef<str>>(sandbox: SandboxId, words: &[S]) -> Self {
        let quoted: Vec<_> = words.iter().map(|word| shell_quoted(word.as_ref())).collect();
        Self::new(sandbox, quoted.join(" "))
    }

    /// Working directory; relative paths start in the workspace.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.request.cwd = cwd.into();
        self
    }

    /// A variable of the command's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Written to the command's stdin, which is then closed.
    #[must_use]
    pub fn stdin(mut self, text: impl Into<String>) -> Self {
        self.request.stdin = text.into();
        self
    }

    /// Time until the command is killed, in milliseconds.
    #[must_use]
    pub const fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.request.timeout_ms = timeout_ms;
        self
    }

    /// The job.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn build(self) -> Result<JobRequest, RequestError> {
        let mut request = self.request;
        if request.command.trim().is_empty() {
            return Err(RequestError::NoCommand);
        }
        in_range("timeout_ms", request.timeout_ms, 1, EXEC_TIMEOUT_MS_MAX)?;
        request.env_json = env_json(&self.env)?;
        bounded(Job::Exec, &request)
    }
}

/// Stops a sandbox; what is in it stays.
pub fn stop(sandbox: SandboxId) -> JobRequest {
    let inputs = SandboxIdRequest { sandbox_id: sandbox.to_string() }.abi_encode().into();
    JobRequest { job: Job::SandboxStop, inputs }
}

/// Starts a stopped sandbox again, with what a snapshot holds where one is named.
///
/// # Errors
/// [`RequestError::TooLarge`].
pub fn resume(sandbox: SandboxId, snapshot: Option<String>) -> Result<JobRequest, RequestError> {
    let snapshot_uri = snapshot.unwrap_or_default();
    bounded(Job::SandboxResume, &abi::ResumeRequest { sandbox_id: sandbox.to_string(), snapshot_uri })
}

/// Deletes a sandbox and everything in it.
pub fn delete(sandbox: SandboxId) -> JobRequest {
    let inputs = SandboxIdRequest { sandbox_id: sandbox.to_string() }.abi_encode().into();
    JobRequest { job: Job::SandboxDelete, inputs }
}

/// Which files of a sandbox go into a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Those of the workspace.
    Workspace,
    /// Those of the agent's home.
    State,
    /// Both.
    Both,
}

/// Writes what is in a running sandbox to a place; to the one it was created with where none is named.
///
/// # Errors
/// [`RequestError::TooLarge`].
pub fn snapshot(sandbox: SandboxId, to: Option<String>, contents: Contents) -> Result<JobRequest, RequestError> {
    let request = abi::SandboxSnapshotRequest {
        sidecar_endpoint: sandbox.to_string(),
        destination: to.unwrap_or_default(),
        include_workspace: contents != Contents::State,
        include_state: contents != Contents::Workspace,
    };
    bounded(Job::SandboxSnapshot, &request)
}

/// Has an SSH key open a sandbox for so many blocks, or, with 0, as long as there is one; one that does gets a new end.
///
/// # Errors
/// [`RequestError::TooLarge`].
pub fn ssh_provision(sandbox: SandboxId, key: &PublicKey, ttl_blocks: u64) -> Result<JobRequest, RequestError> {
    let (sandbox_id, ssh_public_key) = (sandbox.to_string(), key.to_string());
    bounded(Job::SshProvision, &abi::SshProvisionRequest { sandbox_id, ssh_public_key, ttl_blocks })
}

/// Has an SSH key open a sandbox no more, and ends what it has opened.
///
/// # Errors
/// [`RequestError::TooLarge`].
pub fn ssh_revoke(sandbox: SandboxId, key: &PublicKey) -> Result<JobRequest, RequestError> {
    let (sandbox_id, ssh_public_key) = (sandbox.to_string(), key.to_string());
    bounded(Job::SshRevoke, &abi::SshRevokeRequest { sandbox_id, ssh_public_key })
}

fn bounded(job: Job, request: &impl SolValue) -> Result<JobRequest, RequestError> {
    let inputs: Bytes = request.abi_encode().into();
    if inputs.len() > JOB_INPUT_BYTES_MAX {
        Err(RequestError::TooLarge(inputs.len()))
    } else {
        Ok(JobRequest { job, inputs })
    }
}

fn in_range(field: &'static str, given: u64, min: u64, max: u64) -> Result<(), RequestError> {
    let allowed = given == 0 || (min..=max).contains(&given);
    if allowed { Ok(()) } else { Err(RequestError::OutOfRange { field, given, min, max }) }
}

/// A JSON object of strings; empty where there are none.
fn env_json(env: &BTreeMap<String, String>) -> Result<String, RequestError> {
    if env.len() > ENV_VARS_MAX {
        return Err(RequestError::EnvVars(env.len()));
    }
    if let Some((name, _)) = env.iter().find(|(name, value)| !is_env_var(name, value)) {
        return Err(RequestError::EnvVar(name.clone()));
    }
    Ok(if env.is_empty() { String::new() } else { serde_json::json!(env).to_string() })
}

fn is_env_var(name: &str, value: &str) -> bool {
    let named = !name.is_empty() && !name.contains(['=', '\0']);
    named && !value.contains('\0') && name.len() + value.len() <= ENV_VAR_BYTES_MAX
}

/// A word as a shell reads it.
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::abi::decode;

    use super::*;

    const SANDBOX: SandboxId = SandboxId { origin: CallKey { service: 1, call: 9 }, slot: 0 };

    #[test]
    fn the_environment_carries_what_the_struct_has_no_field_for() {
        let job = CreateBuilder::new().cpu_cores(2).env("A", "1").image("base").build().unwrap();
        let request: SandboxCreateRequest = decode(&job.inputs).unwrap();
        assert_eq!((job.job, request.cpu_cores), (Job::SandboxCreate, 2));
        assert_eq!(request.env_json, r#"{"A":"1","SANDBOX_IMAGE":"base"}"#);
    }

    #[test]
    fn a_snapshot_names_its_place_and_what_goes_into_it() {
        let read = |contents| {
            let job = snapshot(SANDBOX, Some("s3://a/b".into()), contents).unwrap();
            let request: abi::SandboxSnapshotRequest = decode(&job.inputs).unwrap();
            (request.destination, request.include_workspace, request.include_state)
        };
        assert_eq!(read(Contents::Workspace), ("s3://a/b".into(), true, false));
        assert_eq!(read(Contents::State), ("s3://a/b".into(), false, true));
        assert_eq!(read(Contents::Both), ("s3://a/b".into(), true, true));
        let job = CreateBuilder::new().snapshot("s3://a/b").name("x").labels(&["a=1", "b=2"]).build().unwrap();
        let env = decode::<SandboxCreateRequest>(&job.inputs).unwrap().env_json;
        assert_eq!(env, r#"{"SANDBOX_LABELS":"a=1,b=2","SANDBOX_NAME":"x","SANDBOX_SNAPSHOT":"s3://a/b"}"#);
        assert!(resume(SANDBOX, Some("x".repeat(JOB_INPUT_BYTES_MAX))).is_err());
    }

    #[test]
    fn an_empty_environment_is_an_empty_text() {
        let job = CreateBuilder::new().build().unwrap();
        assert_eq!(decode::<SandboxCreateRequest>(&job.inputs), Ok(SandboxCreateRequest::default()));
    }

    #[test]
    fn a_key_is_named_without_its_comment_and_has_a_create_ask_for_ssh() {
        const LINE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOmARhRNpL9AB6pLjv23vuQ7RK+RkhrTjHLMC0muvW93";
        let key: PublicKey = format!("{LINE} me@here").parse().unwrap();
        let created: SandboxCreateRequest =
            decode(&CreateBuilder::new().ssh_key(&key).build().unwrap().inputs).unwrap();
        assert_eq!((created.ssh_enabled, created.ssh_public_key.as_str()), (true, LINE));
        let admitted = ssh_provision(SANDBOX, &key, 7).unwrap();
        let request: abi::SshProvisionRequest = decode(&admitted.inputs).unwrap();
        assert_eq!((request.ssh_public_key.as_str(), request.ttl_blocks), (LINE, 7));
        for request in [admitted, ssh_revoke(SANDBOX, &key).unwrap()] {
            assert_eq!(request.sandbox(), Some(SANDBOX));
        }
    }

    #[test]
    fn words_reach_the_command_as_they_are() {
        let words = ["printf", "%s", "it's $HOME", "", "a b"];
        let job = ExecBuilder::of_words(SANDBOX, &words).build().unwrap();
        let request: ExecRequest = decode(&job.inputs).unwrap();
        assert_eq!(request.command, r"printf %s 'it'\''s $HOME' '' 'a b'");
        assert_eq!(request.sidecar_endpoint, "sbx-1-9-0");
    }

    #[test]
    fn a_job_in_a_sandbox_names_it() {
        assert_eq!(ExecBuilder::new(SANDBOX, "true").build().unwrap().sandbox(), Some(SANDBOX));
        let kept = snapshot(SANDBOX, None, Contents::Both).unwrap();
        for request in [stop(SANDBOX), resume(SANDBOX, None).unwrap(), delete(SANDBOX), kept] {
            assert_eq!(request.sandbox(), Some(SANDBOX), "{:?}", request.job);
        }
        assert_eq!(CreateBuilder::new().build().unwrap().sandbox(), None);
        let task = abi::TaskRequest { sidecar_endpoint: format!("https://x/{SANDBOX}"), ..Default::default() };
        let task = JobRequest { job: Job::Task, inputs: task.abi_encode().into() };
        assert_eq!(task.sandbox(), Some(SANDBOX));
        assert_eq!(JobRequest { job: Job::Exec, ..task }.sandbox(), None, "inputs of another job");
    }

    #[test]
    fn what_an_operator_would_refuse_is_refused_before_it_is_paid() {
        let memory = CreateBuilder::new().memory_mb(MEMORY_MB_MIN - 1).build().unwrap_err();
        assert_eq!(memory.to_string(), "memory_mb is 63, allowed is 64 to 1048576, or 0 for the default");
        assert_eq!(CreateBuilder::new().env("A=B", "").build(), Err(RequestError::EnvVar("A=B".into())));
        assert_eq!(ExecBuilder::new(SANDBOX, " ").build(), Err(RequestError::NoCommand));
        assert!(ExecBuilder::new(SANDBOX, "true").timeout_ms(EXEC_TIMEOUT_MS_MAX + 1).build().is_err());
        let long = ExecBuilder::new(SANDBOX, "x".repeat(JOB_INPUT_BYTES_MAX)).build();
        assert!(matches!(long, Err(RequestError::TooLarge(_))));
    }
}
