//! One operator's part of a batch: whose turn it is, who is not needed any more, what it comes to. Pure.
//!
//! Items wait, are begun in their order, so many at a time, and end. Where one success is enough, the first one ends all the
//! others, and so does another operator's. Nothing is begun twice, and what has ended stays as it ended.

use sandbox_protocol::batch::{Aggregation, ItemState};

/// The items of a part, by their places in it.
#[derive(Debug, Clone)]
pub struct Part {
    items: Vec<ItemState>,
    at_once: usize,
    aggregation: Aggregation,
}

/// Why what has not ended is not waited for any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// An item of another part has succeeded, and one success is enough.
    WonElsewhere,
    /// The time for the part is over.
    Late,
}

/// What a part comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upshot {
    /// It is done, however many of its items are.
    Done,
    /// It was to have one success and has none.
    NoSuccess,
}

impl Part {
    /// So many items that wait, at most `at_once` of which are carried out at a time.
    pub fn new(items: usize, at_once: usize, aggregation: Aggregation) -> Self {
        let items = vec![ItemState::Waiting; items];
        Self { items, at_once: at_once.max(1), aggregation }
    }

    /// Notes how an item ended before this life.
    pub fn restore(&mut self, place: usize, state: ItemState) {
        if let Some(item) = self.items.get_mut(place).filter(|_| state.is_final()) {
            *item = state;
        }
    }

    /// The item whose turn it is; it runs from now on.
    #[allow(clippy::should_implement_trait)] // there is a next one again when one has ended
    pub fn next(&mut self) -> Option<usize> {
        if self.count(ItemState::Running) >= self.at_once {
            return None;
        }
        let place = self.items.iter().position(|item| *item == ItemState::Waiting)?;
        self.items[place] = ItemState::Running;
        Some(place)
    }

    /// Notes that an item has ended.
    pub fn ended(&mut self, place: usize, is_success: bool) {
        let state = if is_success { ItemState::Succeeded } else { ItemState::Failed };
        if let Some(item) = self.items.get_mut(place).filter(|item| !item.is_final()) {
            *item = state;
        }
    }

    /// Those that are cancelled now, since one that succeeded is enough: by their places.
    pub fn unneeded(&mut self) -> Vec<usize> {
        let is_enough = self.aggregation == Aggregation::FirstSuccess && self.count(ItemState::Succeeded) > 0;
        if is_enough { self.end_all(ItemState::Cancelled) } else { Vec::new() }
    }

    /// Ends what has not ended: cancelled, or failed where the time is over. By their places.
    pub fn give_up(&mut self, rest: Rest) -> Vec<usize> {
        match rest {
            Rest::WonElsewhere if self.aggregation != Aggregation::FirstSuccess => Vec::new(),
            Rest::WonElsewhere => self.end_all(ItemState::Cancelled),
            Rest::Late => self.end_all(ItemState::Failed),
        }
    }

    /// Whether every item has ended.
    pub fn is_over(&self) -> bool {
        self.items.iter().all(|item| item.is_final())
    }

    /// Where an item is.
    pub fn state(&self, place: usize) -> Option<ItemState> {
        self.items.get(place).copied()
    }

    /// How many items are where.
    pub fn count(&self, state: ItemState) -> usize {
        self.items.iter().filter(|item| **item == state).count()
    }

    /// What the part comes to, once it is over. Items are cancelled only where there is a success, here or elsewhere.
    pub fn upshot(&self) -> Upshot {
        let has_success = self.count(ItemState::Succeeded) > 0 || self.count(ItemState::Cancelled) > 0;
        match self.aggregation {
            Aggregation::FirstSuccess if !has_success => Upshot::NoSuccess,
            Aggregation::All | Aggregation::FirstSuccess | Aggregation::Majority => Upshot::Done,
        }
    }

