//! What is asked of a sandbox's agents: prompts, tasks, and who carries them out.

use sandbox_protocol::abi::{PromptRequest, TaskRequest, TaskResponse};
use sandbox_protocol::agent::negotiation::Negotiation;
use sandbox_protocol::agent::{DEFAULT_PROFILE, NATIVE, Provider, RunReply, TaskBody, TaskContext};
use sandbox_protocol::limits::{
    PROMPT_BYTES_MAX, PROMPT_TIMEOUT_MS_MAX, RUN_ID_BYTES_MAX, TASK_TIMEOUT_MS_DEFAULT, TASK_TIMEOUT_MS_MAX,
    TASK_TURNS_MAX,
};
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use serde::{Deserialize, Serialize};

use super::{Menu, SandboxSpec, refuse_sealed};
use crate::limits::MODEL_NAME_BYTES_MAX;

/// Backends that a sandbox may have.
pub const BACKENDS: [&str; 3] = [NATIVE, "opencode", "claude-agent"];

/// What carries prompts and tasks out; an empty text leaves it to the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentChoice {
    /// The backend.
    #[serde(default)]
    pub backend: String,
    /// The profile.
    #[serde(default)]
    pub profile: String,
}

/// Of which kind an errand is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrandKind {
    /// One turn.
    Prompt,
    /// Many turns.
    Task,
    /// Moves that are argued about, each in a sandbox of its own.
    Negotiation(Negotiation),
}

/// A prompt or task as it is to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    /// Where.
    pub sandbox: SandboxId,
    /// Of which kind.
    pub kind: ErrandKind,
    /// What to do.
    pub prompt: String,
    /// The session it continues.
    pub session_id: String,
    /// Most calls of the model; 0 is the most there is.
    pub max_turns: u64,
    /// Its time in milliseconds.
    pub timeout_ms: u64,
    /// As its customer wrote it.
    pub context_json: String,
    /// Where the model is, as the context says.
    pub provider: Option<Provider>,
    /// Who carries it out, as the context says.
    pub agent: AgentChoice,
    /// Model of the provider.
    pub model: String,
}

impl AgentChoice {
    /// The agent that a create asks for.
    ///
    /// # Errors
    /// `UnknownBackend` or `UnknownProfile`.
    pub(super) fn parse(backend: &str, profile: &str, menu: &Menu) -> Result<Self, Failure> {
        if !backend.is_empty() && !BACKENDS.contains(&backend) {
            let message = format!("agent_backend {backend:?} is none of {}", BACKENDS.join(", "));
            return Err(Failure::new(FailureCode::UnknownBackend, message));
        }
        if !profile.is_empty() && profile != DEFAULT_PROFILE && !menu.profiles.contains(profile) {
            let message = format!("agent_identifier {profile:?} is none of the operator's profiles");
            return Err(Failure::new(FailureCode::UnknownProfile, message));
        }
        Ok(Self { backend: backend.to_owned(), profile: profile.to_owned() })
    }

    /// This one, and `other` where it leaves something open.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        let either = |own: String, other: &String| if own.is_empty() { other.clone() } else { own };
        Self { backend: either(self.backend, &other.backend), profile: either(self.profile, &other.profile) }
    }
}

impl Errand {
    /// What a sandbox that was made so is asked to run under this id.
    pub fn body(self, id: String, spec: &SandboxSpec) -> TaskBody {
        let agent = self.agent.or(&spec.agent);
        TaskBody {
            id: Some(id),
            prompt: self.prompt,
            session_id: self.session_id,
            max_turns: self.max_turns,
            timeout_ms: self.timeout_ms,
            context_json: self.context_json,
            model: self.model,
            agent_backend: agent.backend,
            agent_identifier: agent.profile,
            env: spec.env.clone(),
            attach_only: false,
        }
    }
}

/// The prompt that a request asks for.
///
/// # Errors
/// A [`Failure`] of outcome 1 with the first field that cannot be had.
pub fn prompt(request: PromptRequest) -> Result<Errand, Failure> {
    let PromptRequest { sidecar_endpoint, prompt, session_id, timeout_ms, context_json, model } = request;
    let request = TaskRequest { sidecar_endpoint, prompt, session_id, max_turns: 0, timeout_ms, context_json, model };
    let errand = errand(request, PROMPT_TIMEOUT_MS_MAX)?;
    match errand.kind {
        ErrandKind::Prompt | ErrandKind::Task => Ok(Errand { kind: ErrandKind::Prompt, ..errand }),
        ErrandKind::Negotiation(_) => Err(bad("context_json: kind: a negotiation is a task, job 12")),
    }
}

