//! Promises of the conductor, kept over a fleet of fakes.

use std::collections::BTreeSet;
use std::sync::Mutex;

use async_trait::async_trait;
use sandbox_fleet::Keeper;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::fakes::{FakeAgents, FakeWorld, OWNER, sandbox};
use sandbox_fleet::request::Resources;
use sandbox_protocol::Outcome;
use sandbox_protocol::agent::event::RunEvent;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::records::RecordsGuard;

/// Where a negotiation is held.
struct Hall {
    conductor: Conductor,
    world: Arc<FakeWorld>,
    agents: Arc<FakeAgents>,
    here: Arc<Here>,
    _kept: (RecordsGuard, TempDir, AbortOnDropHandle<()>),
}

/// Argues about moves in this process, and notes which.
#[derive(Default)]
struct Here(Mutex<Vec<String>>);

#[async_trait]
impl InProcess for Here {
    async fn negotiate(
        &self,
        _: &Sandbox,
        body: NegotiateBody,
        tell: &(dyn Fn(Told) + Send + Sync),
    ) -> Result<MoveReport, Failure> {
        let move_id = body.one.move_id.clone();
        self.0.lock().unwrap().push(move_id.clone());
        tell(Told::SandboxScored { move_id, score: 12, breakdown: Default::default() });
        let mut report = Finished::failed(&body.one, over()).report;
        report.error = None;
        Ok(report)
    }
}

impl Hall {
    async fn of(sandboxes: u32, agents: FakeAgents) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (records, guard) = Records::open(dir.path()).unwrap();
        let world = Arc::new(FakeWorld::default());
        let resources = Resources { cpu_cores: 100, memory_mb: 1_000_000, disk_gb: 1_000 };
        let capacity = Capacity { sandboxes, sandboxes_each_max: 1, resources, cpu_cores_each_max: 8 };
        let (keeper, fleet) = Keeper::new(capacity, world.ports());
        let keeping = AbortOnDropHandle::new(tokio::spawn(keeper.run(Vec::new(), CancellationToken::new())));
        let (agents, here) = (Arc::new(agents), Arc::new(Here::default()));
        fleet.create(sandbox(1)).await.unwrap();
        let (stories, in_process) = (Stories::default(), here.clone());
        let conductor = Conductor { fleet, agents: agents.clone(), records, stories, in_process };
        Self { conductor, world, agents, here, _kept: (guard, dir, keeping) }
    }

    async fn order(&self, moves: usize, concurrency: u32) -> Order {
        let parent = self.conductor.fleet.find(sandbox(1).id, OWNER).await.unwrap();
        let moves = (1..=moves).map(|number| Move { move_id: format!("m{number}"), content: "buy".into() }).collect();
        Order {
            call: CallKey { service: 7, call: 9 },
            inputs_hash: B256::repeat_byte(1),
            run: "call-7-9-01".into(),
            scope: None,
            resumed: false,
            owner: OWNER,
            parent,
            negotiation: Negotiation {
                ticker: "ABC".into(),
                moves,
                max_rounds: 1,
                concurrency,
                personas: Default::default(),
            },
            provider: None,
            model: "m".into(),
            until: Instant::now() + Duration::from_secs(600),
        }
    }

    fn told(&self) -> Vec<RunEvent> {
        self.conductor.stories.after(CallKey { service: 7, call: 9 }, 0)
    }

    /// Children that have something in the engine.
    fn children(&self) -> usize {
        self.world.containers().into_iter().filter(|id| id.origin.call == 9).count()
    }

    /// Lets everything happen that can without time passing, until `there`.
    async fn until(&self, there: impl Fn(&Self) -> bool) {
        while !there(self) {
            tokio::task::yield_now().await;
        }
    }
}

fn names(told: &[RunEvent]) -> Vec<&'static str> {
    told.iter().map(|event| event.told.name()).collect()
}

#[tokio::test]
async fn every_move_has_a_sandbox_of_its_own_and_the_result_has_them_in_order() {
    let hall = Hall::of(4, FakeAgents::default()).await;
    let order = hall.order(5, 2).await;
    let conducted = hall.conductor.conduct(&order).await.unwrap();
    let found = &conducted.0;
    let ids: Vec<_> = found.policy_scores.iter().map(|score| score.move_id.as_str()).collect();
    assert_eq!(ids, ["m1", "m2", "m3", "m4", "m5"]);
    assert_eq!(hall.agents.begun()[..2], ["call-7-9-01-m1", "call-7-9-01-m2"]);
    assert!(found.isolation.values().all(|runtime| runtime == "fake") && found.isolation.len() == 5);
    assert_eq!((found.warnings.len(), found.errors.len(), found.ledger.logical_calls), (0, 0, 35));
    assert_eq!(hall.children(), 0, "their sandboxes are gone");
    let told = hall.told();
    assert_eq!(told.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=11).collect::<Vec<_>>());
    assert_eq!(names(&told).iter().filter(|name| **name == "sandbox_scored").count(), 5);
    assert_eq!(names(&told).last(), Some(&"layer_complete"));
    let Held { response, limit, instance } = held(&order, &conducted, Duration::from_secs(1)).ok().unwrap();
    assert_eq!((response.success, response.error.as_str(), limit), (true, "", None));
    assert_eq!((response.turns_used, response.input_tokens, response.output_tokens), (35, 350, 35));
    let parsed: NegotiationResult = serde_json::from_str(&response.result).unwrap();
    assert_eq!(&parsed, found);
    assert_eq!(instance.unwrap().runtime, "fake");
}

