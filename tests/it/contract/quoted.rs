//! Quoted calls: the quoted operator alone may answer, is paid its own price, and keeps the call to the end.

use alloy::primitives::{Bytes, U256, keccak256};
use alloy::sol_types::SolValue;
use anyhow::{Context, Result};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::Refusal;
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::IAgentSandboxBlueprintErrors as BlueprintRefusal;
use sandbox_sdk::contracts::ITangleCore::{
    ITangleCoreErrors as CoreRefusal, JobCompleted, JobQuoteDetails, JobSubmittedFromQuote, SignedJobQuote,
};
use sandbox_tests::stage::{Stage, event, events, receipt};

use super::{COIN, DONE, FIRST_SLOT, OPERATOR, assignment, live, requests};

const PRICE: u64 = 5_000_000_000;
/// Life of a quote, in seconds.
const LIFE_S: u64 = 600;

/// A service whose customer redeems quotes.
struct Market {
    stage: Stage,
    service: u64,
}

impl Market {
    async fn new(operators: usize) -> Result<Self> {
        let stage = Stage::new(operators).await?;
        let service = stage.service_of(operators).await?;
        Ok(Self { stage, service })
    }

    /// What the operator at `index` signs: its place is in the expiry, as quotes of ours have it.
    async fn quote(&self, index: usize, job: Job, inputs: &Bytes, price: u64) -> Result<SignedJobQuote> {
        self.quote_with_expiry(index, job, inputs, (price, LIFE_S + index as u64)).await
    }

    async fn quote_with_expiry(
        &self,
        index: usize,
        job: Job,
        inputs: &Bytes,
        (price, life_s): (u64, u64),
    ) -> Result<SignedJobQuote> {
        let timestamp = self.stage.chain().time().await?;
        let details = JobQuoteDetails {
            requester: self.stage.customer(),
            serviceId: self.service,
            jobIndex: job.id(),
            price: U256::from(price),
            timestamp,
            expiry: timestamp + life_s,
            confidentiality: 0,
            inputsHash: keccak256(inputs),
        };
        self.stage.quote(index, &details)
    }

    fn submission(&self, job: Job, inputs: &Bytes, quotes: Vec<SignedJobQuote>) -> Invocation {
        let value = quotes.iter().map(|quote| quote.details.price).sum();
        calls::submit_quoted(self.stage.deployment(), (self.service, job.id()), inputs.clone(), quotes, value)
    }

    async fn submit(&self, job: Job, inputs: &Bytes, quotes: Vec<SignedJobQuote>) -> Result<CallKey> {
        let sent = self.stage.send(self.stage.customer(), &self.submission(job, inputs, quotes)).await?;
        let submitted: JobSubmittedFromQuote = event(&sent)?;
        Ok(CallKey { service: submitted.serviceId, call: submitted.callId })
    }

    /// Buys a job of the operator at `index`.
    async fn buy(&self, index: usize, job: Job, request: &impl SolValue) -> Result<CallKey> {
        let inputs = request.abi_encode().into();
        let quote = self.quote(index, job, &inputs, PRICE).await?;
        self.submit(job, &inputs, vec![quote]).await
    }

