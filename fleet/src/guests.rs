//! Who comes with a key: looked up without a word to the keeper, and told when the key, or the sandbox, opens no more.
//!
//! The keeper alone writes here. A look-up takes one reading lock, and compares at most as many keys as one sandbox may
//! have: fractions of a microsecond, for unknown sandboxes as for known ones.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use alloy_primitives::Address;
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::{Failure, SandboxId};
use tokio::sync::watch;

use crate::activity::Activity;
use crate::handle::{View, runs};
use crate::keys::Standing;
use crate::sandbox::{Instance, Phase, Sandbox};

/// Every sandbox that the keeper knows, and the height of the chain. Clones share it.
#[derive(Clone)]
pub(crate) struct Directory {
    known: Arc<RwLock<HashMap<SandboxId, (View, Activity)>>>,
    head: watch::Sender<Option<u64>>,
}

/// A running sandbox, entered with a key.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The sandbox, as it was then.
    pub sandbox: Sandbox,
    /// The container that was entered.
    pub instance: Instance,
    /// Where what happens in it is noted.
    pub activity: Activity,
    key: PublicKey,
    view: View,
    head: watch::Receiver<Option<u64>>,
}

/// Why somebody with a key does not get in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoGuest {
    /// The key is not on record, or there is no such sandbox.
    #[error("no sandbox has this key on record")]
    Stranger,
    /// The key's time is over.
    #[error("the key has expired at block {at_block}")]
    Expired {
        /// The last block in which it opened the sandbox.
        at_block: u64,
    },
    /// Whether it is over cannot be told yet, or the keeper has stopped.
    #[error("the operator cannot tell now")]
    Later,
    /// The sandbox rests.
    #[error("the sandbox is stopped")]
    Stopped,
    /// It does not run, for another reason: its phase.
    #[error("the sandbox is {0}")]
    NotRunning(&'static str),
    /// It was to be resumed, and that failed.
    #[error("the sandbox could not be resumed")]
    NotResumed(#[source] Failure),
}

/// Why a guest has to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The key was revoked.
    Revoked,
    /// The key's time is over.
    Expired,
    /// The container that was entered does not run any more.
    Sandbox,
    /// The keeper has stopped.
    Keeper,
}

impl Default for Directory {
    fn default() -> Self {
        Self { known: Arc::default(), head: watch::Sender::new(None) }
    }
}

impl Directory {
    pub(crate) fn enter(&self, id: SandboxId, view: View, activity: Activity) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(id, (view, activity));
    }

    pub(crate) fn leave(&self, id: SandboxId) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    pub(crate) fn advance(&self, head: u64) {
        self.head.send_if_modified(|known| known.replace(head) != Some(head));
    }

    pub(crate) fn head(&self) -> Option<u64> {
        *self.head.borrow()
    }

    pub(crate) fn standing(&self, id: SandboxId, key: &PublicKey) -> Option<Standing> {
        let head = self.head();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&id).and_then(|(view, _)| view.borrow().ssh_keys.standing(key, head))
    }

    pub(crate) fn owner(&self, id: SandboxId) -> Option<Address> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&id).map(|(view, _)| view.borrow().owner)
    }

    pub(crate) fn guest(&self, id: SandboxId, key: &PublicKey) -> Result<Guest, NoGuest> {
        let found = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        let (view, activity) = found.ok_or(NoGuest::Stranger)?;
        let standing = view.borrow().ssh_keys.standing(key, self.head());
        match standing.ok_or(NoGuest::Stranger)? {
            Standing::Open => {}
            Standing::Expired { at_block } => return Err(NoGuest::Expired { at_block }),
            Standing::Unsure => return Err(NoGuest::Later),
        }
        // Noted before it is looked at: what is seen to run is not stopped for idleness meanwhile.
        activity.touch();
        let sandbox = view.borrow().clone();
        match sandbox.phase.clone() {
            Phase::Running(_) if view.has_changed().is_err() => Err(NoGuest::Later),
            Phase::Running(instance) => {
                Ok(Guest { sandbox, instance, activity, key: key.clone(), view, head: self.head.subscribe() })
            }
            Phase::Stopping(_) | Phase::Stopped(_) => Err(NoGuest::Stopped),
            phase @ (Phase::Requested
            | Phase::Provisioning
            | Phase::Resuming(..)
            | Phase::Deleting(_)
            | Phase::Gone(_)
            | Phase::Discarding(_)
            | Phase::Failed(_)) => Err(NoGuest::NotRunning(phase.name())),
        }
    }
}

impl Guest {
    /// Returns once the key opens the container that was entered no more.
    pub async fn departure(&self) -> Departure {
        let (mut view, mut head) = (self.view.clone(), self.head.clone());
        loop {
            let found = {
                let sandbox = view.borrow_and_update();
                self.must_leave(&sandbox, *head.borrow_and_update())
            };
            if let Some(departure) = found {
                return departure;
            }
            tokio::select! {
                changed = view.changed() => if changed.is_err() {
                    // A driver that has ended with its sandbox has published that before.
                    return self.must_leave(&view.borrow(), None).unwrap_or(Departure::Keeper);
                },
                changed = head.changed() => if changed.is_err() {
                    return Departure::Keeper;
                },
            }
        }
    }

    fn must_leave(&self, sandbox: &Sandbox, head: Option<u64>) -> Option<Departure> {
        if !runs(sandbox, &self.instance) {
            return Some(Departure::Sandbox);
        }
        match sandbox.ssh_keys.standing(&self.key, head) {
            None => Some(Departure::Revoked),
            Some(Standing::Expired { .. }) => Some(Departure::Expired),
            Some(Standing::Open | Standing::Unsure) => None,
        }
    }
}
