//! All parts of a batch as one table, and what they come to.

use std::collections::BTreeMap;

use alloy::primitives::Address;
use sandbox_fleet::batch::majority;
use sandbox_protocol::batch::{Aggregation, BatchId, ItemExec, ItemState, ItemTask, Majority, PartReport};
use sandbox_protocol::http::AnswerBody;
use sandbox_protocol::{CallKey, Failure, Job, SandboxId};
use serde::Serialize;

use super::claims::{Claim, Ground};
use super::{Batch, BatchCall, LiveBatch, Standing};

/// Where an item of a batch is, as far as that is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its operator has not answered yet.
    Pending,
    /// Done.
    Succeeded,
    /// Not done.
    Failed,
    /// Not done, since it was not needed any more.
    Cancelled,
    /// Its operator's time was over without a receipt.
    Silent,
    /// Its operator has a receipt on chain and does not hand over the answer.
    Withheld,
    /// What its operator answered does not hold.
    Disproved,
    /// Its operator's answer, which holds, says nothing of it; or its operator has no part in the call.
    Unreported,
}

impl State {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Silent => "silent",
            Self::Withheld => "withheld",
            Self::Disproved => "disproved",
            Self::Unreported => "unreported",
        }
    }
}

/// One item.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Item {
    /// Its place in the batch.
    pub item: u32,
    /// Its call.
    pub call: u64,
    /// Its place in the call; of a create its slot.
    pub index: u32,
    /// The sandbox; of an endpoint that names none, nothing.
    pub sandbox: Option<SandboxId>,
    /// Whose it is.
    pub operator: Address,
    /// Where it is.
    pub state: State,
    /// Why it was not done, where it does not say so itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// What came of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ItemExec>,
    /// What came of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<ItemTask>,
}

/// One operator's part of one call.
#[derive(Debug, Serialize)]
pub struct PartStanding {
    /// The call.
    pub call: u64,
    /// The operator.
    pub operator: Address,
    /// Where it is: `proven`, `pending`, `silent`, `withheld` or `lying`.
    pub standing: &'static str,
    /// Outcome of its receipt on chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<u8>,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A batch as its proven answers have it.
#[derive(Debug, Serialize)]
pub struct Merged {
    /// The batch.
    pub batch_id: BatchId,
    /// Whether nothing is to come of it.
    pub is_over: bool,
    /// Whether what was asked for is there: of one call a success, of another a majority that holds, of any other every item.
    pub is_success: bool,
    /// Its items, by place.
    pub items: Vec<Item>,
    /// Its parts, by call and in the order of the plan.
    pub parts: Vec<PartStanding>,
    /// Where one success is enough: the item that was it, by the receipt that came first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub winner: Option<u32>,
    /// What most successful items answered, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub majority: Option<Majority>,
    /// Where that was asked for, whether it is a majority of all items and not of those alone that were done: more than half of them
    /// answered so, and nothing is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub majority_holds: Option<bool>,
    /// The answers that are proven, in the order of the parts.
    #[serde(skip)]
    pub answers: Vec<AnswerBody>,
}

/// Where a part stands, and what it says of its items.
#[derive(Debug)]
pub(super) struct Stood {
    pub(super) call: CallKey,
    pub(super) operator: Address,
    pub(super) standing: Standing,
    pub(super) claims: Vec<Claim>,
}

impl Merged {
    /// How many items are so.
    pub fn count(&self, state: State) -> usize {
        self.items.iter().filter(|item| item.state == state).count()
    }

    /// Adds why slots were not made, which no answer to a create says, as far as their operators tell.
    pub fn explain(&mut self, live: &LiveBatch) {
        for item in self.items.iter_mut().filter(|item| item.state == State::Failed && item.failure.is_none()) {
            let is_its = |part: &&PartReport| (part.call, part.operator) == (item.call, item.operator);
            let told = live.parts.iter().find(is_its).map(|part| part.items.as_slice()).unwrap_or_default();
            item.failure = told.iter().find(|told| told.index == item.index).and_then(|told| told.failure.clone());
        }
    }

