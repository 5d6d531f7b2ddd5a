//! How much the provider keeps and sends.

/// Requests that are remembered; the oldest are forgotten first.
pub(crate) const REQUESTS_KEPT_MAX: usize = 20_000;
/// Length of a request.
pub(crate) const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Pieces that a text is streamed in, unless its script cuts it otherwise.
pub(crate) const PIECES_MAX: usize = 12;
/// Length of the pieces in which arguments of a tool call are streamed.
pub(crate) const ARGUMENT_PIECE_BYTES: usize = 8;
/// Dimensions of an embedding.
pub(crate) const DIMENSIONS: usize = 64;
