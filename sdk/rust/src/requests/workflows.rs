//! Jobs for workflows: one is created, run now, or cancelled for good.

use alloy::sol_types::SolValue as _;
use sandbox_fleet::schedule::Cron;
use sandbox_fleet::workflow::Plan;
use sandbox_protocol::abi::{self, SandboxCreateRequest, WorkflowControlRequest, WorkflowCreateRequest};
use sandbox_protocol::limits::{TRIGGER_CONFIG_BYTES_MAX, WORKFLOW_BODY_BYTES_MAX, WORKFLOW_NAME_BYTES_MAX};
use sandbox_protocol::workflow::{BadTrigger, CatchUp, CronTrigger, Overlap, Policy, Trigger};
use sandbox_protocol::{CallKey, Job, SandboxId};
use serde_json::{Map, Value};

use super::{CreateBuilder, JobRequest, RequestError, bounded};

/// Zone of an expression that names none.
const ZONE_DEFAULT: &str = "UTC";

/// A workflow that an operator would not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadWorkflow {
    /// Its name is too long.
    #[error("name: {0} bytes, at most {WORKFLOW_NAME_BYTES_MAX} are taken")]
    Name(usize),
    /// Its name would steer terminals.
    #[error("name: it has a control character")]
    NameControls,
    /// Its body is too long.
    #[error("workflow_json: {0} bytes, at most {WORKFLOW_BODY_BYTES_MAX} are taken")]
    Body(usize),
    /// Its body is not what it must be.
    #[error("workflow_json: {0}")]
    NotAnObject(String),
    /// The body says already in which sandbox it runs, and another.
    #[error("workflow_json: it names the sandbox {0} itself")]
    OtherSandbox(String),
    /// The configuration of its trigger is too long.
    #[error("trigger_config: {0} bytes, at most {TRIGGER_CONFIG_BYTES_MAX} are taken")]
    Config(usize),
    /// Its body cannot be carried out; the step and the field are named.
    #[error("{0}")]
    Plan(String),
    /// Its trigger is none.
    #[error(transparent)]
    Trigger(#[from] BadTrigger),
    /// Its schedule or zone is none; the place is named.
    #[error("{0}")]
    Cron(String),
}

/// A workflow to be created. One that nothing else fires is fired by hand.
#[derive(Debug, Clone)]
pub struct WorkflowBuilder {
    request: WorkflowCreateRequest,
    sandbox: Option<SandboxId>,
    own: Option<CreateBuilder>,
}

impl WorkflowBuilder {
    /// One whose body is this JSON object.
    pub fn new(body_json: impl Into<String>) -> Self {
        let kind = Trigger::Manual(Policy::default()).kind().to_owned();
        let request =
            WorkflowCreateRequest { workflow_json: body_json.into(), trigger_type: kind, ..Default::default() };
        Self { request, sandbox: None, own: None }
    }

    /// One prompt, for the agent of the sandbox that is named besides, or of each run's own.
    pub fn of_prompt(prompt: impl Into<String>) -> Self {
        Self::new(serde_json::json!({ "prompt": prompt.into() }).to_string())
    }

    /// What it is called in lists.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.request.name = name.into();
        self
    }

    /// Fired by nobody but its owner.
    #[must_use]
    pub fn manual(self, policy: Policy) -> Self {
        let config = policy_config(policy);
        self.trigger("manual", config)
    }

    /// Fired by the clock.
    #[must_use]
    pub fn cron(self, cron: &CronTrigger) -> Self {
        let config = cron_config(cron);
        self.trigger("cron", config)
    }

    /// Fired by requests that are signed with its secret.
    #[must_use]
    pub fn webhook(self, policy: Policy) -> Self {
        let config = policy_config(policy);
        self.trigger("webhook", config)
    }

    /// Fired by an event, as this JSON says it.
    #[must_use]
    pub fn event(self, config_json: impl Into<String>) -> Self {
        self.trigger("event", config_json.into())
    }

    fn trigger(mut self, kind: &str, config: String) -> Self {
        (self.request.trigger_type, self.request.trigger_config) = (kind.to_owned(), config);
        self
    }

    /// Every run works in this sandbox.
    #[must_use]
    pub const fn sandbox(mut self, sandbox: SandboxId) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Every run gets a sandbox like this of its own.
    #[must_use]
    pub fn own_sandbox(mut self, sandbox: CreateBuilder) -> Self {
        self.own = Some(sandbox);
        self
    }

    /// The job.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn build(self) -> Result<JobRequest, RequestError> {
        let mut request = self.request;
        if let Some(sandbox) = self.sandbox {
            request.workflow_json = within(&request.workflow_json, sandbox)?;
        }
        if let Some(own) = self.own {
            request.sandbox_config_json = config(&own.request()?);
        }
        check(&request)?;
        bounded(Job::WorkflowCreate, &request)
    }
}