    async fn refused(&self, job: Job, inputs: &Bytes, quotes: Vec<SignedJobQuote>) -> Result<Refusal> {
        self.stage.refusal(self.stage.customer(), &self.submission(job, inputs, quotes)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quoted_operator_alone_can_answer_and_is_paid_its_own_price() -> Result<()> {
    let market = Market::new(3).await?;
    let stage = &market.stage;
    let key = market.buy(1, Job::SandboxCreate, &requests::create()).await?;
    assert_eq!(stage.assigned(key).await?, stage.operators()[1]);
    let before = stage.purses(COIN, 3).await?;
    let answer = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, FIRST_SLOT));
    for index in [0, 2] {
        let refusal = stage.refusal(stage.operators()[index], &answer).await?;
        assert!(matches!(refusal, Refusal::Core(CoreRefusal::NotQuotedOperator(_))), "{refusal}");
        assert!(!stage.attempt(stage.operators()[index], &answer, 2_000_000).await?.status());
    }
    assert_eq!(stage.purses(COIN, 3).await?, before);

    let sent = stage.send(stage.operators()[1], &answer).await?;
    assert_eq!(events::<JobCompleted>(&sent).len(), 1);
    assert_eq!(stage.purses(COIN, 3).await?, stage.after_quote(&before, market.service, 1, U256::from(PRICE)).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quoted_call_never_moves_and_its_failure_completes_it() -> Result<()> {
    let market = Market::new(2).await?;
    let stage = &market.stage;
    for job in [Job::SandboxCreate, Job::WorkflowCreate] {
        let key = match job {
            Job::SandboxCreate => market.buy(0, job, &requests::create()).await?,
            _ => market.buy(0, job, &requests::workflow(100)).await?,
        };
        let deadline = assignment(stage, key).await?.deadlineBlock;
        stage.dev().mine(deadline - stage.chain().head().await? + 10).await?;
        let refusal = stage.refusal(stage.customer(), &calls::reassign(stage.deployment(), key)).await?;
        assert!(matches!(refusal, Refusal::Blueprint(BlueprintRefusal::NotReassignable(_))), "{refusal}");
        stage.answer(stage.operators()[0], key, &receipt(OPERATOR, 0)).await?;
        let known = assignment(stage, key).await?;
        assert_eq!((known.answered, known.outcome, known.epoch), (true, OPERATOR, 0));
        assert!(stage.is_completed(key).await?);
    }
    assert_eq!(stage.chain().operator(stage.operators()[0]).await?.used, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_several_quotes_is_complete_with_the_last_of_them_and_each_is_paid_its_price() -> Result<()> {
    let market = Market::new(3).await?;
    let stage = &market.stage;
    let inputs: Bytes = requests::collect().abi_encode().into();
    let quotes = vec![
        market.quote(0, Job::BatchCollect, &inputs, PRICE).await?,
        market.quote(2, Job::BatchCollect, &inputs, 3 * PRICE).await?,
    ];
    let key = market.submit(Job::BatchCollect, &inputs, quotes).await?;
    assert_eq!(assignment(stage, key).await?.parts, 2);
    let before = stage.purses(COIN, 3).await?;
    let outsider = calls::submit_receipt(stage.deployment(), key, &receipt(DONE, 0));
    let refusal = stage.refusal(stage.operators()[1], &outsider).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::NotQuotedOperator(_))), "{refusal}");

    stage.answer(stage.operators()[2], key, &receipt(DONE, 0)).await?;
    assert!(!stage.is_completed(key).await?);
    assert_eq!(stage.purses(COIN, 3).await?, before);
    stage.answer(stage.operators()[0], key, &receipt(DONE, 0)).await?;
    assert!(stage.is_completed(key).await?);
    let first = stage.after_quote(&before, market.service, 0, U256::from(PRICE)).await?;
    assert_eq!(
        stage.purses(COIN, 3).await?,
        stage.after_quote(&first, market.service, 2, U256::from(3 * PRICE)).await?
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_create_of_quotes_has_a_share_for_each_of_them_or_is_refused() -> Result<()> {
    let market = Market::new(3).await?;
    let stage = &market.stage;
    let quotes = async |inputs: &Bytes| {
        let first = market.quote(0, Job::BatchCreate, inputs, PRICE).await?;
        let second = market.quote(2, Job::BatchCreate, inputs, PRICE).await?;
        anyhow::Ok(vec![first, second])
    };
    // Four sandboxes fit the first operator, so the cheapest plan leaves nothing for the second quote to be paid for.
    let inputs: Bytes = requests::batch_create(4, Vec::new(), "cheapest").abi_encode().into();
    let refusal = market.refused(Job::BatchCreate, &inputs, quotes(&inputs).await?).await?;
    assert!(matches!(refusal, Refusal::Blueprint(BlueprintRefusal::NoCapacity(_))), "{refusal}");

    let inputs: Bytes = requests::batch_create(4, Vec::new(), "round_robin").abi_encode().into();
    let key = market.submit(Job::BatchCreate, &inputs, quotes(&inputs).await?).await?;
    let parts = stage.chain().parts(key).await?;
    let shares: Vec<_> = parts.iter().map(|part| (part.operator, part.firstSlot, part.slots)).collect();
    assert_eq!(shares, [(stage.operators()[0], 0, 2), (stage.operators()[2], 2, 2)]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn work_for_one_takes_one_quote_and_work_in_a_sandbox_that_of_its_holder() -> Result<()> {
    let market = Market::new(2).await?;
    let stage = &market.stage;
    let inputs: Bytes = requests::create().abi_encode().into();
    let both = vec![
        market.quote(0, Job::SandboxCreate, &inputs, PRICE).await?,
        market.quote(1, Job::SandboxCreate, &inputs, PRICE).await?,
    ];
    let refusal = market.refused(Job::SandboxCreate, &inputs, both).await?;
    assert!(matches!(&refusal, Refusal::Blueprint(BlueprintRefusal::OneQuoteExpected(_))), "{refusal}");

    let (sandbox, holder) = live(stage, market.service).await?;
    let of = |operator| stage.operators().iter().position(|one| *one == operator).context("no such operator");
    let other = of(super::another(stage, holder)?)?;
    let inputs: Bytes = requests::exec(sandbox).abi_encode().into();
    let foreign = market.quote(other, Job::Exec, &inputs, PRICE).await?;
    let refusal = market.refused(Job::Exec, &inputs, vec![foreign]).await?;
    assert!(matches!(refusal, Refusal::Blueprint(BlueprintRefusal::QuotedOperatorMismatch(_))), "{refusal}");
    let key = market.buy(of(holder)?, Job::Exec, &requests::exec(sandbox)).await?;
    assert_eq!(stage.assigned(key).await?, holder);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn to_the_core_two_operators_quotes_of_the_same_words_are_one() -> Result<()> {
    let market = Market::new(2).await?;
    let inputs: Bytes = requests::collect().abi_encode().into();
    let terms = (PRICE, LIFE_S);
    let same = vec![
        market.quote_with_expiry(0, Job::BatchCollect, &inputs, terms).await?,
        market.quote_with_expiry(1, Job::BatchCollect, &inputs, terms).await?,
    ];
    assert_ne!(same[0].signature, same[1].signature);
    let refusal = market.refused(Job::BatchCollect, &inputs, same.clone()).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::QuoteAlreadyUsed(_))), "{refusal}");
    market.submit(Job::BatchCollect, &inputs, vec![same[0].clone()]).await?;
    let refusal = market.refused(Job::BatchCollect, &inputs, vec![same[1].clone()]).await?;
    assert!(matches!(refusal, Refusal::Core(CoreRefusal::QuoteAlreadyUsed(_))), "{refusal}");
    Ok(())
}
