//! Putting the blueprint on a chain: by the library, and by `sandbox deploy` as people run it.

use std::collections::BTreeMap;
use std::time::Duration;

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, B256, Bytes, U256, address, hex, keccak256};
use alloy::providers::Provider as _;
use alloy::rpc::types::TransactionRequest;
use alloy::sol_types::SolCall as _;
use sandbox_protocol::Job;
use sandbox_sdk::chain::Sender;
use sandbox_sdk::contracts::ITangleCore;
use sandbox_sdk::deploy::{
    self, Artifact, Asset, Deployer, FACTORY, Floor, Plan, PriceFile, PriceTable, Pricing, Release, Terms, price_wei,
};
use sandbox_sdk::deployment::{Addresses, Deployment};
use sandbox_sdk::devchain::{self, CHAIN_ID, CORE};
use sandbox_sdk::{Account, Chain, calls, operators};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::desk::{Desk, OWNER};
use crate::world::{API_URL, profile};

/// A token of six decimals in the snapshot.
const USDC: Address = address!("0x4b6aB5F819A515382B0dEB6935D793817bB4af28");
/// Index of the key of one who has nothing to say.
const STRANGER: usize = 5;

async fn open(plan: &Plan, known: Option<Addresses>) -> Deployer {
    Deployer::open(plan.clone(), devchain::key(OWNER).address(), known).await.unwrap()
}

/// Goes on to the end; gives what was done.
async fn finish(mut deployer: Deployer) -> (Deployment, Vec<String>) {
    let sender = deployer.sender(devchain::key(OWNER));
    let mut done = Vec::new();
    while let Some(step) = deployer.advance(&sender).await.unwrap() {
        done.push(step.what);
    }
    (deployer.deployment().await.unwrap(), done)
}

/// A table in USDC whose prices are all alike but for one.
fn prices(exec: &str) -> Value {
    let mut rates: BTreeMap<&str, &str> = Job::ALL.iter().map(|job| (job.name(), "0.5")).collect();
    rates.insert("exec", exec);
    json!({ "asset": USDC, "rates": rates })
}

async fn usdc_table(desk: &Desk, exec: &str) -> PriceTable {
    let file: PriceFile = serde_json::from_value(prices(exec)).unwrap();
    PriceTable::new(&file, Asset::at(desk.dev.provider(), USDC).await.unwrap()).unwrap()
}

// ─── Repeating and continuing ───────────────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn a_second_run_sends_nothing_and_says_so() {
    let desk = Desk::new().await;
    let first = desk.deploy(&[]).await.done();
    assert_eq!(first["sent"].as_array().unwrap().len(), 3, "{first}");
    let (traces, file) = (desk.traces().await, std::fs::read(desk.addresses()).unwrap());
    for words in [&["--unpublished"][..], &[]] {
        let again = desk.deploy_as(OWNER, words).await;
        assert_eq!(again.code, Some(0), "{again:?}");
        assert!(again.stdout.starts_with("nothing was sent: all is as asked for\n"), "{again:?}");
    }
    assert_eq!((desk.traces().await, std::fs::read(desk.addresses()).unwrap()), (traces, file));
    let chain = desk.chain().await;
    for job in Job::ALL {
        assert_eq!(chain.price(job.id()).await.unwrap(), price_wei(job.id()), "{job:?}");
    }
}

#[tokio::test]
async fn a_run_that_was_interrupted_after_any_step_is_continued_with_or_without_its_file() {
    let desk = Desk::new().await;
    let terms = Terms { prices: Some(usdc_table(&desk, "0.05").await), ..Terms::default() };
    let whole = 4;
    for interrupted_after in 0..=whole {
        for is_file_kept in [true, false] {
            let salt = deploy::salt(&format!("{interrupted_after} {is_file_kept}"));
            let plan = Plan { salt, terms: terms.clone(), ..desk.plan() };
            let mut deployer = open(&plan, None).await;
            let sender = deployer.sender(devchain::key(OWNER));
            for _ in 0..interrupted_after {
                deployer.advance(&sender).await.unwrap().unwrap();
            }
            let file = deployer.addresses().clone();
            drop(deployer);
            file.save(&desk.addresses()).unwrap();
            assert!(Deployment::load(&desk.addresses()).is_err(), "clients wait for the end: {file:?}");

            let (deployment, done) = finish(open(&plan, is_file_kept.then_some(file)).await).await;
            assert_eq!(done.len(), whole - interrupted_after, "{done:?}");
            let price = Chain::connect(deployment).await.unwrap().price(Job::Exec.id()).await.unwrap();
            assert_eq!(price, U256::from(50_000));
        }
    }
}

