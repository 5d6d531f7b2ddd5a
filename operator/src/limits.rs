//! Every bound of the node's own. What two sides must agree on stands in `sandbox_protocol::limits`.

use std::time::Duration;

use sandbox_protocol::limits::{
    EXEC_OUTPUT_BYTES_MAX, EXEC_TIMEOUT_MS_MAX, FSP_CUT_BYTES_MAX, FSP_POOL_OVERFLOW_DEFAULT, FSP_POOL_SIZE_DEFAULT,
    FSP_QUEUED_MAX, FSP_RUNNING_MAX, HOOK_BODY_BYTES_MAX, HOOK_WINDOW_S_MAX, JOB_INPUT_BYTES_MAX,
    NEGOTIATION_MOVES_MAX, NEGOTIATION_ROUNDS_MAX, SIWE_MESSAGE_BYTES_MAX, TOKEN_LIFE_S_DEFAULT, WAIT_S_MAX,
    WALLET_SIGNATURE_BYTES_MAX,
};
use sandbox_sdk::limits::{QUOTE_AGE_S_MAX, QUOTE_SPREAD_S_MAX};

/// Calls of one customer that wait in memory; more wait on disk.
pub(crate) const CALLS_WAITING_EACH_MAX: usize = 4_096;
/// Calls of all customers that wait in memory; more wait on disk.
pub(crate) const CALLS_WAITING_MAX: usize = 65_536;
/// Jobs worked on at a time, unless told otherwise.
pub(crate) const JOBS_CONCURRENT_DEFAULT: usize = 64;
/// Jobs worked on at a time at most: the blueprint runner takes no more.
pub(crate) const JOBS_CONCURRENT_MAX: usize = 1_024;
/// Time after which connections to a sidecar that nobody uses are closed.
pub(crate) const SIDECAR_POOL_IDLE_MAX: Duration = Duration::from_secs(60);
/// Jobs of one sandbox worked on at a time: as many as there are connections for them.
pub(crate) const JOBS_PER_SANDBOX_MAX: usize = FSP_POOL_SIZE_DEFAULT + FSP_POOL_OVERFLOW_DEFAULT;
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
/// Calls whose standing is remembered until the next block.
pub(crate) const STANDINGS_MAX: usize = 4_096;
/// Questions to the node at a time in a round.
pub(crate) const SWEEP_AT_ONCE_MAX: usize = 16;
/// Pause between two rounds.
pub(crate) const RECOUNT_PAUSE: Duration = Duration::from_secs(20);
/// Age of the last sight of the chain at which no effect begins.
pub(crate) const VIEW_AGE_MAX: Duration = Duration::from_secs(20);
/// Age of the newest block, by its own time, at which no effect begins. Local chains make blocks only when there is cause.
pub(crate) const HEAD_AGE_S_MAX: u64 = 120;
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
/// Events of the chain whose meaning is asked for at a time.
pub(crate) const SORTED_AT_ONCE_MAX: usize = 16;
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
/// Time for a program that makes, copies or mounts a disk.
pub(crate) const DISK_TOOL_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of the host's disk below which no disk is made.
pub(crate) const HOST_FREE_BYTES_MIN: u64 = 1024 * 1024 * 1024;
/// How often a mount that something uses is let go of; the last time whoever uses it.
pub(crate) const UNMOUNT_TRIES_MAX: u32 = 20;
/// Pause between two of these.
pub(crate) const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);
/// Pause between two looks for what belongs to nobody.
pub(crate) const SWEEP_PAUSE: Duration = Duration::from_secs(60);
/// Containers that wait for a create, unless told otherwise: one create at a time finds one, also while it is replaced,
/// and a host hardly feels them (a sidecar idles in a few megabytes).
pub(crate) const POOL_SIZE_DEFAULT: usize = 2;
/// Most containers that may wait.
pub(crate) const POOL_SIZE_MAX: usize = 256;
/// Containers that are started for the pool at a time.
pub(crate) const POOL_STARTS_MAX: usize = 2;
/// Time after a create in which no refill begins.
pub(crate) const POOL_REST: Duration = Duration::from_millis(150);
/// How long creates hold refills back.
pub(crate) const POOL_PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a container could not be made ready.
pub(crate) const POOL_RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Pause between two looks whether those that wait still run.
pub(crate) const POOL_LOOK_PAUSE: Duration = Duration::from_secs(15);
/// Time for the pool to be emptied when the process ends; the next start removes what is left.
pub(crate) const POOL_EMPTY_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for a started sidecar to answer.
pub(crate) const SIDECAR_START_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two questions whether it answers.
pub(crate) const SIDECAR_START_PAUSE: Duration = Duration::from_millis(2);
/// Time for a reply beyond the time that the command was given.
pub(crate) const SIDECAR_SLACK: Duration = Duration::from_secs(15);
/// Two outputs as base64, with room for the rest of the reply.
pub(crate) const SIDECAR_REPLY_BYTES_MAX: usize = EXEC_OUTPUT_BYTES_MAX * 3 + 64 * 1024;
/// Bytes of a sidecar's refusal.
pub(crate) const SIDECAR_ERROR_BYTES_MAX: usize = 16 * 1024;
/// Snapshots on their way at a time, out and in; one more waits. An upload to S3 holds up to 56 MiB.
pub(crate) const SNAPSHOTS_AT_ONCE_MAX: usize = 8;
/// What is read of a snapshot at a time on its way into a sandbox.
pub(crate) const SNAPSHOT_CHUNK_BYTES: usize = 256 * 1024;
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
/// Time for a sandbox to be stopped: the engine gives its processes a while to end by themselves.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(280);
/// Time for a sandbox to run where a snapshot may have to be restored first.
pub(crate) const RESUME_TIMEOUT: Duration = Duration::from_secs(580);
/// Time for a snapshot to be written: most of what the contract gives for the answer.
pub(crate) const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(1_700);
/// How often a sidecar that does not answer is asked what became of a command.
pub(crate) const ATTACH_ATTEMPTS_MAX: u32 = 5;
/// Time for a command beyond its own: to reach its sidecar, also when that must be started first.
pub(crate) const EXEC_SLACK: Duration = Duration::from_secs(60);
/// Time for a prompt or task beyond its own: to reach its sidecar, and to wait there for its turn.
pub(crate) const RUN_SLACK: Duration = Duration::from_secs(60);
/// Time for a sidecar to begin to tell of a run, to say where one stands, or to have it end.
pub(crate) const RUN_ANSWER_MAX: Duration = Duration::from_secs(30);
/// Time without a word, not even a sign of life, after which a run is asked for anew.
pub(crate) const RUN_SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes of what came of a run: a move's conversations are in it.
pub(crate) const RUN_REPLY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of one event of a run.
pub(crate) const RUN_EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Sandboxes of a negotiation that are made or removed while as many moves as may are argued about.
pub(crate) const NEGOTIATION_AHEAD_MAX: usize = 2;
/// Time for a move beyond that of its negotiation: to tell what it came to.
pub(crate) const NEGOTIATION_SLACK: Duration = Duration::from_secs(30);
/// Time for a move's sandbox to be removed; the result does not wait longer.
pub(crate) const NEGOTIATION_CLEAR_TIMEOUT: Duration = Duration::from_secs(20);
/// Sandboxes of a batch create that are made at a time: as many as single creates would be.
pub(crate) const BATCH_SLOTS_AT_ONCE_MAX: usize = JOBS_CONCURRENT_DEFAULT;
/// How often a sandbox of a batch is begun that fails for a reason that may pass.
pub(crate) const BATCH_SLOT_TRIES_MAX: u32 = 3;
/// Pause before it is begun again; it doubles.
pub(crate) const BATCH_SLOT_PAUSE: Duration = Duration::from_millis(500);
/// Tasks and commands of a batch that are carried out at a time, where it does not have them one after the other.
pub(crate) const BATCH_ITEMS_AT_ONCE_MAX: usize = 32;
/// Sandboxes of a batch that the chain is asked about at a time.
pub(crate) const BATCH_LOOKUPS_MAX: usize = 16;
/// Blocks before and after a call in which others of its batch are looked for: who has them submits them at once.
pub(crate) const BATCH_SIBLING_BLOCKS_MAX: u64 = 16;
/// Time, of what a batch may work, that is kept for its answer: what has not ended by then has failed.
pub(crate) const BATCH_WIND_UP: Duration = Duration::from_secs(30);
/// Time for which a part of a batch is kept after its end: 7 days.
pub(crate) const BATCH_KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Parts of batches that are kept of one customer; the oldest beyond go. One that is not at its end stays.
pub(crate) const BATCH_PARTS_EACH_MAX: usize = 256;
/// Calls whose events are remembered; the oldest beyond go.
pub(crate) const STORIES_MAX: usize = 256;
/// Events of one call that are remembered: more than a negotiation of most rounds and moves has.
pub(crate) const STORY_EVENTS_MAX: usize = 4_096;
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
/// Time for the sandbox keeper to answer who asks over HTTP; it does not wait for engines, so it is there or it hangs.
pub(crate) const API_KEEPER_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for the node of the chain to answer for who asks over HTTP.
pub(crate) const API_CHAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for something that is done to a sandbox; what takes longer goes on, and the request is answered.
pub(crate) const API_ACT_TIMEOUT: Duration = Duration::from_secs(WAIT_S_MAX);
/// Snapshots that are taken over HTTP at a time; one more is told to come back.
pub(crate) const API_SNAPSHOTS_MAX: usize = 4;
/// Time for a body to come.
pub(crate) const API_BODY_READ_MAX: Duration = Duration::from_secs(10);
/// Bodies that name a thing or two.
pub(crate) const API_SMALL_BODY_BYTES_MAX: usize = 8 * 1024;

