//! Batches over three operators: planned as the chain plans, proven part by part, and who is silent or lies is named.

mod command_line;
mod fake;

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256};
use sandbox_fleet::batch_plan::Distribution;
use sandbox_protocol::batch::{Aggregation, BatchId};
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::answers::Answers;
use sandbox_sdk::batches::{self, Batch, BatchError, Merged, State};
use sandbox_sdk::calls::ServiceTerms;
use sandbox_sdk::quotes::Quotes;
use sandbox_sdk::requests::{BatchBuilder, BatchCreateBuilder, CreateBuilder};
use sandbox_sdk::{Account, operators, verify};
use tokio::sync::Barrier;

use self::fake::{Conduct, FakeBatches};
use crate::world::{BOUND, CUSTOMER, World};

/// Too short to wait for anybody who is silent.
const SHORT: Duration = Duration::from_secs(1);
/// Indexes of the operators' keys.
const OPERATORS: [usize; 3] = [1, 2, 4];

/// A world with three operators and a service of them.
struct Three {
    world: World,
    _fakes: Vec<FakeBatches>,
    answers: Answers,
    service: u64,
}

impl Three {
    async fn start(conducts: [Conduct; 3]) -> Self {
        let world = World::start().await;
        let (mut fakes, pair) = (Vec::new(), Arc::new(Barrier::new(2)));
        for (index, conduct) in OPERATORS.into_iter().zip(conducts) {
            fakes.push(FakeBatches::start(world.account(index).await, conduct, pair.clone()).await);
        }
        let customer = world.account(CUSTOMER).await;
        let terms = ServiceTerms::named(OPERATORS.map(address).to_vec());
        let requested = customer.request_service(&terms).await.unwrap();
        for index in OPERATORS {
            operators::approve(&world.account(index).await, requested.request).await.unwrap();
        }
        let service = customer.chain().wait_for_service(&requested, BOUND).await.unwrap();
        Self { world, _fakes: fakes, answers: Answers::new(customer).unwrap(), service }
    }

    fn account(&self) -> &Account {
        self.answers.account()
    }

    /// Makes blocks until the time of a call is over.
    async fn pass_deadline(&self, call: u64) {
        let (chain, key) = (self.account().chain(), CallKey { service: self.service, call });
        let deadline = chain.assignment(key).await.unwrap().unwrap().deadlineBlock;
        while let left @ 1.. = (deadline + 1).saturating_sub(chain.head().await.unwrap()) {
            self.world.dev.mine(left).await.unwrap();
        }
    }

    /// The parts of a batch, looked at until each stands so.
    async fn stands(&self, batch: &Batch, expected: [&str; 3]) -> Merged {
        let looking = async {
            loop {
                let merged = batch.wait(&self.answers, SHORT).await.unwrap();
                if standings(&merged) == expected {
                    break merged;
                }
            }
        };
        tokio::time::timeout(BOUND, looking).await.unwrap_or_else(|_| panic!("the parts never were {expected:?}"))
    }

    async fn made(&self, builder: BatchCreateBuilder, bound: Duration) -> (Vec<SandboxId>, Merged) {
        let sent = self.account().submit_batch(self.service, builder.build().unwrap(), None).await.unwrap();
        let merged = sent.batch.wait(&self.answers, bound).await.unwrap();
        (sent.batch.sandboxes(self.account().chain()).await.unwrap(), merged)
    }

    async fn done(&self, builder: BatchBuilder, bound: Duration) -> Merged {
        let sent = self.account().submit_batch(self.service, builder.build().unwrap(), None).await.unwrap();
        sent.batch.wait(&self.answers, bound).await.unwrap()
    }
}

fn address(index: usize) -> Address {
    sandbox_sdk::devchain::key(index).address()
}

fn create(count: u32) -> BatchCreateBuilder {
    BatchCreateBuilder::new(count, CreateBuilder::new().env("A", "1"))
}

