//! The demo: rent, create, run, prove, delete, get paid — on the real Tangle core with real containers.

use std::process::Output;
use std::time::Duration;

use alloy::primitives::utils::format_ether;
use anyhow::{Result, bail, ensure};
use sandbox_tests::engine;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::node::free_port;
use sandbox_tests::wait::until;

use crate::steps::Steps;

const BOUND: Duration = Duration::from_secs(60);

/// Runs the journey and leaves nothing of it behind.
pub(crate) async fn run() -> Result<()> {
    let mut steps = Steps::new();
    let quiet = |_: &()| String::new();
    let ground = steps.step("a chain with the real Tangle core, 42 jobs on it", Ground::new(), |ground| {
        format!("blueprint {} at {}", ground.deployment.blueprint_id, ground.deployment.manager)
    });
    let ground = ground.await?;
    let operator = ground.account(OPERATOR).await?;
    let earned = async || Ok(operator.chain().pending_rewards(operator.address()).await?);
    let coin = |wei: &_| format!("{} coin pending", format_ether(*wei));
    let customer = ground.client(CUSTOMER)?;
    let mut node = ground.node(OPERATOR)?;
    node.set("SSH_BIND", free_port()?.to_string());

    steps.step("the operator starts and registers", node.start(), quiet).await?;
    let operators = [operator.address()];
    let service = customer.service(&operators);
    let service = steps.step("a service is requested and approved", service, |id| format!("service {id}")).await?;
    let before = steps.step("the operator's rewards before", earned(), coin).await?;
    let sandbox = steps.step("job 0 creates a sandbox", customer.create(service, &[]), Clone::clone).await?;
    let script = "uname -s; id -un; ls /sys/class/net";
    let ran = async { succeeded(customer.exec(&sandbox, script).await?) };
    steps.step("job 10 runs a command in it", ran, |text| text.replace('\n', " ")).await?;
    let file = ground.addresses_file().with_file_name("answer.json").display().to_string();
    let saving = ["run", "--save", &file, &sandbox, "--", "echo proof"];
    steps.step("its answer and signed receipt are saved", customer.text(&saving), |_| String::new()).await?;
    let offline = ["verify", "--offline", &file];
    steps.step("the receipt is proven without the chain", customer.text(&offline), |_| String::new()).await?;
    let on_chain = until("the receipt on chain", BOUND, || async { customer.text(&["verify", &file]).await.ok() });
    steps.step("and against the chain", on_chain, |_| String::new()).await?;
    let admitting = ["ssh-config", &sandbox, "--job"];
    let host = |block: &String| block.lines().take(3).map(str::trim).collect::<Vec<_>>().join(", ");
    steps.step("job 40 lets a key in and proves the SSH host", customer.text(&admitting), host).await?;
    let over_ssh = ["ssh", &sandbox, "--", "id -un; pwd"];
    steps.step("a command runs over SSH", customer.text(&over_ssh), |text| text.replace('\n', " ")).await?;
    let refused = async { refused(customer.exec("sbx-1-77-0", "true").await?) };
    steps.step("a foreign sandbox is refused at no cost", refused, Clone::clone).await?;
    let removing = ["rm", &sandbox];
    steps.step("job 3 deletes the sandbox", customer.text(&removing), Clone::clone).await?;
    let after = steps.step("the operator's rewards have grown", earned(), coin).await?;
    ensure!(after > before, "the rewards did not grow");
    let claim = async { succeeded(node.command(&["claim"])?.output()?) };
    steps.step("and are claimed", claim, |text| text.trim().to_owned()).await?;
    ensure!(earned().await?.is_zero(), "rewards are left");
    steps.step("the operator ends when told to", node.stop(), quiet).await?;
    let run_dir = node.run_dir();
    drop((node, ground));
    steps.step("nothing is left", async { nothing_left(&run_dir) }, quiet).await?;
    println!("\n  all of it in {:.1} s", steps.total_s());
    Ok(())
}

fn succeeded(output: Output) -> Result<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {stderr}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn refused(output: Output) -> Result<String> {
    ensure!(!output.status.success(), "it was not refused");
    Ok(String::from_utf8_lossy(&output.stderr).trim().trim_start_matches("sandbox: ").to_owned())
}

/// Fails where anything of a node is left that is no more.
pub(crate) fn nothing_left(run_dir: &std::path::Path) -> Result<()> {
    let containers = engine::containers(run_dir)?;
    let volumes = engine::volumes(run_dir)?;
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    let mounted = mounts.contains(&run_dir.display().to_string());
    if !containers.is_empty() || !volumes.is_empty() || mounted || run_dir.exists() {
        bail!("left: {containers:?} {volumes:?}, mounted: {mounted}, sockets: {}", run_dir.exists());
    }
    Ok(())
}
