//! Whose the endpoints of a call are: every operator reads the same of the chain, at the block of the call, so that each endpoint is
//! one operator's.

use alloy::eips::BlockId;
use alloy::primitives::Address;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use sandbox_fleet::Unfinished;
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use sandbox_sdk::Chain;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{SandboxState, SandboxView};
use tokio::time::{Instant, timeout_at};

use super::{bad, stopping};
use crate::chain::until_answered;
use crate::jobs::JobCall;
use crate::limits::BATCH_LOOKUPS_MAX;
use crate::records::PartItem;

/// Who answers for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// This operator, which holds the sandbox.
    Mine,
    /// Another one.
    Others,
    /// Nobody holds such a sandbox: the first operator of the call says so.
    Nobodys,
}

/// This operator's items among the endpoints of a call, as far as the chain says in time whose they are.
pub(super) async fn own_items(
    call: &JobCall,
    endpoints: &[String],
    until: Instant,
) -> Result<Vec<PartItem>, Unfinished> {
    timeout_at(until, divided(call, endpoints)).await.unwrap_or_else(|_| Err(unknown().into()))
}

async fn divided(call: &JobCall, endpoints: &[String]) -> Result<Vec<PartItem>, Unfinished> {
    let parts = until_answered("parts of a batch", || call.parts().chain.parts(call.key)).await;
    let operators: Vec<Address> = parts.iter().map(|part| part.operator).collect();
    let known = call.parts().records.call(call.key).map_err(|error| stopping(&error))?;
    let block = known.map(|known| known.block);
    let me = call.parts().key.address();
    let looks: Vec<BoxFuture<'_, _>> =
        (0_u32..).zip(endpoints).map(|(index, text)| look(call, block, (index, text)).boxed()).collect();
    let looked: Vec<_> = stream::iter(looks).buffered(BATCH_LOOKUPS_MAX).collect().await;
    Ok(looked.into_iter().filter_map(|(item, found)| own(item, found, (me, &operators))).collect())
}

/// An endpoint as an item, and the sandbox that it stands for.
async fn look(
    call: &JobCall,
    block: Option<u64>,
    (index, text): (u32, &str),
) -> (PartItem, Result<SandboxView, Failure>) {
    let item = PartItem { index, sandbox: None, refused: None };
    match SandboxId::from_endpoint(text) {
        Ok(id) => (PartItem { sandbox: Some(id), ..item }, Ok(view(call, id, block).await)),
        Err(error) => (item, Err(bad(error.to_string()))),
    }
}

/// The item, if this operator answers for it.
fn own(
    item: PartItem,
    found: Result<SandboxView, Failure>,
    (me, operators): (Address, &[Address]),
) -> Option<PartItem> {
    let (whose, why) = match found {
        Ok(view) => (whose(&view, me, operators), lost()),
        Err(malformed) => (Whose::Nobodys, malformed),
    };
    match whose {
        Whose::Mine => Some(item),
        Whose::Nobodys if operators.first() == Some(&me) => Some(PartItem { refused: Some(why), ..item }),
        Whose::Nobodys | Whose::Others => None,
    }
}

fn whose(view: &SandboxView, me: Address, operators: &[Address]) -> Whose {
    let is_there = match view.state {
        SandboxState::Requested | SandboxState::Live | SandboxState::Expired | SandboxState::Lost => true,
        SandboxState::Unknown | SandboxState::Failed | SandboxState::Deleted | SandboxState::__Invalid => false,
    };
    match (is_there && operators.contains(&view.operator), view.operator == me) {
        (false, _) => Whose::Nobodys,
        (true, true) => Whose::Mine,
        (true, false) => Whose::Others,
    }
}

/// A sandbox as it stood at the call's block, or stands now where the node keeps no state so old. One of another service stands for
/// nothing here.
async fn view(call: &JobCall, id: SandboxId, block: Option<u64>) -> SandboxView {
    if id.origin.service != call.key.service {
        return SandboxView {
            owner: Address::ZERO,
            operator: Address::ZERO,
            expiryBlock: 0,
            state: SandboxState::Unknown,
        };
    }
    let chain = &call.parts().chain;
    until_answered("sandbox", || view_at(chain, id, block)).await
}

async fn view_at(chain: &Chain, id: SandboxId, block: Option<u64>) -> Result<SandboxView, ReadError> {
    let Some(block) = block else { return chain.sandbox(id).await };
    let (service, created) = (id.origin.service, id.origin.call);
    let then = chain.blueprint().sandbox(service, created, id.slot).block(BlockId::number(block)).call().await;
    match then {
        // Any other error may pass, and who read something else than the others would divide otherwise.
        Err(error) if is_forgotten(&error) => chain.sandbox(id).await,
        then => then.map_err(ReadError::on("sandbox")),
    }
}

