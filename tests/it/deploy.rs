//! A blueprint that its developer deploys by command line, in use.

use alloy::primitives::U256;
use anyhow::{Context, Result};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::devchain::{self, CORE, DevChain, Tools};
use sandbox_sdk::{Chain, Deployment};
use sandbox_tests::client::Client;
use sandbox_tests::ground::{CUSTOMER, DEVELOPER, Ground, OPERATOR};
use sandbox_tests::node::Node;
use serde_json::{Value, json};

use crate::world::shown;

#[tokio::test(flavor = "multi_thread")]
async fn a_blueprint_that_is_deployed_by_command_serves_customers_at_the_prices_of_its_file() -> Result<()> {
    let chain = DevChain::start(&Tools::find()?, None).await?;
    let dir = tempfile::Builder::new().prefix("sbx").tempdir()?;
    let addresses = dir.path().join("deployment.json");
    let client =
        |key: usize| Client::new(&addresses, &dir.path().join(format!("key-{key}")), &devchain::KEYS[key].to_string());
    let developer = client(DEVELOPER)?;
    let first = ["--core", &CORE.to_string(), "--block-time-ms", "1000", "--unpublished"];
    developer.text(&[&["deploy", "--rpc-url", chain.rpc_url().as_str()], &first[..]].concat()).await?;

    let deployment = Deployment::load(&addresses)?;
    let mut node = Node::new(&deployment, &devchain::KEYS[OPERATOR].to_string())?;
    node.start().await?;
    let customer = client(CUSTOMER)?;
    let service = customer.service(&[Ground::address(OPERATOR)]).await?;
    let sandbox = customer.create(service, &[]).await?;

    let mut prices: Value = serde_json::from_str(&developer.text(&["deploy", "--print-prices"]).await?)?;
    prices["rates"][Job::Exec.name()] = json!("0.00007");
    let file = dir.path().join("prices.json");
    std::fs::write(&file, prices.to_string())?;
    developer.text(&["deploy", "--prices", &file.display().to_string()]).await?;
    let (code, stdout, stderr) = shown(&customer.exec(&sandbox, "echo dearer").await?);
    assert_eq!((code, stdout.as_str()), (Some(0), "dearer\n"), "{stderr}");
    let paid = Chain::connect(deployment).await?.job_call(CallKey { service, call: 1 }).await?;
    assert_eq!(paid.context("no call")?.payment, U256::from(70_000_000_000_000_u64));

    customer.text(&["rm", &sandbox]).await?;
    node.stop().await
}