/// Requests in a second of who signed in, and how many of them at once.
pub(crate) const API_ADDRESS_PER_S: u64 = 100;
/// See [`API_ADDRESS_PER_S`].
pub(crate) const API_ADDRESS_BURST: u64 = 200;
/// Requests in a second from one address, or one IPv6 network of 64 bits, of those who did not; and how many at once. This
/// host's own are not counted: a proxy.
pub(crate) const API_PLACE_PER_S: u64 = 50;
/// See [`API_PLACE_PER_S`].
pub(crate) const API_PLACE_BURST: u64 = 100;
/// Addresses and places whose requests are counted apart; the rest shares one count.
pub(crate) const API_PRINCIPALS_MAX: usize = 16_384;

/// A sign-in message with a contract wallet's signature in hex; JSON may write each letter of the former as two.
pub(crate) const API_SIGN_IN_BODY_BYTES_MAX: usize = 2 * SIWE_MESSAGE_BYTES_MAX + 2 * WALLET_SIGNATURE_BYTES_MAX + 256;
/// Life of a nonce.
pub(crate) const NONCE_LIFE_S: u64 = 300;
/// Used nonces that are remembered; it takes a good signature to use one.
pub(crate) const NONCES_USED_MAX: usize = 16_384;
/// How far another clock, a signer's or the newest block's, may be from this one.
pub(crate) const CLOCK_SKEW_S_MAX: u64 = 60;
/// Questions to contract wallets at a time, each of which asks the node; one more is told to come back.
pub(crate) const API_WALLET_CHECKS_MAX: usize = 16;
/// Gas for a contract wallet to say whether a signature is its own.
pub(crate) const WALLET_GAS_MAX: u64 = 2_000_000;
/// Tokens of one address.
pub(crate) const TOKENS_EACH_MAX: usize = 32;
/// Tokens of all addresses, with void ones that were not taken out yet.
pub(crate) const TOKENS_MAX: usize = 16_384;
/// Least life of a token that an operator may set.
pub(crate) const TOKEN_LIFE_S_MIN: u64 = 60;

