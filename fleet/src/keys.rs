//! SSH keys of a sandbox: which open it, and up to which block.
//!
//! They are a part of its record, so they outlast a stop and a restart, and end with it. Blocks arrive as arguments; a
//! head that is not known yet lets no key in whose time is bounded.

use alloy_primitives::Address;
use sandbox_protocol::limits::SSH_KEYS_MAX;
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::{CallKey, Failure, FailureCode};
use serde::{Deserialize, Serialize};

/// A key on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshKey {
    /// The key.
    pub key: PublicKey,
    /// Last block in which it opens the sandbox; `None`: as long as there is one.
    pub expires_at_block: Option<u64>,
    /// Who admitted it.
    pub admitted_by: Address,
}

/// The keys of one sandbox, in the order of their admission.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SshKeys(Vec<SshKey>);

/// Where a key stands with a sandbox that has it on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It opens the sandbox.
    Open,
    /// It did, up to this block.
    Expired {
        /// The last block in which it opened the sandbox.
        at_block: u64,
    },
    /// Its time is bounded, and what block it is nobody has told yet.
    Unsure,
}

/// What is to be done to the keys of a sandbox, and by which call; a call does it once, in however many lives it is worked
/// on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOrder {
    /// What.
    pub change: KeyChange,
    /// The call; `None`: it was asked for without one.
    pub call: Option<CallKey>,
}

/// What is to be done to the keys of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// It opens the sandbox from now on; for one that is on record, the new end replaces the former one.
    Admit(SshKey),
    /// It opens the sandbox no more; harmless where it never did.
    Revoke(PublicKey),
}

impl SshKey {
    /// Where it stands when the chain is at `head`.
    pub const fn standing(&self, head: Option<u64>) -> Standing {
        match (self.expires_at_block, head) {
            (None, _) => Standing::Open,
            (Some(_), None) => Standing::Unsure,
            (Some(at_block), Some(head)) if at_block < head => Standing::Expired { at_block },
            (Some(_), Some(_)) => Standing::Open,
        }
    }
}

