//! Backends that are programs of others, by the real programs and a provider with a script.

mod claude;
mod fsp;
mod local;
mod opencode;
mod stage;
