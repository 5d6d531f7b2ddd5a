//! Jobs for many sandboxes at once: created, given one command or one task, and asked for what came of it.

use std::collections::BTreeMap;

use alloy::primitives::Address;
use sandbox_fleet::batch_plan::Distribution;
use sandbox_protocol::abi::{BatchCollectRequest, BatchCreateRequest, BatchExecRequest, BatchTaskRequest};
use sandbox_protocol::batch::{Aggregation, BatchId};
use sandbox_protocol::limits::{BATCH_ENDPOINTS_MAX, BATCH_SANDBOXES_MAX, EXEC_TIMEOUT_MS_MAX, PROMPT_BYTES_MAX};
use sandbox_protocol::{Job, SandboxId};

use super::{CreateBuilder, JobRequest, RequestError, bounded, env_json, in_range, shell_quoted};

/// Key of a template's environment that names the batch, for which a create has no field.
pub(crate) const BATCH_KEY: &str = "SANDBOX_BATCH_ID";

/// Many sandboxes of one kind. Without operators any of the service may make them.
#[derive(Debug, Clone)]
pub struct BatchCreateBuilder {
    pub(crate) count: u32,
    pub(crate) distribution: Distribution,
    pub(crate) operators: Vec<Address>,
    template: CreateBuilder,
}

impl BatchCreateBuilder {
    /// So many sandboxes like this one, dealt out evenly.
    pub const fn new(count: u32, template: CreateBuilder) -> Self {
        Self { count, distribution: Distribution::RoundRobin, operators: Vec::new(), template }
    }

    /// How they are shared out among operators.
    #[must_use]
    pub const fn distribution(mut self, distribution: Distribution) -> Self {
        self.distribution = distribution;
        self
    }

    /// The operators that may make them, in the order in which the service lists them.
    #[must_use]
    pub fn operators(mut self, operators: Vec<Address>) -> Self {
        self.operators = operators;
        self
    }

    /// What the batch is called; by itself it is called by its call.
    #[must_use]
    pub fn batch(mut self, id: &BatchId) -> Self {
        self.template = self.template.env(BATCH_KEY, id.as_str());
        self
    }

    /// The part of it that one operator makes.
    pub(crate) fn share(&self, count: u32, operator: Address) -> Self {
        Self { count, operators: vec![operator], ..self.clone() }
    }

    /// The job.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn build(self) -> Result<JobRequest, RequestError> {
        in_batch(self.count as usize, BATCH_SANDBOXES_MAX as usize)?;
        let request = BatchCreateRequest {
            count: self.count,
            template: self.template.request()?,
            operators: self.operators,
            distribution: self.distribution.word().to_owned(),
        };
        bounded(Job::BatchCreate, &request)
    }
}

/// One thing to be done in many sandboxes.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    sandboxes: Vec<SandboxId>,
    work: Work,
    batch_id: String,
    parallel: bool,
    aggregation: Aggregation,
}

#[derive(Debug, Clone)]
enum Work {
    Exec { command: String, cwd: String, env: BTreeMap<String, String>, timeout_ms: u64 },
    Task { prompt: String },
}

impl BatchBuilder {
    /// `command` is given to `/bin/sh -c` in each of them.
    pub fn exec(sandboxes: Vec<SandboxId>, command: impl Into<String>) -> Self {
        let command = command.into();
        Self::new(sandboxes, Work::Exec { command, cwd: String::new(), env: BTreeMap::new(), timeout_ms: 0 })
    }

    /// A command by its words, each of which reaches it as it is.
    pub fn exec_words<S: AsRef<str>>(sandboxes: Vec<SandboxId>, words: &[S]) -> Self {
        let quoted: Vec<_> = words.iter().map(|word| shell_quoted(word.as_ref())).collect();
        Self::exec(sandboxes, quoted.join(" "))
    }

    /// The agent of each of them works on this until it is done.
    pub fn task(sandboxes: Vec<SandboxId>, prompt: impl Into<String>) -> Self {
        Self::new(sandboxes, Work::Task { prompt: prompt.into() })
    }

    const fn new(sandboxes: Vec<SandboxId>, work: Work) -> Self {
        Self { sandboxes, work, batch_id: String::new(), parallel: true, aggregation: Aggregation::All }
    }