#[tokio::test]
async fn negotiations_of_one_call_at_a_time_have_sandboxes_of_their_own_by_their_scopes() {
    let hall = Hall::of(4, FakeAgents::slow()).await;
    let scoped = async |scope: &str, inputs| {
        let (scope, run, inputs_hash) = (Some(scope.to_owned()), scope.to_owned(), B256::repeat_byte(inputs));
        Order { scope, run, inputs_hash, ..hall.order(1, 1).await }
    };
    let (first, second) = (scoped("run-1-a", 1).await, scoped("run-2-a", 2).await);
    let both = hall.until(|hall| hall.agents.begun().len() == 2 && hall.children() == 2);
    let mut first = std::pin::pin!(hall.conductor.conduct(&first));
    let mut second = std::pin::pin!(hall.conductor.conduct(&second));
    tokio::select! {
        _ = &mut first => panic!("nobody let it end"),
        _ = &mut second => panic!("nobody let it end"),
        () = both => {}
    }
    hall.agents.let_end(1);
    // Whichever asked first ends first.
    let (ended, other) =
        tokio::select! { ended = &mut first => (ended, second), ended = &mut second => (ended, first) };
    assert_eq!(hall.children(), 1, "the other's sandbox is there still");
    hall.agents.let_end(1);
    for conducted in [ended, other.await] {
        assert_eq!(conducted.unwrap().0.errors.len(), 0);
    }
}

