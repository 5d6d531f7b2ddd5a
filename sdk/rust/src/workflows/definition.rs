//! What a workflow's owner created, word by word: from its row where it is stored there, else from the log of its create.
//! Either is checked against the hash that the contract keeps.

use alloy::primitives::{B256, keccak256};
use alloy::sol_types::SolValue as _;
use sandbox_protocol::abi::{self, WorkflowCreateRequest};
use sandbox_protocol::{CallKey, Job};

use super::{WorkflowError, trigger_name};
use crate::chain::Chain;
use crate::contracts::IAgentSandboxBlueprint::{WorkflowBody, WorkflowView};

/// Where a definition was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The contract stores it.
    Row,
    /// The log of its create.
    Log,
}

/// A workflow's row and what its owner created.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// As the contract has it.
    pub row: WorkflowView,
    /// As its owner sent it; what was sealed still is.
    pub request: WorkflowCreateRequest,
    /// Where that was found.
    pub origin: Origin,
}

impl Chain {
    /// A workflow's row, and what its owner created: exactly that, by its hash.
    ///
    /// # Errors
    /// [`WorkflowError`].
    pub async fn workflow_definition(&self, workflow: CallKey) -> Result<Definition, WorkflowError> {
        let (row, body) = self.workflow(workflow).await?.ok_or(WorkflowError::None(workflow))?;
        let (request, origin) = match stored(&row, body) {
            Some(request) => (request, Origin::Row),
            None => (self.logged(workflow).await?, Origin::Log),
        };
        if hash(&request) != row.bodyHash {
            return Err(WorkflowError::Changed(workflow));
        }
        Ok(Definition { row, request, origin })
    }

    async fn logged(&self, workflow: CallKey) -> Result<WorkflowCreateRequest, WorkflowError> {
        let found = self.submission(workflow).await?.ok_or(WorkflowError::Lost(workflow))?;
        if found.job != Job::WorkflowCreate.id() {
            return Err(WorkflowError::Lost(workflow));
        }
        abi::decode(&found.inputs).map_err(|_| WorkflowError::Lost(workflow))
    }
}

/// The request that the stored fields are of.
fn stored(row: &WorkflowView, body: WorkflowBody) -> Option<WorkflowCreateRequest> {
    body.stored.then(|| WorkflowCreateRequest {
        name: body.name,
        workflow_json: body.workflowJson,
        trigger_type: trigger_name(row.trigger).to_owned(),
        trigger_config: row.triggerConfig.clone(),
        sandbox_config_json: body.sandboxConfigJson,
    })
}

/// The contract takes inputs in one encoding only, so what was decoded encodes to them.
fn hash(request: &WorkflowCreateRequest) -> B256 {
    keccak256(request.abi_encode())
}
