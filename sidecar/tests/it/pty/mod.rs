//! Terminals, as those who view them see them.

mod flow;
mod life;
mod limits;
mod terminal;
mod view;
pub(crate) use self::view::{View, connect};
mod viewers;
