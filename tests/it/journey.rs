//! The road of a customer: rent, create, run, prove, delete; and the operator is paid.

use std::time::Duration;

use anyhow::{Context, Result};
use sandbox_tests::engine;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, STRANGER};
use sandbox_tests::wait::until;

use crate::world::{World, shown};

#[tokio::test(flavor = "multi_thread")]
async fn a_paid_job_creates_a_sandbox_runs_commands_and_deletes_it() -> Result<()> {
    let world = World::new().await?;
    let operator = world.ground.account(OPERATOR).await?;
    let earned = async || operator.chain().pending_rewards(operator.address()).await;
    let before = earned().await?;

    let sandbox = world.create().await?;
    assert_eq!(sandbox, format!("sbx-{}-0-0", world.service));
    let after_create = earned().await?;
    assert!(after_create > before, "a create is paid: {before} → {after_create}");

    let output = world.customer.exec(&sandbox, "echo out; echo err >&2; exit 7").await?;
    assert_eq!(shown(&output), (Some(7), "out\n".into(), "err\n".into()));
    let output = world.customer.exec(&sandbox, r"printf '\377\000\376'").await?;
    assert_eq!(output.stdout, [0xff, 0x00, 0xfe], "bytes that are no text arrive as they are");
    world.customer.exec(&sandbox, "echo kept > note").await?;
    let output = world.customer.exec(&sandbox, "cat note").await?;
    assert_eq!(shown(&output), (Some(0), "kept\n".into(), String::new()));
    assert!(earned().await? > after_create, "commands are paid");

    world.customer.text(&["rm", "--within", "60", &sandbox]).await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    let output = world.customer.exec(&sandbox, "true").await?;
    let (code, _, stderr) = shown(&output);
    assert_eq!(code, Some(121), "a deleted sandbox is refused on chain: {stderr}");

    let claim = world.node.command(&["claim"])?.output()?;
    assert!(claim.status.success(), "{}", String::from_utf8_lossy(&claim.stderr));
    assert!(earned().await?.is_zero());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_can_be_proven_with_and_without_the_chain_and_a_changed_one_cannot() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.create().await?;
    let saved = world.node.dir().join("answer.json");
    let path = saved.display().to_string();
    let save = world.customer.run(&["run", "--save", &path, &sandbox, "--", "echo proof"]).await?;
    assert!(save.status.success(), "{:?}", shown(&save));

    world.customer.text(&["verify", "--offline", &path]).await?;
    let settled = || async { world.customer.text(&["verify", &path]).await.ok() };
    until("the receipt on chain", Duration::from_secs(30), settled).await?;
    world.customer.text(&["verify", &format!("{}/1", world.service)]).await?;

    let honest = std::fs::read_to_string(&saved)?;
    let forged = honest.replacen("\"duration_ms\": ", "\"duration_ms\": 1", 1);
    assert_ne!(honest, forged);
    std::fs::write(&saved, forged)?;
    let refused = world.customer.run(&["verify", "--offline", &path]).await?;
    assert_eq!(refused.status.code(), Some(119), "{:?}", shown(&refused));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_as_hardened_as_promised() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.create().await?;
    let container = engine::containers(&world.node.run_dir())?.pop().context("no container")?;
    let found = engine::inspect(&container)?;
    let host = &found["HostConfig"];
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["Privileged"], false);
    assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
    assert_eq!(host["CapAdd"], serde_json::json!(["CHOWN", "KILL", "SETGID", "SETUID"]));
    assert_eq!(host["SecurityOpt"], serde_json::json!(["no-new-privileges:true"]));
    assert_eq!(host["PidsLimit"], 1024);
    assert_eq!(host["Memory"], 1024 * 1024 * 1024);
    assert_eq!(host["MemorySwap"], host["Memory"]);
    assert_eq!(host["NanoCpus"], 1_000_000_000);
    assert_eq!(found["Mounts"].as_array().map(Vec::len), Some(4));

    for (script, expected) in [
        ("id -u; id -G", "1000\n1000\n"),
        ("grep -E 'CapEff|NoNewPrivs' /proc/self/status", "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n"),
        ("touch /etc/x 2>/dev/null || echo read-only", "read-only\n"),
        ("ls /sys/class/net", "lo\n"),
        ("ls /run/sandbox 2>/dev/null || echo closed", "closed\n"),
        ("ls /storage 2>/dev/null || echo closed", "closed\n"),
        ("env | grep -c SIDECAR", "0\n"),
        ("cat /proc/[0-9]*/environ 2>/dev/null | grep -ac SIDECAR_AUTH", "0\n"),
        ("pwd; touch f && stat -c %U f; cd && pwd", "/workspace\nagent\n/home/agent\n"),
    ] {
        let (_, stdout, stderr) = shown(&world.customer.exec(&sandbox, script).await?);
        assert_eq!(stdout, expected, "{script}: {stderr}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_shown_to_the_account_that_asked_and_to_nobody_else() -> Result<()> {
    let world = World::new().await?;
    world.create().await?;
    let call = format!("{}/0", world.service);
    world.customer.text(&["call", "show", &call]).await?;

    let url = format!("{}/v1/services/{}/calls/0", world.node.api_url(), world.service);
    let bare = reqwest::get(&url).await?;
    assert_eq!(bare.status(), 401, "without a signature");
    let stranger = world.ground.client(STRANGER)?;
    let refused = stranger.run(&["call", "show", &call]).await?;
    let (code, _, stderr) = shown(&refused);
    assert!(code == Some(121) || code == Some(125), "{code:?} {stderr}");
    assert!(stderr.contains("no such call of this caller"), "{stderr}");
    for (path, expected) in [("/health", 200), ("/ready", 200), ("/metrics", 200), ("/nothing", 404)] {
        let status = reqwest::get(format!("{}{path}", world.node.api_url())).await?.status();
        assert_eq!(status, expected, "{path}");
    }
    let metrics = reqwest::get(format!("{}/metrics", world.node.api_url())).await?.text().await?;
    assert!(metrics.contains("sandbox_jobs_total{job=\"0\",outcome=\"0\"} 1"), "{metrics}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_may_be_chosen_by_a_draw_that_anybody_can_repeat() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    let customer = ground.client(CUSTOMER)?;
    let seed = format!("0x{}", "5a".repeat(32));
    let drawn = customer.json(&["service", "request", "--within", "60", "--count", "1", "--seed", &seed]).await?;
    assert_eq!(drawn["operators"], serde_json::json!([Ground::address(OPERATOR)]));
    let refused = customer.run(&["service", "request", "--count", "2", "--seed", &seed]).await?;
    assert_eq!(refused.status.code(), Some(121), "{:?}", shown(&refused));
    Ok(())
}
