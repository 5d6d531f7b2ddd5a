//! Sandboxes at the far end of a network: addresses with TLS, and keys that are renewed over HTTP.

mod dial;
mod refresh;

pub use self::dial::{Web, WebError};
pub use self::refresh::HttpRefresh;
