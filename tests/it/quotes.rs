//! Signed quotes on the real core: who is asked is told a price, who is quoted does the job and alone is paid.

use std::time::Duration;

use alloy::consensus::Transaction as _;
use alloy::primitives::{Address, B256, U256};
use alloy::providers::Provider as _;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::http::QuoteBody;
use sandbox_protocol::{CallKey, Job, SandboxId};
use sandbox_sdk::answers::Answers;
use sandbox_sdk::chain::{CustomerError, SendError};
use sandbox_sdk::contracts::ITangleCore::{JobQuoteDetails, PaymentDistributed, SignedJobQuote};
use sandbox_sdk::quotes::{self, QuoteError, Quotes, cheapest};
use sandbox_sdk::requests::{CreateBuilder, ExecBuilder, JobRequest};
use sandbox_sdk::{Account, calls, devchain};
use sandbox_tests::client::Client;
use sandbox_tests::ground::{CUSTOMER, DEVELOPER, Ground, OPERATOR, SECOND_OPERATOR, STRANGER};
use sandbox_tests::node::Node;
use sandbox_tests::wait::until;
use serde_json::Value;

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(60);
/// Shares of a payment in percent, as the core of the snapshot splits it.
const OPERATORS_SHARE: u64 = 40;
const DEVELOPER_AND_TREASURY_SHARE: u64 = 40;

/// An hour of blocks, which costs more than the price table says.
const HOUR: [&str; 4] = ["--cpu", "1", "--ttl-blocks", "3600"];

/// Two operators in one service, the second of which asks for half as much.
struct Market {
    customer: Client,
    service: u64,
    first: Node,
    _second: Node,
    ground: Ground,
}

impl Market {
    async fn open() -> Result<Self> {
        Self::of(Ground::new().await?, |_, _| {}).await
    }

    async fn of(ground: Ground, set: impl FnOnce(&mut Node, &mut Node)) -> Result<Self> {
        let (mut first, mut second) = (ground.node(OPERATOR)?, ground.node(SECOND_OPERATOR)?);
        first.set("PRICE_PER_HOUR_WEI", "2000000000000000");
        second.set("PRICE_PER_HOUR_WEI", "1000000000000000");
        set(&mut first, &mut second);
        first.start().await?;
        second.start().await?;
        let customer = ground.client(CUSTOMER)?;
        let service = customer.service(&[Ground::address(OPERATOR), Ground::address(SECOND_OPERATOR)]).await?;
        Ok(Self { customer, service, first, _second: second, ground })
    }

    async fn account(&self) -> Result<Account> {
        self.ground.account(CUSTOMER).await
    }

    /// What of two operators each has earned, by asset.
    async fn earned(&self, asset: Address) -> Result<[U256; 2]> {
        let chain = self.account().await?.chain().clone();
        let mut earned = [U256::ZERO; 2];
        for (earned, operator) in earned.iter_mut().zip([OPERATOR, SECOND_OPERATOR]) {
            let pending = chain.all_pending_rewards(Ground::address(operator)).await?;
            *earned = pending.iter().filter(|cost| cost.asset == asset).map(|cost| cost.amount).sum();
        }
        Ok(earned)
    }
}

/// The same to the library.
fn create() -> Result<JobRequest> {
    Ok(CreateBuilder::new().cpu_cores(1).ttl_blocks(3_600).build()?)
}

async fn balance(ground: &Ground, account: Address) -> Result<U256> {
    Ok(ground.chain.provider().get_balance(account).await?)
}

/// What a transaction cost its sender besides what it paid.
async fn fee(account: &Account, transaction: B256) -> Result<U256> {
    let receipt = account.chain().provider().get_transaction_receipt(transaction).await?;
    let receipt = receipt.context("no such transaction")?;
    Ok(U256::from(receipt.gas_used) * U256::from(receipt.effective_gas_price))
}

/// The chain's own word on a transaction that it must refuse.
fn refusal(sent: Result<sandbox_sdk::chain::Mined, SendError>) -> Result<String> {
    match sent {
        Err(SendError::Refused(refusal)) => Ok(refusal.to_string()),
        Err(error) => Err(error.into()),
        Ok(mined) => anyhow::bail!("accepted in {}", mined.transaction),
    }
}

