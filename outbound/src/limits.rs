//! The bounds of outbound connections.

use std::time::Duration;

/// Bytes of a host's name, as DNS has it.
pub const HOST_BYTES_MAX: usize = 253;
/// Time for resolving a name, over all of its servers.
pub const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// Addresses of a name that are looked at; a name with more is refused.
pub const ADDRESSES_MAX: usize = 64;
/// Time for one address to accept a connection; the next address is tried after it.
pub const CONNECT_ADDRESS_MAX: Duration = Duration::from_secs(5);
/// Time for all addresses of a name to accept a connection.
pub const CONNECT_MAX: Duration = Duration::from_secs(15);
/// Entries in the operator's list of addresses that may be reached although they are private.
pub const EXCEPTIONS_MAX: usize = 256;

/// Entries of a list of egress rules.
pub const RULES_MAX: usize = 256;
/// Length of the text of such a list.
pub const RULES_BYTES_MAX: usize = 16 * 1024;
/// Host services of an operator.
pub const SERVICES_MAX: usize = 64;
/// Headers that a host service adds.
pub const SERVICE_HEADERS_MAX: usize = 16;
/// Sandboxes with egress at a time, unless the operator sets another number; each takes a descriptor.
pub const SANDBOXES_DEFAULT: usize = 4096;
/// Path of a Unix socket: what `sockaddr_un` holds, less the final zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Connections of one sandbox at a time, unless the operator sets another number.
pub const CONNECTIONS_PER_SANDBOX_DEFAULT: usize = 256;
/// Connections of all sandboxes at a time, unless the operator sets another number; each takes two descriptors.
pub const CONNECTIONS_DEFAULT: usize = 4096;
/// Bytes of a request's line and headers.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Headers of a request, and of a response.
pub const HEADERS_MAX: usize = 128;
/// Time for a request's headers, also the time that a connection may wait for its next request.
pub const HEADER_READ_DEFAULT: Duration = Duration::from_secs(30);
/// Time that a connection or tunnel may stand without a byte in either direction.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(600);
/// Time that a connection to the outside is kept for the next request.
pub const POOL_IDLE_MAX: Duration = Duration::from_secs(30);
/// Connections to one outside host that are kept so.
pub const POOL_IDLE_PER_HOST_MAX: usize = 8;
/// Buffer of a tunnel, per direction.
pub const TUNNEL_BUFFER_BYTES: usize = 64 * 1024;
/// How far ahead of its rate a sandbox may run.
pub const BURST_MAX: Duration = Duration::from_millis(100);
/// Pause after a connection that could not be accepted, for want of descriptors say.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

const _: () = assert!(CONNECTIONS_PER_SANDBOX_DEFAULT <= CONNECTIONS_DEFAULT);

/// Bytes of the text that names a snapshot's place; presigned URLs with session tokens take about 2,000.
pub const LOCATION_BYTES_MAX: usize = 8_192;
/// Bytes of a manifest that is read.
pub const MANIFEST_BYTES_MAX: usize = 4_096;
/// Bytes of a key: what S3 has, less room for the end of the manifest's name.
pub const S3_KEY_BYTES_MAX: usize = 1_024 - 32;
/// Bytes of a file's or directory's name: what Linux has, less room for the end of the manifest's name.
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 255 - 32;
/// What a put hands on at a time where it does not hold whole parts.
pub const CHUNK_BYTES: usize = 256 * 1024;
/// Chunks that wait for a slow destination.
pub const CHUNKS_QUEUED_MAX: usize = 8;
/// A stream of unknown length that ends within this goes to a web server with its length.
pub const WEB_HEAD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// An upload up to this length goes to a web server together with its headers.
pub const WEB_AT_ONCE_BYTES_MAX: u64 = 1024 * 1024;
/// Time in which a web server may refuse a longer one by its headers, before the body follows.
pub const WEB_PAUSE: Duration = Duration::from_secs(1);
/// Redirects that a download follows.
pub const REDIRECTS_MAX: usize = 5;
/// Bytes of an answer that is read as text.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Time for a server to answer a request after its body has been sent.
pub const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Time without any progress that ends a transfer.
pub const STALL_MAX: Duration = Duration::from_secs(60);
/// Parts of an object in S3, as the service has it.
pub const S3_PARTS_MAX: usize = 10_000;
/// Parts in S3 begin with this size; shorter streams go in one request.
pub const S3_PART_MIB_MIN: u32 = 8;
/// And grow to this, which with the number of parts bounds an object at 226 GiB (253 GiB where its size is announced).
pub const S3_PART_MIB_MAX: u32 = 26;
/// Memory for the parts of one upload, those being filled and those on their way.
pub const S3_MEMORY_MIB_MAX: u32 = 52;
/// Time for a part to be sent once.
pub const S3_REQUEST_MAX: Duration = Duration::from_secs(180);
/// Times a part is sent again after a server's fault or a broken connection.
pub const S3_RETRIES_MAX: usize = 4;
/// Time after which a part is not sent again.
pub const S3_RETRY_MAX: Duration = Duration::from_secs(240);
/// Time in which a download goes on where it broke off: for as long as the longest lasts.
pub const S3_DOWNLOAD_RETRY_MAX: Duration = Duration::from_secs(24 * 3600);
/// Time that parts on their way have to arrive before their upload is given up.
pub const S3_SETTLE_MAX: Duration = Duration::from_secs(10);
/// Time for giving up an upload whose end cannot be waited for.
pub const S3_ABORT_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(S3_MEMORY_MIB_MAX <= 64 && S3_MEMORY_MIB_MAX >= 2 * S3_PART_MIB_MAX);
