//! Draws distinct operators from a set by a seed: the twin of `contracts/src/Selection.sol`, which says why it is fair.
//!
//! Who draws, and from what, is not known here. A test runs the compiled contract beside this code on the same cases.

use std::collections::HashMap;

use alloy_primitives::{Address, B256, U256, keccak256};

/// More asked for than there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot draw {count} out of {size}")]
pub struct DrawTooLarge {
    /// How many were asked for.
    pub count: usize,
    /// How many there are.
    pub size: usize,
}

/// `count` distinct indexes below `size`, in the order drawn. Time and memory grow with `count` alone.
///
/// # Errors
/// [`DrawTooLarge`] where `count` is more than `size`.
pub fn indexes(size: usize, count: usize, seed: B256) -> Result<Vec<usize>, DrawTooLarge> {
    if count > size {
        return Err(DrawTooLarge { count, size });
    }
    Ok(first_of_shuffle(size, count, seed))
}

/// The members at [`indexes`] of their number.
///
/// # Errors
/// [`DrawTooLarge`] where `count` is more than there are members.
pub fn draw(members: &[Address], count: usize, seed: B256) -> Result<Vec<Address>, DrawTooLarge> {
    Ok(indexes(members.len(), count, seed)?.into_iter().map(|index| members[index]).collect())
}

/// All indexes below `size`, in the order drawn.
pub(crate) fn shuffle(size: usize, seed: B256) -> Vec<usize> {
    first_of_shuffle(size, size, seed)
}

/// The first steps of a Fisher–Yates shuffle of 0 … `size` − 1, of which only what was displaced is kept.
fn first_of_shuffle(size: usize, count: usize, seed: B256) -> Vec<usize> {
    // What stands at a position, where it is not the position itself.
    let mut displaced = HashMap::new();
    let steps = 0..count;
    let drawn = steps.map(|step| {
        let position = step + below(size - step, seed, step);
        let here = displaced.get(&step).copied().unwrap_or(step);
        displaced.insert(position, here).unwrap_or(position)
    });
    drawn.collect()
}

/// keccak256(seed ‖ step) mod `bound`, the step as a word.
fn below(bound: usize, seed: B256, step: usize) -> usize {
    let preimage = [seed.0, U256::from(step).to_be_bytes()].concat();
    let random = U256::from_be_bytes(keccak256(preimage).0);
    // Less than `bound`, so the lowest limb holds all of it.
    (random % U256::from(bound)).as_limbs()[0] as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(size: usize, count: usize, seed: B256, expected: &[usize]) {
        assert_eq!(indexes(size, count, seed).as_deref(), Ok(expected));
    }

    #[test]
    fn draws_are_those_that_are_pinned_in_solidity() {
        let seed = keccak256("agent-sandbox");
        check(0, 0, seed, &[]);
        check(1, 1, seed, &[0]);
        check(5, 5, seed, &[0, 1, 4, 2, 3]);
        check(1_000, 5, seed, &[200, 918, 600, 270, 574]);
        let five = [1_545_232_957, 912_765_696, 3_370_318_142, 3_714_126_330, 3_352_948_290];
        check(u32::MAX as usize, 5, B256::ZERO, &five);
    }

    #[test]
    fn more_than_there_are_is_refused() {
        assert_eq!(indexes(3, 4, B256::ZERO), Err(DrawTooLarge { count: 4, size: 3 }));
        assert_eq!(draw(&[], 1, B256::ZERO), Err(DrawTooLarge { count: 1, size: 0 }));
    }

    #[test]
    fn a_draw_gives_the_members_at_the_indexes_drawn() {
        let members: Vec<Address> = (1..=5).map(Address::with_last_byte).collect();
        let drawn = draw(&members, 3, keccak256("agent-sandbox"));
        assert_eq!(drawn, Ok(vec![members[0], members[1], members[4]]));
    }

    proptest! {
        #[test]
        fn a_draw_is_the_beginning_of_the_shuffle_written_out(size in 0..60usize, asked in 0..60usize, seed: [u8; 32]) {
            let (seed, count) = (B256::from(seed), asked.min(size));
            let mut cards: Vec<usize> = (0..size).collect();
            for step in 0..count {
                cards.swap(step, step + below(size - step, seed, step));
            }
            let drawn = indexes(size, count, seed);
            prop_assert_eq!(drawn.as_deref(), Ok(&cards[..count]));
        }

        #[test]
        fn the_drawn_are_distinct_and_in_range(size in 0..=u32::MAX, asked in 0..64usize, seed: [u8; 32]) {
            let size = size as usize;
            let drawn = indexes(size, asked.min(size), B256::from(seed)).unwrap();
            let distinct: std::collections::BTreeSet<_> = drawn.iter().filter(|index| **index < size).collect();
            prop_assert_eq!(distinct.len(), asked.min(size));
        }
    }
}
