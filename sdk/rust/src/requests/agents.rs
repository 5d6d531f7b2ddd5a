//! Jobs for the agent of a sandbox: one turn, or a task until it is done. A negotiation is a task whose context says so.

use sandbox_protocol::abi::{PromptRequest, TaskRequest};
use sandbox_protocol::agent::TaskContext;
use sandbox_protocol::limits::{PROMPT_BYTES_MAX, PROMPT_TIMEOUT_MS_MAX, TASK_TIMEOUT_MS_MAX, TASK_TURNS_MAX};
use sandbox_protocol::{Job, SandboxId};

use super::{JobRequest, RequestError, bounded, in_range};

/// Something for the agent to do, as a job. What is not set is the sandbox's default.
#[derive(Debug, Clone)]
pub struct AgentBuilder {
    job: Job,
    request: TaskRequest,
}

impl AgentBuilder {
    /// One turn.
    pub fn prompt(sandbox: SandboxId, prompt: impl Into<String>) -> Self {
        Self::new(Job::Prompt, sandbox, prompt.into())
    }

    /// A task of at most so many calls of the model; 0 is the most there is.
    pub fn task(sandbox: SandboxId, prompt: impl Into<String>, turns_max: u64) -> Self {
        let Self { job, request } = Self::new(Job::Task, sandbox, prompt.into());
        Self { job, request: TaskRequest { max_turns: turns_max, ..request } }
    }

    fn new(job: Job, sandbox: SandboxId, prompt: String) -> Self {
        Self { job, request: TaskRequest { sidecar_endpoint: sandbox.to_string(), prompt, ..Default::default() } }
    }

    /// The session that it continues; empty begins one.
    #[must_use]
    pub fn session(mut self, id: impl Into<String>) -> Self {
        self.request.session_id = id.into();
        self
    }

    /// Time for all of it, in milliseconds.
    #[must_use]
    pub const fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.request.timeout_ms = timeout_ms;
        self
    }

    /// Its context: a JSON object as [`TaskContext`] reads it.
    #[must_use]
    pub fn context_json(mut self, json: impl Into<String>) -> Self {
        self.request.context_json = json.into();
        self
    }

    /// Model of the provider.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.request.model = model.into();
        self
    }

    /// The job.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn build(self) -> Result<JobRequest, RequestError> {
        let Self { job, request } = self;
        if request.prompt.trim().is_empty() {
            return Err(RequestError::NoPrompt);
        }
        if request.prompt.len() > PROMPT_BYTES_MAX {
            return Err(RequestError::Prompt(request.prompt.len()));
        }
        let timeout_ms_max = if job == Job::Prompt { PROMPT_TIMEOUT_MS_MAX } else { TASK_TIMEOUT_MS_MAX };
        in_range("timeout_ms", request.timeout_ms, 1, timeout_ms_max)?;
        in_range("max_turns", request.max_turns, 1, TASK_TURNS_MAX)?;
        TaskContext::parse(&request.context_json)?;
        if job == Job::Task { bounded(job, &request) } else { bounded(job, &one_turn(request)) }
    }
}

fn one_turn(request: TaskRequest) -> PromptRequest {
    let TaskRequest { sidecar_endpoint, prompt, session_id, timeout_ms, context_json, model, .. } = request;
    PromptRequest { sidecar_endpoint, prompt, session_id, timeout_ms, context_json, model }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::CallKey;
    use sandbox_protocol::abi::decode;
    use sandbox_protocol::limits::JOB_INPUT_BYTES_MAX;

    use super::*;

    const SANDBOX: SandboxId = SandboxId { origin: CallKey { service: 1, call: 9 }, slot: 0 };

    fn task() -> AgentBuilder {
        AgentBuilder::task(SANDBOX, "do it", 3)
    }

    #[test]
    fn a_task_and_a_prompt_say_what_was_set() {
        let job = task().session("s").timeout_ms(5).model("m").context_json(r#"{"a":1}"#).build().unwrap();
        let request: TaskRequest = decode(&job.inputs).unwrap();
        assert_eq!((request.sidecar_endpoint.as_str(), request.max_turns, request.timeout_ms), ("sbx-1-9-0", 3, 5));
        let said = [request.prompt, request.session_id, request.model, request.context_json];
        assert_eq!(said, ["do it", "s", "m", r#"{"a":1}"#]);
        let job = AgentBuilder::prompt(SANDBOX, "do it").build().unwrap();
        assert_eq!((job.job, job.sandbox()), (Job::Prompt, Some(SANDBOX)));
        assert_eq!(decode::<PromptRequest>(&job.inputs).unwrap().prompt, "do it");
    }

    #[test]
    fn what_an_operator_would_refuse_is_refused_before_it_is_paid() {
        assert_eq!(AgentBuilder::prompt(SANDBOX, " ").build(), Err(RequestError::NoPrompt));
        let long = "x".repeat(PROMPT_BYTES_MAX + 1);
        assert_eq!(AgentBuilder::prompt(SANDBOX, long).build(), Err(RequestError::Prompt(PROMPT_BYTES_MAX + 1)));
        assert!(AgentBuilder::prompt(SANDBOX, "x").timeout_ms(PROMPT_TIMEOUT_MS_MAX).build().is_ok());
        assert!(AgentBuilder::prompt(SANDBOX, "x").timeout_ms(PROMPT_TIMEOUT_MS_MAX + 1).build().is_err());
        assert!(task().timeout_ms(TASK_TIMEOUT_MS_MAX).build().is_ok());
        assert!(task().timeout_ms(TASK_TIMEOUT_MS_MAX + 1).build().is_err());
        assert!(AgentBuilder::task(SANDBOX, "x", TASK_TURNS_MAX).build().is_ok());
        assert!(AgentBuilder::task(SANDBOX, "x", TASK_TURNS_MAX + 1).build().is_err());
        let bad = task().context_json(r#"{"kind":"chess"}"#).build().unwrap_err();
        assert_eq!(bad.to_string(), "context_json: kind: the one kind there is: negotiation");
        let large = AgentBuilder::prompt(SANDBOX, "x".repeat(JOB_INPUT_BYTES_MAX)).build();
        assert!(matches!(large, Err(RequestError::TooLarge(_))), "{large:?}");
    }
}
