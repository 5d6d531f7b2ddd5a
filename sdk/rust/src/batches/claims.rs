//! What an operator's answer says of its items, held against what the chain says of them.
//!
//! A pure function: everything that the chain knows is an argument. An answer that claims what the chain has as another's, or a
//! sandbox that its own receipt does not hold, is a lie, and nothing of it counts.

use std::collections::BTreeMap;

use alloy::primitives::{Address, U256};
use sandbox_protocol::abi::{self, ExecResponse, JobError, TaskResponse};
use sandbox_protocol::batch::{BatchId, ELSEWHERE, ItemExec, ItemState, ItemTask, NOT_RUN};
use sandbox_protocol::exec::ByteText;
use sandbox_protocol::http::AnswerBody;
use sandbox_protocol::{Failure, FailureCode, Job, Outcome, SandboxId};
use serde::Deserialize as _;
use serde::de::IntoDeserializer;
use serde::de::value::Error as NotAWord;

use super::BatchCall;
use crate::contracts::IAgentSandboxBlueprint::{Part, SandboxState, SandboxView};
use crate::verify::Unproven;

/// Why nothing that an operator answered counts.
#[derive(Debug, thiserror::Error)]
pub enum Lie {
    /// Its answer is not the one that its receipt on chain is of, or not signed by it, or to something else.
    #[error(transparent)]
    Unproven(Unproven),
    /// Its response, to which it has attested, is none to such a batch.
    #[error("its response is none to this batch")]
    Garbled,
    /// Its response, to which it has attested, is to another batch.
    #[error("it answers to a batch {0:?}")]
    OtherBatch(String),
    /// It says what came of an item that the chain has as another's.
    #[error("it claims item {index}, which is {holder}'s")]
    Foreign {
        /// The item's place in the call.
        index: u32,
        /// Whose it is.
        holder: Address,
    },
    /// It says that it made a sandbox which its receipt on chain does not hold.
    #[error("it claims to have made {0:?}, which its receipt does not hold")]
    Phantom(String),
}

/// What the chain says of a call, beside its receipts.
#[derive(Debug, Clone, Default)]
pub(super) struct Ground {
    /// Who must answer, in the order of the plan.
    pub(super) parts: Vec<Part>,
    /// The last block in which answers are expected.
    pub(super) deadline_block: u64,
    /// The sandboxes that are named.
    pub(super) rows: BTreeMap<SandboxId, Row>,
}

/// A sandbox that is named, as operators may have found it when the call came to them.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// At the block of the call, by which operators go; where the node does not remember that, nothing.
    pub(super) then: Option<SandboxView>,
    /// As it is now, and as an operator may have found it whose own node does not remember.
    pub(super) now: SandboxView,
    /// Whether its create was given to another operator since, as far as that is asked for: where `then` is known it says so itself.
    pub(super) has_moved: bool,
}

/// What one answer says of one item.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    /// The item's place in the call.
    pub(super) index: usize,
    pub(super) state: ItemState,
    pub(super) failure: Option<Failure>,
    pub(super) exec: Option<ItemExec>,
    pub(super) task: Option<ItemTask>,
}

impl Ground {
    fn first(&self) -> Address {
        self.parts.first().map_or(Address::ZERO, |part| part.operator)
    }

    /// Who may say what came of an item: first the one who is to, then those who may have found it theirs when they looked.
    pub(super) fn speakers(&self, call: &BatchCall, index: usize) -> Vec<Address> {
        let Some(sandbox) = call.sandbox(index) else { return vec![self.first()] };
        if call.job == Job::BatchCreate {
            let part = self.parts.iter().find(|part| holds(part, sandbox.slot));
            return vec![part.map_or_else(|| self.first(), |part| part.operator)];
        }
        match self.rows.get(&sandbox).filter(|_| sandbox.origin.service == call.key.service) {
            None => vec![self.first()],
            Some(Row { then: Some(then), now, .. }) => vec![self.holder(then), self.holder(now)],
            // Anybody with a part may have held it then, and nothing says who.
            Some(Row { now, has_moved: true, .. }) => {
                std::iter::once(self.holder(now)).chain(self.parts.iter().map(|part| part.operator)).collect()
            }
            // Calls are numbered as they come, so it was there when this one came.
            Some(Row { now, .. }) if is_there(now.state) && sandbox.origin.call < call.key.call => {
                vec![self.holder(now)]
            }
            // It is gone, or was not there yet when the call came: who looked at that time found it nobody's.
            Some(Row { now, .. }) => vec![self.named(now), self.first()],
        }
    }

