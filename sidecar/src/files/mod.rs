//! Files of the workspace and the agent's home: found, read, written, moved, removed, watched.
//!
//! All of it runs in a process of its own that has become the agent; `keeper` is the sidecar's side of that, `handover`
//! what lies between. `beneath` resolves paths (`walk` where the kernel cannot), `entry`, `content`, `write`, `change`
//! and `watch` do what is asked to what was found. Not here: HTTP, tokens, and any file that the sidecar itself opens.

mod beneath;
mod change;
mod content;
mod entry;
mod error;
mod handover;
mod keeper;
mod walk;
mod watch;
mod write;

pub use self::beneath::{Means, Place, Roots};
pub use self::change::{mkdir, remove, rename};
pub use self::content::{Content, content};
pub use self::entry::{list, stat};
pub use self::error::FilesError;
pub use self::handover::Handed;
pub use self::keeper::{Connection, Files, Held, KeeperError, Served, Settings};
pub use self::watch::{Told, Watch};
pub use self::write::{Condition, UNFINISHED, Writing, begin};
