//! The sentences of the Tangle core's errors, and of the tokens that it takes.

use super::{CoreRefusal, TokenRefusal};

/// One sentence for one refusal of the core's.
pub(super) fn sentence(refusal: &CoreRefusal) -> String {
    of_service(refusal)
        .or_else(|| of_job(refusal))
        .or_else(|| of_quote(refusal))
        .or_else(|| of_payment(refusal))
        .or_else(|| of_operator(refusal))
        .unwrap_or_else(|| of_blueprint(refusal))
}

fn of_service(refusal: &CoreRefusal) -> Option<String> {
    use CoreRefusal as R;
    Some(match refusal {
        R::ServiceRequestNotFound(e) => format!("there is no service request {}", e.requestId),
        R::ServiceRequestAlreadyProcessed(e) => {
            format!("service request {} is already approved or rejected", e.requestId)
        }
        R::ServiceRequestExpiredError(e) => format!("service request {} was not approved in time", e.requestId),
        R::AlreadyApproved(e) => format!("operator {} has already approved request {}", e.operator, e.requestId),
        R::NoOperators(_) => "a service needs at least one operator".into(),
        R::InsufficientOperators(e) => format!("{} operators given, at least {} are needed", e.provided, e.required),
        R::TooManyOperators(e) => format!("{} operators given, at most {} are taken", e.provided, e.maximum),
        R::SecurityCommitmentsRequired(e) => format!("request {} asks for security commitments", e.requestId),
        R::InvalidTTL(e) => format!("a service cannot live {} seconds", e.ttl),
        R::TTLBelowMinimum(e) => format!("a service lives at least {} seconds, {} were asked for", e.minimum, e.ttl),
        R::TTLAboveMaximum(e) => format!("a service lives at most {} seconds, {} were asked for", e.maximum, e.ttl),
        R::ServiceNotFound(e) => format!("there is no service {}", e.serviceId),
        R::ServiceNotActive(e) => format!("service {} is not active", e.serviceId),
        R::ServiceExpired(e) => format!("service {} has expired", e.serviceId),
        R::NotServiceOwner(e) => format!("{} does not own service {}", e.caller, e.serviceId),
        R::NotPermittedCaller(e) => format!("{} may not submit jobs to service {}", e.caller, e.serviceId),
        _ => return None,
    })
}

fn of_job(refusal: &CoreRefusal) -> Option<String> {
    use CoreRefusal as R;
    Some(match refusal {
        R::InvalidJobIndex(e) => format!("the blueprint declares no job {}", e.jobIndex),
        R::JobCallNotFound(e) => format!("there is no call {}/{}", e.serviceId, e.callId),
        R::JobAlreadyCompleted(e) => format!("call {}/{} is already completed", e.serviceId, e.callId),
        R::ResultAlreadySubmitted(e) => {
            format!("operator {} has already answered call {}/{}", e.operator, e.serviceId, e.callId)
        }
        R::NotQuotedOperator(e) => format!("only the quoted operators may answer call {}/{}", e.serviceId, e.callId),
        R::AggregationRequired(e) => format!("job {} of service {} takes signed aggregates", e.jobIndex, e.serviceId),
        R::SchemaValidationFailed(_) => "the bytes do not fit the blueprint's schema".into(),
        _ => return None,
    })
}

fn of_quote(refusal: &CoreRefusal) -> Option<String> {
    use CoreRefusal as R;
    Some(match refusal {
        R::NoQuotes(_) => "a quoted job needs at least one quote".into(),
        R::QuoteExpired(e) => format!("the quote of operator {} was good until unix time {}", e.operator, e.expiry),
        R::QuoteTimestampTooOld(e) => format!(
            "the quote of operator {} is of unix time {}, which is more than {} s ago",
            e.operator, e.timestamp, e.maxAge
        ),
        R::QuoteAlreadyUsed(e) => format!("the quote of operator {} has been used; ask for another", e.operator),
        R::InvalidQuoteSignature(e) => {
            format!("operator {} has not signed this quote, or not for this kind of service", e.operator)
        }
        R::DuplicateOperatorQuote(e) => format!("operator {} has quoted twice for one job", e.operator),
        R::JobQuoteRequesterMismatch(e) => {
            format!("the quote of operator {} is for {}, not for {}", e.operator, e.quoted, e.sender)
        }
        R::JobQuoteInputsMismatch(e) => format!("the quote of operator {} is for other inputs", e.operator),
        R::JobQuoteServiceMismatch(e) => format!("the quote is for service {}, not for {}", e.quoted, e.expected),
        R::JobQuoteJobIndexMismatch(e) => format!("the quote is for job {}, not for {}", e.quoted, e.expected),
        R::ECDSAInvalidSignature(_) | R::ECDSAInvalidSignatureLength(_) | R::ECDSAInvalidSignatureS(_) => {
            "a quote carries no valid signature".into()
        }
        _ => return None,
    })
}

