//! How many sandboxes of a batch each operator makes: the twin of `contracts/src/BatchPlan.sol`, which says what is promised.
//!
//! A pure function: who may offer slots and what they cost is found out elsewhere. A test runs the compiled contract beside
//! this code on the same cases.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::B256;
use alloy_primitives::aliases::U96;

use crate::selection;

/// In what order offers are taken, and whether each is used up before the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// As given, as evenly as slots allow.
    RoundRobin,
    /// By rising price, ties as given, each used up before the next.
    Cheapest,
    /// As the seed draws them, as evenly as slots allow.
    Random,
}

/// A word that names no distribution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a distribution: {0:?} (round_robin, cheapest or random)")]
pub struct UnknownDistribution(pub String);

impl Distribution {
    /// Every one, in the contract's order.
    pub const ALL: [Self; 3] = [Self::RoundRobin, Self::Cheapest, Self::Random];

    /// The word by which a request names it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::Cheapest => "cheapest",
            Self::Random => "random",
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Distribution {
    type Err = UnknownDistribution;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|distribution| distribution.word() == text);
        found.ok_or_else(|| UnknownDistribution(text.chars().take(80).collect()))
    }
}

/// What an operator can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its free slots.
    pub free: u32,
    /// What one costs, in whatever unit all offers share.
    pub price: U96,
}

/// Who makes how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Indexes of all offers, in the order in which they are taken.
    pub order: Vec<usize>,
    /// What each of them makes, along that order, zeros included.
    pub shares: Vec<u32>,
}

/// Shares `count` sandboxes out among the offers; fewer, if they have too few slots.
pub fn plan(offers: &[Offer], count: u32, distribution: Distribution, seed: B256) -> Plan {
    let as_given = || (0..offers.len()).collect();
    let order: Vec<usize> = match distribution {
        Distribution::RoundRobin => as_given(),
        Distribution::Cheapest => by_price(offers, as_given()),
        Distribution::Random => selection::shuffle(offers.len(), seed),
    };
    let free: Vec<u32> = order.iter().map(|index| offers[*index].free).collect();
    let shares = match distribution {
        Distribution::Cheapest => fill(&free, count),
        Distribution::RoundRobin | Distribution::Random => spread(&free, count),
    };
    Plan { order, shares }
}

fn by_price(offers: &[Offer], mut order: Vec<usize>) -> Vec<usize> {
    // Stable, as the contract's is.
    order.sort_by_key(|index| offers[*index].price);
    order
}

fn fill(free: &[u32], mut count: u32) -> Vec<u32> {
    let take = |free: &u32| {
        let share = count.min(*free);
        count -= share;
        share
    };
    free.iter().map(take).collect()
}