    fn end_all(&mut self, state: ItemState) -> Vec<usize> {
        let open = |(place, item): (usize, &ItemState)| (!item.is_final()).then_some(place);
        let places: Vec<usize> = self.items.iter().enumerate().filter_map(open).collect();
        for place in &places {
            self.items[*place] = state;
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn begin_all(part: &mut Part) -> Vec<usize> {
        std::iter::from_fn(|| part.next()).collect()
    }

    #[test]
    fn one_after_the_other_is_at_most_one_at_a_time() {
        let mut part = Part::new(3, 1, Aggregation::All);
        for place in 0..3 {
            assert_eq!(begin_all(&mut part), [place]);
            part.ended(place, place == 1);
        }
        assert!(part.is_over());
        assert_eq!((part.count(ItemState::Succeeded), part.count(ItemState::Failed)), (1, 2));
        assert_eq!(part.upshot(), Upshot::Done);
    }

    #[test]
    fn the_first_success_ends_the_others_where_it_is_enough() {
        let mut part = Part::new(4, 2, Aggregation::FirstSuccess);
        assert_eq!(begin_all(&mut part), [0, 1]);
        part.ended(0, false);
        assert_eq!(part.unneeded(), [0_usize; 0]);
        assert_eq!(begin_all(&mut part), [2]);
        part.ended(2, true);
        assert_eq!(part.unneeded(), [1, 3]);
        assert!(part.is_over() && part.next().is_none());
        assert_eq!(part.upshot(), Upshot::Done);
        for aggregation in [Aggregation::All, Aggregation::Majority] {
            let mut part = Part::new(2, 2, aggregation);
            begin_all(&mut part);
            part.ended(0, true);
            assert_eq!((part.unneeded(), part.give_up(Rest::WonElsewhere)), (vec![], vec![]));
            assert!(!part.is_over(), "{aggregation}");
        }
    }

    #[test]
    fn a_success_elsewhere_makes_a_part_done_only_if_it_cancelled_something() {
        let won = |ended: usize| {
            let mut part = Part::new(2, 2, Aggregation::FirstSuccess);
            begin_all(&mut part);
            (0..ended).for_each(|place| part.ended(place, false));
            part.give_up(Rest::WonElsewhere);
            part.upshot()
        };
        assert_eq!([won(0), won(1), won(2)], [Upshot::Done, Upshot::Done, Upshot::NoSuccess]);
        assert_eq!(Part::new(0, 1, Aggregation::FirstSuccess).upshot(), Upshot::NoSuccess);
        assert_eq!(Part::new(0, 1, Aggregation::Majority).upshot(), Upshot::Done);
    }

    #[test]
    fn what_ended_in_a_former_life_is_not_begun_again() {
        let mut part = Part::new(3, 3, Aggregation::All);
        part.restore(1, ItemState::Succeeded);
        part.restore(2, ItemState::Running);
        assert_eq!(begin_all(&mut part), [0, 2]);
        let mut part = Part::new(2, 1, Aggregation::FirstSuccess);
        part.restore(1, ItemState::Succeeded);
        assert_eq!(part.unneeded(), [0], "a success that is known is enough");
    }

    #[derive(Debug, Clone, Copy)]
    enum Deed {
        Begin,
        End { which: usize, is_success: bool },
        GiveUp(Rest),
    }

    fn any_deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            4 => Just(Deed::Begin),
            4 => (any::<usize>(), any::<bool>()).prop_map(|(which, is_success)| Deed::End { which, is_success }),
            1 => prop_oneof![Just(Rest::WonElsewhere), Just(Rest::Late)].prop_map(Deed::GiveUp),
        ]
    }

    proptest! {
        #[test]
        fn no_more_run_than_may_none_twice_and_what_has_ended_stays_so(
            items in 0_usize..20,
            at_once in 1_usize..6,
            which in 0..Aggregation::ALL.len(),
            deeds in prop::collection::vec(any_deed(), 0..120),
        ) {
            let mut part = Part::new(items, at_once, Aggregation::ALL[which]);
            let (mut begun, mut running) = (Vec::new(), Vec::new());
            for deed in deeds {
                let before = part.items.clone();
                match deed {
                    Deed::Begin => running.extend(part.next().inspect(|place| begun.push(*place))),
                    Deed::End { which, is_success } if !running.is_empty() => {
                        let place = running.swap_remove(which % running.len());
                        part.ended(place, is_success);
                        let cancelled = part.unneeded();
                        running.retain(|place| !cancelled.contains(place));
                    }
                    Deed::End { .. } => {}
                    Deed::GiveUp(rest) => {
                        let given_up = part.give_up(rest);
                        running.retain(|place| !given_up.contains(place));
                    }
                }
                prop_assert_eq!(part.count(ItemState::Running), running.len());
                prop_assert!(running.len() <= at_once);
                for (before, after) in before.iter().zip(&part.items) {
                    prop_assert!(!before.is_final() || before == after);
                }
            }
            // It ends whatever came before.
            while !part.is_over() {
                running.extend(part.next().inspect(|place| begun.push(*place)));
                let place = running.swap_remove(0);
                part.ended(place, false);
            }
            let times = begun.len();
            begun.sort_unstable();
            begun.dedup();
            prop_assert_eq!(begun.len(), times, "each is begun once at most");
        }

        #[test]
        fn one_success_at_most_is_counted_where_one_is_enough(
            successes in prop::collection::vec(any::<bool>(), 0..20), at_once in 1_usize..6,
        ) {
            let mut part = Part::new(successes.len(), at_once, Aggregation::FirstSuccess);
            while let Some(place) = part.next() {
                part.ended(place, successes[place]);
                part.unneeded();
            }
            let has_success = successes.contains(&true);
            prop_assert_eq!(part.count(ItemState::Succeeded), usize::from(has_success));
            prop_assert_eq!(part.upshot() == Upshot::Done, has_success);
            prop_assert!(part.is_over());
        }
    }
}