    /// Operators whose parts stand so, each with what is wrong.
    pub fn of_standing(&self, standing: &str) -> impl Iterator<Item = &PartStanding> {
        self.parts.iter().filter(move |part| part.standing == standing)
    }
}

/// All parts as one.
pub(super) fn merge(batch: &Batch, grounds: &[Ground], mut stood: Vec<Stood>) -> Merged {
    let mut items = Vec::new();
    for (call, ground) in batch.calls.iter().zip(grounds) {
        let mut claimed = taken(call, ground, &mut stood);
        for (index, place) in call.places.iter().enumerate() {
            let operator = ground.reporter(call, index);
            let sandbox = call.sandbox(index);
            let (by, claim) = match claimed.remove(&index) {
                Some((by, claim)) => (by, Some(claim)),
                None => (operator, None),
            };
            let unclaimed = || unclaimed(&stood, (call.key, operator));
            let state = claim.as_ref().map_or_else(unclaimed, |claim| of_item(claim.state));
            let Claim { failure, exec, task, .. } =
                claim.unwrap_or(Claim { index, state: ItemState::Waiting, failure: None, exec: None, task: None });
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            items.push(Item {
                item: *place,
                call: call.key.call,
                index,
                sandbox,
                operator: by,
                state,
                failure,
                exec,
                task,
            });
        }
    }
    items.sort_by_key(|item| item.item);
    let winner = winner(batch, &items, &stood);
    let (majority, majority_holds) = majority_of(batch, &items).unzip();
    let majority = majority.flatten();
    let is_over = winner.is_some() || stood.iter().all(|part| !matches!(part.standing, Standing::Pending));
    let is_there = |call: &BatchCall| match call.aggregation {
        Some(Aggregation::FirstSuccess) => winner.is_some(),
        Some(Aggregation::Majority) => majority_holds == Some(true),
        Some(Aggregation::All) | None => {
            items.iter().filter(|item| item.call == call.key.call).all(|item| item.state == State::Succeeded)
        }
    };
    let is_success = batch.calls.iter().all(is_there);
    let (parts, answers): (_, Vec<_>) = stood.into_iter().map(told).unzip();
    let answers = answers.into_iter().flatten().collect();
    Merged { batch_id: batch.id.clone(), is_over, is_success, items, parts, winner, majority, majority_holds, answers }
}

/// What proven answers to a call say of its items; of two about one, that of the operator whose it is.
fn taken(call: &BatchCall, ground: &Ground, stood: &mut [Stood]) -> BTreeMap<usize, (Address, Claim)> {
    let mut claimed = BTreeMap::new();
    for part in stood.iter_mut().filter(|part| part.call == call.key) {
        for claim in part.claims.drain(..) {
            if !claimed.contains_key(&claim.index) || ground.reporter(call, claim.index) == part.operator {
                claimed.insert(claim.index, (part.operator, claim));
            }
        }
    }
    claimed
}

fn unclaimed(stood: &[Stood], part: (CallKey, Address)) -> State {
    let found = stood.iter().find(|one| (one.call, one.operator) == part);
    match found.map(|one| &one.standing) {
        Some(Standing::Pending) => State::Pending,
        Some(Standing::Silent { .. }) => State::Silent,
        Some(Standing::Withheld { .. }) => State::Withheld,
        Some(Standing::Lying(_)) => State::Disproved,
        Some(Standing::Proven { .. }) | None => State::Unreported,
    }
}

const fn of_item(state: ItemState) -> State {
    match state {
        ItemState::Waiting | ItemState::Running => State::Unreported,
        ItemState::Succeeded => State::Succeeded,
        ItemState::Failed => State::Failed,
        ItemState::Cancelled => State::Cancelled,
    }
}

fn told(part: Stood) -> (PartStanding, Option<AnswerBody>) {
    let told =
        |standing, outcome, why| PartStanding { call: part.call.call, operator: part.operator, standing, outcome, why };
    match part.standing {
        Standing::Proven { record, answer } => (told("proven", Some(record.outcome), None), Some(*answer)),
        Standing::Pending => (told("pending", None, None), None),
        Standing::Silent { deadline_block } => {
            (told("silent", None, Some(format!("no receipt until block {deadline_block}"))), None)
        }
        Standing::Withheld { record, source } => {
            let why = source.map(|error| error.to_string());
            (told("withheld", Some(record.outcome), why), None)
        }
        Standing::Lying(lie) => (told("lying", None, Some(lie.to_string())), None),
    }
}

/// The items that are taken together so.
fn together<'a>(batch: &Batch, items: &'a [Item], aggregation: Aggregation) -> Vec<&'a Item> {
    let calls = batch.calls.iter().filter(|call| call.job != Job::BatchCreate && call.aggregation == Some(aggregation));
    let calls: Vec<_> = calls.map(|call| call.key.call).collect();
    items.iter().filter(|item| calls.contains(&item.call)).collect()
}

