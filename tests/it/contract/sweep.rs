//! The gate at every gas limit: a transaction that is starved completes nothing that its hook did not see.
//!
//! The core gives a hook all but a 64th of what is left, ignores its failure, and takes a failed question for the number of
//! results as "one". So each limit is tried, from the least that the chain takes to more than is needed.

use alloy::primitives::{Address, U256};
use alloy::rpc::types::TransactionReceipt;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::devchain::CORE;
use sandbox_sdk::limits::SERVICE_OPERATORS_MAX;
use sandbox_tests::purses::Purses;
use sandbox_tests::stage::{PLENTY_OF_GAS, Stage, events, receipt};
use sandbox_tests::tangle::ICore::{ManagerHookFailed, executeExitCall};

use super::{
    COIN, DONE, FIRST_SLOT, OPERATOR, another, assignment, created, ends, live, pay_once, rate, requests,
    service_at_floor,
};

/// Gas between two limits.
const STEP: u64 = 1_000;

/// What came of a transaction at all its gas limits.
#[derive(Debug, Default)]
struct Swept {
    /// Limits that were tried.
    limits: usize,
    /// Transactions that were undone.
    undone: usize,
    /// Those that were not, though the hook in them failed.
    starved: usize,
    /// Those in which everything was done.
    whole: usize,
}

/// Sends a transaction at each gas limit, always from the same state, and has what came of it judged.
async fn sweep(
    stage: &Stage,
    (from, call): (Address, &Invocation),
    judge: impl AsyncFn(&TransactionReceipt) -> Result<()>,
) -> Result<Swept> {
    let first = intrinsic_gas(call);
    ensure!(stage.attempt(from, call, first - 1).await.is_err(), "{first} is not the least that the chain takes");
    let mut mark = stage.mark().await?;
    let needed = stage.attempt(from, call, PLENTY_OF_GAS).await?.gas_used;
    stage.back_to(mark).await?;
    mark = stage.mark().await?;
    let mut swept = Swept::default();
    // A sixth more than was used: refunds and the 64ths that are held back.
    for limit in (first..=needed + needed / 6 + 20 * STEP).step_by(STEP as usize) {
        let sent = stage.attempt(from, call, limit).await?;
        judge(&sent).await.map_err(|error| error.context(format!("at a gas limit of {limit}")))?;
        swept.limits += 1;
        match (sent.status(), events::<ManagerHookFailed>(&sent).is_empty()) {
            (false, _) => swept.undone += 1,
            (true, false) => swept.starved += 1,
            (true, true) => swept.whole += 1,
        }
        if sent.status() {
            stage.back_to(mark).await?;
            mark = stage.mark().await?;
        }
    }
    println!("{swept:?} of a transaction that used {needed} gas");
    ensure!(swept.undone > 0 && swept.whole > 0, "the sweep missed an end: {swept:?}");
    Ok(swept)
}

/// The least gas limit of a transaction: its calldata costs 4 a zero byte and 16 another, and no less than 10 and 40 in all.
fn intrinsic_gas(call: &Invocation) -> u64 {
    let zeros = call.input.iter().filter(|byte| **byte == 0).count() as u64;
    let tokens = zeros + 4 * (call.input.len() as u64 - zeros);
    21_000 + 10 * tokens
}

/// What a call may have come to.
struct Judge<'a> {
    stage: &'a Stage,
    key: CallKey,
    /// Before its result.
    open: Purses,
    /// Once it is completed.
    paid: Purses,
}