fn states(merged: &Merged) -> Vec<(u32, Address, State)> {
    merged.items.iter().map(|item| (item.item, item.operator, item.state)).collect()
}

fn standings(merged: &Merged) -> Vec<&'static str> {
    merged.parts.iter().map(|part| part.standing).collect()
}

#[tokio::test]
async fn what_is_planned_here_is_what_the_chain_plans() {
    let three = Three::start([Conduct::Honest; 3]).await;
    let (chain, service) = (three.account().chain(), three.service);
    let pool = chain.pool(service, &[]).await.unwrap();
    assert_eq!(pool, OPERATORS.map(address));
    for (call, distribution) in (0..).zip(Distribution::ALL) {
        let key = CallKey { service, call };
        let offers = chain.offers(&pool).await.unwrap();
        let seed = batches::seed(chain.service_view(service).await.unwrap().unwrap().seed, key);
        let planned = batches::plan(&offers, 4, (distribution, seed)).unwrap();
        let request = create(4).distribution(distribution).build().unwrap();
        let sent = three.account().submit_batch(service, request, None).await.unwrap();
        assert_eq!((sent.jobs[0].key, chain.shares(key).await.unwrap()), (key, planned), "{distribution}");
    }
    let other = address(9);
    let error = chain.pool(service, &[other]).await.unwrap_err();
    assert!(matches!(error, BatchError::NotOfService { operator, .. } if operator == other), "{error}");
    assert_eq!(chain.pool(service, &[address(4), address(1)]).await.unwrap(), [address(1), address(4)]);
    let offers = chain.offers(&pool).await.unwrap();
    assert!(matches!(batches::plan(&offers, 13, (Distribution::Random, B256::ZERO)), Err(BatchError::NoRoom { .. })));
}

#[tokio::test]
async fn a_batch_is_made_used_and_proven_part_by_part() {
    let three = Three::start([Conduct::Honest, Conduct::Slow, Conduct::Honest]).await;
    let (sandboxes, merged) = three.made(create(5), BOUND).await;
    assert!(merged.is_over && merged.is_success);
    let [a, b, c] = OPERATORS.map(address);
    let made = [(0, a), (1, a), (2, b), (3, b), (4, c)].map(|(item, operator)| (item, operator, State::Succeeded));
    assert_eq!((states(&merged), sandboxes.len()), (made.to_vec(), 5));
    for answer in &merged.answers {
        verify::on_chain(three.account().chain(), answer).await.unwrap();
    }

    let same = BatchBuilder::exec(sandboxes.clone(), "same").aggregation(Aggregation::Majority);
    let majority = three.done(same, BOUND).await.majority.unwrap();
    assert_eq!((majority.answer.as_str(), majority.items.len(), majority.tied), ("same\u{1b}[2J", 5, false));
    let odd = three.done(BatchBuilder::exec(sandboxes.clone(), "odd"), BOUND).await;
    assert_eq!((odd.count(State::Succeeded), odd.count(State::Failed), odd.is_success), (3, 2, false));
    let told = three.done(BatchBuilder::task(sandboxes, "say it").aggregation(Aggregation::Majority), BOUND).await;
    assert_eq!(told.majority.unwrap().answer, "say it");
}

#[tokio::test]
async fn who_lies_about_what_it_made_is_named_and_so_is_who_is_silent() {
    for (conduct, why) in [
        (Conduct::Changing, "the chain recorded response"),
        (Conduct::Stranger, "signed by"),
        (Conduct::Boasting, "it claims to have made"),
    ] {
        let three = Three::start([Conduct::Honest, conduct, Conduct::Silent]).await;
        let request = create(3).build().unwrap();
        let sent = three.account().submit_batch(three.service, request, None).await.unwrap();
        let early = three.stands(&sent.batch, ["proven", "lying", "pending"]).await;
        assert!(!early.is_over, "{conduct:?}");
        three.pass_deadline(0).await;
        let late = sent.batch.wait(&three.answers, BOUND).await.unwrap();
        assert_eq!((standings(&late), late.is_over), (vec!["proven", "lying", "silent"], true));
        let expected = [State::Succeeded, State::Disproved, State::Silent];
        assert_eq!(late.items.iter().map(|item| item.state).collect::<Vec<_>>(), expected);
        let said = late.of_standing("lying").next().unwrap();
        let told = said.why.as_deref().unwrap();
        assert!(said.operator == address(2) && told.contains(why), "{conduct:?}: {told}");
    }
}

