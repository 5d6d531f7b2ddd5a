//! Language-model work: the model's port and providers, tools and their errors, memory, the task loop, negotiations.
//!
//! Not here: where a tool's work is done, and by what protocol.

mod detail;
pub mod limits;
pub mod model;
pub mod negotiation;
pub mod profile;
mod redact;
mod tool_error;

pub use self::detail::Detail;
pub use self::redact::redact;
pub use self::tool_error::{ErrorType, ToolError};