/// The task that a request asks for.
///
/// # Errors
/// A [`Failure`] of outcome 1 with the first field that cannot be had.
pub fn task(request: TaskRequest) -> Result<Errand, Failure> {
    errand(request, TASK_TIMEOUT_MS_MAX)
}

fn errand(request: TaskRequest, timeout_ms_max: u64) -> Result<Errand, Failure> {
    refuse_sealed("prompt", &request.prompt)?;
    refuse_sealed("context_json", &request.context_json)?;
    let sandbox = SandboxId::from_endpoint(&request.sidecar_endpoint)
        .map_err(|error| bad(format!("sidecar_endpoint: {error}")))?;
    let context = TaskContext::parse(&request.context_json).map_err(|error| bad(error.to_string()))?;
    let TaskContext { provider, agent_backend, agent_identifier, negotiation, rest: _ } = context;
    let is_negotiation = negotiation.is_some();
    if request.prompt.len() > PROMPT_BYTES_MAX {
        return Err(bad(format!("prompt: at most {PROMPT_BYTES_MAX} bytes")));
    }
    if request.prompt.trim().is_empty() && !is_negotiation {
        return Err(bad("prompt: empty"));
    }
    if request.timeout_ms > timeout_ms_max {
        return Err(bad(format!("timeout_ms: at most {timeout_ms_max}")));
    }
    if request.max_turns > TASK_TURNS_MAX {
        return Err(bad(format!("max_turns: at most {TASK_TURNS_MAX}")));
    }
    name("session_id", &request.session_id, RUN_ID_BYTES_MAX)?;
    name("model", &request.model, MODEL_NAME_BYTES_MAX)?;
    // Rounds and moves say how much work a negotiation is, so without a time it has all that there is.
    let timeout_ms_default = if is_negotiation { timeout_ms_max } else { TASK_TIMEOUT_MS_DEFAULT };
    Ok(Errand {
        sandbox,
        kind: negotiation.map_or(ErrandKind::Task, ErrandKind::Negotiation),
        prompt: request.prompt,
        session_id: request.session_id,
        max_turns: request.max_turns,
        timeout_ms: if request.timeout_ms == 0 { timeout_ms_default } else { request.timeout_ms },
        context_json: request.context_json,
        provider,
        agent: AgentChoice {
            backend: agent_backend.unwrap_or_default(),
            profile: agent_identifier.unwrap_or_default(),
        },
        model: request.model,
    })
}

fn name(field: &str, text: &str, bytes_max: usize) -> Result<(), Failure> {
    if text.len() > bytes_max || text.chars().any(char::is_control) {
        return Err(bad(format!("{field}: at most {bytes_max} bytes and no control characters")));
    }
    Ok(())
}

fn bad(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::BadRequest, message)
}

