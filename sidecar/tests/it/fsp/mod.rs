//! The execution protocol, message by message.

mod extensions;
mod fresh;
mod link;
mod refusals;
mod sequences;
