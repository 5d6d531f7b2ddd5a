//! Snapshots through the real program: what goes out comes in again, and what should not does not.

mod archives;
mod export;
mod host;
mod hostile;
mod restore;
