//! The execution protocol, message by message.

mod client;
mod extensions;
mod fresh;
mod languages;
mod link;
mod refusals;
mod sequences;