#[tokio::test]
async fn who_claims_items_of_others_is_not_believed_about_any() {
    let three = Three::start([Conduct::Honest, Conduct::Claiming, Conduct::Honest]).await;
    let (sandboxes, _) = three.made(create(3), BOUND).await;
    let merged = three.done(BatchBuilder::exec(sandboxes, "x"), BOUND).await;
    let [a, b, c] = OPERATORS.map(address);
    let expected = [(0, a, State::Succeeded), (1, b, State::Disproved), (2, c, State::Succeeded)];
    assert_eq!(states(&merged), expected);
    let lie = merged.of_standing("lying").next().unwrap();
    assert_eq!(lie.why.as_deref(), Some(format!("it claims item 0, which is {a}'s").as_str()));
}

#[tokio::test]
async fn what_is_withheld_or_was_not_made_is_told_from_what_is_late() {
    let three = Three::start([Conduct::Withholding, Conduct::Short, Conduct::Silent]).await;
    let sent = three.account().submit_batch(three.service, create(5).build().unwrap(), None).await.unwrap();
    let merged = three.stands(&sent.batch, ["withheld", "proven", "pending"]).await;
    let sandboxes = sent.batch.sandboxes(three.account().chain()).await.unwrap();
    let expected = [State::Withheld, State::Withheld, State::Succeeded, State::Failed, State::Pending].map(State::name);
    assert_eq!(merged.items.iter().map(|item| item.state.name()).collect::<Vec<_>>(), expected);
    assert_eq!(sandboxes.len(), 3, "the chain has what was withheld");
}

#[tokio::test]
async fn one_success_is_enough_and_ends_the_wait_for_those_who_are_silent() {
    let three = Three::start([Conduct::Silent, Conduct::Honest, Conduct::Silent]).await;
    let builder = create(1).operators(vec![address(2)]);
    let (sandboxes, merged) = three.made(builder, BOUND).await;
    assert!(merged.is_success);
    let first = BatchBuilder::exec(sandboxes, "x").aggregation(Aggregation::FirstSuccess);
    let merged = tokio::time::timeout(BOUND, three.done(first, Duration::from_secs(3_600))).await.unwrap();
    assert_eq!((merged.winner, merged.is_success, merged.is_over), (Some(0), true, true));
    assert_eq!(standings(&merged), ["pending", "proven", "pending"]);
}

#[tokio::test]
async fn who_is_asked_once_more_after_a_winner_is_asked_beside_the_others() {
    let three = Three::start([Conduct::Paired, Conduct::Honest, Conduct::Paired]).await;
    let (sandboxes, _) = three.made(create(1).operators(vec![address(2)]), BOUND).await;
    let first = BatchBuilder::exec(sandboxes, "x").aggregation(Aggregation::FirstSuccess);
    let merged = three.done(first, Duration::from_secs(3_600)).await;
    assert_eq!((merged.winner, standings(&merged)), (Some(0), vec!["proven"; 3]), "one waits for the other's question");
}

