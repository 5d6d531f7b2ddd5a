//! What happens in this sandbox, told to whoever reads along.
//!
//! The last events are kept once, for all readers; a reader is no more than the number of the last event that it has.
//! So publishing never waits, and a reader that does not read costs nothing. Not here: how events travel.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandbox_protocol::events::{DropReason, Event, Gap, Happening};
use sandbox_protocol::limits::EVENTS_KEPT_MAX;
use tokio::sync::watch;

/// Takes events, and lets them be read. Clones share everything.
#[derive(Debug, Clone)]
pub struct Events {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: Mutex<Log>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Log {
    kept: VecDeque<Arc<Event>>,
    /// Number of the first event there ever was.
    first: u64,
    /// Number of the next.
    next: u64,
    closed: bool,
}

/// What a reader is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The next event.
    Event(Arc<Event>),
    /// Events that the reader asked for are not kept any more.
    Gap(Gap),
    /// Nothing comes any more.
    Dropped(DropReason),
}

/// Reads along. Events are numbered without a hole from the first that it is told.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    changed: watch::Receiver<()>,
    last: u64,
    gap: Option<Gap>,
}

impl Events {
    /// Nothing has happened yet. The numbers begin with the microsecond of `started`, so that they are larger than all
    /// those of a sidecar before, unless it told a million events a second.
    pub fn new(started: SystemTime) -> Self {
        let first = u64::try_from(since_epoch(started).as_micros()).unwrap_or(u64::MAX / 2).max(1);
        let log = Log { kept: VecDeque::new(), first, next: first, closed: false };
        Self { shared: Arc::new(Shared { log: Mutex::new(log), changed: watch::Sender::new(()) }) }
    }

    /// Tells all readers. Never waits.
    pub fn publish(&self, happening: Happening) {
        let time_ms = u64::try_from(since_epoch(SystemTime::now()).as_millis()).unwrap_or(u64::MAX);
        self.shared.log().push(time_ms, happening);
        self.shared.changed.send_replace(());
    }

    /// A reader that has everything up to the event `after`: 0 for all that is kept, `None` for what happens from now on.
    pub fn read(&self, after: Option<u64>) -> Reader {
        let changed = self.shared.changed.subscribe();
        let log = self.shared.log();
        let (last, gap) = log.begin(after);
        Reader { shared: Arc::clone(&self.shared), changed, last, gap }
    }

    /// Nothing will happen any more. Readers are told what has, and then that it was all.
    pub fn close(&self) {
        self.shared.log().closed = true;
        self.shared.changed.send_replace(());
    }
}

impl Shared {
    /// No code panics while it holds the lock, so what a poisoned one guards is whole.
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn push(&mut self, time_ms: u64, happening: Happening) {
        if self.kept.len() >= EVENTS_KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(Arc::new(Event { seq: self.next, time_ms, happening }));
        self.next += 1;
    }

    /// Number of the oldest event that is kept, or of the next where none is.
    fn oldest(&self) -> u64 {
        self.next - self.kept.len() as u64
    }

    /// Where a reader stands who has everything up to `after`, and what it has missed.
    fn begin(&self, after: Option<u64>) -> (u64, Option<Gap>) {
        let after = match after {
            None => return (self.next - 1, None),
            Some(0) => self.first - 1,
            Some(after) => after,
        };
        let before_oldest = self.oldest() - 1;
        if (before_oldest..self.next).contains(&after) {
            return (after, None);
        }
        (before_oldest, Some(Gap { after, until: before_oldest }))
    }

    /// What comes after the event `last`.
    fn after(&self, last: u64) -> Option<Told> {
        let Some(skipped) = (last + 1).checked_sub(self.oldest()) else {
            return Some(Told::Dropped(DropReason::TooSlow));
        };
        let event = usize::try_from(skipped).ok().and_then(|skipped| self.kept.get(skipped)).cloned();
        event.map(Told::Event).or(self.closed.then_some(Told::Dropped(DropReason::Stopping)))
    }
}

