//! The server inside every sandbox: runs commands as the sandbox's user and hands back what they wrote.
//!
//! [`config`] is read once, [`http`] translates, [`exec`] runs. Not here: anything about chains, operators or
//! containers, and nothing that a customer could make run as the sidecar's own user.

pub mod config;
pub mod exec;
pub mod first;
pub mod healthcheck;
pub mod http;
pub mod limits;
