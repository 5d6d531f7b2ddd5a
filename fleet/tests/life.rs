//! Promises about the life of a sandbox, kept by keeper and drivers over fake ports on a paused clock.

mod node;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::Address;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::fakes::{FakeWorld, OWNER, instance, sandbox, snapshot};
use sandbox_fleet::request::{Resources, SandboxSpec};
use sandbox_fleet::sandbox::{EndReason, Phase, Sandbox, StopReason};
use sandbox_fleet::{Keeper, Unfinished};
use sandbox_protocol::FailureCode;
use tokio_util::sync::CancellationToken;

use node::{Node, code};

const STRANGER: Address = Address::repeat_byte(2);

fn node(sandboxes: u32) -> Node {
    restarted(Arc::new(FakeWorld::default()), sandboxes, Vec::new())
}

fn restarted(world: Arc<FakeWorld>, sandboxes: u32, known: Vec<Sandbox>) -> Node {
    Node::start(world, (sandboxes, sandboxes), known)
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_created_used_and_deleted() {
    let node = node(1);
    let made = node.fleet.create(sandbox(0)).await.unwrap();
    assert!(matches!(made.phase, Phase::Running(_)));
    let gone = node.fleet.delete(made.id, OWNER).await.unwrap();
    assert_eq!(gone.phase, Phase::Gone(EndReason::Deleted));
    assert_eq!(node.world.containers(), []);
    assert_eq!(node.world.phases(made.id), ["provisioning", "running", "deleting", "gone"]);
}

#[tokio::test(start_paused = true)]
async fn the_id_of_a_forgotten_sandbox_and_its_place_are_another_ones_to_have() {
    let node = node(1);
    let made = node.fleet.create(sandbox(0)).await.unwrap();
    node.fleet.forget(made.id).await.unwrap();
    assert_eq!(node.world.containers(), []);
    assert_eq!(code(node.fleet.find(made.id, OWNER).await.unwrap_err()), FailureCode::SandboxLost);
    let other = node.fleet.create(Sandbox { owner: STRANGER, ..sandbox(0) }).await.unwrap();
    assert_eq!((other.id, other.owner), (made.id, STRANGER));
    assert!(matches!(other.phase, Phase::Running(_)));
}

#[tokio::test(start_paused = true)]
async fn creating_twice_makes_one_container_and_deleting_twice_succeeds() {
    let node = node(5);
    let (first, second) = tokio::join!(node.fleet.create(sandbox(0)), node.fleet.create(sandbox(0)));
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(node.world.provisions(), 1);
    for _ in 0..2 {
        let gone = node.fleet.delete(sandbox(0).id, OWNER).await.unwrap();
        assert_eq!(gone.phase, Phase::Gone(EndReason::Deleted));
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_something_in_the_engine_is_told_of_all_customers_and_no_more() {
    let node = node(4);
    node.fleet.create(sandbox(0)).await.unwrap();
    node.fleet.create(Sandbox { owner: STRANGER, ..sandbox(1) }).await.unwrap();
    node.fleet.create(sandbox(2)).await.unwrap();
    node.fleet.stop(sandbox(2).id, OWNER).await.unwrap();
    node.fleet.create(sandbox(3)).await.unwrap();
    node.fleet.delete(sandbox(3).id, OWNER).await.unwrap();
    let ids = |living: Vec<Sandbox>| living.into_iter().map(|sandbox| sandbox.id).collect::<BTreeSet<_>>();
    let living = ids(node.fleet.living().await.unwrap());
    assert_eq!(living, [0, 1, 2].map(|call| sandbox(call).id).into());
    // One whose removal is not done yet is among them: its container is somebody's.
    node.world.fail_next([FailureCode::Engine; 3]);
    node.fleet.end(sandbox(0).id, EndReason::Expired).await;
    assert!(ids(node.fleet.living().await.unwrap()).contains(&sandbox(0).id));
    assert!(node.fleet.knows(sandbox(3).id).await.unwrap() && !node.fleet.knows(sandbox(9).id).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_failed_create_leaves_nothing_and_gives_its_capacity_back() {
    let node = node(1);
    node.world.fail_next([FailureCode::ImageMissing]);
    let failed = node.fleet.create(sandbox(0)).await.unwrap_err();
    assert_eq!(code(failed), FailureCode::ImageMissing);
    assert_eq!(node.world.containers(), []);
    assert!(node.fleet.create(sandbox(1)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_more_than_fits_is_refused_with_a_reason() {
    let node = node(1);
    node.fleet.create(sandbox(0)).await.unwrap();
    let refused = node.fleet.create(sandbox(1)).await.unwrap_err();
    assert_eq!(code(refused), FailureCode::NoCapacity);
    node.fleet.delete(sandbox(0).id, OWNER).await.unwrap();
    assert!(node.fleet.create(sandbox(1)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_stranger_neither_sees_nor_deletes_a_sandbox() {
    let node = node(1);
    node.fleet.create(sandbox(0)).await.unwrap();
    assert_eq!(code(node.fleet.find(sandbox(0).id, STRANGER).await.unwrap_err()), FailureCode::SandboxLost);
    assert_eq!(code(node.fleet.delete(sandbox(0).id, STRANGER).await.unwrap_err()), FailureCode::SandboxLost);
    assert_eq!(node.world.containers(), [sandbox(0).id]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_lives_in_its_expiry_block_and_not_in_the_next() {
    let node = node(1);
    let id = sandbox(0).id;
    node.fleet.create(Sandbox { expires_at_block: Some(100), ..sandbox(0) }).await.unwrap();
    node.fleet.head(100).await;
    assert!(matches!(node.fleet.find(id, OWNER).await.unwrap().phase, Phase::Running(_)));
    node.fleet.head(101).await;
    let ended = node.fleet.delete(id, OWNER).await.unwrap();
    assert_eq!(ended.phase, Phase::Gone(EndReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_the_engine_refuses_is_repeated_until_nothing_is_left() {
    let node = node(1);
    node.fleet.create(sandbox(0)).await.unwrap();
    node.world.fail_next([FailureCode::Engine; 5]);
    let gone = node.fleet.delete(sandbox(0).id, OWNER).await.unwrap();
    assert!(gone.phase.is_final());
    assert_eq!(node.world.containers(), []);
}

#[tokio::test(start_paused = true)]
async fn a_restart_amid_provisioning_ends_with_one_container() {
    let node = node(1);
    let made = node.fleet.create(sandbox(0)).await.unwrap();
    let world = node.world.clone();
    drop(node);
    let interrupted = Sandbox { phase: Phase::Provisioning, ..made.clone() };
    let node = restarted(world, 1, vec![interrupted]);
    assert_eq!(node.fleet.create(sandbox(0)).await.unwrap(), made);
    assert_eq!(node.world.containers(), [made.id]);
}

#[tokio::test(start_paused = true)]
async fn a_running_sandbox_is_adopted_after_a_restart_and_a_lost_one_is_reported() {
    let running = |call| Sandbox { phase: Phase::Running(instance(sandbox(call).id)), ..sandbox(call) };
    let (kept, lost) = (running(0), running(1));
    let first = node(5);
    first.fleet.create(sandbox(0)).await.unwrap();
    first.fleet.create(sandbox(1)).await.unwrap();
    let world = first.world.clone();
    drop(first);
    world.lose(lost.id);
    // An engine that does not answer at first is no reason to give either up.
    world.fail_next([FailureCode::Engine; 4]);
    let node = restarted(world, 5, vec![kept.clone(), lost.clone()]);
    let mut found = node.fleet.find(lost.id, OWNER).await.unwrap();
    while !found.phase.is_final() {
        tokio::time::advance(Duration::from_secs(1)).await;
        found = node.fleet.find(lost.id, OWNER).await.unwrap();
    }
    let ended = found;
    assert!(matches!(ended.phase, Phase::Failed(failure) if failure.code == FailureCode::SandboxLost));
    assert!(matches!(node.fleet.find(kept.id, OWNER).await.unwrap().phase, Phase::Running(_)));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_ends_while_its_sandbox_is_being_made_ends_it_all_the_same() {
    let node = node(1);
    let (created, ()) = tokio::join!(node.fleet.create(sandbox(0)), node.fleet.service_ended(7));
    let id = created.map_or(sandbox(0).id, |made| made.id);
    let ended = node.fleet.delete(id, OWNER).await.unwrap();
    assert_eq!(ended.phase, Phase::Gone(EndReason::ServiceEnded));
    assert_eq!(node.world.containers(), []);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_an_engine_does_not_answer_for_can_still_be_ended() {
    let first = node(1);
    let made = first.fleet.create(sandbox(0)).await.unwrap();
    let world = first.world.clone();
    drop(first);
    // Looking after it fails for ever, as it does when the engine refuses to start it.
    world.fail_adoptions();
    let node = restarted(world, 1, vec![made.clone()]);
    let ended = node.fleet.delete(made.id, OWNER).await.unwrap();
    assert_eq!(ended.phase, Phase::Gone(EndReason::Deleted));
    assert_eq!(node.world.containers(), []);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_not_as_today_would_be_asked_for_is_not_destroyed() {
    let first = node(1);
    let made = first.fleet.create(sandbox(0)).await.unwrap();
    let world = first.world.clone();
    drop(first);
    world.fail_next([FailureCode::Hardening; 3]);
    let node = restarted(world, 1, vec![made.clone()]);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(matches!(node.fleet.find(made.id, OWNER).await.unwrap().phase, Phase::Running(_)));
    assert_eq!(node.world.containers(), [made.id]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_was_lost_is_found_out_when_it_is_checked() {
    let node = node(1);
    let made = node.fleet.create(sandbox(0)).await.unwrap();
    node.fleet.check(made.id).await;
    assert!(matches!(node.fleet.find(made.id, OWNER).await.unwrap().phase, Phase::Running(_)));
    node.world.lose(made.id);
    node.fleet.check(made.id).await;
    let ended = node.fleet.delete(made.id, OWNER).await.unwrap();
    assert!(matches!(ended.phase, Phase::Failed(failure) if failure.code == FailureCode::SandboxLost));
}

#[tokio::test(start_paused = true)]
async fn who_asks_while_the_node_stops_is_told_to_come_back() {
    let node = node(1);
    node.fleet.create(sandbox(0)).await.unwrap();
    node.stop.cancel();
    tokio::task::yield_now().await;
    assert_eq!(node.fleet.create(sandbox(1)).await.unwrap_err(), Unfinished::Stopping);
}

fn idle_after(timeout_s: u64) -> Sandbox {
    let spec = SandboxSpec { idle_timeout_s: Some(timeout_s), ..sandbox(0).spec };
    Sandbox { spec, ..sandbox(0) }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_sandbox_keeps_its_container_and_runs_again_when_it_is_resumed() {
    let node = node(1);
    let made = node.fleet.create(sandbox(0)).await.unwrap();
    for _ in 0..2 {
        let stopped = node.fleet.stop(made.id, OWNER).await.unwrap();
        assert!(matches!(stopped.phase, Phase::Stopped(rest) if rest.reason == StopReason::Asked));
    }
    assert_eq!((node.world.containers(), node.world.running(), node.world.open()), (vec![made.id], vec![], vec![]));
    let visited = node.fleet.visit(made.id, OWNER).await.unwrap_err();
    assert_eq!(code(visited), FailureCode::SandboxStopped);
    for _ in 0..2 {
        assert!(matches!(node.fleet.resume(made.id, OWNER, None).await.unwrap().phase, Phase::Running(_)));
    }
    assert_eq!((node.world.running(), node.world.open()), (vec![made.id], vec![made.id]));
}

#[tokio::test(start_paused = true)]
async fn a_stranger_neither_stops_nor_resumes_nor_visits_a_sandbox() {
    let node = node(1);
    let id = node.fleet.create(sandbox(0)).await.unwrap().id;
    assert_eq!(code(node.fleet.stop(id, STRANGER).await.unwrap_err()), FailureCode::SandboxLost);
    assert_eq!(code(node.fleet.resume(id, STRANGER, None).await.unwrap_err()), FailureCode::SandboxLost);
    assert_eq!(code(node.fleet.visit(id, STRANGER).await.unwrap_err()), FailureCode::SandboxLost);
    assert_eq!(node.fleet.list(STRANGER).await.unwrap(), []);
    assert_eq!(node.world.running(), [id]);
}

#[tokio::test(start_paused = true)]
async fn a_resting_sandbox_needs_room_to_run_again() {
    let world = Arc::new(FakeWorld::default());
    let resources = Resources { cpu_cores: 1, memory_mb: 64, disk_gb: 10 };
    let capacity = Capacity { sandboxes: 2, sandboxes_each_max: 2, resources, cpu_cores_each_max: 8 };
    let (keeper, fleet) = Keeper::new(capacity, world.ports());
    tokio::spawn(keeper.run(Vec::new(), CancellationToken::new()));
    let first = fleet.create(sandbox(0)).await.unwrap().id;
    fleet.stop(first, OWNER).await.unwrap();
    let second = fleet.create(sandbox(1)).await.unwrap().id;
    assert_eq!(code(fleet.resume(first, OWNER, None).await.unwrap_err()), FailureCode::NoCapacity);
    fleet.delete(second, OWNER).await.unwrap();
    assert!(fleet.resume(first, OWNER, None).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_fails_leaves_the_sandbox_at_rest_and_may_be_repeated() {
    let node = node(1);
    let made = node.fleet.create(sandbox(0)).await.unwrap();
    node.fleet.stop(made.id, OWNER).await.unwrap();
    node.world.lose_snapshots(true);
    let from = snapshot("s3://bucket/key");
    for _ in 0..2 {
        let failed = node.fleet.resume(made.id, OWNER, Some(from.clone())).await.unwrap_err();
        assert_eq!(code(failed), FailureCode::SnapshotUnreadable);
        assert_eq!(node.world.running(), []);
    }
    node.world.lose_snapshots(false);
    assert!(node.fleet.resume(made.id, OWNER, Some(from.clone())).await.is_ok());
    assert_eq!(node.world.restored(), std::slice::from_ref(&from));
    let running = node.fleet.resume(made.id, OWNER, Some(from)).await.unwrap_err();
    assert_eq!(code(running), FailureCode::BadRequest);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_begins_with_its_snapshot_or_not_at_all() {
    let node = node(1);
    let spec = SandboxSpec { snapshot: Some(snapshot("ipfs://bafy")), ..sandbox(0).spec };
    let asked = |call| Sandbox { spec: spec.clone(), ..sandbox(call) };
    node.world.lose_snapshots(true);
    assert_eq!(code(node.fleet.create(asked(0)).await.unwrap_err()), FailureCode::SnapshotUnreadable);
    assert_eq!(node.world.containers(), []);
    node.world.lose_snapshots(false);
    node.fleet.create(asked(1)).await.unwrap();
    assert_eq!(node.world.restored(), [snapshot("ipfs://bafy")]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_stopped_when_nothing_happened_for_its_idle_time_and_not_before() {
    let node = node(1);
    let made = node.fleet.create(idle_after(60)).await.unwrap();
    tokio::time::advance(Duration::from_secs(59)).await;
    let visit = node.fleet.visit(made.id, OWNER).await.unwrap();
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert!(matches!(node.fleet.find(made.id, OWNER).await.unwrap().phase, Phase::Running(_)), "in use");
    drop(visit);
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(
        matches!(node.fleet.find(made.id, OWNER).await.unwrap().phase, Phase::Running(_)),
        "not idle for long enough"
    );
    tokio::time::advance(Duration::from_secs(2)).await;
    let stopped = node.fleet.stop(made.id, OWNER).await.unwrap();
    assert!(matches!(stopped.phase, Phase::Stopped(rest) if rest.reason == StopReason::Idle));
}

#[tokio::test(start_paused = true)]
async fn an_open_way_into_a_sandbox_keeps_it_awake_by_what_passes_and_not_by_being_open() {
    let node = node(1);
    let made = node.fleet.create(idle_after(60)).await.unwrap();
    let mut stay = node.fleet.visit(made.id, OWNER).await.unwrap().stay();
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(stay.lasts(), "something passed less than 60 s ago");
        stay.activity.touch();
    }
    let silent = tokio::time::Instant::now();
    stay.ended().await;
    assert!(!stay.lasts());
    assert_eq!(silent.elapsed().as_secs(), 60);
    let stopped = node.fleet.stop(made.id, OWNER).await.unwrap();
    assert!(matches!(stopped.phase, Phase::Stopped(rest) if rest.reason == StopReason::Idle));
}

#[tokio::test(start_paused = true)]
async fn an_open_way_ends_with_what_it_leads_to_and_with_the_keeper() {
    let node = node(2);
    let made = node.fleet.create(sandbox(0)).await.unwrap();
    let mut stay = node.fleet.visit(made.id, OWNER).await.unwrap().stay();
    node.fleet.check(made.id).await;
    node.fleet.find(made.id, OWNER).await.unwrap();
    assert!(stay.lasts(), "one that is looked after goes on");
    node.fleet.delete(made.id, OWNER).await.unwrap();
    stay.ended().await;
    let made = node.fleet.create(sandbox(1)).await.unwrap();
    let mut stay = node.fleet.visit(made.id, OWNER).await.unwrap().stay();
    node.stop.cancel();
    stay.ended().await;
    assert!(!stay.lasts());
}

#[tokio::test(start_paused = true)]
async fn a_stopped_sandbox_ends_as_a_running_one_does() {
    let node = node(1);
    let made = node.fleet.create(Sandbox { expires_at_block: Some(100), ..sandbox(0) }).await.unwrap();
    node.fleet.stop(made.id, OWNER).await.unwrap();
    node.fleet.head(101).await;
    let ended = node.fleet.delete(made.id, OWNER).await.unwrap();
    assert_eq!(ended.phase, Phase::Gone(EndReason::Expired));
    assert_eq!(node.world.containers(), []);
    assert_eq!(code(node.fleet.stop(made.id, OWNER).await.unwrap_err()), FailureCode::SandboxLost);
    assert_eq!(code(node.fleet.resume(made.id, OWNER, None).await.unwrap_err()), FailureCode::SandboxLost);
}

#[tokio::test(start_paused = true)]
async fn a_restart_amid_stopping_or_resuming_goes_on_with_it() {
    let first = node(1);
    let made = first.fleet.create(sandbox(0)).await.unwrap();
    let Phase::Stopped(rest) = first.fleet.stop(made.id, OWNER).await.unwrap().phase else { panic!("not stopped") };
    let world = first.world.clone();
    drop(first);
    let resuming = Sandbox { phase: Phase::Resuming(rest.clone(), Some(snapshot("s3://a/b"))), ..made.clone() };
    let node = restarted(world.clone(), 1, vec![resuming]);
    assert!(matches!(node.fleet.resume(made.id, OWNER, None).await.unwrap().phase, Phase::Running(_)));
    assert_eq!(world.restored(), [snapshot("s3://a/b")]);
    drop(node);
    let node = restarted(world.clone(), 1, vec![Sandbox { phase: Phase::Stopping(rest), ..made.clone() }]);
    assert!(matches!(node.fleet.stop(made.id, OWNER).await.unwrap().phase, Phase::Stopped(_)));
    assert_eq!(world.running(), []);
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_warned_once_that_the_time_is_nearly_over() {
    let node = node(1);
    let made = node.fleet.create(Sandbox { expires_at_block: Some(100), ..sandbox(0) }).await.unwrap();
    node.fleet.head(74).await;
    assert!(!node.fleet.list(OWNER).await.unwrap()[0].warned);
    for block in [75, 76] {
        node.fleet.head(block).await;
        let mut warned = false;
        while !warned {
            tokio::task::yield_now().await;
            warned = node.fleet.list(OWNER).await.unwrap()[0].warned;
        }
    }
    assert_eq!(node.world.phases(made.id), ["provisioning", "running", "running"]);
}
