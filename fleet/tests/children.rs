//! Promises about sandboxes that the operator makes for itself, kept by keeper and drivers over fake ports on a paused clock.

mod node;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use sandbox_fleet::Unfinished;
use sandbox_fleet::children::ChildOrder;
use sandbox_fleet::fakes::{FakeWorld, OWNER, child, sandbox};
use sandbox_fleet::sandbox::{EndReason, Phase, Sandbox};
use sandbox_protocol::{CallKey, FailureCode, SandboxId};
use tokio::task::JoinHandle;

use node::{Node, code};

fn node(sandboxes: u32) -> Node {
    restarted(Arc::new(FakeWorld::default()), sandboxes, Vec::new())
}

fn restarted(world: Arc<FakeWorld>, sandboxes: u32, known: Vec<Sandbox>) -> Node {
    Node::start(world, (sandboxes, 1), known)
}

/// Asks for a child and is answered later.
fn ask(node: &Node, order: ChildOrder) -> JoinHandle<Result<Sandbox, Unfinished>> {
    let fleet = node.fleet.clone();
    tokio::spawn(async move { fleet.create_child(order).await })
}

/// Turns in which everything that can happen without time passing has happened.
const TURNS: usize = 200;

async fn settled() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

fn parent(call: u64) -> CallKey {
    sandbox(call).id.origin
}

fn id(call: u64, slot: u8) -> SandboxId {
    SandboxId { origin: parent(call), slot }
}