#[tokio::test]
async fn a_deployment_that_is_not_complete_is_refused_by_every_other_command() {
    let desk = Desk::new().await;
    let plan = desk.plan();
    let mut deployer = open(&plan, None).await;
    let sender = deployer.sender(devchain::key(OWNER));
    for missing in ["its contract", "its blueprint", "its prices"] {
        deployer.addresses().save(&desk.addresses()).unwrap();
        let path = desk.addresses().display().to_string();
        let sentence = format!("the deployment in {path} lacks {missing}; `sandbox deploy` continues it");
        desk.sandbox(&[], &["service", "show", "1"]).await.refused(2, &sentence);
        deployer.advance(&sender).await.unwrap();
    }
    let rest = desk.deploy_as(OWNER, &["--json"]).await.done();
    assert_eq!(rest["sent"], json!([]));
    desk.chain().await;
}

#[tokio::test]
async fn transactions_on_their_way_are_waited_for_and_not_sent_twice() {
    let desk = Desk::new().await;
    let provider = desk.dev.provider();
    let automine = async |on: bool| provider.raw_request::<_, Value>("evm_setAutomine".into(), (on,)).await.unwrap();
    let plan = desk.plan();
    let mut deployer = open(&plan, None).await;
    automine(false).await;
    let interrupted = tokio::spawn(async move {
        let sender = deployer.sender(devchain::key(OWNER));
        deployer.advance(&sender).await.map(drop)
    });
    let owner = devchain::key(OWNER).address();
    while provider.get_transaction_count(owner).pending().await.unwrap() == desk.traces().await.1 {
        tokio::task::yield_now().await;
    }
    interrupted.abort();
    let mut next = tokio::spawn(async move { finish(open(&plan, None).await).await });
    let early = tokio::time::timeout(Duration::from_millis(500), &mut next).await;
    assert!(early.is_err(), "nothing is decided before it is in a block");
    automine(true).await;
    desk.dev.mine(1).await.unwrap();
    let (deployment, done) = next.await.unwrap();
    assert_eq!(done.len(), 2, "the contract was on its way: {done:?}");
    Chain::connect(deployment).await.unwrap();
}

#[tokio::test]
async fn a_chain_that_forgets_is_not_sent_the_same_again_and_again() {
    let desk = Desk::new().await;
    let provider = desk.dev.provider();
    let mut deployer = open(&desk.plan(), None).await;
    let sender = deployer.sender(devchain::key(OWNER));
    for _ in ["contract", "blueprint"] {
        deployer.advance(&sender).await.unwrap().unwrap();
    }
    let before = provider.raw_request::<_, Value>("evm_snapshot".into(), ()).await.unwrap();
    let done = deployer.advance(&sender).await.unwrap().unwrap();
    provider.raw_request::<_, Value>("evm_revert".into(), (before,)).await.unwrap();
    desk.dev.mine(1).await.unwrap();
    let error = deployer.advance(&sender).await.unwrap_err().to_string();
    assert_eq!(error, format!("the node does not show what was done: {}", done.what));
    drop(deployer);
    let (_, done) = finish(open(&desk.plan(), None).await).await;
    assert_eq!(done.len(), 1, "the next run looks where it is: {done:?}");
}

