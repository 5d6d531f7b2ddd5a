//! Whether the operator takes new sandboxes and services. Closed while it drains; the contract's pause says the same to
//! customers, and is what a restart reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sandbox_protocol::{Failure, FailureCode};

/// The gate. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Intake(Arc<AtomicBool>);

impl Intake {
    /// A gate that is closed, or open.
    pub(crate) fn new(closed: bool) -> Self {
        Self(Arc::new(closed.into()))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_answers_as_a_full_operator_does_until_it_is_opened() {
        let gate = Intake::new(true);
        let shared = gate.clone();
        assert_eq!(shared.admit().unwrap_err().code, FailureCode::NoCapacity);
        gate.set_closed(false);
        assert!(shared.admit().is_ok());
    }
}