#[tokio::test(start_paused = true)]
async fn a_child_is_found_again_by_its_name_and_listed_under_its_parent() {
    let node = node(4);
    let (first, second) = tokio::join!(ask(&node, child(3, "a")), ask(&node, child(3, "a")));
    let made = first.unwrap().unwrap();
    assert_eq!((made.id, made.id.to_string().as_str()), (id(3, 0), "sbx-7-3-0"));
    assert!(matches!(made.phase, Phase::Running(_)));
    assert_eq!(second.unwrap().unwrap(), made);
    let other = node.fleet.create_child(child(3, "b")).await.unwrap();
    node.fleet.create_child(child(4, "a")).await.unwrap();
    let listed = node.fleet.children(parent(3)).await.unwrap();
    assert_eq!(listed.iter().map(|child| child.id).collect::<Vec<_>>(), [made.id, other.id]);
    assert_eq!(node.fleet.list(OWNER).await.unwrap(), [], "a customer's sandboxes are those that it created");
    assert_eq!(node.fleet.living().await.unwrap().len(), 3);
    assert!(node.fleet.visit(made.id, OWNER).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_child_that_ended_makes_room_for_another_of_its_name() {
    let node = node(4);
    let first = node.fleet.create_child(child(3, "a")).await.unwrap();
    node.fleet.delete(first.id, OWNER).await.unwrap();
    let second = node.fleet.create_child(child(3, "a")).await.unwrap();
    assert_eq!(second.id, id(3, 1));
    node.world.fail_next([FailureCode::Engine]);
    assert_eq!(code(node.fleet.create_child(child(3, "b")).await.unwrap_err()), FailureCode::Engine);
    assert!(node.fleet.create_child(child(3, "b")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_child_waits_for_room_in_its_turn_where_a_customers_sandbox_is_refused() {
    let node = node(2);
    node.fleet.create(sandbox(0)).await.unwrap();
    node.fleet.create_child(child(3, "a")).await.unwrap();
    let (second, third) = (ask(&node, child(3, "b")), ask(&node, child(4, "c")));
    settled().await;
    assert!(!second.is_finished() && !third.is_finished());
    let stranger = Sandbox { owner: alloy_primitives::Address::repeat_byte(9), ..sandbox(1) };
    assert_eq!(code(node.fleet.create(stranger).await.unwrap_err()), FailureCode::NoCapacity);
    node.fleet.delete(sandbox(0).id, OWNER).await.unwrap();
    assert_eq!(second.await.unwrap().unwrap().id, id(3, 1));
    settled().await;
    assert!(!third.is_finished(), "one place, one child");
    node.fleet.delete(id(3, 0), OWNER).await.unwrap();
    assert_eq!(third.await.unwrap().unwrap().id, id(4, 0));
}

#[tokio::test(start_paused = true)]
async fn children_do_not_count_as_their_customers_own_sandboxes() {
    let node = node(5);
    node.fleet.create_child(child(3, "a")).await.unwrap();
    node.fleet.create(sandbox(0)).await.unwrap();
    node.fleet.create_child(child(3, "b")).await.unwrap();
    assert_eq!(code(node.fleet.create(sandbox(1)).await.unwrap_err()), FailureCode::NoCapacity);
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_had_is_refused_at_once() {
    let node = node(2);
    let mut huge = child(3, "a");
    huge.spec.resources.cpu_cores = 9;
    assert_eq!(code(node.fleet.create_child(huge).await.unwrap_err()), FailureCode::NoCapacity);
    node.fleet.create(sandbox(5)).await.unwrap();
    assert_eq!(
        code(node.fleet.create_child(child(5, "a")).await.unwrap_err()),
        FailureCode::Internal,
        "it creates on chain"
    );
}

#[tokio::test(start_paused = true)]
async fn children_end_with_their_parent_their_service_and_their_time() {
    let node = node(3);
    let made = node.fleet.create_child(child(3, "a")).await.unwrap();
    let other = node.fleet.create_child(child(4, "a")).await.unwrap();
    let timed = ChildOrder { expires_at_block: Some(100), ..child(5, "a") };
    let timed = node.fleet.create_child(timed).await.unwrap();
    let waiting = ask(&node, child(3, "b"));
    settled().await;
    node.fleet.parent_ended(parent(3)).await;
    assert_eq!(code(waiting.await.unwrap().unwrap_err()), FailureCode::SandboxLost);
    let ended = node.fleet.delete(made.id, OWNER).await.unwrap();
    assert_eq!(ended.phase, Phase::Gone(EndReason::ParentEnded));
    assert_eq!(node.world.containers(), [other.id, timed.id]);
    node.fleet.head(101).await;
    assert_eq!(node.fleet.delete(timed.id, OWNER).await.unwrap().phase, Phase::Gone(EndReason::Expired));
    node.fleet.service_ended(7).await;
    assert_eq!(node.fleet.delete(other.id, OWNER).await.unwrap().phase, Phase::Gone(EndReason::ServiceEnded));
    assert_eq!(node.world.containers(), []);
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_holds_nobody_up() {
    let node = node(1);
    node.fleet.create_child(child(3, "a")).await.unwrap();
    let (first, second) = (ask(&node, child(3, "b")), ask(&node, child(3, "c")));
    settled().await;
    first.abort();
    settled().await;
    node.fleet.delete(id(3, 0), OWNER).await.unwrap();
    let made = second.await.unwrap().unwrap();
    assert_eq!(made.child.unwrap().to_string(), "c");
}

#[tokio::test(start_paused = true)]
async fn a_child_is_adopted_after_a_restart_and_found_by_its_name() {
    let first = node(2);
    let made = first.fleet.create_child(child(3, "a")).await.unwrap();
    let world = first.world.clone();
    drop(first);
    let node = restarted(world.clone(), 1, vec![made.clone()]);
    assert_eq!(node.fleet.create_child(child(3, "a")).await.unwrap().id, made.id);
    assert_eq!(world.provisions(), 1, "it was not made anew");
    let waiting = ask(&node, child(3, "b"));
    settled().await;
    assert!(!waiting.is_finished(), "it holds its place");
    node.fleet.delete(made.id, OWNER).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().id, id(3, 1));
}

#[derive(Debug, Clone)]
enum Deed {
    Ask { call: u64, name: u8 },
    End { call: u64, slot: u8 },
    EndParent { call: u64 },
    Create { call: u64 },
    Fail,
    Pass,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (0_u64..3, 0_u8..3).prop_map(|(call, name)| Deed::Ask { call, name }),
        2 => (0_u64..3, 0_u8..4).prop_map(|(call, slot)| Deed::End { call, slot }),
        1 => (0_u64..3).prop_map(|call| Deed::EndParent { call }),
        1 => (10_u64..14).prop_map(|call| Deed::Create { call }),
        1 => Just(Deed::Fail),
        2 => Just(Deed::Pass),
    ]
}

/// Whatever is asked for and ended in whatever order: never more than fit, never two of one name, and in the end nothing is
/// left and nobody waits.
#[allow(clippy::unwrap_used)] // of a test
async fn check(deeds: Vec<Deed>, places: u32) {
    let node = node(places);
    let mut asked = Vec::new();
    for deed in deeds {
        match deed {
            Deed::Ask { call, name } => asked.push(ask(&node, child(call, &format!("n{name}")))),
            Deed::End { call, slot } => node.fleet.end(id(call, slot), EndReason::Deleted).await,
            Deed::EndParent { call } => node.fleet.parent_ended(parent(call)).await,
            Deed::Create { call } => {
                let (fleet, sandbox) = (node.fleet.clone(), sandbox(call));
                asked.push(tokio::spawn(async move { fleet.create(sandbox).await }));
            }
            Deed::Fail => node.world.fail_next([FailureCode::Engine]),
            Deed::Pass => settled().await,
        }
        let living = node.fleet.living().await.unwrap();
        assert!(living.len() <= places as usize, "{} of {places}", living.len());
        let ends = |sandbox: &&Sandbox| !matches!(sandbox.phase, Phase::Deleting(_) | Phase::Discarding(_));
        let named = living.iter().filter(ends).filter_map(|sandbox| Some((sandbox.id.origin, sandbox.child.clone()?)));
        let names: Vec<_> = named.collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
    node.fleet.service_ended(7).await;
    for answer in asked {
        // Whether it was had or not, everybody was answered.
        let _answered = answer.await.unwrap();
    }
    while node.fleet.count().await.unwrap() > 0 {
        node.fleet.service_ended(7).await;
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
    }
    assert_eq!((node.world.containers(), node.fleet.living().await.unwrap()), (vec![], vec![]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn children_never_exceed_their_room_nor_share_a_name(deeds in proptest::collection::vec(deed(), 0..40), places in 1_u32..4) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(deeds, places));
    }
}

#[tokio::test(start_paused = true)]
async fn a_parent_may_have_any_number_of_children_one_after_the_other() {
    let node = node(4);
    for number in 0..=u16::from(u8::MAX) + 1 {
        let made = node.fleet.create_child(child(3, &format!("run-{number}"))).await.unwrap();
        node.fleet.delete(made.id, made.owner).await.unwrap();
    }
    let lives = node.fleet.create_child(child(3, "run-last")).await.unwrap();
    assert!(matches!(lives.phase, Phase::Running(_)));
}