/// Streams of events at a time; one more is told to come back.
pub(crate) const API_STREAMS_MAX: usize = 256;
/// Of those, streams of one address.
pub(crate) const API_STREAMS_EACH_MAX: usize = 8;
/// Events on their way to a reader; the next one waits.
pub(crate) const API_STREAM_QUEUE_MAX: usize = 16;
/// Time for a reader to take an event before it is cut off.
pub(crate) const API_STREAM_TAKE_MAX: Duration = Duration::from_secs(10);
/// Pause between two signs of life of a stream, and between two looks whether its token is still good.
pub(crate) const API_STREAM_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Age at which a stream ends, to be taken up again: a connection lives hardly longer.
pub(crate) const API_STREAM_AGE_MAX: Duration = API_CONNECTION_AGE_MAX;
/// Events that are read from the log at a time.
pub(crate) const EVENTS_READ_MAX: usize = 128;

/// Connections into sandboxes that went over from HTTP to bytes of their own, WebSockets say; one more is told to come
/// back.
pub(crate) const API_TUNNELS_MAX: usize = 1_024;
/// Of those, one address's.
pub(crate) const API_TUNNELS_EACH_MAX: usize = 128;
/// Bytes on their way in a tunnel, in each direction.
pub(crate) const API_TUNNEL_BUFFER_BYTES: usize = 32 * 1024;
/// Connections of the execution protocol, in which the operator follows what runs; one more is told to come back. As a
/// rule one holds less than 1 MiB, and [`API_RELAY_MESSAGE_BYTES_MAX`] each way where somebody is out for it.
pub(crate) const API_RELAYS_MAX: usize = 256;
/// Of those, one address's.
pub(crate) const API_RELAYS_EACH_MAX: usize = 64;
/// Length of a message of the execution protocol at which its sandbox, too, reads no further.
pub(crate) const API_RELAY_MESSAGE_BYTES_MAX: usize = FSP_CUT_BYTES_MAX;
/// Executions that are followed in one such connection: as many as a sandbox takes.
pub(crate) const API_RELAY_FOLLOWED_MAX: usize = FSP_RUNNING_MAX + FSP_QUEUED_MAX;
/// Time for the last words of such a connection, and for its client to take them.
pub(crate) const API_RELAY_FAREWELL_MAX: Duration = Duration::from_secs(2);
/// Time for a sidecar that broke off to show that it lives.
pub(crate) const SIDECAR_LOOK_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks whether the token is still good by which something was opened into a sandbox.
pub(crate) const API_LEASE_LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Time for what is served in a sandbox to begin its answer: longer than any command takes.
pub(crate) const API_PROXY_ANSWER_MAX: Duration = Duration::from_secs(600);
/// Life of a ticket with which a request is let in by a sidecar.
pub(crate) const SIDECAR_TICKET_LIFE_S: u64 = 60;
/// Length of what may be a sign of life alone in a stream of events.
pub(crate) const API_COMMENT_BYTES_MAX: usize = 256;

