//! What is told of calls while they are carried out: in memory, for those who follow them.
//!
//! It is a view and no record. A call that is taken up again in another life of the operator's is told of anew, by numbers
//! that come behind all that were told before; who lags far behind misses what is not remembered any more.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox_protocol::CallKey;
use sandbox_protocol::agent::event::{RunEvent, Told};
use tokio::sync::watch;

use crate::limits::{STORIES_MAX, STORY_EVENTS_MAX};

/// The stories of all calls. Clones share them.
#[derive(Clone)]
pub(crate) struct Stories(Arc<Shared>);

struct Shared {
    of: Mutex<HashMap<CallKey, Story>>,
    /// Counts what is told.
    told: watch::Sender<u64>,
}

struct Story {
    events: VecDeque<RunEvent>,
    next_seq: u64,
    begun_ms: u64,
}

impl Default for Stories {
    fn default() -> Self {
        Self(Arc::new(Shared { of: Mutex::default(), told: watch::Sender::new(0) }))
    }
}

impl Stories {
    /// Begins the story of a call at this time, whose first event has the number `first`.
    pub(crate) fn begin(&self, call: CallKey, first: u64, now_ms: u64) {
        let mut of = self.of();
        let oldest = of.iter().min_by_key(|(_, story)| story.begun_ms).map(|(call, _)| *call);
        if of.len() >= STORIES_MAX
            && let Some(oldest) = oldest
        {
            of.remove(&oldest);
        }
        of.insert(call, Story { events: VecDeque::new(), next_seq: first, begun_ms: now_ms });
    }

    /// Tells something of a call whose story has begun.
    pub(crate) fn tell(&self, call: CallKey, told: Told, now_ms: u64) {
        if let Some(story) = self.of().get_mut(&call) {
            let seq = story.next_seq;
            story.next_seq += 1;
            if story.events.len() >= STORY_EVENTS_MAX {
                story.events.pop_front();
            }
            story.events.push_back(RunEvent { seq, time_ms: now_ms, told });
        }
        self.0.told.send_modify(|told| *told += 1);
    }

    /// What is remembered of a call behind the event of this number.
    pub(crate) fn after(&self, call: CallKey, seq: u64) -> Vec<RunEvent> {
        let of = self.of();
        let events = of.get(&call).into_iter().flat_map(|story| &story.events);
        events.filter(|event| event.seq > seq).cloned().collect()
    }

    /// Changes whenever something is told of any call.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.told.subscribe()
    }

    fn of(&self) -> MutexGuard<'_, HashMap<CallKey, Story>> {
        self.0.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: usize) -> CallKey {
        CallKey { service: 1, call: number as u64 }
    }

    fn done(move_id: usize) -> Told {
        Told::MoveDone { move_id: move_id.to_string() }
    }

    fn seqs(stories: &Stories, number: usize, after: u64) -> Vec<u64> {
        stories.after(call(number), after).iter().map(|event| event.seq).collect()
    }

    #[test]
    fn events_are_told_again_behind_the_one_that_is_known_as_far_back_as_they_are_remembered() {
        let stories = Stories::default();
        stories.tell(call(1), done(0), 1);
        assert_eq!(seqs(&stories, 1, 0), [0_u64; 0], "nothing is told of a call that has not begun");
        stories.begin(call(1), 5, 1);
        (0..STORY_EVENTS_MAX).for_each(|number| stories.tell(call(1), done(number), 2));
        assert_eq!(seqs(&stories, 1, 0).first(), Some(&5));
        stories.tell(call(1), done(0), 3);
        let left = seqs(&stories, 1, 0);
        assert_eq!((left.first(), left.len()), (Some(&6), STORY_EVENTS_MAX));
        assert_eq!(seqs(&stories, 1, left[STORY_EVENTS_MAX - 2]), [left[STORY_EVENTS_MAX - 1]]);
    }

    #[test]
    fn so_many_stories_are_remembered_and_the_oldest_goes() {
        let stories = Stories::default();
        for number in 0..=STORIES_MAX {
            stories.begin(call(number), 1, number as u64);
            stories.tell(call(number), done(number), 1);
        }
        assert_eq!(seqs(&stories, 0, 0), [0_u64; 0]);
        assert_eq!((seqs(&stories, 1, 0), seqs(&stories, STORIES_MAX, 0)), (vec![1], vec![1]));
    }

    #[tokio::test]
    async fn who_follows_is_told_of_a_change() {
        let stories = Stories::default();
        let mut changes = stories.changes();
        stories.begin(call(1), 1, 1);
        stories.tell(call(1), done(1), 1);
        changes.changed().await.unwrap();
    }
}
