//! Every bound of the node's own. What two sides must agree on stands in `sandbox_protocol::limits`.

use std::time::Duration;

use sandbox_protocol::limits::{EXEC_OUTPUT_BYTES_MAX, EXEC_RUNNING_MAX, JOB_INPUT_BYTES_MAX, WAIT_S_MAX};
use sandbox_sdk::limits::{QUOTE_AGE_S_MAX, QUOTE_SPREAD_S_MAX};

/// Calls of one customer that wait in memory; more wait on disk.
pub(crate) const CALLS_WAITING_EACH_MAX: usize = 4_096;
/// Calls of all customers that wait in memory; more wait on disk.
pub(crate) const CALLS_WAITING_MAX: usize = 65_536;
/// Jobs worked on at a time, unless told otherwise.
pub(crate) const JOBS_CONCURRENT_DEFAULT: usize = 64;
/// Jobs worked on at a time at most: the blueprint runner takes no more.
pub(crate) const JOBS_CONCURRENT_MAX: usize = 1_024;
/// Jobs of one sandbox worked on at a time: half of what runs in it, so that its owner gets in by the API as well.
pub(crate) const JOBS_PER_SANDBOX_MAX: usize = EXEC_RUNNING_MAX / 2;
/// Pause between two looks for calls that wait on disk.
pub(crate) const REFILL_PAUSE: Duration = Duration::from_secs(2);
/// Open calls that are looked after at a time.
pub(crate) const RESUMED_AT_ONCE_MAX: usize = 64;
/// Time for the sandboxes of a call that the chain took back to go, before others get their turn.
pub(crate) const UNDO_TIMEOUT: Duration = Duration::from_secs(60);
/// Calls taken back by the chain in this life that are remembered as such.
pub(crate) const GIVEN_UP_MAX: usize = 10_000;
/// Blocks whose hashes are remembered: how far back a fork is followed exactly.
pub(crate) const TRAIL_BLOCKS_MAX: usize = 128;
/// Blocks read again where a fork began before all that is remembered.
pub(crate) const FORK_BLOCKS_MAX: u64 = 5_000;
/// Calls of a service that are counted through once more after a fork.
pub(crate) const SWEEP_BACK_CALLS: u64 = 256;
/// Calls of a service that are looked at in one round.
pub(crate) const SWEEP_CALLS_MAX: u64 = 1_024;
/// Services that are looked at in one round.
pub(crate) const SWEEP_SERVICES_MAX: u64 = 256;
/// Questions to the node at a time in a round.
pub(crate) const SWEEP_AT_ONCE_MAX: usize = 16;
/// Pause between two rounds.
pub(crate) const SWEEP_PAUSE: Duration = Duration::from_secs(20);
/// Age of the last sight of the chain at which no effect begins.
pub(crate) const VIEW_AGE_MAX: Duration = Duration::from_secs(20);
/// Age of the newest block, by its own time, at which no effect begins. Local chains make blocks only when there is cause.
pub(crate) const HEAD_AGE_S_MAX: u64 = 120;
/// How often the newest block is looked at though its number is the same: a fork may have its length.
pub(crate) const HEAD_RECHECK: Duration = Duration::from_secs(2);
/// Transactions that wait for the key; the sender of one more waits itself.
pub(crate) const SENDER_QUEUE_MAX: usize = 64;
/// Notes of answered calls that wait. One that finds no room is not lost: open answers are looked for as well.
pub(crate) const OUTBOX_QUEUE_MAX: usize = 4_096;
/// Receipts in one transaction; fewer where they would take too much gas.
pub(crate) const OUTBOX_BATCH_MAX: usize = 64;
/// Questions of the outbox to the node at a time.
pub(crate) const OUTBOX_AT_ONCE_MAX: usize = 16;
/// Gas of one transaction: within what EIP-7825 lets one have, and half a block of 30 million.
pub(crate) const TRANSACTION_GAS_MAX: u64 = 15_000_000;
/// How long a transaction is waited for at one price.
pub(crate) const FEE_BUMP_AFTER: Duration = Duration::from_secs(15);
/// How long a transaction is waited for in all before others of its nonce are tried.
pub(crate) const MINED_WITHIN: Duration = Duration::from_secs(600);
/// How often open answers are looked for without a note.
pub(crate) const OUTBOX_RESCAN: Duration = Duration::from_secs(30);
/// Writes that wait for the disk; the writer of one more waits itself.
pub(crate) const WRITE_QUEUE_MAX: usize = 1_024;
/// Writes that one sync may cover.
pub(crate) const WRITE_GROUP_MAX: usize = 256;