// ─── Dry run ────────────────────────────────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn a_dry_run_needs_no_key_sends_nothing_and_shows_what_is_then_sent() {
    let desk = Desk::new().await;
    let file = desk.write("prices.json", &prices("0.05"));
    let from = devchain::key(OWNER).address().to_string();
    let before = desk.traces().await;
    let dry = ["--json", "deploy", "--dry-run", "--from", &from, "--prices", &file];
    let shown = desk.sandbox(&[], &[&dry, &desk.first()[..]].concat()).await.done();
    assert_eq!(desk.traces().await, before);
    assert!(!desk.addresses().exists());

    let shown = shown["transactions"].as_array().unwrap();
    let functions: Vec<_> = shown.iter().map(|transaction| transaction["function"].as_str().unwrap()).collect();
    assert_eq!(functions, ["create2", "createBlueprint", "setBlueprintSettlementAsset", "setJobEventRates"]);
    let sent = desk.deploy(&["--prices", &file]).await.done();
    let on_chain = desk.sent_since(before.0).await;
    assert_eq!(on_chain.len(), shown.len());
    for (index, (shown, (to, input))) in shown.iter().zip(&on_chain).enumerate() {
        assert_eq!(shown["to"], json!(to));
        assert_eq!(shown["input"], json!(input), "{}", shown["what"]);
        assert_eq!(shown["input_bytes"], json!(input.len()));
        assert_eq!(shown["input_hash"], json!(keccak256(input)));
        let (expected, used) = (shown["gas"].as_f64().unwrap(), sent["sent"][index]["gas_used"].as_f64().unwrap());
        assert!((expected / used - 1.0).abs() < 0.1, "{}: {expected} expected, {used} used", shown["what"]);
    }
}

#[tokio::test]
async fn a_dry_run_reads_as_a_table_of_what_is_signed() {
    let desk = Desk::new().await;
    let file = desk.write("prices.json", &prices("0.05"));
    let shown = desk.deploy_as(OWNER, &[&["--dry-run", "--prices", &file], &desk.first()[..]].concat()).await;
    for line in [
        "   function  createBlueprint",
        "     config.pricing     event-driven",
        "     config.eventRate   0.05 USDC = 50000: what jobs without a price of their own cost",
        "     asset        0x4b6aB5F819A515382B0dEB6935D793817bB4af28 (USDC, 6 decimals)",
        "     0 sandbox_create     0.5 USDC = 500000",
        "   value     0 wei",
        "nothing was sent",
    ] {
        assert!(shown.stdout.lines().any(|found| found == line), "no {line:?} in\n{}", shown.stdout);
    }
}

#[tokio::test]
async fn what_the_chain_would_refuse_ends_a_dry_run_and_a_run_goes_on_when_it_no_longer_does() {
    let desk = Desk::new().await;
    let admin = Sender::new(desk.dev.provider().clone(), devchain::key(OWNER));
    let send = async |selector: [u8; 4]| {
        let call = calls::Invocation { to: CORE, input: selector.into(), value: U256::ZERO };
        admin.send(&call).await.unwrap();
    };
    send(hex!("8456cb59")).await; // pause()
    let sentence = "could not create blueprint 1: the core is paused";
    desk.deploy_as(OWNER, &[&["--dry-run"], &desk.first()[..]].concat()).await.refused(121, sentence);
    desk.deploy_as(OWNER, &desk.first()).await.refused(121, sentence);
    send(hex!("3f4ba83a")).await; // unpause()
    let rest = desk.deploy(&[]).await.done();
    assert_eq!(rest["sent"].as_array().unwrap().len(), 2, "the contract was there: {rest}");
}

#[tokio::test]
async fn a_dry_run_of_what_stands_shows_nothing_to_send() {
    let desk = Desk::new().await;
    desk.deploy(&[]).await.done();
    let stranger = devchain::key(STRANGER).address().to_string();
    let shown = desk.sandbox(&[], &["deploy", "--dry-run", "--from", &stranger]).await;
    assert_eq!(shown.stdout.trim(), "nothing would be sent on chain 31337: all is as asked for", "{shown:?}");
}

// ─── Terms ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn a_blueprint_settles_in_a_token_at_prices_scaled_by_its_decimals() {
    let desk = Desk::new().await;
    let file = desk.write("prices.json", &prices("0.05"));
    desk.deploy(&["--prices", &file]).await.done();
    let chain = desk.chain().await;
    let id = chain.deployment().blueprint_id;
    assert_eq!(chain.core().getBlueprintSettlementAsset(id).call().await.unwrap(), USDC);
    assert_eq!(chain.price(Job::Exec.id()).await.unwrap(), U256::from(50_000));
    assert_eq!(chain.price(Job::Task.id()).await.unwrap(), U256::from(500_000));
}