fn percent(amount: U256, share: u64) -> U256 {
    amount * U256::from(share) / U256::from(100)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_quoted_operator_does_the_job_and_is_paid_and_it_can_claim() -> Result<()> {
    let market = Market::open().await?;
    let account = market.account().await?;
    let request = create()?;
    let asked = Quotes::new(account.clone())?.of_service(market.service, &request).await?;
    let prices: Vec<U256> = asked.iter().filter_map(|asked| Some(asked.offer.as_ref().ok()?.price())).collect();
    assert_eq!(prices.len(), 2, "{asked:?}");
    let offer = cheapest(&asked).context("no quote")?.clone();
    assert_eq!(offer.quote.operator, Ground::address(SECOND_OPERATOR), "{prices:?}");
    let rate = account.chain().call_cost(market.service, Job::SandboxCreate.id()).await?.amount;
    assert!(offer.price() > rate, "an hour is dearer than the table: {} {rate}", offer.price());

    let before = market.earned(Address::ZERO).await?;
    let purse = balance(&market.ground, account.address()).await?;
    let treasury = account.chain().core().treasury().call().await?;
    assert_eq!(treasury, Ground::address(DEVELOPER), "in the snapshot developer and treasury are one account");
    let till = balance(&market.ground, treasury).await?;

    let submitted = account.submit_quoted(market.service, request, vec![offer.quote.clone()]).await?;
    assert_eq!((submitted.price, submitted.asset), (offer.price(), Address::ZERO));
    let paid = purse - balance(&market.ground, account.address()).await? - fee(&account, submitted.transaction).await?;
    assert_eq!(paid, offer.price(), "exactly the quote");
    let body = Answers::new(account.clone())?.wait_until_settled(&submitted, BOUND).await?;
    let answer = body.answer.context("no answer")?;
    assert_eq!(answer.receipt.receipt.operator, offer.quote.operator);
    assert_eq!(answer.outcome.id(), 0);

    let after = market.earned(Address::ZERO).await?;
    assert_eq!(after[0], before[0], "the operator that was not quoted earns nothing");
    assert_eq!(after[1] - before[1], percent(offer.price(), OPERATORS_SHARE));
    let collected = balance(&market.ground, treasury).await? - till;
    assert_eq!(collected, percent(offer.price(), DEVELOPER_AND_TREASURY_SHARE));
    shares_add_up(&account, &answer, offer.price()).await?;

    let claim = market._second.command(&["claim"])?.output()?;
    ensure!(claim.status.success(), "{}", String::from_utf8_lossy(&claim.stderr));
    assert_eq!(market.earned(Address::ZERO).await?[1], U256::ZERO);
    Ok(())
}

/// What the core says it paid to whom: developer 20, protocol 20, operator 40, stakers 20 percent.
async fn shares_add_up(account: &Account, answer: &sandbox_protocol::http::AnswerBody, price: U256) -> Result<()> {
    let transaction = answer.transaction.context("the receipt is not on chain")?;
    let provider = account.chain().provider();
    let receipt = provider.get_transaction_receipt(transaction).await?.context("no such transaction")?;
    let logs = receipt.logs().iter().filter_map(|log| log.log_decode::<PaymentDistributed>().ok());
    let paid = logs.map(|log| log.inner.data).next().context("nothing was distributed")?;
    assert_eq!((paid.token, paid.grossAmount), (Address::ZERO, price));
    let parts = [paid.developerAmount, paid.protocolAmount, paid.operatorPoolAmount, paid.stakerPoolAmount];
    assert_eq!(parts, [20, 20, 40, 20].map(|share| percent(price, share)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_call_pays_both_operators_where_a_quoted_one_pays_its_own() -> Result<()> {
    let market = Market::open().await?;
    let account = market.account().await?;
    let before = market.earned(Address::ZERO).await?;
    let submitted = account.submit_job(market.service, create()?).await?;
    Answers::new(account)?.wait_until_settled(&submitted, BOUND).await?;
    let after = market.earned(Address::ZERO).await?;
    assert!(after[0] > before[0] && after[1] > before[1], "{before:?} {after:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quote_is_good_once_for_its_customer_its_inputs_and_its_time() -> Result<()> {
    let market = Market::open().await?;
    let (account, service) = (market.account().await?, market.service);
    let deployment = &market.ground.deployment;
    let request = create()?;
    let asking = Quotes::new(account.clone())?;
    let offer = async || -> Result<SignedJobQuote> {
        let asked = asking.of_service(service, &request).await?;
        Ok(cheapest(&asked).with_context(|| format!("{asked:?}"))?.quote.clone())
    };
    let redeem = |quote: &SignedJobQuote, inputs: &JobRequest| {
        let (job, price) = (inputs.job.id(), quote.details.price);
        calls::submit_quoted(deployment, (service, job), inputs.inputs.clone(), vec![quote.clone()], price)
    };

    let used = offer().await?;
    account.submit_quoted(service, request.clone(), vec![used.clone()]).await?;
    let again = format!("the quote of operator {} has been used; ask for another", used.operator);
    assert_eq!(refusal(account.send(&redeem(&used, &request)).await)?, again);
    let replayed = account.submit_quoted(service, request.clone(), vec![used.clone()]).await.unwrap_err();
    assert_eq!(replayed.to_string(), again, "the library cannot know that; the core does");

    let fresh = offer().await?;
    let stranger = market.ground.account(STRANGER).await?;
    let terms = sandbox_sdk::calls::ServiceTerms {
        callers: vec![stranger.address()],
        ..sandbox_sdk::calls::ServiceTerms::named(vec![Ground::address(SECOND_OPERATOR)])
    };
    let shared = account.request_service(&terms).await?;
    let shared = account.chain().wait_for_service(&shared, BOUND).await?;
    let asked = asking.of_service(shared, &request).await?;
    let for_customer = cheapest(&asked).context("no quote")?.quote.clone();
    let stolen = calls::submit_quoted(
        deployment,
        (shared, 0),
        request.inputs.clone(),
        vec![for_customer.clone()],
        for_customer.details.price,
    );
    let foreign = format!(
        "the quote of operator {} is for {}, not for {}",
        for_customer.operator,
        account.address(),
        stranger.address()
    );
    assert_eq!(refusal(stranger.send(&stolen).await)?, foreign);
    let early = stranger.submit_quoted(shared, request.clone(), vec![for_customer]).await;
    assert!(matches!(early, Err(CustomerError::Quote(QuoteError::Requester { .. }))), "{early:?}");

    let larger = CreateBuilder::new().cpu_cores(2).ttl_blocks(3_600).build()?;
    let other_inputs = format!("the quote of operator {} is for other inputs", fresh.operator);
    assert_eq!(refusal(account.send(&redeem(&fresh, &larger)).await)?, other_inputs);
    let cheaper = SignedJobQuote {
        details: JobQuoteDetails { price: U256::from(100), ..fresh.details.clone() },
        ..fresh.clone()
    };
    let forged = refusal(account.send(&redeem(&cheaper, &request)).await)?;
    assert!(forged.contains("has not signed this quote"), "{forged}");

    market.ground.chain.pass_time(700).await?;
    let over = format!("the quote of operator {} was good until unix time {}", fresh.operator, fresh.details.expiry);
    assert_eq!(refusal(account.send(&redeem(&fresh, &request)).await)?, over);
    let early = account.submit_quoted(service, request.clone(), vec![fresh]).await;
    assert!(matches!(early, Err(CustomerError::Quote(QuoteError::Expired { .. }))), "{early:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_may_quote_the_same_in_the_same_second_and_both_be_redeemed() -> Result<()> {
    let same = |first: &mut Node, second: &mut Node| {
        first.set("PRICE_PER_HOUR_WEI", "1000000000000000");
        second.set("PRICE_PER_HOUR_WEI", "1000000000000000");
    };
    let market = Market::of(Ground::new().await?, same).await?;
    let (account, request) = (market.account().await?, create()?);
    let asking = Quotes::new(account.clone())?;
    let mut quotes = Vec::new();
    for _ in 0..2 {
        let asked = asking.of_service(market.service, &request).await?;
        for asked in asked {
            quotes.push(asked.offer?.quote);
        }
    }
    let place = (devchain::CHAIN_ID, devchain::CORE);
    let digests: std::collections::HashSet<_> =
        quotes.iter().map(|quote| quotes::digest(&quote.details, place.0, place.1)).collect();
    assert_eq!(digests.len(), 4, "{quotes:?}");
    for quote in quotes {
        account.submit_quoted(market.service, request.clone(), vec![quote]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_asks_shows_and_pays_the_cheapest() -> Result<()> {
    let market = Market::open().await?;
    let service = market.service.to_string();
    let listed = market.customer.json(&["price", "--service", &service, "create"]).await?;
    assert_eq!((&listed["amount"], &listed["job"]), (&Value::from("500000000000000"), &Value::from("sandbox_create")));
    let text = market.customer.text(&["price", "--service", &service, "exec"]).await?;
    assert!(text.starts_with("0.00005 "), "{text}");

    let asked =
        market.customer.json(&[&["quote", "--service", &service, "--job", "create"], &HOUR[..]].concat()).await?;
    let offers: Vec<QuoteBody> = serde_json::from_value(asked["offers"].clone())?;
    let operators: Vec<Address> = offers.iter().map(|offer| offer.operator).collect();
    assert_eq!(operators, [Ground::address(SECOND_OPERATOR), Ground::address(OPERATOR)], "cheapest first");

    let args = [&["create", "--quote", "--within", "60", "--service", &service], &HOUR[..]].concat();
    let dear = market.customer.run(&[&args[..], &["--max-price", "0.0001"]].concat()).await?;
    let (code, _, stderr) = shown(&dear);
    assert_eq!(code, Some(121), "{stderr}");
    assert!(stderr.contains("the cheapest quote is 0.001"), "{stderr}");
    let before = market.earned(Address::ZERO).await?;
    let created = market.customer.run(&args).await?;
    let (code, sandbox, stderr) = shown(&created);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains(&format!("to operator {}", Ground::address(SECOND_OPERATOR))), "{stderr}");

    let id: SandboxId = sandbox.trim().parse()?;
    let holder = market.account().await?.chain().sandbox(id).await?.operator;
    assert_eq!(holder, Ground::address(SECOND_OPERATOR));
    let sandbox = id.to_string();
    let ran = market.customer.run(&["run", "--quote", "--within", "60", &sandbox, "--", "echo quoted"]).await?;
    let (code, stdout, stderr) = shown(&ran);
    assert_eq!((code, stdout.as_str()), (Some(0), "quoted\n"), "{stderr}");
    assert!(stderr.contains(&format!("0.00005 coin to operator {holder}")), "{stderr}");
    let paid = || async { market.earned(Address::ZERO).await.ok().filter(|now| now[1] > before[1]) };
    let after = until("the command's receipt", BOUND, paid).await?;
    assert_eq!(after[0], before[0]);

    let only = market.customer.json(&["quote", "--job", "exec", "--sandbox", &sandbox, "--", "true"]).await?;
    assert_eq!(only["offers"].as_array().map(Vec::len), Some(1), "the holder alone is asked: {only}");
    let call = format!("{service}/1");
    market.customer.text(&["verify", &call]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_by_quote_pays_each_operator_for_its_own_part() -> Result<()> {
    let mut market = Market::open().await?;
    let service = market.service.to_string();
    let begun = market.earned(Address::ZERO).await?;
    // What it costs by the hour is more than a batch costs by the price table.
    let ten_hours = ["--cpu", "1", "--ttl-blocks", "36000"];
    let create = ["batch", "create", "--quote", "--max-price", "1", "--service", &service, "--within", "60"];
    let created =
        market.customer.json(&[&create[..], &["--count", "2", "--id", "night"], &ten_hours[..]].concat()).await?;
    let items = created["items"].as_array().with_context(|| format!("no items in {created}"))?;
    let mut calls: Vec<u64> = items.iter().filter_map(|item| item["call"].as_u64()).collect();
    calls.sort_unstable();
    assert_eq!(calls, [0, 1], "a call for each: {created}");
    let paid =
        || async { market.earned(Address::ZERO).await.ok().filter(|now| now[0] > begun[0] && now[1] > begun[1]) };
    let paid = until("both to be paid", BOUND, paid).await?;
    let [dear, cheap] = [0, 1].map(|place| paid[place] - begun[place]);
    assert_eq!(dear, cheap * U256::from(2), "one asks for twice as much");

    let exec = ["batch", "exec", "--quote", "--service", &service, "--batch", "night", "--within", "60"];
    let ran = market.customer.json(&[&exec[..], &["--aggregation", "majority", "--", "echo paid"]].concat()).await?;
    assert_eq!(ran["majority"]["answer"], "paid", "{ran}");
    market.first.kill()?;
    let both = calls.iter().map(|call| format!("sbx-{service}-{call}-0")).collect::<Vec<_>>().join(",");
    let exec = ["batch", "exec", "--quote", "--within", "60", "--sandbox", &both, "--", "true"];
    let refused = market.customer.run(&exec).await?;
    let (code, _, stderr) = shown(&refused);
    assert_eq!(code, Some(121), "{stderr}");
    ensure!(stderr.contains(&Ground::address(OPERATOR).to_string()), "who does not quote is named: {stderr}");
    assert!(market.account().await?.chain().job_call(CallKey { service: market.service, call: 4 }).await?.is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_quotes_only_for_what_it_could_do() -> Result<()> {
    let market = Market::open().await?;
    let post = async |body: Value| -> Result<(u16, String)> {
        let url = format!("{}/v1/quotes", market.first.api_url());
        let answer = reqwest::Client::new().post(url).json(&body).send().await?;
        let status = answer.status().as_u16();
        let error: Value = answer.json().await?;
        Ok((status, error["code"].as_str().unwrap_or_default().to_owned()))
    };
    let create = create()?;
    let asked = |service: u64, job: u8, inputs: &str| {
        serde_json::json!({
            "requester": Ground::address(CUSTOMER), "service": service, "job": job, "inputs": inputs
        })
    };
    let inputs = create.inputs.to_string();
    let code = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(post(asked(market.service, 0, &inputs)).await?, code(200, ""));
    assert_eq!(post(asked(market.service, 5, &inputs)).await?, code(422, "unsupported"));
    assert_eq!(post(asked(market.service, 0, "0x00")).await?, code(422, "bad_request"));
    assert_eq!(post(asked(market.service + 7, 0, &inputs)).await?, code(404, "no_service"));
    assert_eq!(post(asked(0, 0, &inputs)).await?, code(404, "no_service"));
    assert_eq!(post(serde_json::json!({})).await?, code(400, "bad_request"));
    let unknown: SandboxId = format!("sbx-{}-99-0", market.service).parse()?;
    let command = ExecBuilder::new(unknown, "true").build()?.inputs.to_string();
    assert_eq!(post(asked(market.service, 10, &command)).await?, code(422, "sandbox_lost"));

    market.account().await?.terminate(market.service).await?;
    let ended = || async { post(asked(market.service, 0, &inputs)).await.ok().filter(|(status, _)| *status == 404) };
    until("the service to be known as ended", BOUND, ended).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_may_be_paid_in_a_token_by_list_and_by_quote() -> Result<()> {
    let token = devchain::STAKING.token;
    let ground = Ground::new().await?;
    let developer = ground.account(DEVELOPER).await?;
    developer.send(&calls::set_settlement_asset(&ground.deployment, token)).await?;
    let rate = U256::from(1_000_000);
    developer.send(&calls::set_rates(&ground.deployment, &[(0, rate), (10, rate)])).await?;
    let priced = |first: &mut Node, second: &mut Node| {
        first.set("PRICE_PER_HOUR_TOKENS", format!("{token}=50000000"));
        second.set("PRICE_PER_HOUR_TOKENS", format!("{token}=60000000"));
    };
    let market = Market::of(ground, priced).await?;
    let (account, service) = (market.account().await?, market.service);
    let cost = account.chain().call_cost(service, 0).await?;
    assert_eq!((cost.asset, cost.amount), (token, rate));

    let asked = Quotes::new(account.clone())?.of_service(service, &create()?).await?;
    let offer = cheapest(&asked).with_context(|| format!("{asked:?}"))?.clone();
    assert_eq!((offer.asset, offer.quote.operator), (token, Ground::address(OPERATOR)));
    assert!(asked[1].offer.as_ref().is_ok_and(|dearer| dearer.asset == token && dearer.price() > offer.price()));

    let quoted = account.submit_quoted(service, create()?, vec![offer.quote.clone()]).await?;
    assert_eq!((quoted.price, quoted.asset), (offer.price(), token));
    let answers = Answers::new(account.clone())?;
    answers.wait_until_settled(&quoted, BOUND).await?;
    let earned = market.earned(token).await?;
    assert_eq!(earned, [percent(offer.price(), OPERATORS_SHARE), U256::ZERO]);

    let plain = account.submit_job(service, create()?).await?;
    assert_eq!((plain.price, plain.asset), (rate, token));
    answers.wait_until_settled(&plain, BOUND).await?;
    assert!(market.earned(token).await?.iter().sum::<U256>() > earned[0]);
    assert_eq!(account.chain().allowance(token, account.address()).await?, U256::ZERO, "no more was allowed than paid");
    for transaction in [quoted.transaction, plain.transaction] {
        let sent = account.chain().provider().get_transaction_by_hash(transaction).await?.context("no transaction")?;
        assert_eq!(sent.value(), U256::ZERO, "no coin goes along");
    }

    let claim = market.first.command(&["claim"])?.output()?;
    ensure!(claim.status.success(), "{}", String::from_utf8_lossy(&claim.stderr));
    assert_eq!(market.earned(token).await?[0], U256::ZERO, "the operator claims tokens too");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_operator_quotes_no_further_sandbox() -> Result<()> {
    let world = World::with(|node| node.set("CAPACITY_SANDBOXES", "1")).await?;
    let service = world.service.to_string();
    world.create().await?;
    let refused = world.customer.run(&["create", "--quote", "--service", &service]).await?;
    let (code, _, stderr) = shown(&refused);
    assert_eq!(code, Some(125), "room may come: {stderr}");
    assert!(stderr.contains("no operator quotes") && stderr.contains("no room for 1 more"), "{stderr}");
    Ok(())
}