/// Whether the node says that it does not keep a state so old, in the words of one of its kinds.
fn is_forgotten(error: &alloy::contract::Error) -> bool {
    let alloy::contract::Error::TransportError(error) = error else { return false };
    let Some(payload) = error.as_error_resp() else { return false };
    let message = payload.message.to_ascii_lowercase();
    FORGOTTEN.iter().any(|words| message.contains(words))
}

/// What nodes say of a state that they do not keep: geth and its kin, erigon and reth, nethermind, besu, and those before whom
/// such nodes stand.
const FORGOTTEN: [&str; 9] = [
    "missing trie node",
    "historical state",
    "state unavailable",
    "state is not available",
    "no state available",
    "pruned",
    "pruning",
    "maximum proof window",
    "archive",
];

fn unknown() -> Failure {
    Failure::new(FailureCode::Internal, "the chain did not say in time whose the sandboxes are")
}

fn lost() -> Failure {
    Failure::new(FailureCode::SandboxLost, "no operator of this call holds such a sandbox")
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Bytes;
    use alloy::sol_types::SolValue as _;
    use alloy::transports::mock::Asserter;
    use sandbox_protocol::CallKey;

    use super::*;
    use crate::chain::mocked;

    const ME: Address = Address::repeat_byte(1);
    const OTHER: Address = Address::repeat_byte(2);
    const FAR: Address = Address::repeat_byte(3);

    fn found(operators: &[Address], operator: Address, state: SandboxState) -> Option<Option<FailureCode>> {
        let view = SandboxView { owner: Address::ZERO, operator, expiryBlock: 9, state };
        let item = PartItem { index: 0, sandbox: None, refused: None };
        let item = own(item, Ok(view), (ME, operators))?;
        Some(item.refused.map(|failure| failure.code))
    }

    #[test]
    fn an_endpoint_is_its_holders_and_nobodys_are_the_first_operators() {
        use SandboxState as S;
        for state in [S::Requested, S::Live, S::Expired, S::Lost] {
            assert_eq!(found(&[OTHER, ME], ME, state), Some(None));
            assert_eq!(found(&[ME, OTHER], OTHER, state), None);
            assert_eq!(found(&[ME, OTHER], FAR, state), Some(Some(FailureCode::SandboxLost)), "no part of the call");
        }
        for state in [S::Unknown, S::Failed, S::Deleted] {
            assert_eq!(found(&[ME, OTHER], ME, state), Some(Some(FailureCode::SandboxLost)));
            assert_eq!(found(&[OTHER, ME], ME, state), None);
        }
        let item = PartItem { index: 4, sandbox: None, refused: None };
        let malformed = own(item, Err(bad("no id")), (ME, &[ME])).unwrap();
        assert_eq!((malformed.index, malformed.refused.unwrap().code), (4, FailureCode::BadRequest));
    }

    /// What is found where the node says this of the call's block, and would say of now that the sandbox lives.
    async fn found_after(error: &str) -> Result<SandboxView, ReadError> {
        let answers = Asserter::new();
        let chain = mocked::chain(&answers).await;
        answers.push_failure_msg(error.to_owned());
        let view = SandboxView { owner: OTHER, operator: ME, expiryBlock: 9, state: SandboxState::Live };
        answers.push_success(&Bytes::from(view.abi_encode()));
        view_at(&chain, SandboxId { origin: CallKey { service: 1, call: 2 }, slot: 0 }, Some(5)).await
    }

    #[tokio::test]
    async fn what_stands_now_counts_only_where_the_node_keeps_no_state_so_old() {
        for forgotten in [
            "missing trie node 1e5f (path ) state 0x1e5f is not available",
            "required historical state unavailable (reexec=128)",
            "historical state 1e5f is not available",
            "state at block #5 is pruned",
            "old data not available due to pruning",
            "No state available for block 0x05",
            "World state unavailable",
            "distance to target block exceeds maximum proof window",
            "project ID does not have access to archive state",
        ] {
            assert_eq!(found_after(forgotten).await.unwrap().operator, ME, "{forgotten}");
        }
        for passing in ["header not found", "request timed out", "too many requests", "internal error"] {
            assert!(found_after(passing).await.is_err(), "{passing}");
        }
    }
}