#[tokio::test]
async fn a_changed_price_file_changes_only_the_prices_that_differ() {
    let desk = Desk::new().await;
    let file = desk.write("prices.json", &prices("0.05"));
    desk.deploy(&["--prices", &file]).await.done();
    let before = desk.traces().await.0;
    desk.write("prices.json", &prices("0.07"));
    let sent = desk.deploy_as(OWNER, &["--json", "--prices", &file]).await.done();
    assert_eq!(sent["sent"].as_array().unwrap().len(), 1, "{sent}");
    let [(CORE, input)] = &desk.sent_since(before).await[..] else { panic!("{sent}") };
    let call = ITangleCore::setJobEventRatesCall::abi_decode(input).unwrap();
    assert_eq!((call.jobIndexes, call.rates), (vec![Job::Exec.id()], vec![U256::from(70_000)]));

    let coin = desk.write("coin.json", &PriceFile::from(&PriceTable::built_in()));
    let blueprint = desk.chain().await.deployment().blueprint_id;
    let sentence = format!(
        "blueprint {blueprint} settles in {USDC}, the prices are in {}: services that run keep their asset and would be charged \
         the new rates in it",
        Address::ZERO
    );
    desk.deploy_as(OWNER, &["--prices", &coin]).await.refused(2, &sentence);
    let sent = desk.deploy_as(OWNER, &["--json", "--prices", &coin, "--change-asset"]).await.done();
    assert_eq!(sent["sent"].as_array().unwrap().len(), 2, "{sent}");
}

#[tokio::test]
async fn prices_that_cannot_be_meant_are_refused_before_anything_is_sent() {
    let desk = Desk::new().await;
    let before = desk.traces().await;
    let mut file = prices("0.05");
    file["rates"]["exce"] = json!("1");
    let unknown = desk.write("unknown.json", &file);
    let first = desk.first();
    let refused = async |file: &str, sentence: &str| {
        desk.deploy_as(OWNER, &[&["--prices", file], &first[..]].concat()).await.refused(2, sentence);
    };
    refused(&unknown, "there is no job named \"exce\"").await;
    let fine = desk.write("fine.json", &prices("0.0000001"));
    let sentence = "the price of \"exec\": 0.0000001 has more decimals than USDC, which has 6";
    refused(&fine, sentence).await;
    let no_token = desk.write("token.json", &json!({ "asset": CORE, "rates": {} }));
    let run = desk.deploy_as(OWNER, &[&["--prices", &no_token], &first[..]].concat()).await;
    assert!(run.stderr.starts_with(&format!("sandbox: {CORE} does not answer as a token")), "{run:?}");
    assert_eq!(desk.traces().await, before);
    assert!(!desk.addresses().exists());
}

#[tokio::test]
async fn the_built_in_prices_are_printed_as_a_file_that_is_taken_back() {
    let desk = Desk::new().await;
    let printed = desk.sandbox(&[], &["deploy", "--print-prices"]).await;
    std::fs::write(desk.path("prices.json"), &printed.stdout).unwrap();
    let file = desk.path("prices.json").display().to_string();
    desk.deploy(&["--prices", &file]).await.done();
    assert_eq!(desk.chain().await.price(Job::SandboxCreate.id()).await.unwrap(), price_wei(0));
}

async fn floor_of(desk: &Desk, operators: u32, ttl_s: u64) -> (Address, U256) {
    let chain = desk.chain().await;
    let floor = chain.blueprint().quoteService(operators, ttl_s).call().await.unwrap();
    (floor.asset, floor.amount)
}

#[tokio::test]
async fn a_pay_once_blueprint_has_a_floor_that_its_owner_changes() {
    let desk = Desk::new().await;
    let usdc = USDC.to_string();
    let words = ["--pricing", "pay-once", "--asset", &usdc, "--floor", "0.25"];
    let sent = desk.deploy(&words).await.done();
    assert_eq!(sent["sent"].as_array().unwrap().len(), 3, "{sent}");
    assert_eq!(floor_of(&desk, 3, 7_200).await, (USDC, U256::from(250_000 * 3 * 2)));
    assert_eq!(desk.deploy(&words).await.done()["sent"], json!([]));
    let run = desk.deploy_as(OWNER, &["--floor", "0.5"]).await;
    assert!(
        run.code == Some(2) && run.stderr.contains(&format!("is in {USDC}, not in")),
        "the coin was not meant: {run:?}"
    );
    let sent = desk.deploy_as(OWNER, &["--json", "--asset", &usdc, "--floor", "0.5"]).await.done();
    assert_eq!(sent["sent"].as_array().unwrap().len(), 1, "{sent}");
    assert_eq!(floor_of(&desk, 1, 3_600).await, (USDC, U256::from(500_000)));

    let operator = Account::new(desk.chain().await, devchain::key(1));
    operators::register(&operator, &profile(API_URL)).await.unwrap();
    let customer = Account::new(desk.chain().await, devchain::key(STRANGER));
    let terms = calls::ServiceTerms { ttl_s: 3_600, ..calls::ServiceTerms::named(vec![operator.address()]) };
    let unpaid = customer.request_service(&terms).await.unwrap_err().to_string();
    let coin = Address::ZERO;
    assert_eq!(unpaid, format!("the service pays in asset {coin}, it costs at least 500000 of asset {USDC}"));
    let prices = desk.write("prices.json", &prices("0.05"));
    let sentence = "job prices are for event-driven blueprints: this one is pay-once and has a floor";
    desk.deploy_as(OWNER, &["--prices", &prices]).await.refused(2, sentence);
}

