//! Language-model work: tools and their errors.
//!
//! Not here: where a tool's work is done, and by what protocol.

mod detail;
pub mod limits;
mod redact;
mod tool_error;

pub use self::detail::Detail;
pub use self::redact::redact;
pub use self::tool_error::{ErrorType, ToolError};
