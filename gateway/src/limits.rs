//! Bounds of the gateway. What operator and sidecar must agree on is in [`sandbox_protocol::limits`].

use std::time::Duration;

/// Connections that have not proven a key, of all peers; the next is closed at once.
pub const STRANGERS_MAX: usize = 128;
/// Connections of one address that have not proven a key; the next is closed at once.
pub const STRANGERS_PER_ADDRESS_MAX: usize = 16;
/// Connections that have proven a key; the next is told so and ended.
pub const GUESTS_MAX: usize = 2_048;
/// Connections that end without a proven key after which an address has to [wait](FAILURES_PAUSE).
pub const FAILURES_MAX: u32 = 30;
/// Time in which these failures are counted, and that an address waits.
pub const FAILURES_PAUSE: Duration = Duration::from_secs(60);
/// Addresses whose failures are remembered; the oldest is forgotten for the next.
pub const ADDRESSES_MAX: usize = 4_096;
/// Time that a peer has to prove a key.
pub const LOGIN_MAX: Duration = Duration::from_secs(30);
/// Keys and methods that a peer may try.
pub const LOGIN_TRIES_MAX: usize = 20;
/// Time that a connection has to take its last words.
pub const FAREWELL_MAX: Duration = Duration::from_millis(300);
/// Time after which a silent client is asked whether it is there.
pub const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Such questions without an answer after which a client is taken to be gone.
pub const KEEP_ALIVES_MAX: usize = 4;

/// Channels of one connection; the next is refused.
pub const CHANNELS_PER_CONNECTION_MAX: usize = 256;
/// Sockets of one connection that are listened at for its client; the next is refused.
pub const LISTENERS_PER_CONNECTION_MAX: usize = 32;
/// Channels to a client that it has not confirmed; one more connection to where its sidecar listens is left to wait there.
pub const UNCONFIRMED_MAX: usize = 64;
/// Time in which what came on a channel that its client has closed is passed on.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Environment variables of one channel; the next is refused.
pub const ENV_MAX: usize = 32;
/// Name and value of an environment variable.
pub const ENV_BYTES_MAX: usize = 4 * 1024;
/// Words of a channel that wait for its program: sizes and signals. The next is dropped.
pub const WORDS_MAX: usize = 32;
/// Time that a sidecar has to answer.
pub const SIDECAR_ANSWER_MAX: Duration = Duration::from_secs(20);
/// Answer of a sidecar that refuses, which is read for its reason.
pub const SIDECAR_REFUSAL_BYTES_MAX: usize = 16 * 1024;

/// Length of an SSH packet's data, as announced to clients.
pub const PACKET_BYTES_MAX: u32 = 64 * 1024 - 512;
/// Bytes that a client may send on a new channel.
pub const WINDOW_START_BYTES: u32 = 2 * 1024 * 1024;
/// The same on a channel whose other side keeps up.
pub const WINDOW_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// The same beside a channel whose other side does not.
pub const WINDOW_BESIDE_STALLED_BYTES: u32 = 256 * 1024;
/// Bytes from the client that wait for a channel's other side before its connection is read with [pauses](BUSY_PAUSE).
pub const BUSY_BYTES: usize = 1024 * 1024;
/// The same before the channel counts as stalled, and is widened no more.
pub const STALLED_BYTES: usize = 4 * 1024 * 1024;
/// The same up to which its window grows.
pub const KEEPS_UP_BYTES: usize = 128 * 1024;
/// Bytes from the client that wait in one connection before a channel of which more than a little waits is ended.
pub const BACKLOG_BYTES_MAX: usize = 48 * 1024 * 1024;
/// Pause between reads while a channel's other side is behind, which catches up earlier if it reads at all.
pub const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Pause between reads while a channel is stalled, each of which brings two more bytes of it.
pub const STALLED_PAUSE: Duration = Duration::from_millis(2);
/// Bytes handed to the client's side at a time.
pub const SENT_BYTES: usize = 256 * 1024;
/// Read from a socket at a time, where little is wanted.
pub const READ_BYTES: usize = 64 * 1024;
/// Read from a tunnel at first, while nobody knows how much comes.
pub const TUNNEL_READ_BYTES: usize = 4 * 1024;
/// Messages to one connection's SSH machine that wait.
pub const MESSAGES_MAX: usize = 16;

const _: () = assert!(BACKLOG_BYTES_MAX > 2 * WINDOW_BYTES_MAX as usize);
const _: () = assert!(STRANGERS_PER_ADDRESS_MAX < STRANGERS_MAX && WINDOW_BESIDE_STALLED_BYTES < WINDOW_START_BYTES);
