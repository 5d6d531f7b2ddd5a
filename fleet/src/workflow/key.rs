//! What an attempt at a step is called where it is carried out: its sandbox does each name once.

use sandbox_protocol::CallKey;
use sandbox_protocol::limits::{EXEC_ID_BYTES_MAX, MOVE_ID_BYTES_MAX, RUN_ID_BYTES_MAX};
use sha2::{Digest as _, Sha256};

use crate::limits::STEP_KEY_BYTES_MAX;

const _: () = assert!(STEP_KEY_BYTES_MAX <= EXEC_ID_BYTES_MAX);
// A negotiation's runs are called by the step's key, a dash and the move.
const _: () = assert!(STEP_KEY_BYTES_MAX + 1 + MOVE_ID_BYTES_MAX <= RUN_ID_BYTES_MAX);

/// The name of an attempt, for an execution as well as for a run: `wf-<service>-<workflow>-<epoch>-<run>-<step>-<attempt>`, or a
/// hash of that where it is long. No two attempts have the same: a workflow that comes back to an operator, which may count its runs
/// anew, has another epoch.
pub fn step_key(workflow: CallKey, (epoch, run): (u16, u64), step: &str, attempt: u32) -> String {
    let CallKey { service, call } = workflow;
    let name = format!("wf-{service}-{call}-{epoch}-{run}-{step}-{attempt}");
    if name.len() <= STEP_KEY_BYTES_MAX {
        return name;
    }
    format!("wf-{}", hex::encode(&Sha256::digest(name)[..24]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sandbox_protocol::agent::is_id;
    use sandbox_protocol::limits::WORKFLOW_STEP_ID_BYTES_MAX;

    use super::*;

    #[test]
    fn a_key_is_an_id_whatever_it_names() {
        let key = |number, epoch, run, step: &str, attempt| {
            step_key(CallKey { service: number, call: number }, (epoch, run), step, attempt)
        };
        assert_eq!(key(2, 0, 3, "build", 1), "wf-2-2-0-3-build-1");
        let longest = "x".repeat(WORKFLOW_STEP_ID_BYTES_MAX);
        for key in [key(u64::MAX, u16::MAX, u64::MAX, &longest, u32::MAX), key(0, 0, 0, "_", 1)] {
            assert!(is_id(&key) && key.len() <= STEP_KEY_BYTES_MAX, "{key}");
        }
    }

    #[test]
    fn no_two_attempts_have_the_same() {
        let long = "a-very-long-name-of-a-step-that-is-kept";
        let mut keys = BTreeSet::new();
        let mut all = 0;
        let workflow = CallKey { service: u64::MAX, call: 1 };
        for step in ["a", "a-1", "a-1-1", "1-a", long] {
            for run in [(0, 1), (1, 1), (1, 11), (11, 1), (0, u64::MAX)] {
                for attempt in [1, 2, 11] {
                    keys.insert(step_key(workflow, run, step, attempt));
                    all += 1;
                }
            }
        }
        assert_eq!(keys.len(), all);
    }
}
