//! What a workflow does: its text, checked at its create and again before each run, since the operator's own offer may have changed.

use alloy::primitives::{Address, Bytes, keccak256};
use alloy::sol_types::SolValue as _;
use sandbox_fleet::request::{Menu, SandboxSpec, sandbox_spec};
use sandbox_fleet::schedule::Cron;
use sandbox_fleet::workflow::Plan;
use sandbox_protocol::abi::{self, WorkflowCreateRequest};
use sandbox_protocol::limits::{WORKFLOW_BODY_BYTES_MAX, WORKFLOW_NAME_BYTES_MAX};
use sandbox_protocol::sealed::Binding;
use sandbox_protocol::workflow::{Trigger, sandbox_config};
use sandbox_protocol::{CallKey, Failure, FailureCode, Job};

use super::error::WorkflowError;
use super::table::Row;
use super::{Parts, Shared};
use crate::jobs::open_fields;
use crate::outside::check_rules;
use crate::records::WorkflowText;

/// A workflow that can be carried out.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) plan: Plan,
    /// Of its runs' own sandboxes, where they have any.
    pub(crate) spec: Option<SandboxSpec>,
}

/// What a text comes to at an operator that offers this.
///
/// # Errors
/// `BadRequest`, or what a create of its sandbox would be refused with, with the field and the step.
pub(crate) fn check(text: &WorkflowText, menu: &Menu) -> Result<Checked, Failure> {
    let bad = |message: String| Failure::new(FailureCode::BadRequest, message);
    if text.name.len() > WORKFLOW_NAME_BYTES_MAX || text.name.chars().any(char::is_control) {
        return Err(bad(format!("name: a control character, or more than {WORKFLOW_NAME_BYTES_MAX} bytes")));
    }
    if text.workflow_json.len() > WORKFLOW_BODY_BYTES_MAX {
        return Err(bad(format!("workflow_json: at most {WORKFLOW_BODY_BYTES_MAX} bytes")));
    }
    let config = text.sandbox_config_json.trim();
    let spec = if config.is_empty() { None } else { Some(own_sandbox(config, menu)?) };
    Ok(Checked { plan: text.plan()?, spec })
}

impl WorkflowText {
    /// Its steps, whatever is offered.
    pub(super) fn plan(&self) -> Result<Plan, Failure> {
        Plan::parse(&self.workflow_json, !self.sandbox_config_json.trim().is_empty())
    }
}

fn own_sandbox(config: &str, menu: &Menu) -> Result<SandboxSpec, Failure> {
    let within = |failure: Failure| Failure::new(failure.code, format!("sandbox_config_json: {}", failure.message));
    let request = sandbox_config(config)
        .map_err(|error| Failure::new(FailureCode::BadRequest, format!("sandbox_config_json: {error}")))?;
    let spec = sandbox_spec(&request, menu).map_err(within)?;
    check_rules(&spec.egress).map_err(within)?;
    Ok(spec)
}

/// Checks what fires a workflow.
///
/// # Errors
/// `BadRequest` with the field.
pub(crate) fn check_trigger(kind: &str, config: &str) -> Result<(), Failure> {
    let bad = |message: String| Failure::new(FailureCode::BadRequest, message);
    match Trigger::parse(kind, config).map_err(|error| bad(error.to_string()))? {
        Trigger::Cron(cron) => Cron::parse(&cron.cron, &cron.tz).map(drop).map_err(|error| bad(error.to_string())),
        Trigger::Manual(_) | Trigger::Webhook(_) | Trigger::Event(_) => Ok(()),
    }
}

impl From<WorkflowCreateRequest> for WorkflowText {
    fn from(request: WorkflowCreateRequest) -> Self {
        let WorkflowCreateRequest { name, workflow_json, sandbox_config_json, .. } = request;
        Self { name, workflow_json, sandbox_config_json }
    }
}

impl Shared {
    /// The text of a workflow: as it was checked before, or from the chain: its row, or its log.
    pub(super) async fn text(&self, key: CallKey, row: &Row) -> Result<WorkflowText, WorkflowError> {
        if let Some(text) = self.parts.records.workflow_text(key, row.body_hash)? {
            return Ok(text);
        }
        let inputs = match self.stored(key, row).await? {
            Some(inputs) => inputs,
            None => self.parts.chain.submission(key).await?.ok_or(WorkflowError::NoText)?.inputs,
        };
        if keccak256(&inputs) != row.body_hash {
            return Err(WorkflowError::NoText);
        }
        let text = opened(&self.parts, key, row.owner, &inputs).map_err(WorkflowError::Text)?;
        self.parts.records.put_workflow_text(key, row.body_hash, &text).await?;
        Ok(text)
    }

    /// The inputs of a small workflow's create, which the contract keeps whole: a log may be one that the node has no more.
    async fn stored(&self, key: CallKey, row: &Row) -> Result<Option<Bytes>, WorkflowError> {
        let Some((_, body)) = self.parts.chain.workflow(key).await?.filter(|(_, body)| body.stored) else {
            return Ok(None);
        };
        let inputs = WorkflowCreateRequest {
            name: body.name,
            workflow_json: body.workflowJson,
            trigger_type: row.kind.to_owned(),
            trigger_config: row.config.clone(),
            sandbox_config_json: body.sandboxConfigJson,
        };
        Ok(Some(inputs.abi_encode().into()))
    }
}

/// The text in the inputs of a create, with what is sealed in it opened.
fn opened(parts: &Parts, key: CallKey, caller: Address, inputs: &[u8]) -> Result<WorkflowText, Failure> {
    let decoded = abi::decode::<WorkflowCreateRequest>(inputs);
    let mut request = decoded.map_err(|error| Failure::new(FailureCode::BadRequest, error.to_string()))?;
    let deployment = parts.chain.deployment();
    let (chain_id, core, service) = (deployment.chain_id, deployment.core, key.service);
    let binding = Binding { chain_id, core, service, caller, job: Job::WorkflowCreate.id() };
    open_fields(&mut request, &parts.seal_keys, &binding)?;
    Ok(request.into())
}