    /// Whose a sandbox is by the rule that operators have; the first tells of what is nobody's.
    fn holder(&self, view: &SandboxView) -> Address {
        if is_there(view.state) || view.state == SandboxState::Lost { self.named(view) } else { self.first() }
    }

    /// The operator of a row, if it has a part.
    fn named(&self, view: &SandboxView) -> Address {
        let has_part = self.parts.iter().any(|part| part.operator == view.operator);
        if has_part { view.operator } else { self.first() }
    }

    /// Who is to say what came of an item.
    pub(super) fn reporter(&self, call: &BatchCall, index: usize) -> Address {
        self.speakers(call, index).first().copied().unwrap_or_default()
    }

    /// An item that `operator` may not speak of: whose it is.
    fn foreign(&self, call: &BatchCall, index: usize, operator: Address) -> Option<Address> {
        let speakers = self.speakers(call, index);
        if speakers.contains(&operator) { None } else { speakers.first().copied() }
    }
}

const fn is_there(state: SandboxState) -> bool {
    matches!(state, SandboxState::Requested | SandboxState::Live | SandboxState::Expired)
}

const fn holds(part: &Part, slot: u8) -> bool {
    slot >= part.firstSlot && slot - part.firstSlot < part.slots
}

/// What a proven answer of `operator` to a call of this batch says of its items.
///
/// # Errors
/// [`Lie`].
pub(super) fn claims(
    (batch, call): (&BatchId, &BatchCall),
    ground: &Ground,
    (operator, answer): (Address, &AnswerBody),
) -> Result<Vec<Claim>, Lie> {
    match answered_batch(call.job, answer)? {
        None => return all_failed(call, ground, operator, answer),
        Some(named) if named != batch.as_str() => return Err(Lie::OtherBatch(head(&named))),
        Some(_) => {}
    }
    let claims = match call.job {
        Job::BatchCreate => return created(call, ground, operator, answer),
        Job::BatchCollect => return Ok(Vec::new()),
        Job::BatchExec => {
            let response: abi::BatchExecResponse = abi::decode(&answer.response).map_err(|_| Lie::Garbled)?;
            aligned(call, response.results, of_exec)?
        }
        _ => {
            let response: abi::BatchTaskResponse = abi::decode(&answer.response).map_err(|_| Lie::Garbled)?;
            aligned(call, response.results, of_task)?
        }
    };
    let foreign = claims.iter().find_map(|claim| Some((claim.index, ground.foreign(call, claim.index, operator)?)));
    match foreign {
        Some((index, holder)) => Err(Lie::Foreign { index: u32::try_from(index).unwrap_or(u32::MAX), holder }),
        None => Ok(claims),
    }
}

/// The batch that an answer says it is to; one that says only why nothing was done names none.
///
/// # Errors
/// [`Lie::Garbled`].
pub(super) fn answered_batch(job: Job, answer: &AnswerBody) -> Result<Option<String>, Lie> {
    if answer.failure.is_some_and(|code| !code.keeps_response()) || answer.outcome == Outcome::Operator {
        return Ok(None);
    }
    let response = &answer.response;
    let named = match job {
        Job::BatchCreate => abi::decode::<abi::BatchCreateResponse>(response).map(|response| response.batch_id),
        Job::BatchExec => abi::decode::<abi::BatchExecResponse>(response).map(|response| response.batch_id),
        Job::BatchCollect => abi::decode::<abi::BatchCollectResponse>(response).map(|response| response.batch_id),
        _ => abi::decode::<abi::BatchTaskResponse>(response).map(|response| response.batch_id),
    };
    named.map(Some).map_err(|_| Lie::Garbled)
}

/// The part as a whole was not done, so none of its items was.
fn all_failed(call: &BatchCall, ground: &Ground, operator: Address, answer: &AnswerBody) -> Result<Vec<Claim>, Lie> {
    let error: JobError = abi::decode(&answer.response).map_err(|_| Lie::Garbled)?;
    let failure = answer.failure.map(|code| Failure::new(code, error.message));
    let own = (0..call.len()).filter(|index| ground.reporter(call, *index) == operator);
    Ok(own.map(|index| Claim { failure: failure.clone(), ..Claim::bare(index, ItemState::Failed) }).collect())
}

