//! Sandboxes that the operator makes for itself, in the course of a call: a negotiation's moves, a workflow's runs.
//!
//! A child is a sandbox like any other, but off the registry: no row on chain stands for it, so no job can name it. Its id
//! is `sbx-<service>-<parent call>-<number>`, which nobody else can have, since a call either creates sandboxes on chain or
//! has children; by its name its parent finds it again. It ends with its parent call, besides by the ends that all have.
//!
//! Where there is no room for it, it waits: its parent is being carried out and paid for, so it is served in turn.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;

use alloy_primitives::Address;
use sandbox_protocol::{CallKey, Failure, FailureCode, SandboxId};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::handle::View;
use crate::keys::SshKeys;
use crate::limits::{CHILD_NAME_BYTES_MAX, CHILDREN_WAITING_MAX};
use crate::request::SandboxSpec;
use crate::sandbox::{Phase, Sandbox};

/// What a call calls a child of its: lower-case letters, digits, dots and dashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChildName(String);

/// A text that names no child.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a child's name: 1 to {CHILD_NAME_BYTES_MAX} lower-case letters, digits, dots and dashes")]
pub struct NotAChildName;

/// A child as it is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildOrder {
    /// The call in whose course it is made. One that creates sandboxes on chain has no children.
    pub parent: CallKey,
    /// Its name among the children of that call.
    pub name: ChildName,
    /// Whose it is: the parent's caller.
    pub owner: Address,
    /// What it is to be like.
    pub spec: SandboxSpec,
    /// Last block in which it lives, if it has not ended before.
    pub expires_at_block: Option<u64>,
}

/// A child that has no room yet, and who waits for it.
pub(crate) struct Waiting {
    pub(crate) order: Box<ChildOrder>,
    pub(crate) reply: oneshot::Sender<Result<View, Failure>>,
}

/// Who is whose child, and which wait.
#[derive(Default)]
pub(crate) struct Children {
    of: HashMap<CallKey, BTreeMap<u8, ChildName>>,
    waiting: VecDeque<Waiting>,
}

impl ChildName {
    /// The name of this text.
    ///
    /// # Errors
    /// [`NotAChildName`].
    pub fn parse(text: &str) -> Result<Self, NotAChildName> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
        if text.is_empty() || text.len() > CHILD_NAME_BYTES_MAX || !text.bytes().all(is_plain) {
            return Err(NotAChildName);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ChildName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ChildOrder {
    /// The sandbox with this number among its parent's.
    pub(crate) fn sandbox(&self, slot: u8) -> Sandbox {
        Sandbox {
            id: SandboxId { origin: self.parent, slot },
            owner: self.owner,
            spec: self.spec.clone(),
            expires_at_block: self.expires_at_block,
            warned: false,
            child: Some(self.name.clone()),
            ssh_keys: SshKeys::default(),
            keys_call: None,
            phase: Phase::Requested,
        }
    }
}

impl Children {
    /// Enters a child, or passes over a sandbox that is none.
    pub(crate) fn enter(&mut self, sandbox: &Sandbox) {
        if let Some(name) = &sandbox.child {
            self.of.entry(sandbox.id.origin).or_default().insert(sandbox.id.slot, name.clone());
        }
    }

    /// Leaves a sandbox out that is not known any more.
    pub(crate) fn leave(&mut self, id: SandboxId) {
        if let Some(of) = self.of.get_mut(&id.origin) {
            of.remove(&id.slot);
            if of.is_empty() {
                self.of.remove(&id.origin);
            }
        }
    }

    /// The children of a call that are known, also those that ended.
    pub(crate) fn of(&self, parent: CallKey) -> impl Iterator<Item = SandboxId> + '_ {
        let slots = self.of.get(&parent).into_iter().flat_map(BTreeMap::keys);
        slots.map(move |slot| SandboxId { origin: parent, slot: *slot })
    }

    /// Those of that name.
    pub(crate) fn named(&self, parent: CallKey, name: &ChildName) -> impl Iterator<Item = SandboxId> + '_ {
        let all = self.of.get(&parent).into_iter().flatten();
        let named: Vec<u8> = all.filter(|(_, found)| *found == name).map(|(slot, _)| *slot).collect();
        named.into_iter().map(move |slot| SandboxId { origin: parent, slot })
    }

    /// A number that no child of the call has.
    ///
    /// # Errors
    /// All are had.
    pub(crate) fn free_slot(&self, parent: CallKey) -> Result<u8, Failure> {
        let of = self.of.get(&parent);
        let free = (0..=u8::MAX).find(|slot| of.is_none_or(|of| !of.contains_key(slot)));
        free.ok_or_else(|| Failure::new(FailureCode::NoCapacity, "the call has made as many sandboxes as one may"))
    }

    /// Whether nobody waits before the next one.
    pub(crate) fn is_nobody_waiting(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lets a child wait.
    pub(crate) fn wait(&mut self, waiting: Waiting) {
        if self.waiting.len() >= CHILDREN_WAITING_MAX {
            waiting.refuse(FailureCode::NoCapacity, "too many sandboxes wait for room");
        } else {
            self.waiting.push_back(waiting);
        }
    }

    /// The one whose turn it is, if somebody still waits for it.
    pub(crate) fn next(&mut self) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.reply.is_closed());
        self.waiting.pop_front()
    }

    /// It is that one's turn still.
    pub(crate) fn wait_on(&mut self, waiting: Waiting) {
        self.waiting.push_front(waiting);
    }

    /// Refuses those that wait in the course of calls that have ended.
    pub(crate) fn give_up(&mut self, ended: impl Fn(CallKey) -> bool) {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (over, still): (VecDeque<Waiting>, _) = waiting.partition(|waiting| ended(waiting.order.parent));
        self.waiting = still;
        over.into_iter().for_each(|waiting| waiting.refuse(FailureCode::SandboxLost, "the call has ended"));
    }
}

impl Waiting {
    fn refuse(self, code: FailureCode, message: &str) {
        if self.reply.send(Err(Failure::new(code, message))).is_err() {
            tracing::debug!("nobody waits for the child any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes;

    #[test]
    fn a_name_has_a_form_and_a_bound() {
        assert_eq!(ChildName::parse("negotiate-abc-move.1").unwrap().to_string(), "negotiate-abc-move.1");
        assert!(ChildName::parse(&"n".repeat(CHILD_NAME_BYTES_MAX)).is_ok());
        for bad in
            [String::new(), "A".into(), "a b".into(), "ü".into(), "a/b".into(), "n".repeat(CHILD_NAME_BYTES_MAX + 1)]
        {
            assert_eq!(ChildName::parse(&bad), Err(NotAChildName), "{bad}");
        }
    }

    #[test]
    fn a_call_has_so_many_children_and_the_number_of_one_that_is_forgotten_is_free() {
        let mut children = Children::default();
        let order = fakes::child(3, "a");
        for slot in 0..=u8::MAX {
            assert_eq!(children.free_slot(order.parent), Ok(slot));
            children.enter(&order.sandbox(slot));
        }
        assert!(children.free_slot(order.parent).is_err());
        children.leave(order.sandbox(9).id);
        assert_eq!(children.free_slot(order.parent), Ok(9));
        assert_eq!(children.named(order.parent, &order.name).count(), 255);
    }
}
