//! The operator's side of the SSH gateway: what customers are told of it, and what it asks of the operator.
//!
//! The gateway itself is the crate `sandbox-gateway`; no line of its protocol is here. Keys are looked up in the fleet,
//! sandboxes are entered through their sidecars, the way out is theirs, and what happened is kept in the audit.

mod audit;
mod doors;
mod offer;

pub(crate) use audit::Audit;
pub(crate) use doors::SandboxDoors;
pub(crate) use offer::{Front, FrontError, LettingIn, SshOffer};
