//! Whether the operator takes new sandboxes and services. Closed while it drains; the contract's pause says the same to
//! customers, and is what a restart reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sandbox_protocol::{Failure, FailureCode};

/// The gate. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intake(Arc<AtomicBool>);

impl Intake {
    /// Opens or closes the gate.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.0.store(closed, Ordering::Relaxed);
    }

    /// Whether nothing new is taken.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Lets a new sandbox in.
    pub(crate) fn admit(&self) -> Result<(), Failure> {
        if self.is_closed() {
            return Err(Failure::new(FailureCode::NoCapacity, "this operator takes no new sandboxes now"));
        }
        Ok(())
    }
}
