//! The bounds that only the sidecar keeps. Those it shares with its callers are in `sandbox_protocol::limits`.

use std::time::Duration;

use sandbox_process::serve::Bounds;
use sandbox_protocol::limits::{EXEC_RUNNING_MAX, EXEC_TIMEOUT_MS_MAX};

/// Connections served at a time; the next waits to be accepted.
pub const CONNECTIONS_MAX: usize = 256;
/// Bytes of a request's line and headers.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Headers of a request.
pub const HEADERS_MAX: usize = 64;
/// Time for a request's headers, also the time that an open connection may idle.
pub const HEADER_READ_MAX: Duration = Duration::from_secs(30);
/// Age at which a connection gets no further request.
pub const CONNECTION_AGE_MAX: Duration = Duration::from_secs(600);
/// Time that a connection then has for the request in hand: more than the longest command takes.
pub const LAST_REQUEST_MAX: Duration = Duration::from_secs(400);
/// What one connection may take.
pub const CONNECTION_BOUNDS: Bounds = Bounds {
    header_bytes_max: HEADER_BYTES_MAX,
    headers_max: HEADERS_MAX,
    header_read_max: HEADER_READ_MAX,
    age_max: CONNECTION_AGE_MAX,
    last_request_max: LAST_REQUEST_MAX,
};
/// Time for a request's body.
pub const BODY_READ_MAX: Duration = Duration::from_secs(30);
/// Length of a bearer token.
pub const TOKEN_BYTES_MAX: usize = 4 * 1024;

/// Time from asking for a command's process until it has become `/bin/sh`.
pub const START_MAX: Duration = Duration::from_secs(10);
/// Time that output may still come after the command itself has ended, where others hold its pipes open.
pub const DRAIN_MAX: Duration = Duration::from_millis(100);
/// Bytes read from a pipe at once.
pub const READ_BYTES: usize = 64 * 1024;
/// Time until a process tree that was sent SIGKILL must be gone.
pub const KILL_MAX: Duration = Duration::from_secs(5);
/// Time between two looks at a process tree that is being ended.
pub const KILL_PAUSE: Duration = Duration::from_millis(2);
/// Looks at a process tree that try to hold it still before it is killed in motion.
pub const FREEZE_PASSES_MAX: u32 = 50;

/// Time from the signal to end until the process ends.
pub const STOP_MAX: Duration = Duration::from_secs(7);
/// Time that a health check waits for its answer.
pub const HEALTHCHECK_MAX: Duration = Duration::from_secs(3);

const _: () = assert!(KILL_MAX.as_millis() + DRAIN_MAX.as_millis() < STOP_MAX.as_millis());
const _: () = assert!(CONNECTIONS_MAX > EXEC_RUNNING_MAX);
const _: () = assert!(LAST_REQUEST_MAX.as_millis() > EXEC_TIMEOUT_MS_MAX as u128);
