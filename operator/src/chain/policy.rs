//! Whether the operator takes part in a service: a pure decision over what was set and what was found.

use std::fmt;
use std::str::FromStr;

use alloy::primitives::{Address, U256};

/// Who answers service requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approve {
    /// The node, by its policy.
    Auto,
    /// A person, by `operator approve` and `operator reject`.
    Manual,
}

/// What was set.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) approve: Approve,
    /// Least wei for a create.
    pub(crate) create_price_min: U256,
    /// Least life of a service in seconds.
    pub(crate) ttl_s_min: u64,
    /// The only ones served; empty serves everybody.
    pub(crate) allowed: Vec<Address>,
    /// Never served, also where allowed.
    pub(crate) denied: Vec<Address>,
}

/// What was found of a request and of this operator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) requester: Address,
    /// Life of the service in seconds; zero is without end.
    pub(crate) ttl_s: u64,
    /// What a create pays.
    pub(crate) payment: Payment,
    /// Sandboxes that there still is room for.
    pub(crate) room: usize,
    /// The operator takes nothing new.
    pub(crate) draining: bool,
}

/// What a create of the blueprint pays.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payment {
    /// Wei of the chain's coin.
    Coin(U256),
    /// A token, and whether the operator has a price in it.
    Token { priced: bool },
}

/// Why a service is not taken part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Objection {
    /// The requester is on the list of those denied.
    Denied,
    /// There is a list of those allowed, without the requester.
    NotAllowed,
    /// Its life is too short.
    TooShort,
    /// A create pays too little.
    TooCheap,
    /// It is paid in a token without a price.
    NoPriceInToken,
    /// There is no room for another sandbox.
    NoRoom,
    /// The operator takes nothing new.
    Draining,
}

impl Policy {
    /// Why a request is to be rejected; `None` where it is to be approved. What concerns the requester is looked at first.
    pub(crate) fn objection(&self, facts: &Facts) -> Option<Objection> {
        if self.denied.contains(&facts.requester) {
            return Some(Objection::Denied);
        }
        if !self.allowed.is_empty() && !self.allowed.contains(&facts.requester) {
            return Some(Objection::NotAllowed);
        }
        if facts.ttl_s != 0 && facts.ttl_s < self.ttl_s_min {
            return Some(Objection::TooShort);
        }
        match facts.payment {
            Payment::Coin(wei) if wei < self.create_price_min => return Some(Objection::TooCheap),
            Payment::Token { priced: false } => return Some(Objection::NoPriceInToken),
            Payment::Coin(_) | Payment::Token { priced: true } => {}
        }
        if facts.draining {
            return Some(Objection::Draining);
        }
        (facts.room == 0).then_some(Objection::NoRoom)
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Denied => "the requester is on REQUESTERS_DENIED",
            Self::NotAllowed => "the requester is not on REQUESTERS_ALLOWED",
            Self::TooShort => "the service would live shorter than SERVICE_TTL_MIN_SECONDS",
            Self::TooCheap => "the price of a create is below CREATE_PRICE_MIN_WEI",
            Self::NoPriceInToken => "the blueprint is paid in a token that PRICE_PER_HOUR_TOKENS has no price in",
            Self::NoRoom => "there is no room for another sandbox",
            Self::Draining => "the operator drains: it takes nothing new",
        })
    }
}

impl fmt::Display for Approve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
        })
    }
}

impl FromStr for Approve {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "manual" => Ok(Self::Manual),
            _ => Err("give auto or manual"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Address = Address::repeat_byte(1);
    const OTHER: Address = Address::repeat_byte(2);

    fn policy() -> Policy {
        let (allowed, denied) = (Vec::new(), Vec::new());
        Policy { approve: Approve::Auto, create_price_min: U256::from(10), ttl_s_min: 60, allowed, denied }
    }

    fn facts() -> Facts {
        Facts { requester: ONE, ttl_s: 60, payment: Payment::Coin(U256::from(10)), room: 1, draining: false }
    }

    #[test]
    fn each_limit_is_kept_on_both_sides() {
        let coin = |wei: u64| Payment::Coin(U256::from(wei));
        let table = [
            (policy(), facts(), None),
            (policy(), Facts { ttl_s: 59, ..facts() }, Some(Objection::TooShort)),
            (policy(), Facts { ttl_s: 0, ..facts() }, None),
            (policy(), Facts { payment: coin(9), ..facts() }, Some(Objection::TooCheap)),
            (policy(), Facts { payment: Payment::Token { priced: true }, ..facts() }, None),
            (policy(), Facts { payment: Payment::Token { priced: false }, ..facts() }, Some(Objection::NoPriceInToken)),
            (policy(), Facts { room: 0, ..facts() }, Some(Objection::NoRoom)),
            (policy(), Facts { draining: true, ..facts() }, Some(Objection::Draining)),
            (Policy { denied: vec![ONE], ..policy() }, facts(), Some(Objection::Denied)),
            (Policy { denied: vec![OTHER], ..policy() }, facts(), None),
            (Policy { allowed: vec![ONE], ..policy() }, facts(), None),
            (Policy { allowed: vec![OTHER], ..policy() }, facts(), Some(Objection::NotAllowed)),
            (Policy { allowed: vec![ONE], denied: vec![ONE], ..policy() }, facts(), Some(Objection::Denied)),
        ];
        for (policy, facts, expected) in table {
            assert_eq!(policy.objection(&facts), expected, "{policy:?} {facts:?}");
        }
    }

    #[test]
    fn a_stranger_learns_of_the_lists_before_anything_else() {
        let worst = Facts { ttl_s: 1, payment: Payment::Token { priced: false }, room: 0, draining: true, ..facts() };
        let policy = Policy { denied: vec![ONE], ..policy() };
        assert_eq!(policy.objection(&worst), Some(Objection::Denied));
    }
}