impl SshKeys {
    /// One key.
    pub fn of(key: SshKey) -> Self {
        Self(vec![key])
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &SshKey> {
        self.0.iter()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where `key` stands when the chain is at `head`; `None` for one that is not on record.
    pub fn standing(&self, key: &PublicKey, head: Option<u64>) -> Option<Standing> {
        self.0.iter().find(|entry| entry.key == *key).map(|entry| entry.standing(head))
    }

    /// Does `change` at `head`; whether it changed anything.
    ///
    /// # Errors
    /// `BadRequest`: as many keys as may be open the sandbox already.
    pub fn change(&mut self, change: KeyChange, head: Option<u64>) -> Result<bool, Failure> {
        match change {
            KeyChange::Admit(key) => self.admit(key, head),
            KeyChange::Revoke(key) => {
                let before = self.0.len();
                self.0.retain(|entry| entry.key != key);
                Ok(self.0.len() < before)
            }
        }
    }

    fn admit(&mut self, key: SshKey, head: Option<u64>) -> Result<bool, Failure> {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.key == key.key) {
            let is_new = *entry != key;
            *entry = key;
            return Ok(is_new);
        }
        if self.0.len() >= SSH_KEYS_MAX {
            self.0.retain(|entry| !matches!(entry.standing(head), Standing::Expired { .. }));
        }
        if self.0.len() >= SSH_KEYS_MAX {
            let message =
                format!("ssh_public_key: {SSH_KEYS_MAX} keys open the sandbox, which is the most; revoke one");
            return Err(Failure::new(FailureCode::BadRequest, message));
        }
        self.0.push(key);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::fakes::{OWNER, ssh_key};

    fn entry(number: u8, expires_at_block: Option<u64>) -> SshKey {
        SshKey { key: ssh_key(number), expires_at_block, admitted_by: OWNER }
    }

    fn admitted(entries: impl IntoIterator<Item = SshKey>) -> SshKeys {
        let mut keys = SshKeys::default();
        for entry in entries {
            assert_eq!(keys.change(KeyChange::Admit(entry), Some(10)), Ok(true));
        }
        keys
    }

    #[test]
    fn a_key_opens_in_its_last_block_and_not_in_the_next() {
        let keys = admitted([entry(1, Some(100)), entry(2, None)]);
        assert_eq!(keys.standing(&ssh_key(1), Some(100)), Some(Standing::Open));
        assert_eq!(keys.standing(&ssh_key(1), Some(101)), Some(Standing::Expired { at_block: 100 }));
        assert_eq!(keys.standing(&ssh_key(2), Some(u64::MAX)), Some(Standing::Open));
        assert_eq!(keys.standing(&ssh_key(3), Some(1)), None);
    }

    #[test]
    fn without_a_head_only_keys_without_an_end_open() {
        let keys = admitted([entry(1, Some(100)), entry(2, None)]);
        assert_eq!(keys.standing(&ssh_key(1), None), Some(Standing::Unsure));
        assert_eq!(keys.standing(&ssh_key(2), None), Some(Standing::Open));
    }

    #[test]
    fn a_repeat_replaces_the_end_and_a_revoked_key_is_gone_however_often_it_is_revoked() {
        let mut keys = admitted([entry(1, Some(100))]);
        assert_eq!(keys.change(KeyChange::Admit(entry(1, Some(100))), None), Ok(false));
        assert_eq!(keys.change(KeyChange::Admit(entry(1, Some(50))), None), Ok(true));
        assert_eq!(keys.standing(&ssh_key(1), Some(51)), Some(Standing::Expired { at_block: 50 }));
        assert_eq!(keys.change(KeyChange::Revoke(ssh_key(1)), None), Ok(true));
        assert_eq!(keys.change(KeyChange::Revoke(ssh_key(1)), None), Ok(false));
        assert!(keys.is_empty());
    }

    proptest! {
        /// Against what a map would say, with the head only ever rising.
        #[test]
        fn keys_are_what_was_admitted_last_and_not_revoked(
            steps in prop::collection::vec((0_u8..8, 0_u8..3, prop::option::of(0_u64..40), 0_u64..2), 0..200)
        ) {
            let (mut keys, mut model, mut head) = (SshKeys::default(), BTreeMap::new(), 0);
            for (number, what, end, blocks) in steps {
                head += blocks;
                let changed = if what == 0 {
                    let was_there = model.remove(&number).is_some();
                    prop_assert_eq!(keys.change(KeyChange::Revoke(ssh_key(number)), Some(head)), Ok(was_there));
                    was_there
                } else {
                    let is_new = model.insert(number, end) != Some(end);
                    prop_assert_eq!(keys.change(KeyChange::Admit(entry(number, end)), Some(head)), Ok(is_new));
                    is_new
                };
                prop_assert_eq!(keys.iter().count(), model.len(), "changed: {}", changed);
                for number in 0..8 {
                    let standing = model.get(&number).map(|end| match end {
                        Some(at_block) if *at_block < head => Standing::Expired { at_block: *at_block },
                        _ => Standing::Open,
                    });
                    prop_assert_eq!(keys.standing(&ssh_key(number), Some(head)), standing);
                }
            }
        }
    }

    #[test]
    fn one_key_more_than_the_most_is_refused_unless_an_expired_one_makes_room() {
        let most = SSH_KEYS_MAX as u8;
        let mut keys = admitted((1..=most).map(|number| entry(number, Some(100))));
        let more = || KeyChange::Admit(entry(most + 1, None));
        let refused = keys.change(more(), Some(100)).unwrap_err();
        assert_eq!(refused.code, FailureCode::BadRequest);
        assert!(keys.change(more(), None).is_err(), "whose time is over is not known");
        assert_eq!(
            keys.change(KeyChange::Admit(entry(1, None)), Some(100)),
            Ok(true),
            "one that is there needs no room"
        );
        assert_eq!(keys.change(more(), Some(101)), Ok(true));
        let left: Vec<_> = keys.iter().map(|entry| entry.key.clone()).collect();
        assert_eq!(left, [ssh_key(1), ssh_key(most + 1)]);
    }
}
