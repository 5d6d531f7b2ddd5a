//! What becomes of a firing while runs of its workflow go on or wait.

use sandbox_protocol::workflow::Overlap;

use crate::limits::{WORKFLOW_RUNS_AT_ONCE_MAX, WORKFLOW_RUNS_QUEUED_MAX};

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Firing {
    /// It runs.
    Start,
    /// It runs after those that wait.
    Queue,
    /// It is entered in the history, and not run.
    Skip,
}

/// Decides by how many runs go on, and how many wait for one of them.
pub const fn decide(overlap: Overlap, running: usize, queued: usize) -> Firing {
    let beside = match overlap {
        Overlap::Skip | Overlap::Queue => 1,
        Overlap::Allow => WORKFLOW_RUNS_AT_ONCE_MAX,
    };
    if queued == 0 && running < beside {
        return Firing::Start;
    }
    match overlap {
        Overlap::Skip => Firing::Skip,
        Overlap::Queue | Overlap::Allow if queued < WORKFLOW_RUNS_QUEUED_MAX => Firing::Queue,
        Overlap::Queue | Overlap::Allow => Firing::Skip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firing_starts_where_nothing_runs_or_waits() {
        for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Allow] {
            assert_eq!(decide(overlap, 0, 0), Firing::Start);
        }
    }

    #[test]
    fn while_a_run_goes_on_a_firing_is_skipped_waits_or_runs_beside_it() {
        assert_eq!(decide(Overlap::Skip, 1, 0), Firing::Skip);
        assert_eq!(decide(Overlap::Queue, 1, 0), Firing::Queue);
        assert_eq!(decide(Overlap::Allow, 1, 0), Firing::Start);
    }

    #[test]
    fn none_goes_before_those_that_wait() {
        assert_eq!(decide(Overlap::Queue, 0, 1), Firing::Queue);
        assert_eq!(decide(Overlap::Allow, 1, 1), Firing::Queue);
    }

    #[test]
    fn only_so_many_run_at_once_and_only_so_many_wait() {
        assert_eq!(decide(Overlap::Allow, WORKFLOW_RUNS_AT_ONCE_MAX - 1, 0), Firing::Start);
        assert_eq!(decide(Overlap::Allow, WORKFLOW_RUNS_AT_ONCE_MAX, 0), Firing::Queue);
        for overlap in [Overlap::Queue, Overlap::Allow] {
            let running = WORKFLOW_RUNS_AT_ONCE_MAX;
            assert_eq!(decide(overlap, running, WORKFLOW_RUNS_QUEUED_MAX - 1), Firing::Queue);
            assert_eq!(decide(overlap, running, WORKFLOW_RUNS_QUEUED_MAX), Firing::Skip);
        }
    }
}
