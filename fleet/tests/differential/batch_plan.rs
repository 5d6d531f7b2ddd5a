//! Plans: `BatchPlan.sol` and `fleet::batch_plan`.

use alloy_primitives::aliases::U96;
use alloy_primitives::{B256, U256};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sandbox_fleet::batch_plan::{Distribution, Offer, Plan, plan};

use crate::compare;
use crate::evm::Differential::{self, plansCall};
use crate::evm::Harness;

const CASES: usize = 20_000;
const BATCH: usize = 200;
/// As many as a service has operators at most.
const OFFERS_MAX: usize = 32;

#[derive(Debug)]
struct Case {
    offers: Vec<Offer>,
    /// What stands above each of them in the contract's words, and must not matter.
    above: U256,
    count: u32,
    distribution: Distribution,
    seed: B256,
}

impl Case {
    fn encode(&self) -> Differential::Batch {
        let word = |offer: &Offer| self.above << 128 | U256::from(offer.price) << 32 | U256::from(offer.free);
        Differential::Batch {
            offers: self.offers.iter().map(word).collect(),
            count: U256::from(self.count),
            // The contract's enum has the same order.
            distribution: self.distribution as u8,
            seed: self.seed,
        }
    }
}

fn any_case(rng: &mut StdRng) -> Case {
    let slots_max = *[0, 1, 3, 10, 24, 200, u32::MAX].choose(rng).unwrap();
    let prices = *[1, 2, 8, u64::MAX].choose(rng).unwrap();
    let mut offer = || Offer { free: rng.random_range(0..=slots_max), price: any_price(rng, prices) };
    let mut offers: Vec<Offer> = std::iter::repeat_with(&mut offer).take(OFFERS_MAX).collect();
    offers.truncate(rng.random_range(0..=OFFERS_MAX));
    let count = any_count(rng, &offers);
    let distribution = *Distribution::ALL.choose(rng).unwrap();
    Case { offers, above: U256::from(rng.random::<u64>()), count, distribution, seed: rng.random::<[u8; 32]>().into() }
}

/// Of `prices` different ones, so that ties are common; now and then any at all.
fn any_price(rng: &mut StdRng, prices: u64) -> U96 {
    if rng.random_ratio(1, 16) {
        U96::from_be_bytes(rng.random::<[u8; 12]>())
    } else {
        U96::from(rng.random_range(0..prices))
    }
}

/// Small ones, large ones, and those at which the slots just suffice or just do not.
fn any_count(rng: &mut StdRng, offers: &[Offer]) -> u32 {
    let all = offers.iter().fold(0_u32, |sum, offer| sum.saturating_add(offer.free));
    match rng.random_range(0..8) {
        0 => all,
        1 => all.saturating_add(1),
        2 => all.saturating_sub(1),
        3 => rng.random(),
        4 => rng.random_range(0..=all),
        _ => rng.random_range(0..=200),
    }
}

#[test]
fn both_sides_make_the_same_plan() {
    let mut harness = Harness::start();
    let mut rng = StdRng::seed_from_u64(3);
    let cases: Vec<Case> = std::iter::repeat_with(|| any_case(&mut rng)).take(CASES).collect();
    let rust = |case: &Case| plan(&case.offers, case.count, case.distribution, case.seed);
    compare(&cases, BATCH, rust, |cases| {
        let made = harness.ask(&plansCall { batches: cases.iter().map(Case::encode).collect() });
        made.into_iter().map(decode).collect()
    });
}

fn decode(plan: Differential::Plan) -> Plan {
    let order = plan.order.into_iter().map(|index| index.to()).collect();
    Plan { order, shares: plan.shares.into_iter().map(|share| share.to()).collect() }
}