#[tokio::test]
async fn a_subscription_has_its_rate_interval_and_floor() {
    let desk = Desk::new().await;
    let usdc = USDC.to_string();
    let words = ["--pricing", "subscription", "--subscription-rate", "12.5", "--subscription-interval", "86400"];
    let floor = ["--asset", &usdc, "--floor", "0.1"];
    desk.deploy(&[&words[..], &floor].concat()).await.done();
    let chain = desk.chain().await;
    let config = chain.core().getBlueprintConfig(chain.deployment().blueprint_id).call().await.unwrap();
    assert_eq!(
        (config.pricing, config.subscriptionRate, config.subscriptionInterval),
        (1, U256::from(12_500_000), 86_400)
    );
    assert_eq!(floor_of(&desk, 1, 3_600).await, (USDC, U256::from(100_000)));
    assert_eq!(desk.deploy(&[&words[..], &floor].concat()).await.done()["sent"], json!([]));
    let sentence = format!(
        "blueprint {} is a subscription of 12500000 units per 86400 s, which the core does not change; pay-once takes a \
         deployment of its own",
        chain.deployment().blueprint_id
    );
    desk.deploy_as(OWNER, &["--pricing", "pay-once"]).await.refused(2, &sentence);
}

#[tokio::test]
async fn terms_that_do_not_go_together_are_refused_by_what_is_wrong_with_them() {
    let desk = Desk::new().await;
    let first = desk.first();
    for (words, sentence) in [
        (&["--pricing", "subscription"][..], "a subscription takes --subscription-rate and --subscription-interval"),
        (&["--subscription-interval", "60"], "rate and interval are for --pricing subscription"),
        (&["--floor", "1"], "an event-driven blueprint is paid by the call: it has job prices and no floor"),
        (
            &["--pricing", "pay-once"],
            "a blueprint that is pay-once needs a floor: without one its services may be paid with nothing",
        ),
        (&["--pricing", "pay-once", "--floor", "a lot"], "\"a lot\" is not a decimal number such as 0.25"),
    ] {
        desk.deploy_as(OWNER, &[words, &first[..]].concat()).await.refused(2, sentence);
    }
    let unreleased = ["--core", first[1], "--block-time-ms", "1000"];
    let sentence = "a new blueprint needs a release: where operators' managers fetch the program";
    desk.deploy_as(OWNER, &unreleased).await.refused(2, sentence);
}

#[tokio::test]
async fn a_new_release_is_pointed_to_once() {
    let desk = Desk::new().await;
    desk.deploy(&[]).await.done();
    let release = json!({
        "metadata_uri": "https://example.org/blueprint.json",
        "artifact_uri": "https://example.org/sandbox-operator",
        "binary": "sandbox-operator",
        "sha256": B256::repeat_byte(7),
    });
    let file = desk.write("release.json", &release);
    let sent = desk.deploy_as(OWNER, &["--json", "--release", &file]).await.done();
    assert_eq!(sent["sent"].as_array().unwrap().len(), 2, "sources and metadata: {sent}");
    assert_eq!(desk.deploy_as(OWNER, &["--json", "--release", &file]).await.done()["sent"], json!([]));
}

// ─── The wrong place, the wrong person ──────────────────────────────────────────────────────────────────────────────

