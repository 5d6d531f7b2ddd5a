//! What a job costs at one operator: the price of a quote, from the operator's core-hour and what is asked for.
//!
//! Sandboxes cost by size and time, agent tasks by turns, those of a batch each for itself, everything else what the price table says. No quote is below the
//! table's rate of its job, whose operator's share pays the receipt's gas. Prices only ever rise with what is asked for.
//!
//! Nothing is known here of the chain: rates, block time and the service's end are arguments.

use alloy_primitives::{U256, U512};

use crate::request::Resources;

/// Memory that costs as much as a core.
const MEMORY_MB_PER_CORE: u64 = 8_192;
/// Disk that costs as much as a core.
const DISK_GB_PER_CORE: u64 = 256;
/// Parts of a core in which sizes are counted, so that no size is rounded.
const PARTS_PER_CORE: u64 = MEMORY_MB_PER_CORE * DISK_GB_PER_CORE;
/// What a sandbox without an end is paid for, and the most that any is: it may well be there longer, but nobody can pay for
/// ever. One whose service ends sooner is paid for until then.
const LONGEST_PAID_MS: u64 = 365 * 24 * MS_PER_HOUR;
/// Time of one core that a turn of an agent is taken to cost.
const TURN_MS: u64 = 60_000;
/// Turns of a task that names none.
const TURNS_DEFAULT: u64 = 10;
/// The core takes no smaller price but nothing.
const CORE_PAYMENT: u64 = 100;
const MS_PER_HOUR: u64 = 3_600_000;
const MS_PER_SECOND: u64 = 1_000;

/// What is asked for, as far as its price depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Sandboxes of one kind.
    Sandboxes {
        /// How many.
        count: u32,
        /// The size of each.
        each: Resources,
        /// How long each lives.
        life: Life,
    },
    /// An agent's task of at most so many turns; 0 is the default.
    Turns(u64),
    /// So many tasks that name no number of turns: those of a batch.
    Tasks(u32),
    /// Whatever else there is.
    Listed,
}

/// How long a sandbox lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// So many blocks.
    Blocks(u64),
    /// Until its service ends.
    Service,
}

impl Life {
    /// The life that a request's `ttl_blocks` asks for.
    pub const fn of_ttl(blocks: u64) -> Self {
        if blocks == 0 { Self::Service } else { Self::Blocks(blocks) }
    }
}

/// What prices are made from. Amounts are in the smallest unit of the asset that the service is paid in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tariff {
    /// The operator's price of one core for one hour; none: it has no price in this asset.
    pub core_hour: Option<U256>,
    /// The job's rate by the price table.
    pub rate: U256,
    /// Mean time between blocks.
    pub block_time_ms: u64,
    /// Time until the service ends; none: it does not.
    pub service_left_s: Option<u64>,
}

/// Work that costs by the hour, and no price of an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this operator has no price in the asset that the service is paid in")]
pub struct Unpriced;

/// The price of `work`.
///
/// # Errors
/// [`Unpriced`].
pub fn price(work: &Work, tariff: &Tariff) -> Result<U256, Unpriced> {
    let by_size_and_time = match work {
        Work::Sandboxes { count, each, life } => {
            let parts = U512::from(parts(*each)) * U512::from(*count);
            of_time(parts, paid_ms(*life, tariff), tariff.core_hour.ok_or(Unpriced)?)
        }
        Work::Turns(turns) => of_turns(if *turns == 0 { TURNS_DEFAULT } else { *turns }, tariff)?,
        Work::Tasks(tasks) => of_turns(u64::from(*tasks).saturating_mul(TURNS_DEFAULT), tariff)?,
        Work::Listed => U256::ZERO,
    };
    Ok(payable(by_size_and_time.max(tariff.rate)))
}

/// The price of so many turns of agents.
fn of_turns(turns: u64, tariff: &Tariff) -> Result<U256, Unpriced> {
    let ms = turns.saturating_mul(TURN_MS);
    Ok(of_time(U512::from(PARTS_PER_CORE), ms, tariff.core_hour.ok_or(Unpriced)?))
}

/// The size of a sandbox in parts of a core.
fn parts(size: Resources) -> u128 {
    let weighed = |amount: u64, parts: u64| u128::from(amount) * u128::from(parts);
    // Each is below 2^86.
    weighed(size.cpu_cores, PARTS_PER_CORE)
        + weighed(size.memory_mb, PARTS_PER_CORE / MEMORY_MB_PER_CORE)
        + weighed(size.disk_gb, PARTS_PER_CORE / DISK_GB_PER_CORE)
}

/// The time that a sandbox is paid for.
fn paid_ms(life: Life, tariff: &Tariff) -> u64 {
    let left_ms = tariff.service_left_s.map_or(LONGEST_PAID_MS, |left_s| left_s.saturating_mul(MS_PER_SECOND));
    let asked_ms = match life {
        Life::Blocks(blocks) => blocks.saturating_mul(tariff.block_time_ms),
        Life::Service => u64::MAX,
    };
    asked_ms.min(left_ms).min(LONGEST_PAID_MS)
}