    /// Working directory of a command; relative paths start in the workspace.
    #[must_use]
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        if let Work::Exec { cwd, .. } = &mut self.work {
            *cwd = directory.into();
        }
        self
    }

    /// A variable of a command's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Work::Exec { env, .. } = &mut self.work {
            env.insert(name.into(), value.into());
        }
        self
    }

    /// Time until a command is killed, in milliseconds, for each sandbox by itself.
    #[must_use]
    pub const fn timeout_ms(mut self, given: u64) -> Self {
        if let Work::Exec { timeout_ms, .. } = &mut self.work {
            *timeout_ms = given;
        }
        self
    }

    /// One sandbox after the other, at each operator.
    #[must_use]
    pub const fn sequential(mut self) -> Self {
        self.parallel = false;
        self
    }

    /// When it is over, and what it comes to.
    #[must_use]
    pub const fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.aggregation = aggregation;
        self
    }

    /// What the batch is called; by itself it is called by its call.
    #[must_use]
    pub fn batch(mut self, id: &BatchId) -> Self {
        id.as_str().clone_into(&mut self.batch_id);
        self
    }

    /// The sandboxes, in the order of the items.
    pub fn sandboxes(&self) -> &[SandboxId] {
        &self.sandboxes
    }

    /// The same for these sandboxes alone.
    pub(crate) fn among(&self, sandboxes: Vec<SandboxId>) -> Self {
        Self { sandboxes, ..self.clone() }
    }

    /// The job.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn build(self) -> Result<JobRequest, RequestError> {
        let Self { sandboxes, work, batch_id, parallel, aggregation } = self;
        in_batch(sandboxes.len(), BATCH_ENDPOINTS_MAX)?;
        let sidecar_endpoints = sandboxes.iter().map(SandboxId::to_string).collect();
        let aggregation = aggregation.name().to_owned();
        match work {
            Work::Exec { command, cwd, env, timeout_ms } => {
                if command.trim().is_empty() {
                    return Err(RequestError::NoCommand);
                }
                in_range("timeout_ms", timeout_ms, 1, EXEC_TIMEOUT_MS_MAX)?;
                let env_json = env_json(&env)?;
                let request = BatchExecRequest {
                    batch_id,
                    sidecar_endpoints,
                    command,
                    cwd,
                    env_json,
                    timeout_ms,
                    parallel,
                    aggregation,
                };
                bounded(Job::BatchExec, &request)
            }
            Work::Task { prompt } => {
                if prompt.trim().is_empty() {
                    return Err(RequestError::NoPrompt);
                }
                if prompt.len() > PROMPT_BYTES_MAX {
                    return Err(RequestError::Prompt(prompt.len()));
                }
                let request = BatchTaskRequest { batch_id, sidecar_endpoints, prompt, parallel, aggregation };
                bounded(Job::BatchTask, &request)
            }
        }
    }
}

/// What every operator of the service has of a batch.
///
/// # Errors
/// [`RequestError::TooLarge`], which no id is.
pub fn batch_collect(id: &BatchId) -> Result<JobRequest, RequestError> {
    bounded(Job::BatchCollect, &BatchCollectRequest { batch_id: id.as_str().to_owned() })
}

