//! The bounds that only the sidecar keeps. Those it shares with its callers are in `sandbox_protocol::limits`.

use std::time::Duration;

use sandbox_process::serve::Bounds;
use sandbox_protocol::limits::{
    EVENT_HEARTBEAT_S, EXEC_TIMEOUT_MS_MAX, FILES_RUNNING_MAX, FSP_QUEUED_MAX, FSP_RUNNING_MAX, PTY_STALL_MS_MAX,
    SNAPSHOT_S_MAX,
};

/// Connections served at a time; the next waits to be accepted.
pub const CONNECTIONS_MAX: usize = 640;
/// Bytes of a request's line and headers.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Headers of a request.
pub const HEADERS_MAX: usize = 64;
/// Time for a request's headers, also the time that an open connection may idle.
pub const HEADER_READ_MAX: Duration = Duration::from_secs(30);
/// Age at which a connection gets no further request.
pub const CONNECTION_AGE_MAX: Duration = Duration::from_secs(600);
/// Time that a connection then has for the request in hand: more than the longest command or snapshot takes.
pub const LAST_REQUEST_MAX: Duration = Duration::from_secs(SNAPSHOT_S_MAX + 100);
/// What one connection may take.
pub const CONNECTION_BOUNDS: Bounds = Bounds {
    header_bytes_max: HEADER_BYTES_MAX,
    headers_max: HEADERS_MAX,
    header_read_max: HEADER_READ_MAX,
    age_max: CONNECTION_AGE_MAX,
    last_request_max: LAST_REQUEST_MAX,
};
/// Connections that speak the protocol at a time.
pub const FSP_CONNECTIONS_MAX: usize = 128;
/// Messages that wait to be sent through one connection.
pub const FSP_SENDS_WAITING_MAX: usize = 8;
/// Silence of a client after which it is asked whether it is there.
pub const FSP_PING_PAUSE: Duration = Duration::from_secs(30);
/// Silence of a client after which it is taken to be gone.
pub const FSP_SILENCE_MAX: Duration = Duration::from_secs(90);
/// Time for a client to hear how its executions ended with the sidecar.
pub const FSP_FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Time in which a client takes a message; a slower one is cut off.
pub const FSP_SEND_MAX: Duration = Duration::from_secs(300);
/// Time for a request's body.
pub const BODY_READ_MAX: Duration = Duration::from_secs(30);
/// Length of a bearer token.
pub const TOKEN_BYTES_MAX: usize = 4 * 1024;

/// Bytes that an execution's events take while they are kept: what is not read in time is let go beyond it.
pub const FEED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The same where all together take more than [`FEEDS_BYTES_MAX`].
pub const FEED_BYTES_MIN: usize = 256 * 1024;
/// Bytes that the events of all executions take before each may take only [`FEED_BYTES_MIN`].
pub const FEEDS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that an execution's events take that are for the reader at hand only.
pub const UNKEPT_FEED_BYTES_MAX: usize = 256 * 1024;

/// Commands that are started at a time; the next waits its turn.
pub const LAUNCHES_MAX: usize = 16;
/// Time from asking for a command's process until it has become `/bin/sh`.
pub const START_MAX: Duration = Duration::from_secs(10);
/// Silence after a command's end that makes its output complete, where others hold its pipes open.
pub const DRAIN_MAX: Duration = Duration::from_millis(100);
/// Time until a process tree that was sent SIGKILL must be gone.
pub const KILL_MAX: Duration = Duration::from_secs(5);
/// Time between two looks at a process tree that is being ended.
pub const KILL_PAUSE: Duration = Duration::from_millis(2);
/// Time for a supervisor to tell and end once nothing is left below it.
pub const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Messages of streamed stdin that wait for a program that does not read; their bytes are bounded by the window.
pub const STDIN_MESSAGES_MAX: usize = 1_024;
/// Bytes that are the beginning of a character and no character.
pub const UNFINISHED_CHARACTER_BYTES_MAX: usize = 3;
/// As far as the kernel lets a process stand back.
pub const NICENESS_MAX: i32 = 19;
/// Executions that a connection's client has been told of to their ends and that it has not let go of yet.
pub const FSP_ENDED_WAITING_MAX: usize = 64;
/// Time between two looks at the memory of executions, at the least: for that long one may have more than its limit.
pub const LOOK_PAUSE_MIN: Duration = Duration::from_millis(10);
/// Time between two looks at whom the kernel killed in an execution's control group.
pub const GROUP_LOOK_PAUSE: Duration = Duration::from_millis(50);
/// How many times as long as a look the pause after it is: looking takes a tenth of a processor at most.
pub const LOOK_SHARE: u32 = 10;
/// Fresh directories that wait to be cleared away.
pub const CLEARINGS_WAITING_MAX: usize = 1_024;
/// Characters of an execution's code that are shown of it.
pub const SUMMARY_CHARS_MAX: usize = 120;
/// Fresh directories that are cleared away at a time.
pub const CLEARED_AT_ONCE_MAX: usize = 64;
/// Time in which fresh directories are cleared away.
pub const CLEARING_MAX: Duration = Duration::from_secs(60);
/// Looks at a process tree that try to hold it still before it is killed in motion.
pub const FREEZE_PASSES_MAX: u32 = 50;

