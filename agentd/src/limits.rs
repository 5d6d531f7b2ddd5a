//! Bounds of this process. Those that customers see are in `protocol::limits`.

use std::time::Duration;

use sandbox_process::serve::Bounds;

/// Connections of the sidecar at a time: one for each request, so as many as wait, run and are followed.
pub const CONNECTIONS_MAX: usize = 512;
/// What one connection may take. A request is a run, and lasts as long.
pub const CONNECTION_BOUNDS: Bounds = Bounds {
    header_bytes_max: 16 * 1024,
    headers_max: 64,
    header_read_max: Duration::from_secs(10),
    age_max: Duration::from_secs(3_600),
    last_request_max: Duration::from_secs(1),
};
/// Bytes of the events of one run. Beyond, pieces of words and thoughts are left out; all else is told.
pub const EVENTS_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Time in which what is no longer wanted ends, before it is left behind.
pub const END_GRACE: Duration = Duration::from_secs(10);
/// Time for which a process waits for the one before it; the sidecar waits longer for both.
pub const ALONE_MAX: Duration = Duration::from_secs(8);
/// Time in which runs end when the process does.
pub const STOP_MAX: Duration = Duration::from_secs(5);
/// Bytes kept of each of stdout and stderr of a program.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Length of an answer about files that is not a file's content.
pub const FILES_REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time of a request about a file.
pub const FILE_ANSWER_MAX: Duration = Duration::from_secs(30);