/// The price of so many parts of a core for so long, rounded up. 118 bits of parts, 64 of time and 256 of price fit in 512.
fn of_time(parts: U512, ms: u64, core_hour: U256) -> U256 {
    let whole = parts * U512::from(ms) * U512::from(core_hour);
    let per = U512::from(PARTS_PER_CORE) * U512::from(MS_PER_HOUR);
    U256::saturating_from(whole.div_ceil(per))
}

/// The least price that is not below this one and that the core takes.
fn payable(price: U256) -> U256 {
    if price.is_zero() { price } else { price.max(U256::from(CORE_PAYMENT)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GWEI: u64 = 1_000_000_000;

    fn tariff() -> Tariff {
        Tariff {
            core_hour: Some(U256::from(1_000_000 * GWEI)),
            rate: U256::from(500_000 * GWEI),
            block_time_ms: 2_000,
            service_left_s: None,
        }
    }

    fn size(cpu_cores: u64, memory_mb: u64, disk_gb: u64) -> Resources {
        Resources { cpu_cores, memory_mb, disk_gb }
    }

    fn one(each: Resources, blocks: u64) -> Work {
        Work::Sandboxes { count: 1, each, life: Life::of_ttl(blocks) }
    }

    #[track_caller]
    fn check(work: &Work, tariff: &Tariff, gwei: u64) {
        assert_eq!(price(work, tariff), Ok(U256::from(gwei) * U256::from(GWEI)));
    }

    #[test]
    fn a_core_hour_costs_what_the_operator_says() {
        check(&one(size(1, 0, 0), 1_800), &tariff(), 1_000_000);
        check(&one(size(3, 0, 0), 3_600), &tariff(), 6_000_000);
    }

    #[test]
    fn memory_and_disk_cost_by_their_weights() {
        check(&one(size(0, 8_192, 0), 1_800), &tariff(), 1_000_000);
        check(&one(size(0, 0, 256), 1_800), &tariff(), 1_000_000);
        check(&one(size(2, 4_096, 64), 1_800), &tariff(), 2_750_000);
    }

    #[test]
    fn many_sandboxes_cost_as_much_as_each_of_them() {
        check(&Work::Sandboxes { count: 7, each: size(1, 0, 0), life: Life::Blocks(1_800) }, &tariff(), 7_000_000);
    }

    #[test]
    fn a_sandbox_without_an_end_is_paid_for_until_its_service_ends_and_for_a_year_at_most() {
        let ends = |service_left_s| Tariff { service_left_s: Some(service_left_s), ..tariff() };
        check(&one(size(1, 0, 0), 0), &ends(7_200), 2_000_000);
        check(&one(size(1, 0, 0), 0), &tariff(), 8_760_000_000);
        check(&one(size(1, 0, 0), 0), &ends(u64::MAX), 8_760_000_000);
        check(&one(size(1, 0, 0), u64::MAX), &tariff(), 8_760_000_000);
        check(&one(size(1, 0, 0), u64::MAX), &ends(7_200), 2_000_000);
    }

    #[test]
    fn a_task_costs_by_its_turns() {
        check(&Work::Turns(60), &tariff(), 1_000_000);
        check(&Work::Turns(120), &tariff(), 2_000_000);
        assert_eq!(price(&Work::Turns(0), &tariff()), price(&Work::Turns(TURNS_DEFAULT), &tariff()));
    }

    #[test]
    fn tasks_of_a_batch_cost_as_much_as_each_of_them() {
        check(&Work::Tasks(12), &tariff(), 2_000_000);
        assert_eq!(price(&Work::Tasks(1), &tariff()), price(&Work::Turns(0), &tariff()));
        check(&Work::Tasks(0), &tariff(), 500_000);
    }

    #[test]
    fn no_quote_is_below_the_table() {
        check(&one(size(1, 1, 1), 1), &tariff(), 500_000);
        check(&Work::Turns(1), &tariff(), 500_000);
        check(&Work::Listed, &tariff(), 500_000);
    }

    #[test]
    fn a_price_is_nothing_or_one_that_can_be_split() {
        let free = Tariff { core_hour: Some(U256::ZERO), rate: U256::ZERO, ..tariff() };
        assert_eq!(price(&one(size(1, 1, 1), 1), &free), Ok(U256::ZERO));
        let dust = Tariff { core_hour: Some(U256::from(1)), ..free };
        assert_eq!(price(&one(size(1, 1, 1), 1), &dust), Ok(U256::from(CORE_PAYMENT)));
    }

    #[test]
    fn an_hour_without_a_price_has_none_while_the_table_still_has() {
        let other_asset = Tariff { core_hour: None, ..tariff() };
        assert_eq!(price(&one(size(1, 1, 1), 1), &other_asset), Err(Unpriced));
        assert_eq!(price(&Work::Turns(1), &other_asset), Err(Unpriced));
        assert_eq!(price(&Work::Listed, &other_asset), Ok(other_asset.rate));
    }

    #[test]
    fn a_part_of_a_unit_is_rounded_up() {
        let small = Tariff { core_hour: Some(U256::from(1_000)), rate: U256::ZERO, ..tariff() };
        assert_eq!(price(&one(size(1, 0, 0), 1_801), &small), Ok(U256::from(1_001)));
    }

    #[test]
    fn the_largest_request_at_the_largest_price_stops_at_the_largest_number() {
        let huge = Tariff { core_hour: Some(U256::MAX), block_time_ms: u64::MAX, ..tariff() };
        let all = size(u64::MAX, u64::MAX, u64::MAX);
        let most = Work::Sandboxes { count: u32::MAX, each: all, life: Life::Service };
        assert_eq!(price(&most, &huge), Ok(U256::MAX));
        assert_eq!(price(&Work::Turns(u64::MAX), &huge), Ok(U256::MAX));
    }

    prop_compose! {
        fn any_size()(cpu_cores: u64, memory_mb: u64, disk_gb: u64) -> Resources {
            Resources { cpu_cores, memory_mb, disk_gb }
        }
    }

    prop_compose! {
        fn any_tariff()(
            core_hour in any::<[u8; 32]>(),
            shift in 0_usize..256,
            rate: u128,
            block_time_ms: u64,
            service_left_s: Option<u64>,
        ) -> Tariff {
            let core_hour = Some(U256::from_be_bytes(core_hour) >> shift);
            Tariff { core_hour, rate: U256::from(rate), block_time_ms, service_left_s }
        }
    }

    fn any_work() -> impl Strategy<Value = Work> {
        let life = any::<u64>().prop_map(Life::of_ttl);
        let sandboxes =
            (any::<u32>(), any_size(), life).prop_map(|(count, each, life)| Work::Sandboxes { count, each, life });
        let (turns, tasks) = (any::<u64>().prop_map(Work::Turns), any::<u32>().prop_map(Work::Tasks));
        prop_oneof![sandboxes, turns, tasks, Just(Work::Listed)]
    }

    fn cost(work: &Work, tariff: &Tariff) -> U256 {
        price(work, tariff).unwrap()
    }

    /// The same work with more of one thing.
    fn more(work: Work, which: u8, by: u64) -> Work {
        match work {
            Work::Sandboxes { count, mut each, life } => {
                let (mut count, mut life) = (count, life);
                match (which % 5, life) {
                    (0, _) => each.cpu_cores = each.cpu_cores.saturating_add(by),
                    (1, _) => each.memory_mb = each.memory_mb.saturating_add(by),
                    (2, _) => each.disk_gb = each.disk_gb.saturating_add(by),
                    (3, Life::Blocks(blocks)) => life = Life::Blocks(blocks.saturating_add(by)),
                    (3, Life::Service) => {}
                    (_, _) => count = count.saturating_add(by as u32),
                }
                Work::Sandboxes { count, each, life }
            }
            Work::Turns(0) => Work::Turns(TURNS_DEFAULT.saturating_add(by)),
            Work::Turns(turns) => Work::Turns(turns.saturating_add(by)),
            Work::Tasks(tasks) => Work::Tasks(tasks.saturating_add(by as u32)),
            Work::Listed => Work::Listed,
        }
    }

    proptest! {
        #[test]
        fn more_work_never_costs_less(work in any_work(), tariff in any_tariff(), which: u8, by: u64) {
            prop_assert!(cost(&more(work, which, by), &tariff) >= cost(&work, &tariff));
        }

        #[test]
        fn a_life_without_an_end_never_costs_less_than_one_with(each in any_size(), blocks in 1_u64.., tariff in any_tariff()) {
            prop_assert!(cost(&one(each, 0), &tariff) >= cost(&one(each, blocks), &tariff));
        }

        #[test]
        fn dearer_hours_and_tables_never_make_it_cheaper(work in any_work(), tariff in any_tariff(), by: u64) {
            let by = U256::from(by);
            let hour = Tariff { core_hour: tariff.core_hour.map(|hour| hour.saturating_add(by)), ..tariff };
            let table = Tariff { rate: tariff.rate.saturating_add(by), ..tariff };
            prop_assert!(cost(&work, &hour) >= cost(&work, &tariff));
            prop_assert!(cost(&work, &table) >= cost(&work, &tariff));
        }

        #[test]
        fn every_price_covers_the_table_and_can_be_split(work in any_work(), tariff in any_tariff()) {
            let price = cost(&work, &tariff);
            prop_assert!(price >= tariff.rate);
            prop_assert!(price.is_zero() || price >= U256::from(CORE_PAYMENT));
        }

        #[test]
        fn two_halves_cost_as_much_as_the_whole_but_for_rounding(
            cores in 1_u64..128, blocks in 1_u64..1_000_000, hour: u64,
        ) {
            let tariff = Tariff { core_hour: Some(U256::from(hour)), rate: U256::ZERO, ..tariff() };
            let half = cost(&one(size(cores, 0, 0), blocks), &tariff);
            let whole = cost(&one(size(2 * cores, 0, 0), blocks), &tariff);
            let twice = half + half;
            prop_assert!(twice >= whole && twice <= whole + U256::from(CORE_PAYMENT));
        }
    }
}
