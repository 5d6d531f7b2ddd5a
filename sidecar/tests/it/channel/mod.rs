//! Channels to programs, and the sockets that go along, as an operator sees them.

mod client;
mod hardened;
mod life;
mod listen;
mod program;
mod refusals;
mod speed;
mod terminal;