/// In rounds of equal shares, the last of one slot each for as many as there are slots left. Every round but the last two
/// uses up an offer, so there are few. The contract finds the same shares another way, without rounds.
fn spread(free: &[u32], mut count: u32) -> Vec<u32> {
    let mut shares = vec![0; free.len()];
    while count != 0 {
        let open: u32 = shares.iter().zip(free).map(|(share, free)| u32::from(share < free)).sum();
        let Some(each) = count.checked_div(open) else { break };
        for (share, free) in shares.iter_mut().zip(free) {
            let more = each.max(1).min(free - *share).min(count);
            *share += more;
            count -= more;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use alloy_primitives::keccak256;
    use proptest::prelude::*;

    use super::*;

    fn slots(free: &[u32]) -> Vec<Offer> {
        free.iter().map(|free| Offer { free: *free, price: U96::ZERO }).collect()
    }

    #[track_caller]
    fn check(offers: &[Offer], count: u32, distribution: Distribution, order: &[usize], shares: &[u32]) {
        let found = plan(offers, count, distribution, keccak256("agent-sandbox"));
        assert_eq!((found.order.as_slice(), found.shares.as_slice()), (order, shares));
    }

    #[test]
    fn a_distribution_is_known_by_its_word_alone() {
        for distribution in Distribution::ALL {
            assert_eq!(distribution.to_string().parse(), Ok(distribution));
        }
        for text in ["", "Random", "random ", "round-robin", "roundrobin", "cheap"] {
            assert_eq!(text.parse::<Distribution>(), Err(UnknownDistribution(text.to_string())));
        }
    }

    #[test]
    fn plans_are_those_that_are_pinned_in_solidity() {
        use Distribution::{Cheapest, Random, RoundRobin};
        let as_given = [0, 1, 2, 3, 4];
        check(&slots(&[9; 5]), 12, RoundRobin, &as_given, &[3, 3, 2, 2, 2]);
        check(&slots(&[9; 5]), 3, RoundRobin, &as_given, &[1, 1, 1, 0, 0]);
        check(&slots(&[2, 0, 5, 9, 1]), 12, RoundRobin, &as_given, &[2, 0, 5, 4, 1]);
        check(&slots(&[2, 0, 5, 9, 1]), 100, RoundRobin, &as_given, &[2, 0, 5, 9, 1]);
        check(&slots(&[2, 0, 5, 9, 1]), 12, Random, &[0, 1, 4, 2, 3], &[2, 0, 1, 5, 4]);
        let mut priced = slots(&[2, 0, 5, 9, 1]);
        for (offer, price) in
            priced.iter_mut().zip([U96::from(30), U96::from(10), U96::from(20), U96::MAX, U96::from(20)])
        {
            offer.price = price;
        }
        check(&priced, 9, Cheapest, &[1, 2, 4, 0, 3], &[0, 5, 1, 2, 1]);
    }

    #[test]
    fn nobody_or_nothing_is_a_plan_too() {
        for distribution in Distribution::ALL {
            assert_eq!(plan(&[], 5, distribution, B256::ZERO), Plan { order: vec![], shares: vec![] });
            assert_eq!(plan(&slots(&[2, 5]), 0, distribution, B256::ZERO).shares, [0, 0]);
            assert_eq!(plan(&slots(&[0, 0]), 5, distribution, B256::ZERO).shares, [0, 0]);
        }
    }

    /// What is dealt when slots go round one by one, past those that are full.
    fn dealt(free: &[u32], mut count: u32) -> Vec<u32> {
        let mut shares = vec![0; free.len()];
        let mut more = true;
        while more {
            more = false;
            for (share, free) in shares.iter_mut().zip(free) {
                if *share < *free && count != 0 {
                    *share += 1;
                    count -= 1;
                    more = true;
                }
            }
        }
        shares
    }

    fn offers() -> impl Strategy<Value = Vec<Offer>> {
        let free = prop_oneof![4 => 0..24_u32, 1 => any::<u32>()];
        let price =
            prop_oneof![4 => (0..8_u64).prop_map(U96::from), 1 => any::<[u8; 12]>().prop_map(U96::from_be_bytes)];
        proptest::collection::vec((free, price).prop_map(|(free, price)| Offer { free, price }), 0..40)
    }

    fn distributions() -> impl Strategy<Value = Distribution> {
        proptest::sample::select(&Distribution::ALL)
    }

    fn counts() -> impl Strategy<Value = u32> {
        prop_oneof![4 => 0..=200_u32, 1 => any::<u32>()]
    }

    proptest! {
        #[test]
        fn as_many_are_made_as_fit(all in offers(), count in counts(), kind in distributions(), seed: [u8; 32]) {
            let made: u64 = plan(&all, count, kind, seed.into()).shares.into_iter().map(u64::from).sum();
            let free: u64 = all.iter().map(|offer| u64::from(offer.free)).sum();
            prop_assert_eq!(made, free.min(count.into()));
        }

        #[test]
        fn everybody_stands_in_the_order_once_and_makes_no_more_than_its_slots(
            all in offers(), count in counts(), kind in distributions(), seed: [u8; 32],
        ) {
            let Plan { mut order, shares } = plan(&all, count, kind, seed.into());
            prop_assert_eq!(order.len(), shares.len());
            for (index, share) in order.iter().zip(shares) {
                prop_assert!(share <= all[*index].free);
            }
            order.sort_unstable();
            prop_assert!(order.into_iter().eq(0..all.len()));
        }

        #[test]
        fn the_cheapest_leaves_no_cheaper_slot_free(all in offers(), count in counts()) {
            let Plan { order, shares } = plan(&all, count, Distribution::Cheapest, B256::ZERO);
            for (pair, share) in order.windows(2).zip(shares.windows(2)) {
                let (before, after) = (all[pair[0]], all[pair[1]]);
                prop_assert!((before.price, pair[0]) < (after.price, pair[1]));
                prop_assert!(share[1] == 0 || share[0] == before.free);
            }
        }

        #[test]
        fn a_spread_differs_by_at_most_one_among_those_not_full(
            all in offers(), count in counts(), random: bool, seed: [u8; 32],
        ) {
            let kind = if random { Distribution::Random } else { Distribution::RoundRobin };
            let Plan { order, shares } = plan(&all, count, kind, seed.into());
            let (mut least, mut most) = (u32::MAX, 0);
            for (index, share) in order.into_iter().zip(&shares) {
                if *share < all[index].free {
                    prop_assert!(*share <= least, "the later makes more than the earlier");
                    (least, most) = (least.min(*share), most.max(*share));
                }
            }
            prop_assert!(most <= least.saturating_add(1));
            // Who is full has no more than those that are not, but for the one that cannot be divided.
            prop_assert!(shares.into_iter().all(|share| share <= least.saturating_add(1)));
        }

        #[test]
        fn a_spread_is_that_of_dealing_slots_one_by_one(
            free in proptest::collection::vec(0..24_u32, 0..40), count in 0..=200_u32,
        ) {
            let made = plan(&slots(&free), count, Distribution::RoundRobin, B256::ZERO);
            prop_assert_eq!(made.shares, dealt(&free, count));
        }
    }
}
