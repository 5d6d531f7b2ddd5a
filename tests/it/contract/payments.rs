//! Money, as the core moves it: who is charged what, when, and who has what afterwards.

use alloy::primitives::{Address, U256, address};
use alloy::sol_types::SolValue as _;
use anyhow::{Context, Result};
use sandbox_protocol::Job;
use sandbox_sdk::Refusal;
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::chain::Cost;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::IAgentSandboxBlueprintErrors as BlueprintRefusal;
use sandbox_sdk::contracts::IERC20::IERC20Instance;
use sandbox_sdk::contracts::ITangleCore::{ITangleCoreErrors as CoreRefusal, PaymentDistributed};
use sandbox_sdk::deploy::{Asset, Floor, Pricing, Terms};
use sandbox_sdk::devchain::CORE;
use sandbox_tests::purses::developer;
use sandbox_tests::stage::{Stage, event, events, receipt, submitted};
use sandbox_tests::tangle::ICore::{
    OperatorRewardAccrued, billSubscriptionCall, terminateServiceCall, withdrawRemainingEscrowCall,
};
use sandbox_tests::tangle::IMintable;

use super::{COIN, DONE, FIRST_SLOT, HOUR_S, created, live, pay_once, rate, requests, service_at_floor};

const USDC: Address = address!("0x4b6aB5F819A515382B0dEB6935D793817bB4af28");
const DOLLAR: u64 = 1_000_000;
/// Of a wei, per operator and hour.
const FLOOR: u64 = 7_000;

/// An operator is paid out all that it has earned, and no more.
async fn check_claim(stage: &Stage, operator: Address, asset: Address) -> Result<()> {
    let pending = stage.chain().all_pending_rewards(operator).await?;
    let earned = pending.iter().find(|cost| cost.asset == asset).context("nothing earned")?.amount;
    let before = balance(stage, asset, operator).await?;
    stage.send(operator, &calls::claim_all_rewards(stage.deployment())).await?;
    assert_eq!(balance(stage, asset, operator).await? - before, earned);
    assert!(stage.chain().all_pending_rewards(operator).await?.is_empty());
    stage.send(operator, &calls::claim_all_rewards(stage.deployment())).await?;
    assert_eq!(balance(stage, asset, operator).await? - before, earned);
    Ok(())
}