/// Pause between two looks whether the certificate's files have changed.
pub(crate) const TLS_LOOK_PAUSE: Duration = Duration::from_secs(10);

/// Time for the lock of the state directory, which is free at once or, as a rule, another node's for long.
pub(crate) const DIRECTORY_LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two tries.
pub(crate) const DIRECTORY_LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Calls at their end whose records are kept, with the answers. The oldest beyond go.
pub(crate) const FINAL_CALLS_MAX: usize = 100_000;
/// Length of the file with the agent profiles: every sandbox is given it as a variable, which Linux bounds at 128 KiB.
pub(crate) const AGENT_PROFILES_BYTES_MAX: usize = 64 * 1024;
/// Length of a setting of the model's, for the same reason.
pub(crate) const MODEL_SETTING_BYTES_MAX: usize = 16 * 1024;
/// Least tokens that a model takes at once.
pub(crate) const MODEL_CONTEXT_TOKENS_MIN: u32 = 1_024;
/// Events of sandboxes that are kept. The oldest beyond go.
pub(crate) const EVENTS_MAX: u64 = 100_000;
/// Records that go at a time.
pub(crate) const PRUNE_STEP_MAX: usize = 64;

/// Time between two heartbeats unless told otherwise: what the status registry expects of services by default.
pub(crate) const HEARTBEAT_S_DEFAULT: u64 = 300;
/// Least time between two heartbeats.
pub(crate) const HEARTBEAT_S_MIN: u64 = 2;
/// Services that heartbeats are sent for, the newest.
pub(crate) const HEARTBEAT_SERVICES_MAX: usize = 1_000;
/// Pause between two readings of what the metrics show of the state.
pub(crate) const GAUGES_PAUSE: Duration = Duration::from_secs(5);
/// Time for one check of `operator doctor`.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Free space below which a disk is said to be nearly full.
pub(crate) const DISK_FREE_BYTES_LOW: u64 = 5 * 1024 * 1024 * 1024;
/// Free space below which nothing can be relied on.
pub(crate) const DISK_FREE_BYTES_MIN: u64 = 512 * 1024 * 1024;
/// Time until the certificate of the API ends below which it is to be renewed.
pub(crate) const TLS_LEFT_S_LOW: i64 = 14 * 24 * 3_600;
/// Coin below which an operator cannot send for long: some dozens of answers at a usual price of gas.
pub(crate) const BALANCE_WEI_LOW: u128 = 10_000_000_000_000_000;
/// Time for an answer of the running node to a command.
pub(crate) const ADMIN_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes of such an answer that is read into memory.
pub(crate) const ADMIN_REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Sandboxes or calls that one such answer lists.
pub(crate) const ADMIN_LIST_MAX: usize = 10_000;
/// Pause between two looks whether a draining operator is done.
pub(crate) const DRAIN_PAUSE: Duration = Duration::from_millis(500);

