//! A local network for development: chain, blueprint, one operator, one service, until Ctrl-C.

use std::time::Duration;

use anyhow::{Context, Result};
use sandbox_process::signals;
use sandbox_sdk::devchain;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::node::free_port;

use crate::steps::Steps;

/// Time between blocks, so that block heights pass as on a public chain.
const BLOCK_TIME: Duration = Duration::from_secs(1);

/// Starts everything, says how to use it, and ends it when told to.
pub(crate) async fn run() -> Result<()> {
    let stop = signals::shutdown().context("signals")?;
    let mut steps = Steps::new();
    let ground = steps.step("chain and blueprint", Ground::with_blocks(Some(BLOCK_TIME)), |_| String::new()).await?;
    let mut node = ground.node(OPERATOR)?;
    let ssh = free_port()?;
    node.set("SSH_BIND", ssh.to_string());
    steps.step("operator", node.start(), |()| String::new()).await?;
    let customer = ground.client(CUSTOMER)?;
    let operators = [Ground::address(OPERATOR)];
    let service = customer.service(&operators);
    let service = steps.step("service", service, |_| String::new()).await?;
    let programs = sandbox_tests::programs::program("sandbox")?;
    println!(
        "\nnode       {}\noperator   {} {}\nssh        {ssh}\nlog        {}\ncustomer   {}\n\n\
         export SANDBOX_DEPLOYMENT={}\nexport SANDBOX_KEY={}\nexport SANDBOX_SERVICE={service}\nexport PATH=\"{}:$PATH\"\n\n\
         sandbox create\nsandbox exec sbx-{service}-0-0 -- 'echo hello'\n\
         sandbox ssh sbx-{service}-0-0\n\nCtrl-C ends it.",
        ground.deployment.rpc_url,
        Ground::address(OPERATOR),
        node.api_url(),
        node.dir().join("log").display(),
        Ground::address(CUSTOMER),
        ground.addresses_file().display(),
        devchain::KEYS[CUSTOMER],
        programs.parent().unwrap_or(&programs).display(),
    );
    stop.cancelled().await;
    node.stop().await
}