#[tokio::test]
async fn a_wrong_chain_is_refused_by_file_and_by_option() {
    let desk = Desk::new().await;
    let sentence = format!("the node serves chain {CHAIN_ID}, not chain 8453");
    desk.deploy_as(OWNER, &[&["--chain-id", "8453"], &desk.first()[..]].concat()).await.refused(2, &sentence);
    assert!(!desk.addresses().exists());
    desk.deploy(&[]).await.done();
    let text = std::fs::read_to_string(desk.addresses()).unwrap();
    std::fs::write(desk.addresses(), text.replace("31337", "8453")).unwrap();
    desk.deploy_as(OWNER, &[]).await.refused(2, &sentence);
}

#[tokio::test]
async fn a_wrong_core_is_refused() {
    let desk = Desk::new().await;
    for wrong in [USDC, devchain::key(9).address()] {
        let words = ["--core", &wrong.to_string(), "--block-time-ms", "1000", "--unpublished"];
        let run = desk.deploy_as(OWNER, &words).await;
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.starts_with(&format!("sandbox: {wrong} does not answer as a Tangle core")), "{run:?}");
        assert!(!desk.addresses().exists());
    }
    desk.deploy(&[]).await.done();
    let sentence = format!("the addresses are of a blueprint in the core {CORE}, not in {USDC}");
    desk.deploy_as(OWNER, &["--core", &USDC.to_string()]).await.refused(2, &sentence);
}

#[tokio::test]
async fn only_its_creator_goes_on_with_a_contract_and_only_its_owner_changes_a_blueprint() {
    let desk = Desk::new().await;
    let plan = desk.plan();
    let mut deployer = open(&plan, None).await;
    let sender = deployer.sender(devchain::key(OWNER));
    deployer.advance(&sender).await.unwrap();
    deployer.addresses().save(&desk.addresses()).unwrap();
    let (owner, stranger) = (devchain::key(OWNER).address(), devchain::key(STRANGER).address());
    let contract = deployer.addresses().manager.unwrap();
    let sentence = format!("the blueprint of the contract at {contract} must be created by {owner}, not by {stranger}");
    desk.deploy_as(STRANGER, &["--unpublished"]).await.refused(121, &sentence);

    desk.deploy(&[]).await.done();
    let blueprint = desk.chain().await.deployment().blueprint_id;
    let mut file = serde_json::to_value(PriceFile::from(&PriceTable::built_in())).unwrap();
    file["rates"]["exec"] = json!("0.00006");
    let file = desk.write("prices.json", &file);
    let sentence = format!("blueprint {blueprint} belongs to {owner}, {stranger} cannot change it");
    desk.deploy_as(STRANGER, &["--prices", &file]).await.refused(121, &sentence);
    let nothing = desk.deploy_as(STRANGER, &["--json"]).await.done();
    assert_eq!(nothing["sent"], json!([]), "whoever looks may look");
}

#[tokio::test]
async fn addresses_of_a_chain_that_was_begun_anew_are_refused() {
    let desk = Desk::new().await;
    desk.deploy(&[]).await.done();
    let anew = Desk::new().await;
    std::fs::copy(desk.addresses(), anew.addresses()).unwrap();
    let contract = Deployment::load(&anew.addresses()).unwrap().manager;
    let sentence = format!(
        "there is no contract at {contract}: is this another chain, or was it begun anew? Without its addresses file a \
         deployment begins anew, too"
    );
    anew.deploy_as(OWNER, &["--block-time-ms", "1000"]).await.refused(2, &sentence);
}

#[tokio::test]
async fn an_addresses_file_that_cannot_be_written_is_found_before_anything_is_sent() {
    let desk = Desk::new().await;
    let before = desk.traces().await;
    let nowhere = desk.path("nowhere/addresses.json").display().to_string();
    let run = desk.deploy_as(OWNER, &[&["--deployment", &nowhere], &desk.first()[..]].concat()).await;
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.starts_with(&format!("sandbox: cannot write the addresses file {nowhere}")), "{run:?}");
    assert_eq!(desk.traces().await, before);
}

#[tokio::test]
async fn a_chain_without_the_factory_is_told_from_a_refusal() {
    let desk = Desk::new().await;
    let parameters = (FACTORY, "0x");
    desk.dev.provider().raw_request::<_, Value>("anvil_setCode".into(), parameters).await.unwrap();
    let run = desk.deploy_as(OWNER, &desk.first()).await;
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.starts_with("sandbox: this chain has no CREATE2 factory at"), "{run:?}");
}

