//! Every bound and every wait of the client. Those that the sandbox must agree to are in `protocol::limits`.

use sandbox_protocol::limits::{FSP_CHUNK_BYTES_MAX, FSP_CREDIT_BYTES_DEFAULT};

/// Time in which a connection is open, its handshake included.
pub const CONNECT_TIMEOUT_MS: u64 = 5_000;
/// Attempts after the first that failed, or after a link that broke.
pub const RETRIES_MAX: u32 = 10;
/// Wait before the second of them; the first comes at once.
pub const BACKOFF_MS_MIN: u64 = 100;
/// Longest wait between two of them; each is twice the one before.
pub const BACKOFF_MS_MAX: u64 = 30_000;

/// Wishes of its users that a connection has not yet taken; the next waits.
pub const COMMANDS_MAX: usize = 64;
/// Messages on their way to the socket; the next waits.
pub const OUTGOING_MAX: usize = 16;
/// Bytes that are gathered before they are written.
pub const WRITE_BUFFER_BYTES: usize = 64 * 1024;
/// Bytes of an execution that wait for its consumer: the credit that the sandbox is given. Without credit, at which
/// nothing more is read from the connection.
pub const FEED_BYTES_MAX: u64 = FSP_CREDIT_BYTES_DEFAULT;
/// Events of an execution without credit that wait for its consumer, at which nothing more is read.
pub const FEED_EVENTS_MAX: usize = 1_024;
/// Output at which no more is joined into one event.
pub const JOINED_BYTES_MAX: usize = FSP_CHUNK_BYTES_MAX;
/// Output up to which bytes are copied, so that they do not keep alive the buffer that they came in.
pub const COPIED_BYTES_MAX: usize = 4 * 1024;
/// Executions of one connection that have not ended; the next is refused.
pub const EXECUTIONS_MAX: usize = 1_024;

/// What an execution is given beyond its own time before the client gives it up.
pub const TIMEOUT_SLACK_MS: u64 = 5_000;
/// Wait for a `pong`.
pub const PING_TIMEOUT_MS: u64 = 5_000;
/// Silence after which a connection with executions is asked whether it lives; after twice that it counts as broken.
pub const SILENCE_MS: u64 = 15_000;
/// Time in which a connection says what it still has to, once nobody holds it.
pub const CLOSE_TIMEOUT_MS: u64 = 1_000;

/// Wait for a place in a pool.
pub const CHECKOUT_TIMEOUT_MS: u64 = 10_000;
/// Idleness after which a connection of a pool is asked whether it lives before it is given out.
pub const IDLE_CHECK_MS: u64 = 10_000;

/// Time between two renewals of a key.
pub const REFRESH_INTERVAL_MS: u64 = 3_600_000;
/// Time after a renewal that failed.
pub const REFRESH_RETRY_MS: u64 = 60_000;
/// Time in which a renewal is answered.
pub const REFRESH_TIMEOUT_MS: u64 = 10_000;
/// Length of an answer to a renewal.
pub const REFRESH_BODY_BYTES_MAX: usize = 64 * 1024;
/// Length of a key: what fits a header everywhere.
pub const TOKEN_BYTES_MAX: usize = 4 * 1024;
/// Most connections that a configuration may ask for.
pub const POOL_CONNECTIONS_MAX: usize = 1_024;

/// As much of a message that is none as is logged.
pub const LOGGED_BYTES_MAX: usize = 512;
/// As much of what a sandbox says in words as is kept.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024;

const _: () = assert!(BACKOFF_MS_MIN <= BACKOFF_MS_MAX);
// A grant is due at half the credit, and a chunk must fit what is left then, or both sides would wait.
const _: () = assert!(FEED_BYTES_MAX / 2 >= FSP_CHUNK_BYTES_MAX as u64);