impl Judge<'_> {
    /// Judges a call that is priced at `price`.
    async fn new(stage: &Stage, key: CallKey, price: U256) -> Result<Judge<'_>> {
        let open = stage.purses(COIN, stage.operators().len()).await?;
        let paid = stage.after_payment(&open, key.service, price).await?;
        Ok(Judge { stage, key, open, paid })
    }

    /// Whether core and contract say that it is completed, and the purses too; nothing stands between open and completed.
    async fn is_completed(&self, sent: &TransactionReceipt) -> Result<bool> {
        let Self { stage, key, open, paid } = self;
        let (completed, known) = tokio::try_join!(stage.is_completed(*key), assignment(stage, *key))?;
        ensure!(completed == known.answered, "{key}: completed {completed}, answered {}", known.answered);
        // What is undone has moved nothing; for that, one purse in eight is proof enough.
        if sent.status() || sent.block_number.unwrap_or_default() % 8 == 0 {
            let purses = stage.purses(COIN, open.rewards.len()).await?;
            ensure!(purses == *if completed { paid } else { open }, "{key}: completed {completed}, {purses:?}");
        }
        Ok(completed)
    }

    /// As it was.
    async fn is_open(&self, sent: &TransactionReceipt) -> Result<()> {
        ensure!(!self.is_completed(sent).await?, "{} is completed", self.key);
        Ok(())
    }

    /// Completed exactly if the transaction was not undone.
    async fn is_whole(&self, sent: &TransactionReceipt) -> Result<()> {
        ensure!(self.is_completed(sent).await? == sent.status(), "{} stays open", self.key);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_operators_receipt_completes_nothing_at_any_gas_limit() -> Result<()> {
    let stage = Stage::new(3).await?;
    let service = stage.service_of(3).await?;
    let (key, assigned) = created(&stage, service).await?;
    let judge = Judge::new(&stage, key, rate(&stage, Job::SandboxCreate).await?).await?;
    let answer = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, FIRST_SLOT));
    sweep(&stage, (another(&stage, assigned)?, &answer), async |sent| judge.is_open(sent).await).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_operators_receipt_completes_nothing_at_any_gas_limit_where_completing_is_cheap() -> Result<()> {
    let stage = Stage::with(pay_once(1_000), 2).await?;
    let service = service_at_floor(&stage, stage.operators()).await?;
    let (sandbox, holder) = live(&stage, service).await?;
    let key = stage.submit(service, Job::Exec, &requests::exec(sandbox)).await?;
    let judge = Judge::new(&stage, key, U256::ZERO).await?;
    let answer = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, 0));
    sweep(&stage, (another(&stage, holder)?, &answer), async |sent| judge.is_open(sent).await).await.map(drop)
}

/// Two commands, one for the operator that answers both and one for another; the answers in one transaction.
struct Pair {
    stage: Stage,
    mine: CallKey,
    theirs: CallKey,
    me: Address,
}

impl Pair {
    async fn new(stage: Stage, service: u64) -> Result<Self> {
        let (my_sandbox, me) = live(&stage, service).await?;
        let their_sandbox = loop {
            let (sandbox, holder) = live(&stage, service).await?;
            if holder != me {
                break sandbox;
            }
        };
        let mine = stage.submit(service, Job::Exec, &requests::exec(my_sandbox)).await?;
        let theirs = stage.submit(service, Job::Exec, &requests::exec(their_sandbox)).await?;
        Ok(Self { stage, mine, theirs, me })
    }