const fn in_batch(given: usize, max: usize) -> Result<(), RequestError> {
    if given == 0 || given > max { Err(RequestError::BatchSize { given, max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::CallKey;
    use sandbox_protocol::abi::decode;
    use sandbox_protocol::limits::JOB_INPUT_BYTES_MAX;

    use super::*;

    fn sandboxes(count: u8) -> Vec<SandboxId> {
        (0..count).map(|slot| SandboxId { origin: CallKey { service: 1, call: 9 }, slot }).collect()
    }

    fn id(text: &str) -> BatchId {
        text.parse().unwrap()
    }

    #[test]
    fn a_batch_create_says_what_was_set() {
        let one = Address::repeat_byte(1);
        let builder = BatchCreateBuilder::new(7, CreateBuilder::new().cpu_cores(2))
            .distribution(Distribution::Cheapest)
            .operators(vec![one])
            .batch(&id("night"));
        let request: BatchCreateRequest = decode(&builder.clone().build().unwrap().inputs).unwrap();
        assert_eq!((request.count, request.template.cpu_cores, request.distribution.as_str()), (7, 2, "cheapest"));
        assert_eq!(
            (request.operators, request.template.env_json.as_str()),
            (vec![one], r#"{"SANDBOX_BATCH_ID":"night"}"#)
        );
        let share: BatchCreateRequest = decode(&builder.share(3, Address::ZERO).build().unwrap().inputs).unwrap();
        assert_eq!((share.count, share.operators), (3, vec![Address::ZERO]));
        let bare: BatchCreateRequest =
            decode(&BatchCreateBuilder::new(1, CreateBuilder::new()).build().unwrap().inputs).unwrap();
        assert_eq!((bare.template.env_json.as_str(), bare.distribution.as_str()), ("", "round_robin"));
    }

    #[test]
    fn work_for_many_says_what_was_set() {
        let work = BatchBuilder::exec_words(sandboxes(2), &["echo", "a b"]).cwd("/tmp").env("A", "1").timeout_ms(5);
        let job = work.sequential().aggregation(Aggregation::Majority).batch(&id("b")).build().unwrap();
        let request: BatchExecRequest = decode(&job.inputs).unwrap();
        assert_eq!((job.job, request.command.as_str(), request.cwd.as_str()), (Job::BatchExec, "echo 'a b'", "/tmp"));
        assert_eq!(request.sidecar_endpoints, ["sbx-1-9-0", "sbx-1-9-1"]);
        assert_eq!((request.env_json.as_str(), request.timeout_ms), (r#"{"A":"1"}"#, 5));
        assert_eq!(
            (request.batch_id.as_str(), request.parallel, request.aggregation.as_str()),
            ("b", false, "majority")
        );
        let job = BatchBuilder::task(sandboxes(1), "do it").build().unwrap();
        let request: BatchTaskRequest = decode(&job.inputs).unwrap();
        assert_eq!((request.prompt.as_str(), request.batch_id.as_str(), request.parallel), ("do it", "", true));
        assert_eq!(request.aggregation, "all");
        assert_eq!((job.sandbox(), batch_collect(&id("b")).unwrap().job), (None, Job::BatchCollect));
    }

    #[test]
    fn what_would_be_refused_is_refused_before_it_is_paid() {
        let create = |count| BatchCreateBuilder::new(count, CreateBuilder::new()).build();
        assert!(create(1).is_ok() && create(BATCH_SANDBOXES_MAX).is_ok());
        assert_eq!(create(0).unwrap_err().to_string(), "a batch of 0, allowed is 1 to 200");
        assert_eq!(create(201), Err(RequestError::BatchSize { given: 201, max: 200 }));
        let small = BatchCreateBuilder::new(1, CreateBuilder::new().memory_mb(1)).build();
        assert!(matches!(small, Err(RequestError::OutOfRange { field: "memory_mb", .. })));

        assert!(BatchBuilder::exec(sandboxes(128), "true").build().is_ok());
        let many = BatchBuilder::exec(sandboxes(129), "true").build();
        assert_eq!(many, Err(RequestError::BatchSize { given: 129, max: 128 }));
        assert!(BatchBuilder::task(vec![], "x").build().is_err());
        assert_eq!(BatchBuilder::task(sandboxes(1), " ").build(), Err(RequestError::NoPrompt));
        let long = BatchBuilder::task(sandboxes(1), "x".repeat(PROMPT_BYTES_MAX + 1)).build();
        assert_eq!(long, Err(RequestError::Prompt(PROMPT_BYTES_MAX + 1)));
        assert_eq!(BatchBuilder::exec(sandboxes(1), "").build(), Err(RequestError::NoCommand));
        let command = |timeout_ms| BatchBuilder::exec(sandboxes(1), "true").timeout_ms(timeout_ms).build();
        assert!(command(EXEC_TIMEOUT_MS_MAX).is_ok() && command(EXEC_TIMEOUT_MS_MAX + 1).is_err());
        let large = BatchBuilder::exec(sandboxes(1), "x".repeat(JOB_INPUT_BYTES_MAX)).build();
        assert!(matches!(large, Err(RequestError::TooLarge(_))));
    }
}
