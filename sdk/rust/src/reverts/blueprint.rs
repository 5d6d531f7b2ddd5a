//! The sentences of our blueprint's errors.

use sandbox_protocol::Job;

use super::{BaseRefusal, BlueprintRefusal};
use crate::contracts::IAgentSandboxBlueprint::WorkflowStatus;

/// One sentence for one refusal of the blueprint's.
pub(super) fn sentence(refusal: &BlueprintRefusal) -> String {
    of_sandbox_job(refusal)
        .or_else(|| of_workflow(refusal))
        .or_else(|| of_selection(refusal))
        .unwrap_or_else(|| of_terms(refusal))
}

fn of_sandbox_job(refusal: &BlueprintRefusal) -> Option<String> {
    use BlueprintRefusal as R;
    Some(match refusal {
        R::UnknownJob(e) => format!("job {} is not offered by this blueprint", job(e.job)),
        R::MalformedInputs(e) => format!("the inputs are not the ABI encoding that job {} takes", job(e.job)),
        R::InputsTooLarge(e) => format!("the inputs are {} bytes long, at most {} are taken", e.bytesGiven, e.bytesMax),
        R::UnknownOption(e) => format!("job {} does not know the option {:?}", job(e.job), e.given),
        R::BatchSize(e) => format!("a batch of {} was asked for, one holds 1 to {}", e.given, e.max),
        R::UnknownSandbox(e) => format!("no live sandbox {} in this service", e.sandbox),
        R::NotSandboxOwner(e) => format!("sandbox {} does not belong to {}", e.sandbox, e.caller),
        R::SandboxExpired(e) => format!("sandbox {} expired at block {}", e.sandbox, e.expiryBlock),
        R::OutlivesService(e) => format!(
            "a sandbox of {} blocks would outlive its service, which ends at unix time {}",
            e.ttlBlocks, e.serviceEnd
        ),
        R::NoCapacity(e) => format!("no operator of service {} has room for another sandbox", e.serviceId),
        R::OneQuoteExpected(e) => format!("a quoted call takes the quote of one operator, {} were given", e.quotes),
        R::QuotedOperatorMismatch(e) => {
            format!("the sandbox or workflow is held by operator {}, the quote is of {}", e.expected, e.quoted)
        }
        R::NotReapable(e) => format!("call {}/{} has nothing left that has expired", e.serviceId, e.callId),
        R::NotReassignable(e) => format!(
            "call {}/{} does not move to another operator: it is closed or quoted, its operator has until block {}, or \
             none is left that was not tried",
            e.serviceId, e.callId, e.deadlineBlock
        ),
        _ => return None,
    })
}

fn of_workflow(refusal: &BlueprintRefusal) -> Option<String> {
    use BlueprintRefusal as R;
    Some(match refusal {
        R::UnknownWorkflow(e) => format!("there is no workflow {}/{}", e.serviceId, e.workflowId),
        R::NotWorkflowOwner(e) => {
            format!("workflow {}/{} does not belong to {}", e.serviceId, e.workflowId, e.caller)
        }
        R::WorkflowNotActive(e) => {
            format!("workflow {}/{} is {}, which does not allow this", e.serviceId, e.workflowId, status(e.status))
        }
        R::TriggerConfigTooLong(e) => {
            format!("the trigger configuration is {} bytes long, at most {} are kept", e.bytesGiven, e.bytesMax)
        }
        _ => return None,
    })
}

fn of_selection(refusal: &BlueprintRefusal) -> Option<String> {
    use BlueprintRefusal as R;
    Some(match refusal {
        R::TooManyOperators(e) => format!("{} operators asked for, a service takes at most {}", e.given, e.max),
        R::OperatorCountMismatch(e) => {
            format!("the selection asks for {} operators but {} are listed", e.asked, e.listed)
        }
        R::SelectionMismatch(e) => format!(
            "the seed does not draw the listed operators: number {} must be {}, not {}",
            e.index, e.expected, e.given
        ),
        R::NotEnoughOperators(e) => format!("{} operators asked for, {} are eligible", e.asked, e.eligible),
        R::OperatorNotEligible(e) => {
            format!("operator {} takes no sandboxes: it is not registered here, paused, or full", e.operator)
        }
        R::OperatorNotInService(e) => format!(
            "operator {} does not serve in service {}, is not quoted, or is not named in the order of the service",
            e.operator, e.serviceId
        ),
        R::MalformedSelection(_) => "the selection is not an ABI-encoded SelectionRequest".into(),
        _ => return None,
    })
}

/// What is left: registration, prices, administration. A test shows that no error falls through.
fn of_terms(refusal: &BlueprintRefusal) -> String {
    use BlueprintRefusal as R;
    match refusal {
        R::BelowFloor(e) if e.asset == e.floorAsset => {
            format!("the service pays {}, it costs at least {}", e.given, e.floor)
        }
        R::BelowFloor(e) => {
            format!("the service pays in asset {}, it costs at least {} of asset {}", e.asset, e.floor, e.floorAsset)
        }
        R::NoPriceWithoutEnd(_) => "a service that never ends has no price for its whole time; give it a ttl".into(),
        R::MalformedProfile(_) => {
            "the profile is not an ABI-encoded OperatorProfile, its URL is too long, or its price too large".into()
        }
        R::RegistryFull(_) => "this blueprint takes no further operators".into(),
        R::NotRegistered(e) => format!("{} is not a registered operator of this blueprint", e.sender),
        R::NotBlueprintOwner(e) => format!("{} does not own this blueprint", e.sender),
        R::FloorNotApplicable(_) => "calls of this blueprint are paid one by one, so its services have no floor".into(),
        R::PageTooLarge(e) => format!("{} entries at once, at most {} are taken", e.given, e.max),
        other => format!("the blueprint refused: {other:?}"),
    }
}

/// One sentence for one refusal of the blueprint's base.
pub(super) fn base_sentence(refusal: &BaseRefusal) -> String {
    use BaseRefusal as R;
    match refusal {
        R::OnlyCore(e) => format!("only the Tangle core may call this, not {}", e.sender),
        R::ForeignBlueprint(e) => {
            format!("this contract takes no blueprint created by {} in the core {}", e.owner, e.core)
        }
        R::AlreadyBound(e) => format!("this contract already serves blueprint {}", e.blueprintId),
        R::InvalidDeployment(_) => "the core must be a contract, and creator and block time must not be zero".into(),
    }
}

fn job(id: u8) -> String {
    Job::from_id(id).map_or_else(|| id.to_string(), |job| format!("{id} ({})", job.name()))
}

const fn status(status: WorkflowStatus) -> &'static str {
    match status {
        WorkflowStatus::Pending => "pending",
        WorkflowStatus::Active => "active",
        WorkflowStatus::Paused => "paused",
        WorkflowStatus::Cancelled => "cancelled",
        WorkflowStatus::Failed => "failed",
        WorkflowStatus::Unknown | WorkflowStatus::__Invalid => "unknown",
    }
}
