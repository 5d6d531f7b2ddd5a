//! Which workflows are due, and for which slots. A heap of wakes, one that counts for each workflow: who leaves or is
//! replaced only loses it, and it is dropped when it comes up.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use sandbox_protocol::CallKey;
use sandbox_protocol::limits::WORKFLOW_CATCH_UP_MAX;
use sandbox_protocol::workflow::CatchUp;
use sha2::{Digest, Sha256};

use super::cron::Cron;
use crate::limits::{CRON_LATE_S_MAX, WAKES_STALE_MAX};

/// A workflow that the clock fires.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its schedule.
    pub cron: Cron,
    /// What becomes of slots that passed while nobody could fire.
    pub policy: CatchUp,
    /// Most seconds that a firing is put off. None is put off to the next slot.
    pub jitter_s: u32,
    /// The last slot that was fired, or is known to have been.
    pub last_slot_s: Option<i64>,
    /// No slot before it is fired: when it was created or resumed.
    pub since_s: i64,
}

/// A workflow that is to be fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The call that created it.
    pub key: CallKey,
    /// For what, in their order; one at least.
    pub slots: Vec<i64>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct DueQueue {
    active: HashMap<CallKey, Active>,
    wakes: BinaryHeap<Reverse<Wake>>,
    generation: u64,
}

#[derive(Debug)]
struct Active {
    entry: Entry,
    /// The first slot that was not handed out.
    slot_s: i64,
    generation: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wake {
    at_s: i64,
    key: CallKey,
    generation: u64,
}

impl DueQueue {
    /// Enters a workflow, in the place of what stood under its key.
    pub fn enter(&mut self, key: CallKey, entry: Entry, now_s: i64) {
        self.leave(key);
        let earlier = entry.since_s.saturating_sub(1);
        let handed_out = entry.last_slot_s.map_or(earlier, |last| last.max(earlier));
        let (ready, next) = entry.split(key, handed_out, now_s);
        if let Some(slot) = ready.first().copied().or(next) {
            self.put(key, entry, slot);
        }
        self.sweep();
    }

    /// Takes a workflow out, if it is in.
    pub fn leave(&mut self, key: CallKey) {
        self.active.remove(&key);
        self.drop_stale();
    }

    /// The slot for which a workflow fires next.
    pub fn next_at(&self, key: CallKey) -> Option<i64> {
        self.active.get(&key).map(|active| active.slot_s)
    }

    /// When somebody is due; jitter counts.
    pub fn next_due(&self) -> Option<i64> {
        self.wakes.peek().map(|Reverse(wake)| wake.at_s)
    }

    /// Who is due, first who was due first. Nobody is told of the same slot again.
    pub fn due(&mut self, now_s: i64) -> Vec<Due> {
        let mut due = Vec::new();
        while self.next_due().is_some_and(|at| at <= now_s)
            && let Some(Reverse(Wake { key, .. })) = self.wakes.pop()
            && let Some(Active { entry, slot_s, .. }) = self.active.remove(&key)
        {
            let (slots, next) = entry.split(key, slot_s.saturating_sub(1), now_s);
            if let Some(next) = next {
                self.put(key, entry, next);
            }
            if !slots.is_empty() {
                due.push(Due { key, slots });
            }
            self.drop_stale();
        }
        due
    }

    fn put(&mut self, key: CallKey, entry: Entry, slot_s: i64) {
        self.generation += 1;
        let generation = self.generation;
        self.wakes.push(Reverse(Wake { at_s: entry.due_at(key, slot_s), key, generation }));
        self.active.insert(key, Active { entry, slot_s, generation });
    }

    /// Afterwards the first wake is one that counts.
    fn drop_stale(&mut self) {
        while let Some(Reverse(wake)) = self.wakes.peek()
            && !wake.counts(&self.active)
        {
            self.wakes.pop();
        }
    }

    /// Who comes and goes for ever does not fill the heap.
    fn sweep(&mut self) {
        if self.wakes.len() > 2 * self.active.len() + WAKES_STALE_MAX {
            let active = &self.active;
            self.wakes.retain(|Reverse(wake)| wake.counts(active));
        }
    }
}

impl Wake {
    fn counts(&self, active: &HashMap<CallKey, Active>) -> bool {
        active.get(&self.key).is_some_and(|active| active.generation == self.generation)
    }
}

impl Entry {
    /// Of the slots later than `handed_out`: what is to be fired now, and the first one that is not due yet.
    fn split(&self, key: CallKey, handed_out: i64, now_s: i64) -> (Vec<i64>, Option<i64>) {
        let max = match self.policy {
            CatchUp::Latest | CatchUp::Skip => 1,
            CatchUp::All => WORKFLOW_CATCH_UP_MAX,
        };
        // The last of them may be put off, and no other: each is due before the next one comes.
        let mut ready = self.cron.last_between(handed_out, now_s, max + 1);
        let put_off = ready.pop_if(|last| self.due_at(key, *last) > now_s);
        ready.drain(..ready.len().saturating_sub(max));
        if self.policy == CatchUp::Skip {
            ready.retain(|slot| now_s - self.due_at(key, *slot) <= CRON_LATE_S_MAX);
        }
        (ready, put_off.or_else(|| self.cron.next_after(handed_out.max(now_s))))
    }

    fn due_at(&self, key: CallKey, slot_s: i64) -> i64 {
        if self.jitter_s == 0 {
            return slot_s;
        }
        let room = self.cron.next_after(slot_s).map_or(0, |next| next - slot_s - 1);
        let most = u64::from(self.jitter_s).min(u64::try_from(room).unwrap_or(0));
        slot_s.saturating_add(i64::try_from(draw(key, slot_s) % (most + 1)).unwrap_or(0))
    }
}

/// A number that nobody chooses, always the same one.
fn draw(key: CallKey, slot_s: i64) -> u64 {
    let mut hash = Sha256::new();
    for number in [key.service.to_be_bytes(), key.call.to_be_bytes(), slot_s.to_be_bytes()] {
        hash.update(number);
    }
    hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_and_goes_for_ever_does_not_fill_the_heap() {
        let mut queue = DueQueue::default();
        let cron = Cron::parse("0 0 1 1 *", "UTC").unwrap();
        let entry = Entry { cron, policy: CatchUp::Latest, jitter_s: 0, last_slot_s: None, since_s: 0 };
        let key = |call| CallKey { service: 1, call };
        queue.enter(key(0), Entry { cron: Cron::parse("* * * * *", "UTC").unwrap(), ..entry.clone() }, 0);
        for call in 0..3 * WAKES_STALE_MAX as u64 {
            queue.enter(key(1 + call % 2), entry.clone(), 0);
            assert!(queue.wakes.len() <= 2 * 3 + WAKES_STALE_MAX + 1);
        }
        assert_eq!(queue.active.len(), 3);
    }
}