/// Has a workflow run now. It is a job of the workflow's service.
pub fn trigger_workflow(workflow: CallKey) -> JobRequest {
    control(Job::WorkflowTrigger, workflow)
}

/// Ends a workflow for good, and what it runs. It is a job of the workflow's service.
pub fn cancel_workflow(workflow: CallKey) -> JobRequest {
    control(Job::WorkflowCancel, workflow)
}

fn control(job: Job, workflow: CallKey) -> JobRequest {
    JobRequest { job, inputs: WorkflowControlRequest { workflow_id: workflow.call }.abi_encode().into() }
}

/// What an operator would refuse is refused here, before it is paid.
fn check(request: &WorkflowCreateRequest) -> Result<(), BadWorkflow> {
    let WorkflowCreateRequest { name, workflow_json, trigger_type, trigger_config, sandbox_config_json } = request;
    if name.len() > WORKFLOW_NAME_BYTES_MAX {
        return Err(BadWorkflow::Name(name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err(BadWorkflow::NameControls);
    }
    if workflow_json.len() > WORKFLOW_BODY_BYTES_MAX {
        return Err(BadWorkflow::Body(workflow_json.len()));
    }
    if trigger_config.len() > TRIGGER_CONFIG_BYTES_MAX {
        return Err(BadWorkflow::Config(trigger_config.len()));
    }
    let has_own_sandbox = !sandbox_config_json.is_empty();
    Plan::parse(workflow_json, has_own_sandbox).map_err(|failure| BadWorkflow::Plan(failure.message))?;
    if let Trigger::Cron(cron) = Trigger::parse(trigger_type, trigger_config)? {
        Cron::parse(&cron.cron, &cron.tz).map_err(|bad| BadWorkflow::Cron(bad.to_string()))?;
    }
    Ok(())
}

/// The one sandbox that a workflow of these inputs works in, whose operator alone can fire it. `None` where runs have
/// sandboxes of their own, or several are named.
pub(super) fn sandbox_of(inputs: &[u8]) -> Option<SandboxId> {
    let request: WorkflowCreateRequest = abi::decode(inputs).ok()?;
    let plan = Plan::parse(&request.workflow_json, !request.sandbox_config_json.is_empty()).ok()?;
    let mut named = plan.sandboxes().into_iter();
    match (named.next(), named.next()) {
        (Some(sandbox), None) if !plan.uses_own_sandbox() => Some(sandbox),
        _ => None,
    }
}

/// What is asked for, without what is left to the operator: every byte stands on chain.
fn config(own: &SandboxCreateRequest) -> String {
    let (mut own, unsaid) = (serde_json::json!(own), serde_json::json!(SandboxCreateRequest::default()));
    if let Some(fields) = own.as_object_mut() {
        fields.retain(|name, value| unsaid.get(name) != Some(value));
    }
    own.to_string()
}

fn object(json: &str) -> Result<Map<String, Value>, BadWorkflow> {
    serde_json::from_str(json).map_err(|error| BadWorkflow::NotAnObject(error.to_string()))
}

/// The body, which names the sandbox.
fn within(json: &str, sandbox: SandboxId) -> Result<String, BadWorkflow> {
    let mut body = object(json)?;
    let named = body.entry("sandbox_id").or_insert_with(|| sandbox.to_string().into());
    match named.as_str() {
        Some(text) if text == sandbox.to_string() => Ok(Value::Object(body).to_string()),
        text => Err(BadWorkflow::OtherSandbox(text.map_or_else(|| named.to_string(), str::to_owned))),
    }
}

/// Empty where it says nothing: every byte stands on chain.
fn policy_config(policy: Policy) -> String {
    if policy == Policy::default() { String::new() } else { serde_json::json!(policy).to_string() }
}

/// The bare expression where nothing else is said, else JSON of what is not as it would be anyhow.
fn cron_config(trigger: &CronTrigger) -> String {
    let CronTrigger { cron, tz, overlap, catch_up, jitter_s } = trigger;
    let mut said = Map::from_iter([("cron".to_owned(), cron.as_str().into())]);
    if tz != ZONE_DEFAULT {
        said.insert("tz".into(), tz.as_str().into());
    }
    if *overlap != Overlap::default() {
        said.insert("overlap".into(), serde_json::json!(overlap));
    }
    if *catch_up != CatchUp::default() {
        said.insert("catch_up".into(), serde_json::json!(catch_up));
    }
    if *jitter_s != 0 {
        said.insert("jitter_s".into(), (*jitter_s).into());
    }
    if said.len() == 1 { cron.clone() } else { Value::Object(said).to_string() }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::abi::decode;
    use sandbox_protocol::limits::JOB_INPUT_BYTES_MAX;

    use super::*;

    const SANDBOX: SandboxId = SandboxId { origin: CallKey { service: 1, call: 9 }, slot: 0 };

    /// One that an operator would take.
    fn good() -> WorkflowBuilder {
        WorkflowBuilder::of_prompt("x").sandbox(SANDBOX)
    }

    fn built(builder: WorkflowBuilder) -> WorkflowCreateRequest {
        decode(&builder.build().unwrap().inputs).unwrap()
    }

    #[track_caller]
    fn refused(builder: WorkflowBuilder, sentence: &str) {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.starts_with(sentence), "{error}");
    }

    fn cron(expression: &str) -> CronTrigger {
        let (cron, tz) = (expression.to_owned(), "UTC".to_owned());
        CronTrigger { cron, tz, overlap: Overlap::Skip, catch_up: CatchUp::Latest, jitter_s: 0 }
    }

    #[test]
    fn a_prompt_is_a_workflow_of_one_step_fired_by_hand() {
        let request = built(WorkflowBuilder::of_prompt("tidy \"up\"").sandbox(SANDBOX).name("tidy"));
        let body: Value = serde_json::from_str(&request.workflow_json).unwrap();
        assert_eq!(body, serde_json::json!({"prompt": "tidy \"up\"", "sandbox_id": "sbx-1-9-0"}));
        assert_eq!((request.name.as_str(), request.trigger_type.as_str()), ("tidy", "manual"));
        assert_eq!((request.trigger_config.as_str(), request.sandbox_config_json.as_str()), ("", ""));
    }

    #[test]
    fn a_trigger_takes_no_more_bytes_of_the_chain_than_it_says_anything() {
        let config = |builder: WorkflowBuilder| {
            let WorkflowCreateRequest { trigger_type, trigger_config, .. } = built(builder);
            let read = Trigger::parse(&trigger_type, &trigger_config).unwrap();
            (read, trigger_config)
        };
        let body = good;
        let plain = cron("0 9 * * 1-5");
        assert_eq!(config(body().cron(&plain)), (Trigger::Cron(plain.clone()), "0 9 * * 1-5".into()));
        let zoned = CronTrigger { tz: "Europe/Berlin".into(), jitter_s: 30, ..plain };
        let (read, text) = config(body().cron(&zoned));
        assert_eq!(read, Trigger::Cron(zoned.clone()));
        assert!(!text.contains("overlap") && !text.contains("catch_up"), "{text}");
        let all = CronTrigger { overlap: Overlap::Queue, catch_up: CatchUp::All, ..zoned };
        assert_eq!(config(body().cron(&all)).0, Trigger::Cron(all));
        assert_eq!(config(body().webhook(Policy::default())).1, "");
        let queue = Policy { overlap: Overlap::Queue };
        let expected = (Trigger::Webhook(queue), r#"{"overlap":"queue"}"#.to_owned());
        assert_eq!(config(body().webhook(queue)), expected);
        assert_eq!(config(body().manual(queue)).0, Trigger::Manual(queue));
        let event = config(body().event(r#"{"event":"sandbox.stopped"}"#)).0;
        assert_eq!(event.kind(), "event");
    }

    #[test]
    fn runs_work_in_a_sandbox_that_is_named_or_in_one_of_their_own() {
        let named = built(WorkflowBuilder::new(r#"{"prompt":"x"}"#).sandbox(SANDBOX));
        let body: Value = serde_json::from_str(&named.workflow_json).unwrap();
        assert_eq!(body, serde_json::json!({"prompt": "x", "sandbox_id": "sbx-1-9-0"}));
        assert_eq!(built(WorkflowBuilder::new(named.workflow_json.clone()).sandbox(SANDBOX)), named);
        let other = WorkflowBuilder::new(r#"{"sandbox_id":"sbx-1-8-0"}"#).sandbox(SANDBOX);
        refused(other, "workflow_json: it names the sandbox sbx-1-8-0 itself");

        let own = CreateBuilder::new().cpu_cores(2).env("A", "1");
        let request = built(WorkflowBuilder::of_prompt("x").own_sandbox(own));
        assert_eq!(request.sandbox_config_json, r#"{"cpu_cores":2,"env_json":"{\"A\":\"1\"}"}"#);
        let read = sandbox_protocol::workflow::sandbox_config(&request.sandbox_config_json).unwrap();
        assert_eq!((read.cpu_cores, read.env_json.as_str()), (2, r#"{"A":"1"}"#));
        assert_eq!(built(WorkflowBuilder::of_prompt("x").own_sandbox(CreateBuilder::new())).sandbox_config_json, "{}");
        let small = CreateBuilder::new().memory_mb(1);
        refused(WorkflowBuilder::of_prompt("x").own_sandbox(small), "memory_mb is 1");
        refused(good().own_sandbox(CreateBuilder::new()), "workflow_json: sandbox_id: not beside");
    }

    #[test]
    fn a_workflow_in_one_sandbox_is_for_its_operator() {
        let named = |builder: WorkflowBuilder| builder.build().unwrap().sandbox();
        assert_eq!(named(good()), Some(SANDBOX));
        assert_eq!(named(WorkflowBuilder::of_prompt("x").own_sandbox(CreateBuilder::new())), None);
        let step = |id: &str, sandbox: &str| {
            format!(r#"{{"id":"{id}","kind":"exec","with":{{"command":"true","sandbox_id":"{sandbox}"}}}}"#)
        };
        let two = format!(r#"{{"steps":[{},{}]}}"#, step("a", "sbx-1-9-0"), step("b", "sbx-1-8-0"));
        assert_eq!(named(WorkflowBuilder::new(two)), None);
    }

    #[test]
    fn a_workflow_that_is_run_or_cancelled_is_named_by_its_call() {
        let workflow = CallKey { service: 1, call: 7 };
        for (request, job) in
            [(trigger_workflow(workflow), Job::WorkflowTrigger), (cancel_workflow(workflow), Job::WorkflowCancel)]
        {
            let inputs: WorkflowControlRequest = decode(&request.inputs).unwrap();
            assert_eq!((request.job, inputs.workflow_id, request.sandbox()), (job, 7, None));
            assert_eq!((request.workflow(1), good().build().unwrap().workflow(1)), (Some(workflow), None));
        }
    }

    #[test]
    fn what_an_operator_would_refuse_is_refused_before_it_is_paid() {
        let whole = built(good()).workflow_json;
        let of = |length: usize| WorkflowBuilder::new(format!("{whole}{}", " ".repeat(length - whole.len())));
        assert!(of(WORKFLOW_BODY_BYTES_MAX).build().is_ok());
        refused(of(WORKFLOW_BODY_BYTES_MAX + 1), "workflow_json: 49153 bytes");
        let named = |length| good().name("n".repeat(length));
        assert!(named(WORKFLOW_NAME_BYTES_MAX).build().is_ok());
        refused(named(WORKFLOW_NAME_BYTES_MAX + 1), "name: 129 bytes");
        refused(good().name("red\u{1b}[31m"), "name: it has a control character");
        let event = |length: usize| {
            let rest = r#"{"event":""}"#.len();
            good().event(format!(r#"{{"event":"{}"}}"#, "e".repeat(length - rest)))
        };
        assert!(event(TRIGGER_CONFIG_BYTES_MAX).build().is_ok());
        refused(event(TRIGGER_CONFIG_BYTES_MAX + 1), "trigger_config: 193 bytes");
        refused(good().event("{}"), "trigger_config: missing field `event`");
        for bad in ["[]", "{", "{}", r#"{"prompt":"x"}"#, r#"{"prompt":"x","steps":[]}"#] {
            refused(WorkflowBuilder::new(bad), "workflow_json: ");
        }
        let steps = r#"{"steps":[{"id":"a","kind":"exec","with":{"command":"true"},"needs":["b"]}]}"#;
        refused(WorkflowBuilder::new(steps).sandbox(SANDBOX), "workflow_json: step \"a\"");
        refused(good().cron(&cron("61 * * * *")), "trigger_config: cron: ");
        let nowhere = CronTrigger { tz: "Europe/Atlantis".into(), ..cron("@daily") };
        refused(good().cron(&nowhere), "trigger_config: tz: no such zone");
        let env = (0..40).fold(CreateBuilder::new(), |own, n| own.env(format!("V{n}"), "x".repeat(4_000)));
        let large = WorkflowBuilder::of_prompt("x").own_sandbox(env).build().unwrap_err();
        assert!(matches!(large, RequestError::TooLarge(length) if length > JOB_INPUT_BYTES_MAX), "{large:?}");
    }
}