async fn balance(stage: &Stage, asset: Address, holder: Address) -> Result<U256> {
    if asset.is_zero() {
        return stage.node("eth_getBalance", (holder, "latest")).await;
    }
    Ok(IERC20Instance::new(asset, stage.chain().provider()).balanceOf(holder).call().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_charged_its_rate_in_coin_and_its_operators_claim_their_shares() -> Result<()> {
    let stage = Stage::new(3).await?;
    let service = stage.service_of(3).await?;
    let price = rate(&stage, Job::SandboxCreate).await?;
    let start = stage.purses(COIN, 3).await?;
    for wrong in [U256::ZERO, price - U256::ONE, price + U256::ONE] {
        let inputs = requests::create().abi_encode().into();
        let call = calls::submit_job(stage.deployment(), service, Job::SandboxCreate.id(), inputs, wrong);
        let refusal = stage.refusal(stage.customer(), &call).await?;
        assert!(matches!(refusal, Refusal::Core(CoreRefusal::InvalidMsgValue(_))), "{wrong}: {refusal}");
    }
    let (key, assigned) = created(&stage, service).await?;
    let charged = stage.purses(COIN, 3).await?;
    assert_eq!((charged.core - start.core, &charged.rewards), (price, &start.rewards));
    stage.answer(assigned, key, &receipt(DONE, FIRST_SLOT)).await?;
    assert_eq!(stage.purses(COIN, 3).await?, stage.after_payment(&charged, service, price).await?);
    for operator in stage.operators() {
        check_claim(&stage, *operator, COIN).await?;
    }
    let end = stage.purses(COIN, 3).await?;
    assert_eq!((end.core, end.rewards), (start.core, start.rewards), "nothing is left in the core");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_charged_its_rate_in_a_token_where_the_blueprint_settles_in_one() -> Result<()> {
    let stage = Stage::new(2).await?;
    let price = U256::from(5 * DOLLAR);
    stage.send(developer(), &calls::set_settlement_asset(stage.deployment(), USDC)).await?;
    let rates = calls::set_rates(stage.deployment(), &[(Job::SandboxCreate.id(), price)]);
    stage.send(developer(), &rates).await?;
    let service = stage.service_of(2).await?;
    let cost = stage.chain().call_cost(service, Job::SandboxCreate.id()).await?;
    assert_eq!(cost, Cost { asset: USDC, amount: price });

    let call = stage.submission(service, Job::SandboxCreate.id(), requests::create().abi_encode().into()).await?;
    assert!(stage.refusal(stage.customer(), &call).await?.to_string().contains("0 of the token"));
    let mint = IMintable::mintCall { to: stage.customer(), amount: price };
    stage.send(stage.customer(), &Invocation::new(USDC, &mint)).await?;
    stage.send(stage.customer(), &calls::approve_token(USDC, CORE, price)).await?;
    let in_coin = Invocation { value: price, ..call.clone() };
    let refusal = stage.refusal(stage.customer(), &in_coin).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::InvalidMsgValue(_))), "{refusal}");

    let (start, had) = (stage.purses(USDC, 2).await?, balance(&stage, USDC, stage.customer()).await?);
    let key = submitted(&stage.send(stage.customer(), &call).await?)?;
    let charged = stage.purses(USDC, 2).await?;
    let left = balance(&stage, USDC, stage.customer()).await?;
    assert_eq!((charged.core - start.core, had - left), (price, price));
    let assigned = stage.assigned(key).await?;
    let other = super::another(&stage, assigned)?;
    stage.answer(other, key, &receipt(DONE, FIRST_SLOT)).await?;
    assert_eq!(stage.purses(USDC, 2).await?, charged);
    stage.answer(assigned, key, &receipt(DONE, FIRST_SLOT)).await?;
    let paid = stage.purses(USDC, 2).await?;
    assert_eq!(paid, stage.after_payment(&charged, service, price).await?);
    assert_eq!(paid.developer - start.developer, U256::from(DOLLAR), "a fifth of five dollars");
    for operator in stage.operators() {
        check_claim(&stage, *operator, USDC).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_paid_once_costs_no_less_than_the_floor() -> Result<()> {
    let stage = Stage::with(pay_once(FLOOR), 2).await?;
    let operators = stage.operators().to_vec();
    let floor = stage.chain().service_floor(2, HOUR_S + 1).await?;
    assert_eq!(floor, Cost { asset: COIN, amount: U256::from(2 * 2 * FLOOR) }, "begun hours count whole");
    let refusal =
        async |ttl_s, cost| stage.refusal(stage.customer(), &stage.paid_request(&operators, ttl_s, cost)).await;
    for amount in [U256::ZERO, floor.amount - U256::ONE] {
        let refused = refusal(HOUR_S + 1, Cost { amount, ..floor }).await?;
        assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::BelowFloor(_))), "{amount}: {refused}");
    }
    let endless = refusal(0, floor).await?;
    assert!(matches!(endless, Refusal::Blueprint(BlueprintRefusal::NoPriceWithoutEnd(_))), "{endless}");

    let mint = IMintable::mintCall { to: stage.customer(), amount: floor.amount };
    stage.send(stage.customer(), &Invocation::new(USDC, &mint)).await?;
    stage.send(stage.customer(), &calls::approve_token(USDC, CORE, floor.amount)).await?;
    let refused = refusal(HOUR_S + 1, Cost { asset: USDC, ..floor }).await?;
    assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::BelowFloor(_))), "another asset: {refused}");
    let mark = stage.mark().await?;
    stage.activate(&stage.paid_request(&operators, HOUR_S + 1, floor), &operators).await?;
    stage.back_to(mark).await?;

    stage.send(developer(), &calls::set_service_floor(stage.deployment(), USDC, U256::from(FLOOR))).await?;
    stage.activate(&stage.paid_request(&operators, HOUR_S + 1, Cost { asset: USDC, ..floor }), &operators).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_paid_once_is_paid_when_it_begins_and_its_calls_are_free() -> Result<()> {
    let stage = Stage::with(pay_once(FLOOR), 2).await?;
    let start = stage.purses(COIN, 2).await?;
    let service = service_at_floor(&stage, stage.operators()).await?;
    let price = U256::from(2 * FLOOR);
    let mut charged = start;
    charged.core += price;
    let begun = stage.after_payment(&charged, service, price).await?;
    assert_eq!(stage.purses(COIN, 2).await?, begun);

    assert_eq!(stage.chain().call_cost(service, Job::Exec.id()).await?.amount, U256::ZERO);
    let (sandbox, holder) = live(&stage, service).await?;
    let key = stage.submit(service, Job::Exec, &requests::exec(sandbox)).await?;
    stage.answer(holder, key, &receipt(DONE, 0)).await?;
    assert!(stage.is_completed(key).await?);
    assert_eq!(stage.purses(COIN, 2).await?, begun);
    for operator in stage.operators() {
        check_claim(&stage, *operator, COIN).await?;
    }
    Ok(())
}

