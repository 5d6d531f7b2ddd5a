//! Who makes how many sandboxes of a batch create, before it is sent: what the contract will say, by the same rules.
//!
//! The contract plans when the call comes. Until then offers may change; an operator that is about to leave the service is
//! planned with no slots there and seen only by its operators here; and a `random` plan depends on the number that the call is
//! given. What was planned in the end the chain says: [`Chain::shares`].

use alloy::primitives::aliases::U96;
use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::sol_types::SolValue as _;
use sandbox_fleet::batch_plan::{self, Distribution};
use sandbox_protocol::CallKey;

use super::BatchError;
use crate::chain::{Chain, ReadError};
use crate::contracts::IAgentSandboxBlueprint::OperatorView;

/// What an operator has to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The operator.
    pub operator: Address,
    /// Sandboxes that it would still take.
    pub free: u32,
    /// What it says that a core costs for an hour, in wei.
    pub price_per_hour: U256,
}

impl Offer {
    fn of(view: &OperatorView) -> Self {
        let free = if view.eligible { view.capacity.saturating_sub(view.used) } else { 0 };
        Self { operator: view.account, free, price_per_hour: view.pricePerHour }
    }

    fn planned(&self) -> batch_plan::Offer {
        batch_plan::Offer { free: self.free, price: U96::saturating_from(self.price_per_hour) }
    }
}

/// What one operator makes of a batch create: slots that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Share {
    /// The operator.
    pub operator: Address,
    /// Its first slot.
    pub first_slot: u8,
    /// How many.
    pub slots: u8,
}

/// The seed of a call's draws.
pub fn seed(service_seed: B256, call: CallKey) -> B256 {
    keccak256((service_seed, call.service, call.call).abi_encode())
}

/// Who makes how many of `count`, in the order of the slots, without those that make none.
///
/// # Errors
/// [`BatchError::NoRoom`] where the offers have too few slots.
pub fn plan(
    offers: &[Offer],
    count: u32,
    (distribution, seed): (Distribution, B256),
) -> Result<Vec<Share>, BatchError> {
    let planned: Vec<_> = offers.iter().map(Offer::planned).collect();
    let found = batch_plan::plan(&planned, count, distribution, seed);
    let (mut shares, mut next) = (Vec::new(), 0_u32);
    for (index, slots) in found.order.into_iter().zip(found.shares).filter(|(_, slots)| *slots != 0) {
        let narrow = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        shares.push(Share { operator: offers[index].operator, first_slot: narrow(next), slots: narrow(slots) });
        next += slots;
    }
    if next == count { Ok(shares) } else { Err(BatchError::NoRoom { wanted: count, free: next }) }
}

impl Chain {
    /// What these operators have to offer now.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn offers(&self, operators: &[Address]) -> Result<Vec<Offer>, ReadError> {
        let views = futures::future::try_join_all(operators.iter().map(|operator| self.operator(*operator))).await?;
        Ok(views.iter().map(Offer::of).collect())
    }

    /// The operators that a batch create is planned over: those named, put in the service's order, or all of the service.
    ///
    /// # Errors
    /// [`BatchError::NotOfService`], [`BatchError::Read`].
    pub async fn pool(&self, service: u64, named: &[Address]) -> Result<Vec<Address>, BatchError> {
        let all = self.operators(service).await?;
        if let Some(operator) = named.iter().find(|operator| !all.contains(operator)) {
            return Err(BatchError::NotOfService { service, operator: *operator });
        }
        Ok(all.into_iter().filter(|operator| named.is_empty() || named.contains(operator)).collect())
    }

    /// Who makes how many of a batch create that is on chain.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn shares(&self, call: CallKey) -> Result<Vec<Share>, ReadError> {
        let parts = self.parts(call).await?;
        let share = |part: &crate::contracts::IAgentSandboxBlueprint::Part| Share {
            operator: part.operator,
            first_slot: part.firstSlot,
            slots: part.slots,
        };
        Ok(parts.iter().map(share).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(place: u8, free: u32, price: u64) -> Offer {
        Offer { operator: Address::repeat_byte(place), free, price_per_hour: U256::from(price) }
    }

    fn share(place: u8, first_slot: u8, slots: u8) -> Share {
        Share { operator: Address::repeat_byte(place), first_slot, slots }
    }

    #[test]
    fn slots_follow_each_other_along_the_plan() {
        let offers = [offer(1, 2, 9), offer(2, 0, 1), offer(3, 5, 4)];
        let planned = |distribution, count| plan(&offers, count, (distribution, B256::ZERO)).unwrap();
        assert_eq!(planned(Distribution::RoundRobin, 5), [share(1, 0, 2), share(3, 2, 3)]);
        assert_eq!(planned(Distribution::Cheapest, 6), [share(3, 0, 5), share(1, 5, 1)]);
        assert_eq!(planned(Distribution::RoundRobin, 1), [share(1, 0, 1)]);
    }

    #[test]
    fn too_few_slots_are_told_before_anything_is_sent() {
        let full = plan(&[offer(1, 2, 1), offer(2, 1, 1)], 4, (Distribution::Random, B256::ZERO)).unwrap_err();
        assert_eq!(full.to_string(), "4 sandboxes are more than the 3 that the operators have room for");
    }

    #[test]
    fn who_takes_nothing_offers_nothing() {
        let view = OperatorView { capacity: 4, used: 1, eligible: true, ..Default::default() };
        assert_eq!(Offer::of(&view).free, 3);
        assert_eq!(Offer::of(&OperatorView { eligible: false, ..view.clone() }).free, 0);
        assert_eq!(Offer::of(&OperatorView { used: 9, ..view }).free, 0);
    }

    #[test]
    fn the_seed_is_as_solidity_encodes_it() {
        let encoded = [B256::repeat_byte(7).as_slice(), &[0; 31], &[3], &[0; 31], &[5]].concat();
        assert_eq!(seed(B256::repeat_byte(7), CallKey { service: 3, call: 5 }), keccak256(encoded));
    }
}
