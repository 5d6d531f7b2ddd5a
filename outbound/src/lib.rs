//! Every connection that an operator's host makes to an address that a customer names: the proxy through which
//! sandboxes reach the outside, and the stores that snapshots go to and come from.
//!
//! All of them go by one guard, which looks at addresses after names have been resolved and connects to exactly what
//! it looked at. Not here: who the customers are, containers, chains, configuration's source. Of ours only
//! `sandbox-protocol` is known.

pub mod address;
pub mod blobs;
pub mod egress;
pub mod limits;