/// Time that a shell and its foreground have to end by themselves once their terminal goes away.
pub const PTY_HANGUP_MAX: Duration = Duration::from_secs(1);
/// Time for which viewers that are behind hold up others.
pub const PTY_STALL_MAX: Duration = Duration::from_millis(PTY_STALL_MS_MAX);
/// Bytes read from a terminal at once; the kernel holds less than this.
pub const PTY_READ_BYTES: usize = 16 * 1024;
/// Pause before a terminal is read again that no process has open.
pub const PTY_CLOSED_PAUSE: Duration = Duration::from_millis(50);
/// Time between two pings to a viewer.
pub const PTY_PING: Duration = Duration::from_secs(20);
/// Time after which a viewer from whom nothing is heard, no answer to a ping either, is no longer one.
pub const PTY_SILENT_MAX: Duration = Duration::from_secs(60);
/// Time that a WebSocket's last message may take, and then its other side's.
pub const SOCKET_CLOSE_MAX: Duration = Duration::from_millis(400);

/// Time for a port inside the sandbox to take a connection.
pub const TUNNEL_CONNECT_MAX: Duration = Duration::from_secs(5);
/// Bytes of a tunnel on their way, in each direction.
pub const TUNNEL_BUFFER_BYTES: usize = 64 * 1024;
/// Time between two pings through a tunnel that is a WebSocket.
pub const TUNNEL_PING: Duration = Duration::from_secs(30);

/// Time for the first frame of a channel.
pub const CHANNEL_START_READ_MAX: Duration = Duration::from_secs(10);
/// Bytes read from a program at once as long as it writes little.
pub const CHANNEL_READ_BYTES_MIN: usize = 8 * 1024;
/// Bytes that a pipe of a program's holds while much flows: a frame. More would be faster by little, and the kernel counts
/// what all pipes of a machine's user hold, those of all its sandboxes together.
pub const CHANNEL_PIPE_BYTES: usize = 256 * 1024;
/// Bytes that a pipe holds as the kernel makes it.
pub const PIPE_BYTES: usize = 64 * 1024;
/// Silence after which a channel lets go of the memory by which bytes flow.
pub const CHANNEL_IDLE: Duration = Duration::from_millis(250);
/// Frames of stdin that are shorter are put together while they wait.
pub const CHANNEL_FRAME_BYTES_MIN: usize = 16 * 1024;
/// Bytes read at once from a socket whose bytes are passed on.
pub const SOCKET_READ_BYTES: usize = 64 * 1024;
/// Length of a Unix socket's path: what the kernel takes, less the end mark.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Connections that wait to be accepted, before the kernel turns them away.
pub const LISTEN_BACKLOG: i32 = 128;
/// Free ports of one loopback address that are tried until one is free on the other as well.
pub const LISTEN_PORTS_TRIED_MAX: usize = 16;
/// Time for a Unix socket to be opened as the agent, and for its path to be removed.
pub const OPEN_SOCKET_MAX: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be accepted, for want of descriptors say.
pub const LISTEN_ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Time in which a snapshot is made or taken; it is broken off then.
pub const SNAPSHOT_MAX: Duration = Duration::from_secs(SNAPSHOT_S_MAX);
/// Time in which what an earlier restore left is cleared up.
pub const RECOVERY_MAX: Duration = Duration::from_secs(120);
/// Time for which the rest of a refused archive is read.
pub const REFUSED_BODY_MAX: Duration = Duration::from_secs(5);
/// Bytes read from an export at once.
pub const EXPORT_CHUNK_BYTES: usize = 64 * 1024;
/// Such chunks that wait for their reader.
pub const EXPORT_CHUNKS_MAX: usize = 4;
/// Bytes of what an archiving process tells at its end: what a pipe holds.
pub const TOLD_BYTES_MAX: u64 = 64 * 1024;

