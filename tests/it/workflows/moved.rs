//! A workflow whose operator has left its service fires at another one, and there only.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::devchain::CORE;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, SECOND_OPERATOR, STRANGER};
use sandbox_tests::node::Node;
use sandbox_tests::tangle::ICore::forceRemoveOperatorCall;
use sandbox_tests::wait::until;
use serde_json::{Value, json};

use super::{BOUND, create_in, ended, key, runs, slots, step, trigger};

/// A minute for which nobody fires what has moved, and then some.
const HANDOVER_BOUND: Duration = Duration::from_secs(180);

/// Two operators who look at the clock every second and tell the chain soon.
async fn pair(ground: &Ground) -> Result<[Node; 2]> {
    let mut nodes = [ground.node(OPERATOR)?, ground.node(SECOND_OPERATOR)?];
    for node in &mut nodes {
        node.set("WORKFLOW_CRON_SCHEDULE", "* * * * * *");
        node.set("WORKFLOW_REPORT_SECONDS", "5");
    }
    let [one, two] = &mut nodes;
    tokio::try_join!(one.start(), two.start())?;
    Ok(nodes)
}

/// How often an operator has fired anything, by its own log.
fn fired_at(node: &Node) -> usize {
    node.log().lines().filter(|line| line.contains(" fired ") && line.contains("run=")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_whose_operator_has_left_fires_at_another_and_there_only() -> Result<()> {
    let ground = Ground::new().await?;
    let mut nodes = pair(&ground).await?;
    let operators = [OPERATOR, SECOND_OPERATOR].map(Ground::address);
    let customer = ground.client(CUSTOMER)?;
    let service = customer.service(&operators).await?;
    let body = json!({"steps": [step("tell", "echo $SECRET", &[])]});
    let more = ["--memory-mb", "64", "--env", "SECRET=canary", "--cron", "*/5 * * * * *", "--overlap", "queue"];
    let workflow = create_in(service, (&customer, nodes[0].dir()), &body, &more).await?;
    let chain = ground.account(CUSTOMER).await?.chain().clone();
    let id = key(&workflow)?;
    let holder = chain.assignment(id).await?.context("no assignment")?.operator;
    let (old, new) = if holder == operators[0] { (0, 1) } else { (1, 0) };
    let some = || async { runs(&customer, &workflow).await.ok().filter(|runs| runs.len() > 1) };
    let before = slots(&until("runs at the first operator", BOUND, some).await?)?;

    let force = forceRemoveOperatorCall { serviceId: service, operator: holder };
    ground.send_as(ground.deployment.manager, &Invocation::new(CORE, &force)).await?;
    ground.account(STRANGER).await?.send(&calls::reassign(&ground.deployment, id)).await?;
    let (row, _) = chain.workflow(id).await?.context("no workflow")?;
    assert_eq!((row.operator, row.epoch), (operators[new], 1));
    let left = || async { nodes[old].log().contains("fired no more").then_some(()) };
    until("the first operator to know", BOUND, left).await?;
    // Also after a restart, in which it reads all that it fires anew.
    nodes[old].stop().await?;
    nodes[old].start().await?;
    let fired = fired_at(&nodes[old]);
    ensure!(fired >= before.len(), "its log does not tell of all that it fired");

    let by_hand = trigger(&customer, &workflow).await?;
    let run = ended(&customer, &workflow, by_hand).await?;
    assert_eq!(super::found(&run, "tell")?["outputs"]["stdout"], "canary\n", "{run}");
    let by_clock = || async {
        let runs = runs(&customer, &workflow).await.ok()?;
        let fired: Vec<Value> = runs.into_iter().filter(|run| run["cause"]["kind"] == "cron").collect();
        (fired.len() > 1).then_some(fired)
    };
    let after = slots(&until("runs at the second operator", HANDOVER_BOUND, by_clock).await?)?;
    let (before, after) = (BTreeSet::from_iter(before), BTreeSet::from_iter(after));
    ensure!(before.is_disjoint(&after) && before.last() < after.first(), "{before:?} and {after:?}");
    assert_eq!(fired_at(&nodes[old]), fired, "the first operator fires nothing any more");
    let told = || async {
        let (row, _) = chain.workflow(id).await.ok()??;
        (row.lastTriggered >= u64::try_from(*after.first()?).ok()?).then_some(())
    };
    until("the chain to be told by the second", BOUND, told).await
}
