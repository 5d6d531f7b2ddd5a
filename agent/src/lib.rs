//! Language-model work: the model's port and providers, tools and their errors, memory, the task loop, negotiations.
//!
//! Not here: where a tool's work is done, and by what protocol.

mod detail;
pub mod limits;
pub mod log;
pub mod memory;
pub mod model;
pub mod negotiation;
pub mod profile;
pub mod provider;
mod redact;
pub mod task;
mod tool_error;
pub mod tools;

pub use self::detail::Detail;
pub use self::redact::redact;
pub use self::tool_error::{ErrorType, ToolError};