/// Pause between two comparisons of the sandboxes here with those on chain.
pub(crate) const RECONCILE_PAUSE: Duration = Duration::from_secs(10);
/// How far back service requests are looked for at a start. An approval is due within an hour.
pub(crate) const REQUEST_AGE_BLOCKS_MAX: u64 = 2_000;
/// How often a service request that the core would not let us approve is tried again.
pub(crate) const REQUEST_TRIES_MAX: u32 = 40;
/// How far behind the head unanswered calls hold up expiry.
pub(crate) const EXPIRY_GRACE_BLOCKS_MAX: u64 = 100;
/// Time for a node to accept a subscription to new blocks.
pub(crate) const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to wait for the turn of this process to use the key.
pub(crate) const KEY_LOCK_TIMEOUT: Duration = Duration::from_secs(180);
/// Services whose blueprint is remembered.
pub(crate) const KNOWN_SERVICES_MAX: usize = 10_000;

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

/// Time, of what the contract gives for an answer, that is kept for sending it.
pub(crate) const REPORT_RESERVE: Duration = Duration::from_secs(15);
/// Time for the contract to say whose a call is that has begun; it goes on without.
pub(crate) const STANDING_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a sandbox to come up; a cold start takes a fraction of a second.
pub(crate) const CREATE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for a sandbox to be removed: most of what the contract gives for the answer.
pub(crate) const DELETE_TIMEOUT: Duration = Duration::from_secs(280);
/// How often a sidecar that does not answer is asked what became of a command.
pub(crate) const ATTACH_ATTEMPTS_MAX: u32 = 5;
/// Time for a command beyond its own: to reach its sidecar, also when that must be started first.
pub(crate) const EXEC_SLACK: Duration = Duration::from_secs(60);
/// Pause before it is asked again.
pub(crate) const ATTACH_PAUSE: Duration = Duration::from_millis(500);

/// Time for open HTTP requests when the process ends.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for what is being answered when the process ends; what is not done then is resumed at the next start.
pub(crate) const FINISH_TIMEOUT: Duration = Duration::from_secs(20);

/// Connections to the API served at a time; one more is closed at once.
pub(crate) const API_CONNECTIONS_MAX: usize = 512;
/// Of those, connections from one address, or one IPv6 network of 64 bits. This host's own are not counted: a proxy.
pub(crate) const API_PEER_CONNECTIONS_MAX: usize = 128;
/// Bytes of a request's line and headers.
pub(crate) const API_HEADER_BYTES_MAX: usize = 16 * 1024;
/// Headers of a request.
pub(crate) const API_HEADERS_MAX: usize = 64;
/// Time for a request's headers, also the time that an open connection may idle.
pub(crate) const API_HEADER_READ_MAX: Duration = Duration::from_secs(15);
/// Age at which a connection gets no further request.
pub(crate) const API_CONNECTION_AGE_MAX: Duration = Duration::from_secs(600);
/// Time that a connection then has for the request in hand: the longest wait, and its answer over a slow line.
pub(crate) const API_LAST_REQUEST_MAX: Duration = Duration::from_secs(WAIT_S_MAX + 60);
/// Requests that wait for a call not taken in yet, which anybody may do; one more is told to come back.
pub(crate) const API_UNKNOWN_WAITS_MAX: usize = 128;
/// Body of a question for a quote: inputs as hex, and the rest.
pub(crate) const API_QUOTE_BODY_BYTES_MAX: usize = 2 * JOB_INPUT_BYTES_MAX + 1_024;
/// Time for that body to come.
pub(crate) const API_QUOTE_READ_MAX: Duration = Duration::from_secs(10);
/// Questions for quotes at a time, each of which may ask the node; one more is told to come back.
pub(crate) const API_QUOTES_MAX: usize = 32;
/// How long the node's word on a service is good for quotes.
pub(crate) const QUOTE_TERMS_AGE_MAX: Duration = Duration::from_secs(5);
/// Services and jobs whose terms are remembered.
pub(crate) const QUOTE_TERMS_MAX: usize = 4_096;
/// Least time that a quote is good for: a block or two.
pub(crate) const QUOTE_LIFE_S_MIN: u64 = 15;
/// Time that it is good for unless told otherwise.
pub(crate) const QUOTE_LIFE_S_DEFAULT: u64 = 300;
/// Most time: the core takes none that is older.
pub(crate) const QUOTE_LIFE_S_MAX: u64 = QUOTE_AGE_S_MAX - QUOTE_SPREAD_S_MAX;
/// Time for the sandbox keeper to say its count to who reads the metrics.
pub(crate) const METRICS_COUNT_TIMEOUT: Duration = Duration::from_secs(1);

/// Calls at their end whose records are kept, with the answers. The oldest beyond go.
pub(crate) const FINAL_CALLS_MAX: usize = 100_000;
/// Records that go at a time.
pub(crate) const PRUNE_STEP_MAX: usize = 64;

const _: () = assert!(API_PEER_CONNECTIONS_MAX < API_CONNECTIONS_MAX);
const _: () = assert!(API_UNKNOWN_WAITS_MAX < API_CONNECTIONS_MAX);
const _: () = assert!(QUOTE_LIFE_S_MIN <= QUOTE_LIFE_S_DEFAULT && QUOTE_LIFE_S_DEFAULT <= QUOTE_LIFE_S_MAX);