#[tokio::test]
async fn a_create_is_of_a_batch_only_if_that_is_proven() {
    let three = Three::start([Conduct::Honest, Conduct::Luring, Conduct::Honest]).await;
    let (account, answers, service) = (three.account(), &three.answers, three.service);
    let ids: [BatchId; 2] = ["night", "morning"].map(|id| id.parse().unwrap());
    for id in &ids {
        let request = create(3).batch(id).build().unwrap();
        let sent = account.submit_batch(service, request, Some(id.clone())).await.unwrap();
        let merged = sent.batch.wait(answers, BOUND).await.unwrap();
        let lies: Vec<_> = merged.of_standing("lying").map(|part| part.why.clone().unwrap()).collect();
        let expected =
            if id.as_str() == "night" { vec![] } else { vec![r#"it answers to a batch "night""#.to_owned()] };
        assert_eq!(lies, expected);
    }
    let found = Batch::find(answers, (service, &ids[0]), [0, 1, 77]).await.unwrap();
    let calls: Vec<_> = found.batch.calls.iter().map(|call| call.key.call).collect();
    assert_eq!((calls, found.unattested), (vec![0], vec![CallKey { service, call: 1 }]));
    let error = Batch::find(answers, (service, &ids[0]), [1]).await.unwrap_err();
    assert_eq!(error.to_string(), format!("call {service}/1 is said to be of batch night, and not proven to be"));
    let morning = Batch::find(answers, (service, &ids[1]), [1]).await.unwrap();
    assert_eq!((morning.batch.calls.len(), morning.unattested.len()), (1, 0), "two of three have attested to it");

    let plain = account.submit_batch(service, BatchCreateBuilder::new(1, CreateBuilder::new()).build().unwrap(), None);
    let own = plain.await.unwrap().batch.id;
    let found = Batch::find(answers, (service, &own), []).await.unwrap();
    assert_eq!(found.batch.calls.len(), 1, "what is not sealed says itself what it is called");
    let night = Batch::find(answers, (service, &ids[0]), [2]).await;
    assert!(matches!(night, Err(BatchError::Unknown { .. })), "{night:?}");
}

#[tokio::test]
async fn a_batch_paid_by_quote_is_a_call_for_each_operator_under_one_id() {
    let three = Three::start([Conduct::Honest, Conduct::Mute, Conduct::Honest]).await;
    let (account, service) = (three.account(), three.service);
    let id: BatchId = "paid".parse().unwrap();
    let quotes = Quotes::new(account.clone()).unwrap();
    let quoted = quotes.of_batch_create(service, &create(5), &id).await.unwrap();
    let asked: Vec<_> = quoted.calls.iter().map(|call| call.offer.quote.operator).collect();
    assert_eq!(asked, [address(1), address(4)], "who does not quote is planned without");
    assert_eq!(quoted.cost().unwrap().amount.to_string(), "2000000");
    let sent = account.submit_quoted_batch(quoted).await.unwrap();
    assert_eq!((sent.jobs.len(), sent.unsent.len()), (2, 0));
    let merged = sent.batch.wait(&three.answers, BOUND).await.unwrap();
    assert_eq!((merged.items.len(), merged.is_success, standings(&merged)), (5, true, vec!["proven", "proven"]));
    assert_eq!(merged.items.iter().map(|item| item.item).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);

    let mut sandboxes = sent.batch.sandboxes(account.chain()).await.unwrap();
    sandboxes.swap(0, 4);
    let quoted = quotes.of_batch(service, &BatchBuilder::exec(sandboxes.clone(), "x"), &id).await.unwrap();
    assert_eq!(quoted.calls.len(), 2);
    let done = account.submit_quoted_batch(quoted).await.unwrap().batch.wait(&three.answers, BOUND).await.unwrap();
    assert_eq!(done.items.iter().map(|item| item.sandbox.unwrap()).collect::<Vec<_>>(), sandboxes);
    assert!(done.is_success);

    let everyone = create(12).operators(OPERATORS.map(address).to_vec());
    let error = quotes.of_batch_create(service, &everyone, &id).await.unwrap_err();
    assert!(matches!(&error, BatchError::NoRoom { .. } | BatchError::Nobody(_)), "{error}");
    let nobody = quotes.of_batch_create(service, &create(1).operators(vec![address(2)]), &id).await.unwrap_err();
    assert!(matches!(&nobody, BatchError::Nobody(why) if why.contains("does not quote")), "{nobody}");
}