/// What jobs and steps answer of a prompt or task that came to an end; a prompt's answer has the same fields.
pub fn task_response(reply: RunReply) -> TaskResponse {
    TaskResponse {
        success: reply.success && reply.failure.is_none(),
        result: reply.result,
        error: reply.error,
        trace_id: reply.trace_id,
        turns_used: reply.turns_used,
        duration_ms: reply.duration_ms,
        input_tokens: reply.input_tokens,
        output_tokens: reply.output_tokens,
        session_id: reply.session_id,
    }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::limits::CONTEXT_JSON_BYTES_MAX;

    use super::*;

    fn asked() -> TaskRequest {
        TaskRequest { sidecar_endpoint: "sbx-1-2-0".into(), prompt: "do".into(), ..TaskRequest::default() }
    }

    fn of(change: impl FnOnce(&mut TaskRequest)) -> Result<Errand, String> {
        let mut request = asked();
        change(&mut request);
        task(request).map_err(|failure| failure.to_string())
    }

    fn of_prompt(change: impl FnOnce(&mut PromptRequest)) -> Result<Errand, String> {
        let TaskRequest { sidecar_endpoint, prompt: words, .. } = asked();
        let mut request = PromptRequest { sidecar_endpoint, prompt: words, ..PromptRequest::default() };
        change(&mut request);
        prompt(request).map_err(|failure| failure.to_string())
    }

    const NEGOTIATION: &str = r#"{"kind":"negotiation","ticker":"ABC","moves":[{"move_id":"m1","content":"buy"}]}"#;

    #[test]
    fn every_field_has_a_limit_that_is_named() {
        let check = |inside: Result<Errand, String>, outside: Result<Errand, String>, field: &str| {
            assert!(inside.is_ok(), "{field}: {inside:?}");
            let refused = outside.unwrap_err();
            assert!(refused.starts_with(&format!("bad_request: {field}: ")), "{refused}");
        };
        let long = |bytes: usize| "x".repeat(bytes);
        let prompt = |bytes| of(|task| task.prompt = long(bytes));
        check(prompt(PROMPT_BYTES_MAX), prompt(PROMPT_BYTES_MAX + 1), "prompt");
        check(of(|task| task.prompt = " x".into()), of(|task| task.prompt = " \n".into()), "prompt");
        let time = |timeout_ms| of(|task| task.timeout_ms = timeout_ms);
        check(time(TASK_TIMEOUT_MS_MAX), time(TASK_TIMEOUT_MS_MAX + 1), "timeout_ms");
        let time = |timeout_ms| of_prompt(|prompt| prompt.timeout_ms = timeout_ms);
        check(time(PROMPT_TIMEOUT_MS_MAX), time(PROMPT_TIMEOUT_MS_MAX + 1), "timeout_ms");
        let turns = |max_turns| of(|task| task.max_turns = max_turns);
        check(turns(TASK_TURNS_MAX), turns(TASK_TURNS_MAX + 1), "max_turns");
        let session = |bytes| of(|task| task.session_id = long(bytes));
        check(session(RUN_ID_BYTES_MAX), session(RUN_ID_BYTES_MAX + 1), "session_id");
        let model = |bytes| of(|task| task.model = long(bytes));
        check(model(MODEL_NAME_BYTES_MAX), model(MODEL_NAME_BYTES_MAX + 1), "model");
        let context = |bytes: usize| of(|task| task.context_json = format!(r#"{{"a":"{}"}}"#, long(bytes - 8)));
        check(context(CONTEXT_JSON_BYTES_MAX), context(CONTEXT_JSON_BYTES_MAX + 1), "context_json");
        let endpoint = |text: &str| of(|task| task.sidecar_endpoint = text.into());
        check(endpoint("https://o.example/sandboxes/sbx-1-2-0"), endpoint("sbx-1-2"), "sidecar_endpoint");
    }

    #[test]
    fn a_context_says_what_it_does_not_leave_to_the_sandbox() {
        let context = r#"{"provider":{"base_url":"https://m.example/v1"},"agent_backend":"opencode","note":1}"#;
        let errand = of(|task| task.context_json = context.into()).unwrap();
        assert_eq!(
            errand.provider.as_ref().and_then(|provider| provider.base_url.as_deref()),
            Some("https://m.example/v1")
        );
        let mut spec = crate::fakes::sandbox(1).spec;
        spec.agent = AgentChoice { backend: NATIVE.into(), profile: "reviewer".into() };
        spec.env.insert("A".into(), "1".into());
        let body = errand.body("r1".into(), &spec);
        assert_eq!((body.agent_backend.as_str(), body.agent_identifier.as_str()), ("opencode", "reviewer"));
        assert_eq!((body.env, body.timeout_ms, body.attach_only), (spec.env, TASK_TIMEOUT_MS_DEFAULT, false));
        assert_eq!(body.context_json, context);
        let refused = of(|task| task.context_json = "[]".into()).unwrap_err();
        assert_eq!(refused, "bad_request: context_json: not an object");
    }

    #[test]
    fn a_negotiation_is_a_task_that_needs_no_words_and_has_all_the_time_there_is() {
        let errand = of(|task| (task.context_json, task.prompt) = (NEGOTIATION.into(), String::new())).unwrap();
        let ErrandKind::Negotiation(negotiation) = errand.kind else { panic!("no negotiation") };
        assert_eq!((negotiation.ticker.as_str(), errand.timeout_ms), ("ABC", TASK_TIMEOUT_MS_MAX));
        let refused = of_prompt(|prompt| prompt.context_json = NEGOTIATION.into()).unwrap_err();
        assert!(refused.starts_with("bad_request: context_json: kind: "), "{refused}");
        let twice = NEGOTIATION.replace("}]", r#"},{"move_id":"M1","content":"sell"}]"#);
        let refused = of(|task| task.context_json = twice).unwrap_err();
        assert_eq!(refused, "bad_request: context_json: moves[1].move_id: M1 names another move already");
    }

    #[test]
    fn what_is_sealed_was_opened_before() {
        for refused in
            [of(|task| task.prompt = "sealed:v1:AAAA".into()), of(|task| task.context_json = "sealed:v1:AAAA".into())]
        {
            assert!(refused.unwrap_err().starts_with("unsupported: "));
        }
    }
}
