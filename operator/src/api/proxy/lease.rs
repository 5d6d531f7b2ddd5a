//! For how long what was opened into a sandbox may stay open.

use sandbox_fleet::Stay;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::api::ApiError;
use crate::api::session::Session;
use crate::limits::API_LEASE_LOOK_PAUSE;
use crate::records::Records;

/// The right to stay in a sandbox.
pub(super) struct Lease {
    pub(super) session: Session,
    pub(super) records: Records,
    pub(super) stay: Stay,
    pub(super) stop: CancellationToken,
}

/// Why it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Over {
    /// The sandbox does not run any more.
    #[error("the sandbox does not run any more")]
    Sandbox,
    /// The token has expired or was revoked.
    #[error("the token opens nothing any more; sign in")]
    Token,
    /// The operator ends.
    #[error("the operator is ending")]
    Operator,
}

impl Lease {
    /// Returns when neither sandbox nor token are there any more: what is in hand when the operator ends is finished.
    pub(super) async fn lost(&mut self) -> Over {
        let mut look = interval_at(Instant::now() + API_LEASE_LOOK_PAUSE, API_LEASE_LOOK_PAUSE);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.stay.ended() => return Over::Sandbox,
                _ = look.tick() => if !self.session.is_open(&self.records) {
                    return Over::Token;
                },
            }
        }
    }

    /// Returns when it is over, also because the operator ends.
    pub(super) async fn over(&mut self) -> Over {
        let stop = self.stop.clone();
        // An operator that ends lets go of its sandboxes, which is not their end.
        tokio::select! {
            biased;
            () = stop.cancelled() => Over::Operator,
            over = self.lost() => if stop.is_cancelled() { Over::Operator } else { over },
        }
    }
}

impl From<Over> for ApiError {
    fn from(over: Over) -> Self {
        match over {
            Over::Sandbox => Self::Unreachable(over.into()),
            Over::Token => Self::Unauthorized(over.to_string()),
            Over::Operator => Self::NotReady,
        }
    }
}
