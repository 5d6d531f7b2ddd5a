//! Promises to those who come with a key, kept by keeper and drivers over fake ports on a paused clock.

mod node;

use std::sync::Arc;

use alloy_primitives::Address;
use sandbox_fleet::fakes::{FakeWorld, OWNER, sandbox, ssh_key};
use sandbox_fleet::keys::{KeyChange, KeyOrder, SshKey, SshKeys, Standing};
use sandbox_fleet::sandbox::{EndReason, Sandbox};
use sandbox_fleet::{Departure, Guest, NoGuest};
use sandbox_protocol::limits::SSH_KEYS_MAX;
use sandbox_protocol::{CallKey, FailureCode, SandboxId};

use node::{Node, code};

const STRANGER: Address = Address::repeat_byte(2);

fn id() -> SandboxId {
    sandbox(0).id
}

/// A running sandbox that a key opens up to block 100, in block 1.
#[allow(clippy::unwrap_used)] // what fails here fails the test
async fn opened() -> (Node, Guest) {
    let node = Node::start(Arc::new(FakeWorld::default()), (2, 2), Vec::new());
    node.fleet.create(sandbox(0)).await.unwrap();
    node.fleet.reached(1);
    node.fleet.admit_key(id(), OWNER, ssh_key(1), Some(100)).await.unwrap();
    let guest = node.fleet.guest(id(), &ssh_key(1)).unwrap();
    (node, guest)
}