/// Headers in an archive: more files than this are neither exported nor restored.
pub const ARCHIVE_ENTRIES_MAX: u64 = 4_000_000;
/// Bytes of file content in an archive; the disk is the nearer bound.
pub const ARCHIVE_BYTES_MAX: u64 = 16 * TIB;
/// Bytes of an extended header: longest path and link target, and attributes that are passed over.
pub const ARCHIVE_HEADER_BYTES_MAX: usize = 256 * 1024;
/// Zeros after an archive's end; writers fill a record of theirs.
pub const ARCHIVE_TRAILING_BYTES_MAX: usize = 1024 * 1024;
/// Length of a path in an archive: what the kernel takes, less the end mark.
pub const ARCHIVE_PATH_BYTES_MAX: usize = 4_095;
/// Directories within each other below a root; each is an open file while it is worked on.
pub const ARCHIVE_DEPTH_MAX: usize = 512;
/// Length of one name in a path.
pub const FILE_NAME_BYTES_MAX: usize = 255;
/// Length of a link's target: what the kernel takes, less the end mark.
pub const SYMLINK_BYTES_MAX: usize = 4_095;
/// Size of a file with holes: the largest of any common file system.
pub const SPARSE_FILE_BYTES_MAX: u64 = 16 * TIB;
/// Stretches of data in a file with holes.
pub const SPARSE_SEGMENTS_MAX: usize = 64 * 1024;
/// Bytes of the paths by which an export remembers files of several names.
pub const HARD_LINK_PATH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes read from or written to a file at once.
pub const ARCHIVE_BUFFER_BYTES: usize = 256 * 1024;
/// Characters of a path in an error.
pub const ERROR_PATH_CHARS_MAX: usize = 256;
/// How hard to compress: what `zstd` does by itself.
pub const COMPRESSION_LEVEL: i32 = 3;
/// Threads that compress, at most as many as there are cores.
pub const COMPRESSION_WORKERS_MAX: u32 = 4;
/// Bytes that one such thread takes at a time; a few of them lie in memory for each thread.
pub const COMPRESSION_JOB_BYTES: u32 = 2 * 1024 * 1024;
/// Memory of a decompression, as a power of two: 32 MiB, more than any of zstd's ordinary levels asks for.
pub const DECOMPRESSION_WINDOW_LOG_MAX: u32 = 25;
const TIB: u64 = 1 << 40;

/// Length of a path in a request about files: what the kernel takes, less the end mark.
pub const FILES_PATH_BYTES_MAX: usize = 4_095;
/// Links that are followed on the way to a file: as many as the kernel follows.
pub const FILES_LINKS_MAX: u32 = 40;
/// Times that a path is resolved whose directories are moved meanwhile.
pub const FILES_RESOLVE_TRIES_MAX: u32 = 128;
/// Directories that one request makes on the way to its file.
pub const FILES_PARENTS_MAX: usize = 64;
/// Files that one request removes, or about so many; the next goes on.
pub const FILES_REMOVED_MAX: u64 = 200_000;
/// Paths that are told of a directory that came to a watched one with all that is in it.
pub const FILES_FOUND_MAX: usize = 10_000;
/// Bytes of a body that is no file's content.
pub const FILES_BODY_BYTES_MAX: usize = 32 * 1024;
/// Bytes read from a file at once.
pub const FILES_CHUNK_BYTES: usize = 64 * 1024;
/// Such chunks that wait for their reader or their writer.
pub const FILES_CHUNKS_MAX: usize = 4;
/// Changes that wait for the reader of a watch, before the kernel keeps them.
pub const FILES_CHANGES_MAX: usize = 64;
/// Time without a request after which the worker for files ends.
pub const FILES_IDLE_MAX: Duration = Duration::from_secs(60);
/// Time that the worker has to answer a request that it has in full, and to go on with an answer: one that takes more is
/// ended.
pub const FILES_ANSWER_MAX: Duration = Duration::from_secs(60);
/// Workers a request is handed to before it is refused: whoever ends them faster gets no answer.
pub const FILES_WORKERS_TRIED_MAX: usize = 3;
/// Time that the worker has to end by itself.
pub const FILES_END_MAX: Duration = Duration::from_secs(5);

