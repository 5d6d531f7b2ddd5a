//! Draws are fair, and so they are in Solidity, where a draw is the same: chi-squared tests of every place of a draw, of
//! every two places, and of whole draws.
//!
//! Seeds are counted up from zero, as unlike random ones as can be, and are the same in every run: what holds here is a
//! fact, not a chance. `cargo test … -- --nocapture` shows the figures.

#![allow(clippy::unwrap_used)] // helpers of tests end a test as its own body would

use alloy_primitives::{B256, U256, keccak256};
use sandbox_fleet::selection::indexes;

/// What chi-squared exceeds once in a million fair experiments, by degrees of freedom.
const CRITICAL: [(usize, f64); 10] = [
    (1, 23.93),
    (2, 27.63),
    (4, 33.38),
    (5, 35.89),
    (9, 44.81),
    (19, 63.68),
    (89, 167.35),
    (99, 180.79),
    (119, 207.20),
    (999, 1226.05),
];

/// How often each of some equally likely things was seen.
struct Tally(Vec<u32>);

impl Tally {
    fn of(cells: usize) -> Self {
        Self(vec![0; cells])
    }

    fn count(&mut self, cell: usize) {
        self.0[cell] += 1;
    }

    fn chi_squared(&self) -> f64 {
        let expected = f64::from(self.0.iter().sum::<u32>()) / self.0.len() as f64;
        assert!(expected >= 20.0, "too few draws to tell");
        self.0.iter().map(|seen| (f64::from(*seen) - expected).powi(2) / expected).sum()
    }
}

/// All of them are below the critical value for their cells.
#[track_caller]
fn check(what: &str, tallies: &[Tally]) {
    let freedom = tallies[0].0.len() - 1;
    let (_, critical) = CRITICAL.into_iter().find(|(degrees, _)| *degrees == freedom).unwrap();
    let largest = tallies.iter().map(Tally::chi_squared).fold(0.0, f64::max);
    println!("{what}: the largest of {} is {largest:.2}, critical is {critical}", tallies.len());
    assert!(largest < critical, "{what}: {largest} is not below {critical}");
}

fn seed(number: u32) -> B256 {
    U256::from(number).into()
}

fn draws(size: usize, count: usize, rounds: u32) -> impl Iterator<Item = Vec<usize>> {
    (0..rounds).map(move |round| indexes(size, count, seed(round)).unwrap())
}

/// Each of `count` places.
#[track_caller]
fn check_places(size: usize, count: usize, rounds: u32) {
    let mut places: Vec<Tally> = (0..count).map(|_| Tally::of(size)).collect();
    for drawn in draws(size, count, rounds) {
        places.iter_mut().zip(drawn).for_each(|(place, index)| place.count(index));
    }
    check(&format!("{count} places of {size}, {rounds} draws"), &places);
}

/// The number of an ordered pair of different indexes among all of them.
fn pair(size: usize, first: usize, second: usize) -> usize {
    first * (size - 1) + second - usize::from(second > first)
}

/// Each two places, of which all ordered pairs are equally likely exactly if the places are independent.
#[track_caller]
fn check_pairs(size: usize, rounds: u32) {
    let places: Vec<(usize, usize)> = (0..size).flat_map(|later| (0..later).map(move |place| (place, later))).collect();
    let mut pairs: Vec<Tally> = places.iter().map(|_| Tally::of(size * (size - 1))).collect();
    for drawn in draws(size, size, rounds) {
        for (tally, (place, later)) in pairs.iter_mut().zip(&places) {
            tally.count(pair(size, drawn[*place], drawn[*later]));
        }
    }
    check(&format!("every two places of {size}, {rounds} draws"), &pairs);
}

/// The number of a permutation among all of them, in the factorial system.
fn rank(permutation: &[usize]) -> usize {
    let smaller = |(place, value): (usize, &usize)| permutation[place..].iter().filter(|later| *later < value).count();
    let digits = permutation.iter().enumerate().map(smaller);
    digits.enumerate().fold(0, |rank, (place, digit)| rank * (permutation.len() - place) + digit)
}

/// Whole draws of everything.
fn permutations(size: usize, draws: impl Iterator<Item = Vec<usize>>) -> Tally {
    let mut all = Tally::of((1..=size).product());
    draws.for_each(|drawn| all.count(rank(&drawn)));
    all
}

#[test]
fn every_index_is_as_likely_at_every_place() {
    for size in [2, 3, 5, 10] {
        check_places(size, size, 20_000);
    }
    check_places(100, 100, 5_000);
    check_places(1_000, 10, 30_000);
}

#[test]
fn no_place_depends_on_another() {
    for size in [2, 3, 5, 10] {
        check_pairs(size, 20_000);
    }
}

#[test]
fn every_order_is_as_likely() {
    for size in [2, 3, 5] {
        check(&format!("orders of {size}, 20000 draws"), &[permutations(size, draws(size, size, 20_000))]);
    }
}

#[test]
fn a_draw_says_nothing_about_that_of_the_next_seed() {
    let first: Vec<usize> = draws(10, 1, 20_001).flatten().collect();
    let mut pairs = Tally::of(100);
    first.windows(2).for_each(|pair| pairs.count(pair[0] * 10 + pair[1]));
    check("first of 10 by neighbouring seeds, 20000 pairs", &[pairs]);
}

/// The usual mistake, swapping with any place instead of a later one, makes some orders of three likelier by a quarter.
#[test]
fn a_shuffle_known_to_be_unfair_is_found_out() {
    let unfair = (0..20_000).map(|round| {
        let mut cards = vec![0, 1, 2];
        for step in 0..3 {
            let random = U256::from_be_bytes(keccak256([seed(round).0, seed(step).0].concat()).0);
            cards.swap(step as usize, (random % U256::from(3)).to());
        }
        cards
    });
    let found = permutations(3, unfair).chi_squared();
    println!("orders of 3 by an unfair shuffle: {found:.2}");
    assert!(found > 35.89);
}