impl Reader {
    /// Waits for what the reader is told next.
    pub async fn next(&mut self) -> Told {
        if let Some(gap) = self.gap.take() {
            return Told::Gap(gap);
        }
        loop {
            let told = self.shared.log().after(self.last);
            if let Some(told) = told {
                if let Told::Event(event) = &told {
                    self.last = event.seq;
                }
                return told;
            }
            // The sender lives as long as what this reader shares with it.
            if self.changed.changed().await.is_err() {
                return Told::Dropped(DropReason::Stopping);
            }
        }
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::task::JoinSet;

    use super::*;

    const FIRST: u64 = 5_000_000;

    fn events(count: usize) -> Events {
        let events = Events::new(UNIX_EPOCH + Duration::from_secs(5));
        publish(&events, count);
        events
    }

    fn publish(events: &Events, count: usize) {
        for index in 0..count {
            events.publish(Happening::ExecStarted { id: index.to_string() });
        }
    }

    /// The numbers of all events from where `after` says, up to the last; what came instead is told apart.
    async fn told(events: &Events, after: Option<u64>) -> (Option<Gap>, Vec<u64>, DropReason) {
        events.close();
        let (mut reader, mut gap, mut read) = (events.read(after), None, Vec::new());
        loop {
            match reader.next().await {
                Told::Gap(told) => gap = Some(told),
                Told::Event(event) => read.push(event.seq),
                Told::Dropped(reason) => return (gap, read, reason),
            }
        }
    }

    #[tokio::test]
    async fn a_reader_gets_what_it_has_not() {
        let events = events(3);
        let all = (None, vec![FIRST, FIRST + 1, FIRST + 2], DropReason::Stopping);
        assert_eq!(told(&events, Some(0)).await, all);
        assert_eq!(told(&events, Some(FIRST - 1)).await, all);
        assert_eq!(told(&events, Some(FIRST + 1)).await, (None, vec![FIRST + 2], DropReason::Stopping));
        assert_eq!(told(&events, None).await, (None, vec![], DropReason::Stopping));
    }

    #[tokio::test]
    async fn what_is_not_kept_any_more_is_a_gap_and_not_one_event_earlier() {
        let fits = events(EVENTS_KEPT_MAX);
        let (gap, read, _) = told(&fits, Some(0)).await;
        assert_eq!((gap, read.len()), (None, EVENTS_KEPT_MAX));
        let exceeds = events(EVENTS_KEPT_MAX + 1);
        let (gap, read, _) = told(&exceeds, Some(0)).await;
        assert_eq!((gap, read[0]), (Some(Gap { after: FIRST - 1, until: FIRST }), FIRST + 1));
        assert_eq!(told(&exceeds, Some(FIRST)).await.0, None);
    }

    #[tokio::test]
    async fn numbers_of_another_life_are_a_gap_before_all_that_is_kept() {
        for after in [1, FIRST + 99] {
            let (gap, read, _) = told(&events(2), Some(after)).await;
            assert_eq!((gap, read.len()), (Some(Gap { after, until: FIRST - 1 }), 2));
        }
    }

    #[tokio::test]
    async fn one_who_reads_too_slowly_is_told_so_and_may_come_back() {
        let events = events(1);
        let mut reader = events.read(Some(0));
        assert!(matches!(reader.next().await, Told::Event(_)));
        publish(&events, EVENTS_KEPT_MAX + 1);
        assert_eq!(reader.next().await, Told::Dropped(DropReason::TooSlow));
        let gap = Gap { after: FIRST, until: FIRST + 1 };
        assert_eq!(events.read(Some(FIRST)).next().await, Told::Gap(gap));
    }

    #[tokio::test]
    async fn a_thousand_readers_lose_nothing() {
        let (events, mut readers) = (events(0), JoinSet::new());
        for _ in 0..1_000 {
            let mut reader = events.read(None);
            readers.spawn(async move {
                let mut read = Vec::new();
                while let Told::Event(event) = reader.next().await {
                    read.push(event.seq);
                }
                read
            });
        }
        // A task like the others, so that all get their turn.
        tokio::spawn(async move {
            for _ in 0..4 * EVENTS_KEPT_MAX / 100 {
                publish(&events, 100);
                tokio::task::yield_now().await;
            }
            events.close();
        });
        let expected: Vec<_> = (FIRST..FIRST + 4 * EVENTS_KEPT_MAX as u64).collect();
        let read = readers.join_all().await;
        assert!(read.len() == 1_000 && read.iter().all(|read| *read == expected));
    }

    proptest! {
        /// Whatever the order of publishing and reading, with readers that go away and come back.
        #[test]
        fn events_are_told_once_in_order_or_announced_as_missing(steps in proptest::collection::vec((0usize..700, 0usize..700, any::<bool>()), 1..12)) {
            let events = events(0);
            let mut reader = events.read(Some(0));
            let mut last = FIRST - 1;
            for (published, read, comes_back) in steps {
                publish(&events, published);
                if comes_back {
                    reader = events.read(Some(last));
                }
                for _ in 0..read {
                    if reader.gap.is_none() && reader.shared.log().after(reader.last).is_none() {
                        break;
                    }
                    match futures::executor::block_on(reader.next()) {
                        Told::Event(event) => {
                            prop_assert_eq!(event.seq, last + 1);
                            last = event.seq;
                        }
                        Told::Gap(gap) => {
                            prop_assert_eq!(gap.after, last);
                            prop_assert!(gap.until > last && gap.until - last <= 12 * 700);
                            last = gap.until;
                        }
                        Told::Dropped(reason) => {
                            prop_assert_eq!(reason, DropReason::TooSlow);
                            reader = events.read(Some(last));
                        }
                    }
                }
            }
        }
    }
}