/// Length of an SFTP packet, less the number that tells it: what OpenSSH takes.
pub const SFTP_PACKET_BYTES_MAX: usize = 256 * 1024;
/// Bytes that one SFTP request reads or writes; a packet has room for its head besides.
pub const SFTP_DATA_BYTES_MAX: usize = SFTP_PACKET_BYTES_MAX - 1024;
/// Files and directories that an SFTP client has open.
pub const SFTP_HANDLES_MAX: usize = 1_000;
/// Bytes of SFTP requests that are read at once.
pub const SFTP_INPUT_BYTES: usize = 512 * 1024;
/// Bytes of SFTP answers from which on they are written, though more requests are here.
pub const SFTP_ANSWERS_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a directory's entries, as the kernel has them, that one SFTP answer tells: clients take 34,000 at least.
pub const SFTP_ENTRIES_BYTES_MAX: usize = 4 * 1024;
/// Bytes that are copied from file to file at once.
pub const SFTP_COPY_BYTES: usize = 1024 * 1024;
/// Bytes read of the list of users, and of that of groups.
pub const SFTP_PEOPLE_BYTES_MAX: u64 = 1024 * 1024;
/// Length of a user's or group's name there; longer ones are nobody's.
pub const SFTP_PERSON_BYTES_MAX: usize = 255;

/// Connections to the operator's proxy at a time; the next waits to be accepted.
pub const EGRESS_CONNECTIONS_MAX: usize = 256;
/// Bytes of such a connection on their way, in each direction.
pub const EGRESS_BUFFER_BYTES: usize = 16 * 1024;
/// Time for the proxy to take a connection.
pub const EGRESS_CONNECT_MAX: Duration = Duration::from_secs(5);
/// Time in which one who cannot be served takes the answer.
pub const EGRESS_REFUSAL_MAX: Duration = Duration::from_secs(5);
/// Bytes of a request that are read though it cannot be served.
pub const EGRESS_REFUSED_BYTES_MAX: u64 = 1024 * 1024;
/// Pause after a connection that could not be accepted, for want of descriptors say.
pub const EGRESS_ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Time from the signal to end until the process ends.
pub const STOP_MAX: Duration = Duration::from_secs(7);
/// Time that a health check waits for its answer.
pub const HEALTHCHECK_MAX: Duration = Duration::from_secs(3);

const _: () = assert!(KILL_MAX.as_millis() + FAREWELL_MAX.as_millis() + DRAIN_MAX.as_millis() < STOP_MAX.as_millis());
const _: () = assert!(
    PTY_HANGUP_MAX.as_millis() + KILL_MAX.as_millis() + 2 * SOCKET_CLOSE_MAX.as_millis() < STOP_MAX.as_millis()
);
const _: () = assert!(CONNECTIONS_MAX > FSP_RUNNING_MAX + FSP_QUEUED_MAX);
const _: () = assert!(LAST_REQUEST_MAX.as_millis() > EXEC_TIMEOUT_MS_MAX as u128);
const _: () = assert!(LAST_REQUEST_MAX.as_secs() > SNAPSHOT_S_MAX);
const _: () = assert!(EVENT_HEARTBEAT_S < FILES_ANSWER_MAX.as_secs() && FILES_RUNNING_MAX < CONNECTIONS_MAX);
const _: () = assert!(3 * FILES_PATH_BYTES_MAX < HEADER_BYTES_MAX && 8 * FILES_PATH_BYTES_MAX < FILES_BODY_BYTES_MAX);
const _: () = assert!(SFTP_INPUT_BYTES >= 4 + SFTP_PACKET_BYTES_MAX);

/// Time in which the agents' process starts.
pub const AGENTD_START_MAX: Duration = Duration::from_secs(10);
/// Time in which it ends by itself.
pub const AGENTD_END_MAX: Duration = Duration::from_secs(6);