// ─── Contracts created by other means ───────────────────────────────────────────────────────────────────────────────

/// Creates the contract in a transaction of its own.
async fn created_plainly(desk: &Desk) -> Address {
    let (sender, owner) = (Sender::new(desk.dev.provider().clone(), devchain::key(OWNER)), devchain::key(OWNER));
    let code = Artifact::load(&devchain::artifact()).unwrap().creation_code((CORE, owner.address(), 1_000));
    let transaction = TransactionRequest::default().with_from(owner.address()).with_deploy_code(code);
    sender.send_transaction(transaction).await.unwrap().receipt.contract_address.unwrap()
}

#[tokio::test]
async fn a_contract_that_was_created_by_other_means_is_taken_up_if_it_is_the_artifact_s() {
    let desk = Desk::new().await;
    let contract = created_plainly(&desk).await;
    let adopt = |contract: Address| Plan { contract: Some(contract), ..desk.plan() };
    let (deployment, done) = finish(open(&adopt(contract), None).await).await;
    assert_eq!((deployment.manager, done.len()), (contract, 2), "{done:?}");

    let other = created_plainly(&desk).await;
    let mut code = desk.dev.provider().get_code_at(other).await.unwrap().to_vec();
    code.push(0);
    desk.dev.provider().raw_request::<_, Value>("anvil_setCode".into(), (other, Bytes::from(code))).await.unwrap();
    let error = open(&adopt(other), None).await.preview().await.unwrap_err().to_string();
    assert_eq!(error, format!("the code of the contract at {other} is not that of {}", devchain::artifact().display()));
    let error = open(&adopt(USDC), None).await.preview().await.unwrap_err().to_string();
    assert_eq!(error, format!("the contract at {USDC} does not answer as an agent sandbox blueprint"));
    let slower = Plan { block_time_ms: 2_000, ..adopt(created_plainly(&desk).await) };
    let error = open(&slower, None).await.preview().await.unwrap_err().to_string();
    assert!(error.ends_with("was created for a block every 1000 ms, not every 2000 ms"), "{error}");
}

#[tokio::test]
async fn what_forge_s_script_creates_is_found_without_being_told() {
    let desk = Desk::new().await;
    let root = devchain::checkout();
    let forge = root.join("node_modules/@foundry-rs/forge-linux-amd64/bin/forge");
    let script = ["script", "contracts/script/Deploy.s.sol", "--sig", "run(address,uint64)", "--broadcast"];
    let output = Command::new(forge)
        .args(script)
        .args(["--rpc-url", desk.dev.rpc_url().as_str(), "--private-key", &devchain::KEYS[OWNER].to_string()])
        .args([&CORE.to_string(), "1000"])
        .env("FOUNDRY_BROADCAST", desk.path("broadcast"))
        .current_dir(&root)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (deployment, done) = finish(open(&desk.plan(), None).await).await;
    assert_eq!(done.len(), 2, "the contract was there: {done:?}");
    assert!(text.contains(&deployment.manager.to_string()), "{text}");
}

#[tokio::test]
async fn one_key_deploys_the_same_contract_under_several_names() {
    let desk = Desk::new().await;
    let floor = Floor { asset: Asset::coin(), per_operator_hour: U256::from(1_000) };
    let pay_once = Terms { pricing: Some(Pricing::PayOnce), floor: Some(floor), ..Terms::default() };
    let plan =
        Plan { terms: pay_once, salt: deploy::salt("pay-once"), release: Some(Release::unpublished()), ..desk.plan() };
    let (first, _) = finish(open(&desk.plan(), None).await).await;
    let (second, done) = finish(open(&plan, None).await).await;
    assert_eq!(done.len(), 3, "{done:?}");
    assert!(first.manager != second.manager && first.blueprint_id != second.blueprint_id);
    let sentence = format!(
        "blueprint {} is event-driven, which the core does not change; pay-once takes a deployment of its own",
        first.blueprint_id
    );
    let same_name = Plan { salt: desk.plan().salt, ..plan };
    assert_eq!(open(&same_name, None).await.preview().await.unwrap_err().to_string(), sentence);
}