const BILL: u64 = 1_000_000;
const INTERVAL_S: u64 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_billed_by_the_interval_out_of_what_was_deposited() -> Result<()> {
    let floor = Floor { asset: Asset::coin(), per_operator_hour: U256::from(3 * BILL / 2) };
    let pricing = Pricing::Subscription { rate: U256::from(BILL), interval_s: INTERVAL_S };
    let terms = Terms { pricing: Some(pricing), floor: Some(floor), ..Default::default() };
    let stage = Stage::with(terms, 2).await?;
    let start = stage.purses(COIN, 2).await?;
    let service = service_at_floor(&stage, stage.operators()).await?;
    let deposit = U256::from(3 * BILL);
    let escrow = async || anyhow::Ok(stage.core().getServiceEscrow(service).call().await?);
    assert_eq!((escrow().await?.token, escrow().await?.balance), (COIN, deposit));
    let mut held = start.clone();
    held.core += deposit;
    assert_eq!(stage.purses(COIN, 2).await?, held, "nobody is paid in advance");

    let anybody = super::stranger();
    let bill = Invocation::new(CORE, &billSubscriptionCall { serviceId: service });
    assert!(stage.refusal(anybody, &bill).await.is_ok(), "the first interval is not over");
    let (key, assigned) = created(&stage, service).await?;
    stage.answer(assigned, key, &receipt(DONE, FIRST_SLOT)).await?;
    assert_eq!(stage.purses(COIN, 2).await?, held, "calls are free");

    stage.dev().pass_time(INTERVAL_S).await?;
    let owner_leaves = Invocation::new(CORE, &terminateServiceCall { serviceId: service });
    assert!(stage.refusal(stage.customer(), &owner_leaves).await.is_ok(), "not while an interval is unbilled");
    let sent = stage.send(anybody, &bill).await?;
    let distributed: PaymentDistributed = event(&sent)?;
    // By stake and time, rounded down twice.
    let gross = distributed.grossAmount;
    assert!(gross <= U256::from(BILL) && gross >= U256::from(BILL - 2), "{gross} of {BILL}");
    assert_eq!(escrow().await?.balance, deposit - gross);
    let billed = stage.purses(COIN, 2).await?;
    let mut expected = stage.after_payment(&held, service, gross).await?;
    for (share, expected) in billed.rewards.iter().zip(&mut expected.rewards) {
        assert!(share.abs_diff(*expected) <= U256::ONE, "{share} of {expected}");
        *expected = *share;
    }
    assert_eq!(billed, expected);
    let accrued: Vec<_> = events::<OperatorRewardAccrued>(&sent).iter().map(|accrued| accrued.amount).collect();
    assert_eq!(accrued, billed.rewards);
    assert!(stage.refusal(anybody, &bill).await.is_ok(), "an interval is billed once");

    stage.send(stage.customer(), &owner_leaves).await?;
    stage.to_core(stage.customer(), &withdrawRemainingEscrowCall { serviceId: service }).await?;
    for operator in stage.operators() {
        check_claim(&stage, *operator, COIN).await?;
    }
    assert_eq!(stage.purses(COIN, 2).await?.core, start.core, "the rest is the customer's again");
    Ok(())
}
