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
