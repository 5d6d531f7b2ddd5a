//! Every bound of the fleet's own. Names end in their unit and `_MAX`, `_MIN` or `_DEFAULT`.

use std::time::Duration;

/// Commands that wait for the keeper; the sender then waits itself.
pub const KEEPER_QUEUE_MAX: usize = 256;
/// Sandboxes that ended and are still known by what became of them, here and in the records.
pub const ENDED_SANDBOXES_MAX: usize = 4_096;
/// Notes of sandboxes that came to rest; the driver with one more waits itself.
pub const RESTED_QUEUE_MAX: usize = 256;
/// Blocks before its last one from which on a sandbox's owner is told that its time is nearly over.
pub const EXPIRY_WARNING_BLOCKS: u64 = 25;
/// Length of the name of a child.
pub const CHILD_NAME_BYTES_MAX: usize = 128;
/// Children that wait for room; the next is refused.
pub const CHILDREN_WAITING_MAX: usize = 1_024;
/// Commands that wait for one sandbox's driver.
pub const DRIVER_QUEUE_MAX: usize = 32;
/// First pause before an effect that failed for the engine's reasons is tried again; it doubles.
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(200);
/// Longest such pause.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Length of a snapshot's place, as text.
pub const SNAPSHOT_URI_BYTES_MAX: usize = 2_048;
/// Length of a sandbox's name.
pub const SANDBOX_NAME_BYTES_MAX: usize = 64;
/// Labels of a sandbox.
pub const SANDBOX_LABELS_MAX: usize = 16;
/// Length of a label's key and value together.
pub const SANDBOX_LABEL_BYTES_MAX: usize = 128;
/// Least idle time that may be asked for.
pub const IDLE_TIMEOUT_S_MIN: u64 = 10;
/// Most idle time that may be asked for: 30 days.
pub const IDLE_TIMEOUT_S_MAX: u64 = 30 * 24 * 3_600;
/// Length of a model's name.
pub const MODEL_NAME_BYTES_MAX: usize = 256;
/// Memory of a sandbox that a move of a negotiation is argued about in, in MiB.
pub const NEGOTIATION_MEMORY_MB: u64 = 2_048;

/// How far an instant of a schedule is looked for: Mondays that are a leap day are at most 40 years apart.
pub const CRON_HORIZON_S_MAX: i64 = 41 * 366 * 24 * 3_600;
/// Instants of a schedule that are looked for back from one.
pub const CRON_SLOTS_MAX: usize = 1_024;
/// Time after which an instant that could not be fired counts as missed.
pub const CRON_LATE_S_MAX: i64 = 90;
/// Entries of a queue of instants that stand for nothing any more, before they are swept, where they outnumber the others.
pub const WAKES_STALE_MAX: usize = 1_024;
/// Runs of one workflow beside each other.
pub const WORKFLOW_RUNS_AT_ONCE_MAX: usize = 16;
/// Runs of one workflow that wait for another; a firing more is entered as skipped.
pub const WORKFLOW_RUNS_QUEUED_MAX: usize = 100;
/// Parentheses, `!` and calls within one another in an expression of a workflow.
pub const EXPRESSION_DEPTH_MAX: usize = 32;
/// Lists and objects within one another in a value that a run keeps, and in a context of a workflow: what is written with both,
/// one in the other, is still read by a parser of JSON that stops at 128.
pub const VALUE_DEPTH_MAX: usize = 48;
/// Length of what the expressions of one step come to, all together.
pub const RENDERED_BYTES_MAX: usize = 1024 * 1024;
/// Length of a step's key: what a sandbox's name in a negotiation adds keeps it within an id.
pub const STEP_KEY_BYTES_MAX: usize = 64;
/// Time that a step's sandbox has beyond the step's own, to tell what became of it, before the engine breaks it off.
pub const STEP_GRACE_MS: u64 = 60_000;
/// Whole numbers of JSON below this are the same as integers and as floating point.
pub const JSON_EXACT_MAX: f64 = 9_007_199_254_740_992.0;
