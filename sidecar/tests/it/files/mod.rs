//! What `/files` promises.

mod change;
mod content;
mod desk;
mod hostile;
mod listing;
mod size;
mod watch;
mod worker;