/// The success whose receipt came first.
fn winner(batch: &Batch, items: &[Item], stood: &[Stood]) -> Option<u32> {
    let place = |item: &Item| {
        let of = |part: &&Stood| part.call.call == item.call && part.operator == item.operator;
        match stood.iter().find(of).map(|part| &part.standing) {
            Some(Standing::Proven { record, .. }) => record.place,
            _ => (u64::MAX, 0),
        }
    };
    let successes = together(batch, items, Aggregation::FirstSuccess).into_iter().filter(is_done);
    successes.min_by_key(|item| (place(item), item.item)).map(|item| item.item)
}

/// What most successful items answered, and whether that holds; `None` where it was not asked for.
fn majority_of(batch: &Batch, items: &[Item]) -> Option<(Option<Majority>, bool)> {
    let all = together(batch, items, Aggregation::Majority);
    if all.is_empty() {
        return None;
    }
    let words: Vec<_> = all.iter().copied().filter(is_done).map(|item| (item.item, words(item))).collect();
    let found = majority(words.iter().map(|(item, words)| (*item, words.as_str())));
    // Of answers that are tied none is that of more than half.
    let is_most = found.as_ref().is_some_and(|majority| 2 * majority.items.len() > all.len());
    Some((found, is_most && all.iter().all(|item| item.state != State::Pending)))
}

fn is_done(item: &&Item) -> bool {
    item.state == State::Succeeded
}

/// What an item answered.
fn words(item: &Item) -> String {
    match (&item.exec, &item.task) {
        (Some(exec), _) => String::from_utf8_lossy(&exec.stdout.0).into_owned(),
        (None, Some(task)) => task.result.clone(),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::B256;
    use sandbox_protocol::exec::ByteText;

    use super::*;

    /// How many agree, whether that is a tie, and whether it holds, where items are so and wrote that.
    fn judged(items: &[(State, &str)]) -> Option<(usize, bool, bool)> {
        let call = BatchCall {
            key: CallKey { service: 1, call: 9 },
            job: Job::BatchExec,
            caller: Address::ZERO,
            inputs_hash: B256::ZERO,
            block: 1,
            aggregation: Some(Aggregation::Majority),
            endpoints: vec![None; items.len()],
            places: (0..).take(items.len()).collect(),
        };
        let item = |(place, (state, stdout)): (u32, &(State, &str))| Item {
            item: place,
            call: 9,
            index: place,
            sandbox: None,
            operator: Address::ZERO,
            state: *state,
            failure: None,
            exec: Some(ItemExec { stdout: ByteText(stdout.as_bytes().to_vec()), ..Default::default() }),
            task: None,
        };
        let items: Vec<_> = (0..).zip(items).map(item).collect();
        let batch = Batch { id: "b".parse().unwrap(), calls: vec![call] };
        let (majority, holds) = majority_of(&batch, &items)?;
        Some((majority.as_ref()?.items.len(), majority?.tied, holds))
    }

    #[test]
    fn a_majority_is_one_of_all_items_and_not_of_those_that_answered() {
        use State as S;
        let (yes, no) = ((S::Succeeded, "yes"), (S::Succeeded, "no"));
        assert_eq!(judged(&[yes, yes, (S::Silent, "")]), Some((2, false, true)));
        assert_eq!(judged(&[yes, yes, (S::Disproved, "yes")]), Some((2, false, true)));
        assert_eq!(judged(&[yes, (S::Silent, ""), (S::Silent, "")]), Some((1, false, false)));
        assert_eq!(judged(&[yes, (S::Disproved, "yes")]), Some((1, false, false)), "half is not more than half");
        assert_eq!(judged(&[yes, yes, (S::Pending, "")]), Some((2, false, false)), "one may still answer");
        assert_eq!(judged(&[yes, no]), Some((1, true, false)));
        assert_eq!(judged(&[yes, yes, no, no, (S::Failed, "yes")]), Some((2, true, false)));
        assert_eq!(judged(&[(S::Failed, "yes")]), None);
    }
}