#[tokio::test]
async fn so_many_moves_are_argued_about_at_a_time_and_the_next_sandboxes_wait_ready() {
    let hall = Hall::of(40, FakeAgents::slow()).await;
    let order = hall.order(9, 3).await;
    let mut conducting = std::pin::pin!(hall.conductor.conduct(&order));
    let full = hall.until(|hall| hall.agents.begun().len() == 3 && hall.children() == 3 + NEGOTIATION_AHEAD_MAX);
    tokio::select! { _ = &mut conducting => panic!("they were let end by nobody"), () = full => {} }
    let turns = async {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { _ = &mut conducting => panic!("they were let end by nobody"), () = turns => {} }
    assert_eq!((hall.agents.begun().len(), hall.children()), (3, 3 + NEGOTIATION_AHEAD_MAX));
    hall.agents.let_end(9);
    assert_eq!(conducting.await.unwrap().0.policy_scores.len(), 9);
}

#[tokio::test]
async fn where_there_is_no_room_moves_wait_for_each_other() {
    let hall = Hall::of(2, FakeAgents::default()).await;
    let (found, never_ran) = hall.conductor.conduct(&hall.order(4, 4).await).await.unwrap();
    assert_eq!((found.errors.len(), never_ran), (0, None));
    assert!(hall.here.0.lock().unwrap().is_empty(), "one place beside the parent's is enough");
}

#[tokio::test]
async fn another_life_repeats_no_move_that_is_through_and_takes_up_the_one_that_is_not() {
    let hall = Hall::of(40, FakeAgents::slow()).await;
    let order = hall.order(3, 1).await;
    hall.agents.let_end(1);
    let is_kept = |hall: &Hall| hall.conductor.records.finished_move(order.place(0)).unwrap().is_some();
    let second = hall.until(|hall| hall.agents.begun().len() == 2 && is_kept(hall));
    tokio::select! { _ = hall.conductor.conduct(&order) => panic!("it cannot end"), () = second => {} }
    let told = hall.told().last().map(|event| event.seq).unwrap();

    hall.agents.let_end(2);
    let order = Order { resumed: true, ..order };
    let (found, _) = hall.conductor.conduct(&order).await.unwrap();
    assert_eq!(hall.agents.begun(), ["call-7-9-01-m1", "call-7-9-01-m2", "call-7-9-01-m3"]);
    assert_eq!((found.errors.len(), found.policy_scores.len(), hall.children()), (0, 3, 0));
    let again = hall.told();
    assert!(again.iter().all(|event| event.seq > told), "its numbers come behind those of before");
    assert_eq!(names(&again).iter().filter(|name| **name == "sandbox_scored").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_is_taken_up_and_tells_nothing_twice() {
    let hall = Hall::of(4, FakeAgents::default()).await;
    hall.agents.break_next(ATTACH_ATTEMPTS_MAX as usize - 1);
    let (found, _) = hall.conductor.conduct(&hall.order(1, 1).await).await.unwrap();
    assert_eq!((found.errors.len(), hall.agents.begun().len()), (0, 1));
    assert_eq!(names(&hall.told()), ["sandbox_round", "sandbox_scored", "layer_complete"]);
}

#[tokio::test(start_paused = true)]
async fn a_move_that_fails_ends_no_other() {
    let hall = Hall::of(4, FakeAgents::default()).await;
    hall.agents.break_next(ATTACH_ATTEMPTS_MAX as usize);
    let order = hall.order(2, 1).await;
    let conducted = hall.conductor.conduct(&order).await.unwrap();
    assert_eq!(conducted.0.errors, [("m1".to_owned(), "the sandbox does not answer".to_owned())].into());
    assert_eq!(conducted.0.policy_scores[1].total_score, 12);
    hall.until(|hall| !hall.agents.cancelled().is_empty()).await;
    let Held { response, limit, .. } = held(&order, &conducted, Duration::ZERO).ok().unwrap();
    let error = "1 of 2 moves did not come to their end: m1: the sandbox does not answer";
    assert_eq!((response.success, response.error.as_str(), limit), (false, error, None));
    assert!(names(&hall.told()).contains(&"sandbox_failed"));
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_made_is_done_without_and_said() {
    let hall = Hall::of(4, FakeAgents::default()).await;
    hall.world.fail_next([FailureCode::Engine]);
    let (found, never_ran) = hall.conductor.conduct(&hall.order(2, 1).await).await.unwrap();
    let here: BTreeSet<_> = hall.here.0.lock().unwrap().iter().cloned().collect();
    assert_eq!((here.len(), never_ran), (1, None), "the other one had a sandbox");
    let alone = here.first().unwrap();
    assert_eq!(found.isolation[alone], NOT_ISOLATED);
    let warning = format!("{alone}: argued about without isolation: its sandbox could not be made (told to fail)");
    assert_eq!(found.warnings, [warning]);
}

#[tokio::test]
async fn where_no_move_can_be_argued_about_the_operator_has_failed() {
    let mut hall = Hall::of(4, FakeAgents::default()).await;
    hall.conductor.in_process = Arc::new(NotHere);
    hall.world.fail_next([FailureCode::Engine]);
    let order = hall.order(1, 1).await;
    let conducted = hall.conductor.conduct(&order).await.unwrap();
    let failure = held(&order, &conducted, Duration::ZERO).err().unwrap();
    assert_eq!((failure.code, failure.code.outcome()), (FailureCode::Engine, Outcome::Operator));
    assert!(failure.message.contains("m1: told to fail; nothing is argued about"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_stays_and_a_log_that_differs_are_warnings() {
    let hall = Hall::of(4, FakeAgents::slow()).await;
    hall.agents.spoil_logs();
    let order = hall.order(1, 1).await;
    let begun = hall.until(|hall| !hall.agents.begun().is_empty());
    let mut conducting = std::pin::pin!(hall.conductor.conduct(&order));
    tokio::select! { _ = &mut conducting => panic!("it cannot end"), () = begun => {} }
    hall.world.fail_next([FailureCode::Engine; 1_000]);
    hall.agents.let_end(1);
    let (found, _) = conducting.await.unwrap();
    assert_eq!(found.errors.len(), 0);
    let mut expected =
        LOGS.map(|log| format!("m1: logs/{log}.json in the sandbox differs from what was said")).to_vec();
    expected.push("m1: its sandbox was not removed in time; it ends with the call".into());
    assert_eq!(found.warnings, expected);
}

#[tokio::test(start_paused = true)]
async fn when_the_time_is_over_there_is_what_there_is() {
    let hall = Hall::of(4, FakeAgents::slow()).await;
    let order = hall.order(2, 1).await;
    hall.agents.let_end(1);
    let conducted = hall.conductor.conduct(&order).await.unwrap();
    assert_eq!(conducted.0.policy_scores[0].total_score, 12);
    assert_eq!(conducted.0.errors.keys().collect::<Vec<_>>(), ["m2"]);
    let held = held(&order, &conducted, Duration::ZERO).ok().unwrap();
    assert_eq!(held.limit, Some(FailureCode::Timeout));
    hall.until(|hall| hall.agents.cancelled() == ["call-7-9-01-m2"]).await;
}
