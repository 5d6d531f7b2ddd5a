//! The agent crate as its users see it.

mod provider;
