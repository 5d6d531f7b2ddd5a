//! Draws: `Selection.sol` and `fleet::selection`.

use alloy_primitives::{B256, U256};
use alloy_sol_types::SolError;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sandbox_fleet::selection::{DrawTooLarge, indexes};

use crate::compare;
use crate::evm::Differential::{self, indexesCall};
use crate::evm::Harness;

const CASES: usize = 100_000;
const REFUSALS: usize = 1_000;
const BATCH: usize = 500;
/// More than the most operators of a service, so that the contract's bound can grow.
const COUNT_MAX: usize = 32;
/// Where a number of bits or a power of two ends.
const EDGES: [usize; 10] =
    [0, 1, 2, 0xff, 0x100, 0xffff, 0x1_0000, 0x7fff_ffff, u32::MAX as usize - 1, u32::MAX as usize];

#[derive(Debug)]
struct Case {
    size: usize,
    count: usize,
    seed: B256,
}

impl Case {
    fn encode(&self) -> Differential::Draw {
        Differential::Draw { size: U256::from(self.size), count: U256::from(self.count), seed: self.seed }
    }
}

fn any_size(rng: &mut StdRng) -> usize {
    match rng.random_range(0..8) {
        0 => *EDGES.choose(rng).unwrap(),
        // Sets that are drawn out or nearly so, where positions are displaced again and again.
        1..=4 => rng.random_range(0..=2 * COUNT_MAX),
        5 => (rng.random::<u32>() >> rng.random_range(0..32)) as usize,
        _ => rng.random::<u32>() as usize,
    }
}

fn any_seed(rng: &mut StdRng) -> B256 {
    match rng.random_range(0..16) {
        0 => B256::ZERO,
        1 => B256::repeat_byte(0xff),
        2 => B256::with_last_byte(rng.random()),
        _ => B256::from(rng.random::<[u8; 32]>()),
    }
}

/// Mostly few, as services are small.
fn any_count(rng: &mut StdRng, size: usize) -> usize {
    let most = [4, 8, COUNT_MAX].choose(rng).unwrap().min(&size);
    if rng.random_ratio(1, 8) { *most } else { rng.random_range(0..=*most) }
}

fn any_case(rng: &mut StdRng) -> Case {
    let size = any_size(rng);
    Case { size, count: any_count(rng, size), seed: any_seed(rng) }
}

#[test]
fn both_sides_draw_the_same() {
    let mut harness = Harness::start();
    let mut rng = StdRng::seed_from_u64(1);
    let cases: Vec<Case> = std::iter::repeat_with(|| any_case(&mut rng)).take(CASES).collect();
    let rust = |case: &Case| indexes(case.size, case.count, case.seed).unwrap();
    compare(&cases, BATCH, rust, |cases| {
        let drawn = harness.ask(&indexesCall { draws: cases.iter().map(Case::encode).collect() });
        drawn.into_iter().map(|draw| draw.into_iter().map(|index| index.to()).collect()).collect()
    });
}

#[test]
fn both_sides_refuse_to_draw_more_than_there_are() {
    let mut harness = Harness::start();
    let mut rng = StdRng::seed_from_u64(2);
    for _ in 0..REFUSALS {
        let size = any_size(&mut rng);
        let beyond = if rng.random() { 1 } else { rng.random_range(1..=u32::MAX as usize) };
        let case = Case { size, count: size + beyond, seed: any_seed(&mut rng) };
        let DrawTooLarge { count, size } = indexes(case.size, case.count, case.seed).unwrap_err();
        let error = Differential::DrawTooLarge { count: U256::from(count), size: U256::from(size) };
        assert_eq!(harness.refusal(&indexesCall { draws: vec![case.encode()] }), error.abi_encode(), "{case:?}");
    }
}
