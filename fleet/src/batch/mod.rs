//! What an operator makes of batches, and what their customers make of the answers: the same functions on both sides.

mod majority;
mod part;

pub use majority::majority;
pub use part::{Part, Rest, Upshot};
