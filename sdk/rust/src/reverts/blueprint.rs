//! The sentences of our blueprint's errors.

use sandbox_protocol::Job;

use super::{BaseRefusal, BlueprintRefusal};

/// One sentence for one refusal of the blueprint's.
pub(super) fn sentence(refusal: &BlueprintRefusal) -> String {
    use BlueprintRefusal as R;
    match refusal {
        R::UnknownJob(e) => format!("job {} is not offered by this blueprint", job(e.job)),
        R::MalformedInputs(e) => format!("the inputs are not the ABI encoding that job {} takes", job(e.job)),
        R::InputsTooLarge(e) => format!("the inputs are {} bytes long, at most {} are taken", e.bytesGiven, e.bytesMax),
        R::UnknownSandbox(e) => format!("no live sandbox {} in this service", e.sandbox),
        R::NotSandboxOwner(e) => format!("sandbox {} does not belong to {}", e.sandbox, e.caller),
        R::SandboxExpired(e) => format!("sandbox {} expired at block {}", e.sandbox, e.expiryBlock),
        R::OutlivesService(e) => format!(
            "a sandbox of {} blocks would outlive its service, which ends at unix time {}",
            e.ttlBlocks, e.serviceEnd
        ),
        R::NoCapacity(e) => format!("no operator of service {} has room for another sandbox", e.serviceId),
        R::UnknownService(e) => format!("service {} is not one of this blueprint, or has ended", e.serviceId),
        R::OneQuoteExpected(e) => format!("a quoted call takes the quote of one operator, {} were given", e.quotes),
        R::QuotedOperatorMismatch(e) => {
            format!("the sandbox is held by operator {}, the quote is of {}", e.expected, e.quoted)
        }
        R::NotReapable(e) => format!("call {}/{} has nothing left that has expired", e.serviceId, e.callId),
        R::TooManyOperators(e) => format!("{} operators asked for, a service takes at most {}", e.given, e.max),
        R::OperatorCountMismatch(e) => {
            format!("the selection asks for {} operators but {} are listed", e.asked, e.listed)
        }
        R::SelectionMismatch(e) => format!(
            "the seed does not draw the listed operators: number {} must be {}, not {}",
            e.index, e.expected, e.given
        ),
        R::NotEnoughOperators(e) => format!("{} operators asked for, {} are eligible", e.asked, e.eligible),
        R::OperatorNotEligible(e) => format!("operator {} is not registered here, or is full", e.operator),
        R::MalformedSelection(_) => "the selection is not an ABI-encoded SelectionRequest".into(),
        R::MalformedProfile(_) => "the profile is not an ABI-encoded OperatorProfile, or its URL is too long".into(),
        R::NotRegistered(e) => format!("{} is not a registered operator of this blueprint", e.sender),
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
