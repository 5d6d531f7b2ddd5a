//! Moves that are argued about without a sandbox.

use async_trait::async_trait;
use sandbox_fleet::sandbox::Sandbox;
use sandbox_protocol::Failure;
#[cfg(test)]
use sandbox_protocol::FailureCode;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::{MoveReport, NegotiateBody};

/// Argues about moves in this process.
#[async_trait]
pub(crate) trait InProcess: Send + Sync + 'static {
    /// Argues about a move under the rules by which `parent` reaches the outside, and tells of it.
    ///
    /// # Errors
    /// The move came to nothing.
    async fn negotiate(
        &self,
        parent: &Sandbox,
        body: NegotiateBody,
        tell: &(dyn Fn(Told) + Send + Sync),
    ) -> Result<MoveReport, Failure>;
}

/// Argues about nothing here: a move without a sandbox has failed.
#[cfg(test)]
pub(crate) struct NotHere;

#[cfg(test)]
#[async_trait]
impl InProcess for NotHere {
    async fn negotiate(
        &self,
        _: &Sandbox,
        _: NegotiateBody,
        _: &(dyn Fn(Told) + Send + Sync),
    ) -> Result<MoveReport, Failure> {
        Err(Failure::new(FailureCode::Unsupported, "nothing is argued about in this operator's own process"))
    }
}
