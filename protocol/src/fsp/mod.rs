//! The Fathom Sandbox Protocol, version 1: how code is run over a WebSocket, and what is said about what ran.
//!
//! A client sends [`ClientMessage`]s, a sandbox answers with [`ServerMessage`]s; `wire` writes and reads them as JSON text,
//! `binary` as frames for bulk. A message that cannot be taken is a [`Refusal`].
//!
//! An execution is ended by exactly one of `result` and `error` with its id. What the sandbox refuses without ending
//! an execution that runs on the same connection under that id, it refuses without the id.
//!
//! What goes beyond version 1 are [`Extension`]s: a client names them in [`EXTENSIONS_HEADER`], the sandbox answers with
//! those that it grants, and a client that names none sees version 1 and nothing else.

mod binary;
mod message;
mod refusal;
#[cfg(test)]
mod tests;
mod wire;
mod words;

pub use self::binary::{Frame, Kind};
pub use self::message::{
    ClientMessage, Ended, Execute, Extra, Limits, Load, ServerBody, ServerMessage, Status, Usage, is_execution_id,
};
pub use self::refusal::{ErrorCode, Refusal};
pub use self::wire::{decode_client, decode_server, encode_client, encode_server, timestamp};
pub use self::words::{Extension, Extensions, Language, Signal, Stream};

/// The version that every message names.
pub const VERSION: u64 = 1;
/// Where a sandbox serves it.
pub const ROUTE: &str = "/fsp";
/// Header of the upgrade request with the version.
pub const VERSION_HEADER: &str = "x-protocol-version";
/// Header of the upgrade request with the extensions that a client asks for, and of the answer with those it gets:
/// names with commas between them.
pub const EXTENSIONS_HEADER: &str = "x-protocol-extensions";
