//! Every bound of the node's own. What two sides must agree on stands in `sandbox_protocol::limits`.

use std::time::Duration;

use sandbox_protocol::limits::EXEC_OUTPUT_BYTES_MAX;

/// Calls that wait for the router; the source of one more waits itself.
pub(crate) const CALL_QUEUE_MAX: usize = 256;
/// Service requests that wait for a verdict.
pub(crate) const REQUEST_QUEUE_MAX: usize = 64;
/// Transactions that wait for the key; the sender of one more waits itself.
pub(crate) const SENDER_QUEUE_MAX: usize = 64;
/// Notes of answered calls that wait. One that finds no room is not lost: open answers are looked for as well.
pub(crate) const OUTBOX_QUEUE_MAX: usize = 4_096;
/// Receipts in one transaction.
pub(crate) const OUTBOX_BATCH_MAX: usize = 16;
/// How often open answers are looked for without a note.
pub(crate) const OUTBOX_RESCAN: Duration = Duration::from_secs(30);
/// Writes that wait for the disk; the writer of one more waits itself.
pub(crate) const WRITE_QUEUE_MAX: usize = 1_024;
/// Writes that one sync may cover.
pub(crate) const WRITE_GROUP_MAX: usize = 256;
/// Pause before an answer that could not be written is written again.
pub(crate) const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// Blocks that one query for logs asks for at most.
pub(crate) const LOG_RANGE_BLOCKS_MAX: u64 = 5_000;
/// First pause after a question that a node or engine did not answer; it doubles.
pub(crate) const RETRY_PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest such pause.
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(15);
/// Pause between two looks for a new block.
pub(crate) const HEAD_PAUSE: Duration = Duration::from_millis(200);
/// A subscription to new blocks that is silent for so long is looked after.
pub(crate) const HEAD_SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often blocks are looked for before a subscription is tried again.
pub(crate) const HEAD_LOOKS_MAX: u32 = 50;

/// Time for one request to the container engine.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a started sidecar to answer.
pub(crate) const SIDECAR_START_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two questions whether it answers.
pub(crate) const SIDECAR_START_PAUSE: Duration = Duration::from_millis(2);
/// Time for a reply beyond the time that the command was given.
pub(crate) const SIDECAR_SLACK: Duration = Duration::from_secs(15);
/// Two outputs as base64, with room for the rest of the reply.
pub(crate) const SIDECAR_REPLY_BYTES_MAX: usize = EXEC_OUTPUT_BYTES_MAX * 3 + 64 * 1024;
/// Longest path of a Unix socket on Linux, without its closing NUL.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Time for a sandbox to come up; a cold start takes a fraction of a second.
pub(crate) const CREATE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for a sandbox to be removed.
pub(crate) const DELETE_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a sidecar that does not answer is asked what became of a command.
pub(crate) const ATTACH_ATTEMPTS_MAX: u32 = 5;
/// Pause before it is asked again.
pub(crate) const ATTACH_PAUSE: Duration = Duration::from_millis(500);

/// Time for open HTTP requests when the process ends.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for what is being answered when the process ends; what is not done then is resumed at the next start.
pub(crate) const FINISH_TIMEOUT: Duration = Duration::from_secs(20);