#[tokio::test(start_paused = true)]
async fn a_key_opens_the_sandbox_from_the_answer_on_and_no_other() {
    let (node, guest) = opened().await;
    assert_eq!(guest.sandbox.id, id());
    assert_eq!(node.fleet.standing(id(), &ssh_key(1)), Some(Standing::Open));
    assert_eq!(node.fleet.standing(id(), &ssh_key(2)), None);
    assert_eq!(node.fleet.standing(sandbox(1).id, &ssh_key(1)), None);
    assert_eq!(node.fleet.guest(id(), &ssh_key(2)).unwrap_err(), NoGuest::Stranger);
    assert_eq!(node.fleet.guest(sandbox(1).id, &ssh_key(1)).unwrap_err(), NoGuest::Stranger);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_neither_admits_nor_revokes_keys() {
    let (node, _) = opened().await;
    let admitted = node.fleet.admit_key(id(), STRANGER, ssh_key(2), None).await;
    let revoked = node.fleet.revoke_key(id(), STRANGER, ssh_key(1)).await;
    assert_eq!([admitted, revoked].map(|refused| code(refused.unwrap_err())), [FailureCode::SandboxLost; 2]);
    assert_eq!(node.fleet.standing(id(), &ssh_key(1)), Some(Standing::Open));
    assert_eq!(node.fleet.standing(id(), &ssh_key(2)), None);
}

#[tokio::test(start_paused = true)]
async fn a_guest_leaves_when_its_key_is_revoked_and_revoking_twice_succeeds() {
    let (node, guest) = opened().await;
    node.fleet.admit_key(id(), OWNER, ssh_key(2), None).await.unwrap();
    let other = node.fleet.guest(id(), &ssh_key(2)).unwrap();
    let (left, revoked) = tokio::join!(guest.departure(), node.fleet.revoke_key(id(), OWNER, ssh_key(1)));
    assert_eq!((left, revoked.unwrap().changed), (Departure::Revoked, true));
    assert!(!node.fleet.revoke_key(id(), OWNER, ssh_key(1)).await.unwrap().changed);
    assert_eq!(node.fleet.standing(id(), &ssh_key(1)), None);
    assert!(still_waits(other.departure()).await, "another key's guest stays");
}

#[tokio::test(start_paused = true)]
async fn a_guest_stays_in_its_keys_last_block_and_leaves_in_the_next() {
    let (node, guest) = opened().await;
    node.fleet.reached(100);
    assert!(still_waits(guest.departure()).await);
    node.fleet.reached(101);
    assert_eq!(guest.departure().await, Departure::Expired);
    assert_eq!(node.fleet.standing(id(), &ssh_key(1)), Some(Standing::Expired { at_block: 100 }));
    assert_eq!(node.fleet.guest(id(), &ssh_key(1)).unwrap_err(), NoGuest::Expired { at_block: 100 });
    node.fleet.admit_key(id(), OWNER, ssh_key(1), Some(200)).await.unwrap();
    assert!(node.fleet.guest(id(), &ssh_key(1)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_stop_or_an_end_has_guests_leave_and_the_keys_stay() {
    let (node, guest) = opened().await;
    node.fleet.stop(id(), OWNER).await.unwrap();
    assert_eq!(guest.departure().await, Departure::Sandbox);
    assert_eq!(node.fleet.guest(id(), &ssh_key(1)).unwrap_err(), NoGuest::Stopped);
    node.fleet.admit_key(id(), OWNER, ssh_key(2), None).await.unwrap();
    let back = node.fleet.guest_resuming(id(), &ssh_key(2)).await.unwrap();
    assert!(node.fleet.guest(id(), &ssh_key(1)).is_ok());
    node.fleet.end(id(), EndReason::Expired).await;
    assert_eq!(back.departure().await, Departure::Sandbox);
    node.fleet.delete(id(), OWNER).await.unwrap();
    assert_eq!(node.fleet.guest(id(), &ssh_key(1)).unwrap_err(), NoGuest::NotRunning("gone"));
    let late = node.fleet.admit_key(id(), OWNER, ssh_key(3), None).await;
    assert_eq!(code(late.unwrap_err()), FailureCode::SandboxLost);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_cannot_be_resumed_tells_its_guest_why() {
    let (node, _) = opened().await;
    node.fleet.stop(id(), OWNER).await.unwrap();
    node.world.fail_next([FailureCode::Engine]);
    let refused = node.fleet.guest_resuming(id(), &ssh_key(1)).await.unwrap_err();
    assert!(matches!(refused, NoGuest::NotResumed(failure) if failure.code == FailureCode::Engine));
    assert_eq!(node.fleet.guest_resuming(id(), &ssh_key(2)).await.unwrap_err(), NoGuest::Stranger);
}

#[tokio::test(start_paused = true)]
async fn keys_outlast_a_restart_and_those_with_an_end_wait_for_the_first_block() {
    let (before, _) = opened().await;
    before.fleet.admit_key(id(), OWNER, ssh_key(2), None).await.unwrap();
    let known = before.fleet.list(OWNER).await.unwrap();
    let node = Node::start(before.world.clone(), (2, 2), known);
    node.fleet.count().await.unwrap();
    assert_eq!(node.fleet.guest(id(), &ssh_key(1)).unwrap_err(), NoGuest::Later);
    assert!(node.fleet.guest(id(), &ssh_key(2)).is_ok());
    node.fleet.reached(100);
    assert!(node.fleet.guest(id(), &ssh_key(1)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_told_when_the_operator_ends() {
    let (node, guest) = opened().await;
    node.stop.cancel();
    assert_eq!(guest.departure().await, Departure::Keeper);
    assert_eq!(node.fleet.guest(id(), &ssh_key(1)).unwrap_err(), NoGuest::Later);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_created_with_a_key_and_takes_so_many() {
    let node = Node::start(Arc::new(FakeWorld::default()), (2, 2), Vec::new());
    let first = SshKey { key: ssh_key(0), expires_at_block: None, admitted_by: OWNER };
    node.fleet.create(Sandbox { ssh_keys: SshKeys::of(first), ..sandbox(0) }).await.unwrap();
    let most = SSH_KEYS_MAX as u8;
    for number in 1..most {
        node.fleet.admit_key(id(), OWNER, ssh_key(number), None).await.unwrap();
    }
    assert!(node.fleet.guest(id(), &ssh_key(0)).is_ok() && node.fleet.guest(id(), &ssh_key(most - 1)).is_ok());
    let refused = node.fleet.admit_key(id(), OWNER, ssh_key(most), None).await;
    assert_eq!(code(refused.unwrap_err()), FailureCode::BadRequest);
}

#[tokio::test(start_paused = true)]
async fn a_call_changes_keys_once_and_in_a_later_life_leaves_what_came_after_it() {
    let node = Node::start(Arc::new(FakeWorld::default()), (2, 2), Vec::new());
    node.fleet.create(sandbox(0)).await.unwrap();
    let key = SshKey { key: ssh_key(1), expires_at_block: None, admitted_by: OWNER };
    let order = |call| KeyOrder { change: KeyChange::Admit(key.clone()), call: Some(CallKey { service: 7, call }) };
    let ordered = async |call| node.fleet.change_keys(id(), OWNER, order(call)).await.unwrap().changed;
    assert!(ordered(50).await);
    node.fleet.revoke_key(id(), OWNER, ssh_key(1)).await.unwrap();
    assert!(!ordered(50).await, "it was done already");
    assert_eq!(node.fleet.standing(id(), &ssh_key(1)), None);
    assert!(ordered(51).await);
    assert_eq!(node.fleet.standing(id(), &ssh_key(1)), Some(Standing::Open));
}

#[test]
fn records_of_before_have_no_keys_and_say_nothing_of_them() {
    let json = serde_json::to_value(sandbox(0)).unwrap();
    assert!(json.get("ssh_keys").is_none());
    assert_eq!(serde_json::from_value::<Sandbox>(json).unwrap(), sandbox(0));
    let key = SshKey { key: ssh_key(1), expires_at_block: Some(9), admitted_by: OWNER };
    let keys_call = Some(CallKey { service: 7, call: 1 });
    let keyed = Sandbox { ssh_keys: SshKeys::of(key), keys_call, ..sandbox(0) };
    assert_eq!(serde_json::from_value::<Sandbox>(serde_json::to_value(&keyed).unwrap()).unwrap(), keyed);
}

/// Whether it is not over, with everybody else having had a turn.
async fn still_waits(wait: impl Future) -> bool {
    tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.is_err()
}
