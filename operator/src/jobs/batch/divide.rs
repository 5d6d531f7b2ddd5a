//! Whose the endpoints of a call are: every operator reads the same of the chain, at the block of the call, so that each endpoint is
//! one operator's.

use alloy::eips::BlockId;
use alloy::primitives::Address;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use sandbox_fleet::Unfinished;
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{SandboxState, SandboxView};

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

/// This operator's items among the endpoints of a call.
pub(super) async fn own_items(call: &JobCall, endpoints: &[String]) -> Result<Vec<PartItem>, Unfinished> {
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

/// A sandbox as it stood at the call's block, or stands now where the node does not remember. One of another service stands for
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
    let ask = async || {
        if let Some(block) = block {
            let (service, created) = (id.origin.service, id.origin.call);
            let blueprint = chain.blueprint();
            let then = blueprint.sandbox(service, created, id.slot).block(BlockId::number(block)).call().await;
            if let Ok(view) = then {
                return Ok::<_, ReadError>(view);
            }
        }
        chain.sandbox(id).await
    };
    until_answered("sandbox", ask).await
}

fn lost() -> Failure {
    Failure::new(FailureCode::SandboxLost, "no operator of this call holds such a sandbox")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