    /// Sweeps the two answers: mine is completed if anything is, theirs never is.
    async fn check(&self, price: U256, order: [CallKey; 2]) -> Result<()> {
        let Self { stage, mine, theirs, me } = self;
        let receipts = order.map(|key| (key.call, receipt(DONE, 0)));
        let answers = calls::submit_receipts(stage.deployment(), mine.service, &receipts);
        let judge = Judge::new(stage, *mine, price).await?;
        let judged = async |sent: &TransactionReceipt| {
            judge.is_whole(sent).await?;
            let (completed, known) = tokio::try_join!(stage.is_completed(*theirs), assignment(stage, *theirs))?;
            ensure!(!completed && !known.answered, "{theirs} is completed");
            Ok(())
        };
        sweep(stage, (*me, &answers), judged).await.map(drop)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_result_does_not_let_a_wrong_one_behind_it_through_at_any_gas_limit() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let pair = Pair::new(stage, service).await?;
    let price = rate(&pair.stage, Job::Exec).await?;
    pair.check(price, [pair.mine, pair.theirs]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_result_before_a_right_one_is_let_through_at_no_gas_limit() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let pair = Pair::new(stage, service).await?;
    let price = rate(&pair.stage, Job::Exec).await?;
    pair.check(price, [pair.theirs, pair.mine]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_result_lets_no_wrong_one_through_at_any_gas_limit_where_completing_is_cheap() -> Result<()> {
    let stage = Stage::with(pay_once(1_000), 2).await?;
    let service = service_at_floor(&stage, stage.operators()).await?;
    let pair = Pair::new(stage, service).await?;
    pair.check(U256::ZERO, [pair.mine, pair.theirs]).await?;
    pair.check(U256::ZERO, [pair.theirs, pair.mine]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_assigned_operators_receipt_of_a_create_counts_whole_or_not_at_all_at_any_gas_limit() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let (key, assigned) = created(&stage, service).await?;
    let judge = Judge::new(&stage, key, rate(&stage, Job::SandboxCreate).await?).await?;
    let answer = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, FIRST_SLOT));
    sweep(&stage, (assigned, &answer), async |sent| judge.is_whole(sent).await).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_counts_whole_or_not_at_all_at_any_gas_limit_where_completing_is_cheap() -> Result<()> {
    let stage = Stage::with(pay_once(1_000), 2).await?;
    let service = service_at_floor(&stage, stage.operators()).await?;
    let (sandbox, holder) = live(&stage, service).await?;
    let key = stage.submit(service, Job::SandboxDelete, &requests::delete(sandbox)).await?;
    let judge = Judge::new(&stage, key, U256::ZERO).await?;
    let answer = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, 0));
    sweep(&stage, (holder, &answer), async |sent| judge.is_whole(sent).await).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_part_of_a_batch_counts_whole_or_not_at_all_at_any_gas_limit() -> Result<()> {
    let stage = Stage::with(pay_once(1_000), 4).await?;
    let service = service_at_floor(&stage, stage.operators()).await?;
    let key = stage.submit(service, Job::BatchCollect, &requests::collect()).await?;
    let (last, first) = stage.operators().split_last().context("no operators")?;
    for operator in first {
        stage.answer(*operator, key, &receipt(DONE, 0)).await?;
    }
    let judge = Judge::new(&stage, key, U256::ZERO).await?;
    let answer = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, 0));
    sweep(&stage, (*last, &answer), async |sent| judge.is_whole(sent).await).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_holds_sandboxes_cannot_leave_at_any_gas_limit() -> Result<()> {
    let stage = Stage::new(2).await?;
    let service = stage.service_of(2).await?;
    let (sandbox, holder) = live(&stage, service).await?;
    ends::exit_is_due(&stage, service, holder).await?;
    let exit = Invocation::new(CORE, &executeExitCall { serviceId: service });
    let serves = async || anyhow::Ok(stage.chain().core().isServiceOperator(service, holder).call().await?);
    // What leaving takes once it is allowed, and a quarter.
    let mark = stage.mark().await?;
    ends::deleted(&stage, sandbox, holder).await?;
    let needed = stage.send(holder, &exit).await?.gas_used;
    stage.back_to(mark).await?;
    for limit in (intrinsic_gas(&exit)..needed + needed / 4).step_by(STEP as usize) {
        let sent = stage.attempt(holder, &exit, limit).await?;
        ensure!(!sent.status() && serves().await?, "left at a gas limit of {limit}");
    }
    Ok(())
}

/// A create that everybody but its present operator and one more has failed: the dearest of all results.
async fn last_but_one(stage: &Stage, service: u64) -> Result<(CallKey, Address)> {
    let (key, _) = created(stage, service).await?;
    for _ in 2..stage.operators().len() {
        let present = stage.assigned(key).await?;
        stage.answer(present, key, &receipt(OPERATOR, 0)).await?;
    }
    Ok((key, stage.assigned(key).await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_moves_the_call_whole_or_not_at_all_at_any_gas_limit_behind_a_right_result_too() -> Result<()> {
    let stage = Stage::with(pay_once(1_000), SERVICE_OPERATORS_MAX as usize).await?;
    let service = service_at_floor(&stage, stage.operators()).await?;
    let (moving, me) = last_but_one(&stage, service).await?;
    let right = loop {
        let (sandbox, holder) = live(&stage, service).await?;
        if holder == me {
            break stage.submit(service, Job::Exec, &requests::exec(sandbox)).await?;
        }
    };
    let receipts = [(right.call, receipt(DONE, 0)), (moving.call, receipt(OPERATOR, 0))];
    let answers = calls::submit_receipts(stage.deployment(), service, &receipts);
    let judge = Judge::new(&stage, right, U256::ZERO).await?;
    let epoch = assignment(&stage, moving).await?.epoch;
    let judged = async |sent: &TransactionReceipt| {
        judge.is_whole(sent).await?;
        let (completed, known) = tokio::try_join!(stage.is_completed(moving), assignment(&stage, moving))?;
        ensure!(!completed && !known.answered, "{moving} is completed");
        let has_moved = known.operator != me && known.epoch == epoch + 1;
        ensure!(has_moved == sent.status(), "{moving} stays with its operator");
        Ok(())
    };
    sweep(&stage, (me, &answers), judged).await.map(drop)
}
