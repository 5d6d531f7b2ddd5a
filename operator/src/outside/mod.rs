//! What leaves the sandboxes of this host, and where their snapshots go: the way into `sandbox-outbound`.
//!
//! Everything a customer names here (hosts, buckets, directories) is checked there; this folder says for whom and tells
//! the customer in our own words what became of it.

mod config;
mod egress;
mod lend;
mod snapshots;

pub(crate) use config::{OutsideConfig, OutsideError};
pub(crate) use egress::{Proxy, check_rules};
pub(crate) use snapshots::Stores;
