//! `operator doctor`: on a node that is well, and on each illness that it should tell from the others.

use anyhow::{Context, Result};
use sandbox_sdk::devchain;
use sandbox_tests::ground::{Ground, OPERATOR, STRANGER};
use sandbox_tests::node::{Node, free_port};
use serde_json::Value;

use crate::world::shown;

/// Exit code and findings.
fn examined(node: &Node) -> Result<(Option<i32>, Value)> {
    let (code, stdout, stderr) = shown(&node.command(&["--json", "doctor"])?.output()?);
    Ok((code, serde_json::from_str(&stdout).with_context(|| format!("{stdout} {stderr}"))?))
}

fn finding<'a>(findings: &'a Value, check: &str) -> Result<&'a Value> {
    let mut all = findings.as_array().context("no list")?.iter();
    all.find(|finding| finding["check"] == check).with_context(|| format!("no {check} in {findings}"))
}

/// One setting is wrong: one check fails, says so, and the others say what they can.
async fn check(key: usize, set: (&str, &str), failing: &str, said: &str) -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(key)?;
    node.set(set.0, set.1);
    let (code, findings) = examined(&node)?;
    assert_eq!(code, Some(1), "{findings}");
    let found = finding(&findings, failing)?;
    assert_eq!(found["verdict"], "failure", "{found}");
    assert!(found["said"].as_str().is_some_and(|words| words.contains(said)), "{found}");
    assert!(found["advice"].is_string(), "{found}");
    let failures = findings.as_array().context("no list")?.iter().filter(|finding| finding["verdict"] == "failure");
    assert_eq!(failures.count(), 1, "{findings}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_node_has_no_failure_and_an_outdated_offer_is_told() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.set("STAKING_CONTRACT", devchain::STAKING.contract.to_string());
    node.start().await?;
    let (code, findings) = examined(&node)?;
    assert_eq!(code, Some(0), "{findings}");
    for check in
        ["engine", "runtime", "image", "state", "sockets", "chain", "balance", "stake", "offer", "clock", "api"]
    {
        assert_eq!(finding(&findings, check)?["verdict"], "ok", "{check} in {findings}");
    }
    assert_eq!(finding(&findings, "key")?["verdict"], "warning", "it is in plaintext");

    node.set("CAPACITY_SANDBOXES", "7");
    let (code, findings) = examined(&node)?;
    assert_eq!((code, &finding(&findings, "offer")?["verdict"]), (Some(0), &"warning".into()), "{findings}");
    let updated = node.command(&["update"])?.output()?;
    assert!(updated.status.success(), "{:?}", shown(&updated));
    assert_eq!(finding(&examined(&node)?.1, "offer")?["verdict"], "ok");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_engine_is_told() -> Result<()> {
    check(OPERATOR, ("DOCKER_HOST", "unix:///run/no-engine.sock"), "engine", "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_chain_is_told() -> Result<()> {
    check(OPERATOR, ("CHAIN_ID", "8453"), "chain", "CHAIN_ID is 8453").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_told() -> Result<()> {
    check(OPERATOR, ("SANDBOX_IMAGE", "no-such-image:dev"), "image", "no-such-image:dev").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_well_before_and_while_its_node_runs_and_what_is_wrong_with_it_is_told() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    let bind = free_port()?.to_string();
    node.set("SSH_BIND", bind.as_str());
    let said = |findings: &Value, check: &str| -> Result<(String, String)> {
        let found = finding(findings, check)?;
        let word = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        Ok((word("verdict"), word("said")))
    };
    let before = examined(&node)?.1;
    assert_eq!(said(&before, "ssh")?, ("ok".into(), format!("{bind} is free")));
    assert_eq!(said(&before, "ssh keys")?, ("ok".into(), "the first start makes one".into()));
    node.start().await?;
    let running = examined(&node)?.1;
    assert_eq!(said(&running, "ssh")?, ("ok".into(), format!("the node lets customers in at {bind}")));
    assert!(said(&running, "ssh keys")?.1.starts_with("SHA256:"), "{running}");
    assert_eq!(said(&running, "ssh host")?.0, "ok", "{running}");
    node.stop().await?;

    let taken = std::net::TcpListener::bind(&bind)?;
    std::fs::write(node.dir().join("data/ssh-host-keys.json"), "{}")?;
    node.set("SSH_HOST", "no-such-host.invalid");
    let (code, ill) = examined(&node)?;
    assert_eq!(code, Some(1), "{ill}");
    for (check, words) in [("ssh", "in use"), ("ssh keys", "holds no SSH host keys"), ("ssh host", "")] {
        let (verdict, said) = said(&ill, check)?;
        assert!(verdict == "failure" && said.contains(words), "{check}: {verdict} {said}");
    }
    drop(taken);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_without_a_stake_is_told() -> Result<()> {
    check(STRANGER, ("RUST_LOG", "warn"), "offer", "it would be refused").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_is_none_is_told() -> Result<()> {
    check(OPERATOR, ("API_LISTEN", "nowhere"), "settings", "API_LISTEN").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_behind_the_chain_is_told() -> Result<()> {
    let ground = Ground::new().await?;
    let node = ground.node(OPERATOR)?;
    ground.chain.pass_time(600).await?;
    let (code, findings) = examined(&node)?;
    assert_eq!(code, Some(1), "{findings}");
    let said = finding(&findings, "clock")?["said"].as_str().unwrap_or_default();
    assert!(said.contains("behind the newest block"), "{findings}");
    Ok(())
}