/// Time for which the next SSH host key is announced before it signs, unless told otherwise: 7 days.
pub(crate) const SSH_HOST_KEY_OVERLAP_S_DEFAULT: u64 = 7 * 24 * 3_600;
/// Most such time: 90 days.
pub(crate) const SSH_HOST_KEY_OVERLAP_S_MAX: u64 = 90 * 24 * 3_600;
/// Length of a file of the SSH gateway's audit; then it takes the place of the one before.
pub(crate) const SSH_AUDIT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Length of a line of it that is looked for.
pub(crate) const SSH_AUDIT_LINE_BYTES_MAX: u64 = 1024 * 1024;
/// Time for those who came over SSH to leave when the operator ends.
pub(crate) const SSH_LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the last entries of the audit then.
pub(crate) const SSH_AUDIT_FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Entries that wait to be written; the next is left out.
pub(crate) const SSH_AUDIT_QUEUE_MAX: usize = 4_096;

/// Time in which a seal key that was replaced still opens: customers seal to what they read, and calls wait.
pub(crate) const SEAL_KEY_OVERLAP_S: u64 = 7 * 24 * 3_600;
/// Seal keys that open at a time.
pub(crate) const SEAL_KEYS_OPENING_MAX: usize = 8;

const _: () = assert!(API_PEER_CONNECTIONS_MAX < API_CONNECTIONS_MAX);
const _: () = assert!(API_UNKNOWN_WAITS_MAX < API_CONNECTIONS_MAX);
const _: () = assert!(API_STREAMS_EACH_MAX < API_STREAMS_MAX && API_STREAMS_MAX < API_CONNECTIONS_MAX);
const _: () = assert!(API_TUNNELS_EACH_MAX < API_TUNNELS_MAX && API_RELAYS_EACH_MAX < API_RELAYS_MAX);
const _: () = assert!(API_RELAY_FAREWELL_MAX.as_millis() < DRAIN_TIMEOUT.as_millis());
const _: () = assert!(API_PROXY_ANSWER_MAX.as_millis() > EXEC_TIMEOUT_MS_MAX as u128);
const _: () = assert!(NEGOTIATION_MOVES_MAX * (2 * NEGOTIATION_ROUNDS_MAX as usize + 4) < STORY_EVENTS_MAX);
const _: () = assert!(TOKENS_EACH_MAX < TOKENS_MAX && TOKEN_LIFE_S_MIN <= TOKEN_LIFE_S_DEFAULT);
const _: () = assert!(WORKFLOW_NAMES_KEPT_MIN < WORKFLOW_NAMES_HELD_MAX);
const _: () = assert!(QUOTE_LIFE_S_MIN <= QUOTE_LIFE_S_DEFAULT && QUOTE_LIFE_S_DEFAULT <= QUOTE_LIFE_S_MAX);