fn of_payment(refusal: &CoreRefusal) -> Option<String> {
    use CoreRefusal as R;
    Some(match refusal {
        R::InvalidMsgValue(e) => format!("exactly {} wei must be paid, {} were given", e.expected, e.given),
        R::PaymentTooSmall(e) => format!("{} wei cannot be split, at least {} are needed", e.amount, e.minimumRequired),
        R::PaymentFailed(_) => "the payment could not be transferred".into(),
        R::TokenNotAllowed(e) => format!("token {} is not taken as payment", e.token),
        R::FeeOnTransferTokenRejected(e) => format!("token {} takes a fee of its own, which is not taken", e.token),
        R::SafeERC20FailedOperation(e) => format!("token {} could not be transferred", e.token),
        R::InvalidPaymentToken(_) => "the service is not paid in this token".into(),
        R::UpfrontPaymentNotAllowedForEventDriven(_) => "jobs are paid one by one, a request takes no payment".into(),
        _ => return None,
    })
}

/// One sentence for one refusal of a token's.
pub(super) fn token_sentence(refusal: &TokenRefusal) -> String {
    use TokenRefusal as R;
    match refusal {
        R::ERC20InsufficientAllowance(e) => {
            format!("{} may take {} of the token, {} are needed", e.spender, e.allowance, e.needed)
        }
        R::ERC20InsufficientBalance(e) => {
            format!("{} has {} of the token, {} are needed", e.sender, e.balance, e.needed)
        }
    }
}

fn of_operator(refusal: &CoreRefusal) -> Option<String> {
    use CoreRefusal as R;
    Some(match refusal {
        R::OperatorNotRegistered(e) => {
            format!("operator {} is not registered for blueprint {}", e.operator, e.blueprintId)
        }
        R::OperatorAlreadyRegistered(e) => {
            format!("operator {} is already registered for blueprint {}", e.operator, e.blueprintId)
        }
        R::OperatorNotActive(e) => format!("operator {} has no active stake", e.operator),
        R::OperatorHasActiveServices(e) => format!("operator {} still serves services", e.operator),
        R::OperatorRpcAddressRequired(_) => "an operator needs an endpoint".into(),
        R::InsufficientStake(e) => {
            format!("operator {} has staked {}, {} are needed", e.operator, e.actual, e.required)
        }
        R::InvalidOperatorKey(_) => "the operator's key is not a 65-byte uncompressed public key".into(),
        R::DuplicateOperatorKey(e) => format!("another operator of blueprint {} has this key", e.blueprintId),
        R::OperatorNotInService(e) => format!("{} is not an operator of service {}", e.operator, e.serviceId),
        R::ExitTooEarly(e) => format!(
            "an operator may leave service {} {} seconds from now, not before",
            e.serviceId,
            e.minCommitmentEnd.saturating_sub(e.currentTime)
        ),
        R::ExitAlreadyScheduled(e) => {
            format!("the exit of operator {} from service {} is already scheduled", e.operator, e.serviceId)
        }
        // The core's one word for many things; of what is called here, only leaving ends in it.
        R::InvalidState(_) => {
            "the service is not of a kind that allows this: nobody leaves one with fixed members".into()
        }
        R::NotServiceOperator(_) => "the sender is not an operator of this service".into(),
        _ => return None,
    })
}

/// What is left: the blueprint, and refusals without a subject. A test shows that no error falls through.
fn of_blueprint(refusal: &CoreRefusal) -> String {
    use CoreRefusal as R;
    match refusal {
        R::BlueprintNotFound(e) => format!("there is no blueprint {}", e.blueprintId),
        R::BlueprintNotActive(e) => format!("blueprint {} is not active", e.blueprintId),
        R::NotBlueprintOwner(e) => format!("{} does not own blueprint {}", e.caller, e.blueprintId),
        R::BlueprintMetadataRequired(_) => "the blueprint's definition lacks its metadata".into(),
        R::BlueprintMetadataHashRequired(_) => "the blueprint's definition lacks the hash of its metadata".into(),
        R::BlueprintMetadataLocked(e) => {
            format!("the metadata of blueprint {} is fixed since its first operator registered", e.blueprintId)
        }
        R::BlueprintSourcesRequired(_) => "the blueprint's definition lacks a source".into(),
        R::BlueprintBinaryRequired(_) => "a source of the blueprint lacks a binary".into(),
        R::BlueprintBinaryHashRequired(_) => "a binary of the blueprint lacks its hash".into(),
        R::ManagerRejected(_) => "the blueprint refused without a reason, or ran out of gas".into(),
        R::UnknownSelector(e) => format!("the core has no function {}", e.selector),
        R::Unauthorized(_) => "the sender may not do this".into(),
        R::EnforcedPause(_) => "the core is paused".into(),
        other => format!("the core refused: {other:?}"),
    }
}