/// A slot is made if the receipt on chain says so; the response must not name others.
fn created(call: &BatchCall, ground: &Ground, operator: Address, answer: &AnswerBody) -> Result<Vec<Claim>, Lie> {
    let response: abi::BatchCreateResponse = abi::decode(&answer.response).map_err(|_| Lie::Garbled)?;
    let made = |slot: u8| answer.receipt.receipt.detail.bit(usize::from(slot));
    for name in response.sandbox_ids.iter().filter(|name| !name.is_empty()) {
        let is_made = name.parse().is_ok_and(|id: SandboxId| id.origin == call.key && made(id.slot));
        if !is_made {
            return Err(Lie::Phantom(head(name)));
        }
    }
    let own = ground.parts.iter().filter(|part| part.operator == operator);
    let slots = own.flat_map(|part| part.firstSlot..part.firstSlot.saturating_add(part.slots));
    let claim =
        |slot| Claim::bare(usize::from(slot), if made(slot) { ItemState::Succeeded } else { ItemState::Failed });
    Ok(slots.map(claim).collect())
}

/// As much of a liar's words as one needs to know them by.
fn head(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The results that are the operator's own, each in the place of its endpoint.
fn aligned<T>(call: &BatchCall, results: Vec<T>, read: fn(usize, T) -> Option<Claim>) -> Result<Vec<Claim>, Lie> {
    if results.len() != call.len() {
        return Err(Lie::Garbled);
    }
    Ok(results.into_iter().enumerate().filter_map(|(index, result)| read(index, result)).collect())
}

fn of_exec(index: usize, result: ExecResponse) -> Option<Claim> {
    if result == (ExecResponse { exit_code: NOT_RUN, stderr: ELSEWHERE.into(), ..Default::default() }) {
        return None;
    }
    if result.exit_code == NOT_RUN {
        return Some(not_done(index, &String::from_utf8_lossy(&result.stderr)));
    }
    let state = if result.exit_code == 0 { ItemState::Succeeded } else { ItemState::Failed };
    let ExecResponse { exit_code, stdout, stderr, truncated, duration_ms } = result;
    let (stdout, stderr) = (ByteText(stdout.into()), ByteText(stderr.into()));
    let exec = ItemExec { exit_code, stdout, stderr, truncated, duration_ms };
    Some(Claim { exec: Some(exec), ..Claim::bare(index, state) })
}

fn of_task(index: usize, result: TaskResponse) -> Option<Claim> {
    if result == (TaskResponse { error: ELSEWHERE.into(), ..Default::default() }) {
        return None;
    }
    let begun = TaskResponse { error: String::new(), ..result.clone() } != TaskResponse::default();
    if !begun && failure_in(&result.error).is_some() {
        return Some(not_done(index, &result.error));
    }
    let state = if result.success { ItemState::Succeeded } else { ItemState::Failed };
    let TaskResponse {
        success,
        result,
        error,
        trace_id,
        turns_used,
        duration_ms,
        input_tokens,
        output_tokens,
        session_id,
    } = result;
    let task =
        ItemTask { success, result, error, trace_id, turns_used, duration_ms, input_tokens, output_tokens, session_id };
    Some(Claim { task: Some(task), ..Claim::bare(index, state) })
}

/// An item that was not carried out, and why.
fn not_done(index: usize, why: &str) -> Claim {
    let failure = failure_in(why);
    let is_cancelled = failure.as_ref().is_some_and(|failure| failure.code == FailureCode::Cancelled);
    let state = if is_cancelled { ItemState::Cancelled } else { ItemState::Failed };
    Claim { failure, ..Claim::bare(index, state) }
}

/// `<code>: <message>`.
fn failure_in(text: &str) -> Option<Failure> {
    let (code, message) = text.split_once(": ")?;
    let word = IntoDeserializer::<NotAWord>::into_deserializer(code);
    FailureCode::deserialize(word).ok().map(|code| Failure::new(code, message))
}

impl Claim {
    const fn bare(index: usize, state: ItemState) -> Self {
        Self { index, state, failure: None, exec: None, task: None }
    }
}

/// The slots of a bitmap.
pub(super) fn slots(bits: U256) -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(move |slot| bits.bit(usize::from(*slot)))
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{B256, Bytes, Signature};
    use alloy::sol_types::SolValue as _;
    use sandbox_protocol::CallKey;
    use sandbox_protocol::receipt::{SandboxReceipt, SignedReceipt};
    use serde_json::Value;

    use super::*;

    const KEY: CallKey = CallKey { service: 1, call: 9 };

    const fn operator(place: u8) -> Address {
        Address::repeat_byte(place)
    }

    fn view(place: u8, state: SandboxState) -> SandboxView {
        SandboxView { operator: operator(place), owner: Address::ZERO, expiryBlock: 0, state }
    }

    /// A row at a node that does not remember the call's block.
    fn forgotten(place: u8, state: SandboxState) -> Row {
        Row { then: None, now: view(place, state), has_moved: false }
    }

    fn batch() -> BatchId {
        "night".parse().unwrap()
    }

    /// A call for the sandboxes 0 to 2 of another call, the first two held by #1 and #2, the third by nobody.
    fn exec() -> (BatchCall, Ground) {
        let id = |slot| SandboxId { origin: CallKey { service: 1, call: 4 }, slot };
        let rows = [(id(0), forgotten(1, SandboxState::Live)), (id(1), forgotten(2, SandboxState::Live))];
        let call = BatchCall {
            key: KEY,
            job: Job::BatchExec,
            caller: Address::ZERO,
            inputs_hash: B256::ZERO,
            block: 1,
            aggregation: None,
            endpoints: vec![Some(id(0)), Some(id(1)), Some(id(2))],
            places: vec![0, 1, 2],
        };
        let part = |place| Part { operator: operator(place), ..Default::default() };
        (call, Ground { parts: vec![part(1), part(2)], deadline_block: 5, rows: rows.into() })
    }

    /// A call for three slots: two of #1, one of #2.
    fn create() -> (BatchCall, Ground) {
        let (call, mut ground) = exec();
        ground.parts[0].slots = 2;
        (ground.parts[1].firstSlot, ground.parts[1].slots) = (2, 1);
        (BatchCall { job: Job::BatchCreate, endpoints: vec![None; 3], ..call }, ground)
    }

    fn answer(failure: Option<FailureCode>, response: Vec<u8>, detail: u64) -> AnswerBody {
        let receipt = SandboxReceipt {
            service: KEY.service,
            call: KEY.call,
            job: 0,
            operator: operator(1),
            caller: Address::ZERO,
            inputs_hash: B256::ZERO,
            response_hash: B256::ZERO,
            outcome: 0,
            detail: U256::from(detail),
            failure: String::new(),
            runtime: String::new(),
            image_digest: String::new(),
            started_block: 0,
            ended_block: 0,
            duration_ms: 0,
        };
        let signature = Signature::new(U256::from(1), U256::from(1), false);
        AnswerBody {
            outcome: failure.map_or(Outcome::Done, FailureCode::outcome),
            failure,
            response: Bytes::from(response),
            response_json: Value::Null,
            receipt: SignedReceipt { chain_id: 1, core: Address::ZERO, receipt, signature },
            transaction: None,
        }
    }

    fn done(exit_code: i32, stdout: &str) -> ExecResponse {
        ExecResponse { exit_code, stdout: stdout.as_bytes().to_vec().into(), ..Default::default() }
    }

    fn not_run(stderr: &str) -> ExecResponse {
        ExecResponse { exit_code: NOT_RUN, stderr: stderr.as_bytes().to_vec().into(), ..Default::default() }
    }

    fn said(place: u8, results: Vec<ExecResponse>) -> Result<Vec<Claim>, String> {
        let (call, ground) = exec();
        let response = abi::BatchExecResponse { batch_id: batch().to_string(), results, ..Default::default() };
        let answer = answer(None, response.abi_encode(), 0);
        claims((&batch(), &call), &ground, (operator(place), &answer)).map_err(|lie| lie.to_string())
    }

    fn states(claims: &[Claim]) -> Vec<(usize, ItemState)> {
        claims.iter().map(|claim| (claim.index, claim.state)).collect()
    }

    #[test]
    fn an_operator_speaks_of_its_own_items_and_the_first_of_nobody_s() {
        let own = said(1, vec![done(0, "out"), not_run("elsewhere"), not_run("bad_request: no such sandbox")]).unwrap();
        assert_eq!(states(&own), [(0, ItemState::Succeeded), (2, ItemState::Failed)]);
        assert_eq!(own[0].exec.as_ref().unwrap().stdout, ByteText(b"out".to_vec()));
        assert_eq!(own[1].failure.as_ref().unwrap().code, FailureCode::BadRequest);
        let other = said(2, vec![not_run("elsewhere"), done(7, ""), not_run("elsewhere")]).unwrap();
        assert_eq!(states(&other), [(1, ItemState::Failed)]);
        let cancelled = said(2, vec![not_run("elsewhere"), not_run("cancelled: another won"), not_run("elsewhere")]);
        assert_eq!(states(&cancelled.unwrap()), [(1, ItemState::Cancelled)]);
    }

    #[test]
    fn who_claims_what_is_another_s_lies() {
        let foreign = said(1, vec![done(0, ""), done(0, ""), not_run("elsewhere")]).unwrap_err();
        assert_eq!(foreign, format!("it claims item 1, which is {}'s", operator(2)));
        let of_nobody = said(2, vec![not_run("elsewhere"), done(0, ""), done(0, "")]).unwrap_err();
        assert_eq!(of_nobody, format!("it claims item 2, which is {}'s", operator(1)));
        assert_eq!(said(1, vec![done(0, "")]).unwrap_err(), "its response is none to this batch");
    }

    #[test]
    fn who_answers_to_another_batch_lies_whatever_the_job() {
        let batch_id = "another".to_owned();
        let answers = [
            (
                Job::BatchCreate,
                abi::BatchCreateResponse { batch_id: batch_id.clone(), ..Default::default() }.abi_encode(),
            ),
            (Job::BatchExec, abi::BatchExecResponse { batch_id: batch_id.clone(), ..Default::default() }.abi_encode()),
            (Job::BatchTask, abi::BatchTaskResponse { batch_id: batch_id.clone(), ..Default::default() }.abi_encode()),
            (Job::BatchCollect, abi::BatchCollectResponse { batch_id, ..Default::default() }.abi_encode()),
        ];
        for (job, response) in answers {
            let (call, ground) = exec();
            let call = BatchCall { job, ..call };
            let said = claims((&batch(), &call), &ground, (operator(1), &answer(None, response, 0)));
            assert_eq!(said.unwrap_err().to_string(), r#"it answers to a batch "another""#, "{job:?}");
        }
    }

    #[test]
    fn what_was_deleted_meanwhile_may_be_told_by_either_where_the_node_forgot() {
        let (call, mut ground) = exec();
        let id = call.endpoints[1].unwrap();
        ground.rows.insert(id, forgotten(2, SandboxState::Deleted));
        assert_eq!(ground.speakers(&call, 1), [operator(2), operator(1)]);
        assert_eq!((ground.foreign(&call, 1, operator(1)), ground.foreign(&call, 1, operator(2))), (None, None));
        ground.rows.insert(id, forgotten(2, SandboxState::Lost));
        assert_eq!(ground.foreign(&call, 1, operator(3)), Some(operator(2)));
    }

    #[test]
    fn who_held_it_at_the_block_of_the_call_is_no_liar_though_it_is_another_s_by_now() {
        use SandboxState as S;
        let (call, mut ground) = exec();
        let id = call.endpoints[1].unwrap();
        let row = |then, now| Row { then: Some(then), now, has_moved: false };
        ground.rows.insert(id, row(view(1, S::Requested), view(2, S::Live)));
        assert_eq!(ground.reporter(&call, 1), operator(1));
        assert_eq!((ground.foreign(&call, 1, operator(1)), ground.foreign(&call, 1, operator(2))), (None, None));
        assert_eq!(ground.foreign(&call, 1, operator(3)), Some(operator(1)));
        ground.rows.insert(id, row(view(2, S::Live), view(2, S::Live)));
        assert_eq!(ground.foreign(&call, 1, operator(1)), Some(operator(2)));
        ground.rows.insert(id, row(view(2, S::Deleted), view(2, S::Deleted)));
        assert_eq!(ground.foreign(&call, 1, operator(2)), Some(operator(1)), "the first tells of what is gone");
        ground.rows.insert(id, row(view(0, S::Unknown), view(2, S::Live)));
        assert_eq!(ground.speakers(&call, 1), [operator(1), operator(2)], "it came after the call");
        ground.rows.insert(id, row(view(3, S::Live), view(3, S::Lost)));
        assert_eq!(ground.speakers(&call, 1), [operator(1); 2], "its holder has no part");

        ground.rows.insert(id, Row { has_moved: true, ..forgotten(2, S::Live) });
        assert_eq!((ground.reporter(&call, 1), ground.foreign(&call, 1, operator(1))), (operator(2), None));
        assert_eq!(ground.foreign(&call, 1, operator(3)), Some(operator(2)), "it has no part");
    }

    #[test]
    fn what_was_asked_for_after_the_call_or_is_held_by_nobody_with_a_part_is_the_first_s_to_tell() {
        let (mut call, mut ground) = exec();
        call.key.call = 3;
        assert_eq!(ground.speakers(&call, 1), [operator(2), operator(1)], "its create has the later number 4");
        call.key.call = 5;
        assert_eq!(ground.speakers(&call, 1), [operator(2)]);
        ground.parts.truncate(1);
        assert_eq!(ground.speakers(&call, 1), [operator(1)]);
        call.key.service = 2;
        assert_eq!(ground.speakers(&call, 0), [operator(1)], "another service's");
    }

    #[test]
    fn a_slot_is_made_if_the_receipt_holds_it() {
        let (call, ground) = create();
        let made = |names: &[&str]| {
            let sandbox_ids = names.iter().map(|name| (*name).to_owned()).collect();
            let batch_id = batch().to_string();
            let response = abi::BatchCreateResponse { batch_id, sandbox_ids, ..Default::default() }.abi_encode();
            let answer = answer(None, response, 0b01);
            claims((&batch(), &call), &ground, (operator(1), &answer)).map_err(|lie| lie.to_string())
        };
        let expected = [(0, ItemState::Succeeded), (1, ItemState::Failed)];
        assert_eq!(states(&made(&["sbx-1-9-0"]).unwrap()), expected);
        assert_eq!(states(&made(&["sbx-1-9-0", ""]).unwrap()), expected);
        for phantom in ["sbx-1-9-1", "sbx-1-8-0", "sbx-1-9-2", "nonsense"] {
            let lie = made(&["sbx-1-9-0", phantom]).unwrap_err();
            assert_eq!(lie, format!("it claims to have made {phantom:?}, which its receipt does not hold"));
        }
    }

    #[test]
    fn a_part_that_was_not_done_fails_all_its_items_and_no_others() {
        let error = JobError { code: "engine".into(), message: "down".into(), retryable: true }.abi_encode();
        for ((call, ground), expected) in [(exec(), vec![0, 2]), (create(), vec![0, 1])] {
            let failed = answer(Some(FailureCode::Engine), error.clone(), 0);
            let found = claims((&batch(), &call), &ground, (operator(1), &failed)).unwrap();
            assert_eq!(found.iter().map(|claim| claim.index).collect::<Vec<_>>(), expected);
            assert!(found.iter().all(|claim| claim.failure.as_ref().unwrap().message == "down"));
        }
        let kept = abi::BatchExecResponse {
            batch_id: batch().to_string(),
            results: vec![done(1, ""), not_run("elsewhere"), not_run("x")],
            ..Default::default()
        };
        let (call, ground) = exec();
        let without = answer(Some(FailureCode::NoSuccess), kept.abi_encode(), 0);
        let found = claims((&batch(), &call), &ground, (operator(1), &without)).unwrap();
        assert_eq!(states(&found), [(0, ItemState::Failed), (2, ItemState::Failed)]);
    }

    #[test]
    fn a_task_that_failed_is_told_from_one_that_was_not_begun() {
        let failed = TaskResponse { error: "timeout: it said".into(), turns_used: 1, ..Default::default() };
        assert!(of_task(0, failed).unwrap().task.is_some());
        let not_begun = TaskResponse { error: "sandbox_busy: full".into(), ..Default::default() };
        let claim = of_task(0, not_begun).unwrap();
        assert_eq!((claim.task, claim.failure.unwrap().code), (None, FailureCode::SandboxBusy));
        assert_eq!(of_task(0, TaskResponse { error: ELSEWHERE.into(), ..Default::default() }), None);
        let good = TaskResponse { success: true, result: ELSEWHERE.into(), ..Default::default() };
        assert_eq!(of_task(0, good).unwrap().state, ItemState::Succeeded);
    }

    #[test]
    fn a_bitmap_is_its_slots() {
        assert_eq!(slots(U256::from(0b1010_0001)).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(slots(U256::MAX).count(), 256);
    }
}