/// Bytes of the first request of a client in this process to the proxy.
pub(crate) const LENT_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Time for it.
pub(crate) const LENT_HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs of a workflow that are kept; those that are not over besides.
pub(crate) const WORKFLOW_RUNS_KEPT_MAX: u64 = 100;
/// Names of a workflow's firings that are known at the least; a webhook's firing has two.
pub(crate) const WORKFLOW_NAMES_KEPT_MIN: u64 = 2_000;
/// Names that are held at the most while each might be used again: 13 webhooks in a second, for as long as they are believed. One more is
/// told to come back.
pub(crate) const WORKFLOW_NAMES_HELD_MAX: u64 = 16_384;
/// Time for which a webhook is known again: it is believed for as long before the second in which it says to be sent as behind that, and a
/// clock may be set back a little.
pub(crate) const HOOK_NAMES_KEPT: Duration = Duration::from_secs(2 * HOOK_WINDOW_S_MAX + 60);
/// Runs that are carried out at a time, of all workflows; the next wait.
pub(crate) const WORKFLOW_RUNS_RUNNING_MAX: usize = 128;
/// The same of one owner's workflows: nobody takes all the places.
pub(crate) const WORKFLOW_RUNS_EACH_MAX: usize = 16;
const _: () = assert!(WORKFLOW_RUNS_EACH_MAX < WORKFLOW_RUNS_RUNNING_MAX);
/// Firings that are written at a time.
pub(crate) const WORKFLOW_FIRING_AT_ONCE_MAX: usize = 64;
/// Time between two reports of firings on chain; zero is none.
pub(crate) const WORKFLOW_REPORT_S_DEFAULT: u64 = 60;
/// Least time between two of them.
pub(crate) const WORKFLOW_REPORT_S_MIN: u64 = 5;
/// Seconds for which nobody fires a workflow that came from another operator, besides those that this one may be behind the chain:
/// for clocks that differ, and what is being written.
pub(crate) const WORKFLOW_HANDOVER_SLACK_S: u64 = 30;
/// Time between two comparisons of all workflows with the chain.
pub(crate) const WORKFLOW_COMPARE_PAUSE: Duration = Duration::from_secs(600);
/// Workflows that are looked at anew at a time.
pub(crate) const WORKFLOW_LOOKS_AT_ONCE_MAX: usize = 16;
/// Time for a run's sandbox to be had, room included.
pub(crate) const WORKFLOW_SANDBOX_TIMEOUT: Duration = Duration::from_secs(580);
/// Time for the sandbox of a run that is over to go; what stays is looked for again.
pub(crate) const WORKFLOW_CLEAR_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for the runs of a cancelled workflow to end.
pub(crate) const WORKFLOW_CANCEL_TIMEOUT: Duration = Duration::from_secs(60);
/// Times that the logs of one filter in one block are asked for, where others are had, before they fire nothing.
pub(crate) const WORKFLOW_LOG_TRIES_MAX: u32 = 3;
/// Bytes of a log's data that its run is given: as hex they are as long as a webhook's body may be.
pub(crate) const WORKFLOW_LOG_DATA_BYTES_MAX: usize = HOOK_BODY_BYTES_MAX / 2;
/// Logs that fire one workflow of those that are read at a time; the next ones of them fire nothing.
pub(crate) const WORKFLOW_LOGS_EACH_MAX: usize = 100;
/// Whole runs and texts of workflows that are read at a time for who asks over HTTP; the next wait.
pub(crate) const WORKFLOW_READS_AT_ONCE_MAX: usize = 8;
/// Filters of logs that are asked for at a time.
pub(crate) const WORKFLOW_FILTERS_MAX: usize = 256;
/// Blocks that are looked at again after a pause, for events that fire.
pub(crate) const WORKFLOW_WATCH_BLOCKS_MAX: u64 = 10_000;
/// Events of sandboxes that are read at a time.
pub(crate) const WORKFLOW_EVENTS_READ_MAX: usize = 100;
/// As far as the chain may be read behind what is believed of it for workflows to be fired.
pub(crate) const WORKFLOW_BEHIND_BLOCKS_MAX: u64 = 8;
/// Workflows whose standing is written at a time.
pub(crate) const WORKFLOW_STANDINGS_AT_ONCE_MAX: usize = 1_000;
/// Firings that are reported in one transaction: as many as the contract takes.
pub(crate) const WORKFLOW_REPORTED_AT_ONCE_MAX: usize = 100;
/// Bytes of a webhook's secret, before they are written as text.
pub(crate) const HOOK_SECRET_BYTES: usize = 32;
/// When it is looked who is due, unless told otherwise: every minute.
pub(crate) const WORKFLOW_TICK_DEFAULT: &str = "0 * * * * *";
/// Fields of that.
pub(crate) const WORKFLOW_TICK_FIELDS: usize = 6;
/// How often the chain is asked for the text of a workflow that is to run.
pub(crate) const WORKFLOW_TEXT_TRIES_MAX: u32 = 10;
/// Pause between two of them.
pub(crate) const WORKFLOW_TEXT_PAUSE: Duration = Duration::from_secs(3);
/// How often the chain is asked, at a start, of a workflow whose runs are open.
pub(crate) const WORKFLOW_LOOKS_MAX: u32 = 10;
