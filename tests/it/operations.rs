//! What an operator does at a command line: approve, drain, back up, leave, keep the key; and what a node tells of itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox_sdk::answers::Answers;
use sandbox_sdk::calls::ServiceTerms;
use sandbox_sdk::contracts::IStatusRegistry::IStatusRegistryInstance;
use sandbox_sdk::devchain::{self, STATUS_REGISTRY};
use sandbox_sdk::requests::ExecBuilder;
use sandbox_tests::engine;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, SECOND_OPERATOR};
use sandbox_tests::node::Node;
use sandbox_tests::wait::until;
use serde_json::Value;

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(60);
const DAY_S: u64 = 24 * 3_600;

/// What a command of the operator printed with `--json`. It must succeed.
fn json(node: &Node, args: &[&str]) -> Result<Value> {
    let output = node.command(&[&["--json"], args].concat())?.output()?;
    let (code, stdout, stderr) = shown(&output);
    ensure!(code == Some(0), "operator {}: {code:?}: {stderr}", args.join(" "));
    serde_json::from_str(&stdout).with_context(|| format!("operator {} printed {stdout:?}", args.join(" ")))
}

/// What a command of the operator said as it refused.
fn refusal(node: &Node, args: &[&str]) -> Result<String> {
    let (code, stdout, stderr) = shown(&node.command(args)?.output()?);
    ensure!(code == Some(1), "operator {}: {code:?}: {stdout}{stderr}", args.join(" "));
    Ok(stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn by_hand_a_request_is_listed_and_waits_for_approval_or_rejection() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.set("APPROVE", "manual");
    node.set("SERVICE_TTL_MIN_SECONDS", "7200");
    node.start().await?;
    assert_eq!(json(&node, &["requests"])?, serde_json::json!([]));

    let customer = ground.account(CUSTOMER).await?;
    let terms = ServiceTerms::named(vec![Ground::address(OPERATOR)]);
    let first = customer.request_service(&terms).await?;
    let short = customer.request_service(&ServiceTerms { ttl_s: 3_600, ..terms }).await?;
    let waiting = json(&node, &["requests"])?;
    assert_eq!(waiting[0]["request"], first.request, "{waiting}");
    assert_eq!(waiting[0]["objection"], Value::Null, "{waiting}");
    let objection = "the service would live shorter than SERVICE_TTL_MIN_SECONDS";
    assert_eq!(waiting[1]["objection"], objection, "{waiting}");

    json(&node, &["approve", &first.request.to_string()])?;
    customer.chain().wait_for_service(&first, BOUND).await?;
    json(&node, &["reject", &short.request.to_string()])?;
    let refused = customer.chain().wait_for_service(&short, BOUND).await.unwrap_err();
    assert!(refused.to_string().contains("was rejected by an operator"), "{refused}");
    let again = refusal(&node, &["approve", &short.request.to_string()])?;
    assert!(again.contains(&format!("service request {} is already approved or rejected", short.request)), "{again}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requester_who_is_denied_is_rejected_and_the_log_says_why() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.set("REQUESTERS_DENIED", Ground::address(CUSTOMER).to_string());
    node.start().await?;
    let customer = ground.account(CUSTOMER).await?;
    let requested = customer.request_service(&ServiceTerms::named(vec![Ground::address(OPERATOR)])).await?;
    let refused = customer.chain().wait_for_service(&requested, BOUND).await.unwrap_err();
    assert!(refused.to_string().contains("was rejected"), "{refused}");
    assert!(node.log().contains("the requester is on REQUESTERS_DENIED"), "{}", node.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_operator_takes_no_sandbox_serves_those_it_has_and_stays_so_over_a_restart() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    let held = json(&world.node, &["sandboxes"])?;
    assert_eq!((&held[0]["id"], &held[0]["phase"]), (&sandbox.as_str().into(), &"running".into()), "{held}");

    let drained = json(&world.node, &["drain", "--wait", "calls"])?;
    assert_eq!(drained["state"]["sandboxes"], 1, "{drained}");
    let me = Ground::address(OPERATOR);
    let chain = world.ground.account(OPERATOR).await?.chain().clone();
    assert!(chain.operator(me).await?.paused);
    assert!(world.create().await.is_err(), "nothing new");
    assert!(world.customer.exec(&sandbox, "true").await?.status.success(), "what there is goes on");

    world.node.stop().await?;
    assert_eq!(json(&world.node, &["sandboxes"])?[0]["id"], sandbox.as_str(), "also while no node runs");
    world.node.start().await?;
    assert!(world.create().await.is_err(), "a restart ends no drain");
    world.customer.text(&["rm", &sandbox]).await?;
    json(&world.node, &["drain", "--wait"])?;
    json(&world.node, &["drain", "--end"])?;
    assert!(!chain.operator(me).await?.paused);
    world.create().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_backed_up_is_served_after_the_records_are_lost() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    let account = world.ground.account(CUSTOMER).await?;
    let asked =
        account.submit_job(world.service, ExecBuilder::new(sandbox.parse()?, "echo kept > note").build()?).await?;
    Answers::new(account.clone())?.wait_for(&asked, BOUND).await?;

    let copy = world.node.dir().join("copy").display().to_string();
    let manifest = json(&world.node, &["backup", &copy])?;
    assert_eq!(manifest["keystore"].as_array().map(Vec::len), Some(1), "{manifest}");
    assert!(refusal(&world.node, &["restore", &copy])?.contains("holds records"));
    world.create().await?;
    world.node.kill()?;
    std::fs::remove_dir_all(world.node.dir().join("data/records"))?;
    json(&world.node, &["restore", &copy])?;

    world.node.start().await?;
    let body = Answers::new(account)?.wait_for(&asked, BOUND).await?;
    assert_eq!(body.answer.context("no answer")?.receipt.receipt.outcome, 0);
    let (_, stdout, stderr) = shown(&world.customer.exec(&sandbox, "cat note").await?);
    assert_eq!(stdout, "kept\n", "{stderr}");
    let swept = || async { world.node.log().contains("what they do not know is left alone").then_some(()) };
    until("the sweep to pass", BOUND, swept).await?;
    assert_eq!(engine::containers(&world.node.run_dir())?.len(), 2, "what was made after the copy is there");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn adopting_tells_containers_that_are_known_from_those_that_are_not() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.create().await?;
    let found = json(&world.node, &["adopt"])?;
    assert_eq!(found["missing"], serde_json::json!([]), "{found}");
    assert_eq!(found["containers"][0]["sandbox"], sandbox.as_str(), "{found}");
    assert_eq!(found["containers"][0]["phase"], "running", "{found}");
    let container = found["containers"][0]["name"].as_str().context("no name")?;
    engine::docker_text(&["stop", "--time", "0", container])?;
    json(&world.node, &["adopt"])?;
    let revived = || async { world.customer.exec(&sandbox, "true").await.ok()?.status.success().then_some(()) };
    until("the sandbox to be looked after", BOUND, revived).await
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_a_service_takes_two_steps_and_says_when_the_second_is_due() -> Result<()> {
    let world = World::new().await?;
    let mut second = world.ground.node(SECOND_OPERATOR)?;
    second.start().await?;
    // The last operator of a service cannot leave it.
    let both = [Ground::address(OPERATOR), Ground::address(SECOND_OPERATOR)];
    let (node, service) = (&world.node, world.customer.service(&both).await?.to_string());
    assert!(refusal(node, &["leave", "99"])?.contains("serves no service 99"));
    let early = refusal(node, &["leave", &service])?;
    assert!(early.contains("may leave service"), "{early}");

    world.ground.chain.pass_time(DAY_S).await?;
    let scheduled = json(node, &["leave", &service])?;
    assert!(
        scheduled["transaction"].is_string() && scheduled["seconds_left"].as_u64() > Some(6 * DAY_S),
        "{scheduled}"
    );
    let waiting = json(node, &["leave", &service])?;
    assert_eq!((&waiting["transaction"], &waiting["due"]), (&Value::Null, &scheduled["due"]), "a repeat sends nothing");
    world.ground.chain.pass_time(7 * DAY_S).await?;
    json(node, &["leave", &service])?;
    assert!(refusal(node, &["leave", &service])?.contains("serves no service"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_key_starts_a_node_with_its_password_only_and_stands_in_no_log() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    let (right, wrong) = (node.dir().join("right"), node.dir().join("wrong"));
    std::fs::write(&right, "correct horse battery staple\n")?;
    std::fs::write(&wrong, "incorrect\n")?;
    std::fs::remove_file(node.dir().join("key"))?;
    node.set("RUST_LOG", "trace");
    node.set("LOG_FORMAT", "json");
    node.set("KEYSTORE_PASSWORD_FILE", right.display().to_string());
    assert_eq!(json(&node, &["key", "encrypt"])?["encrypted"], true);

    node.set("KEYSTORE_PASSWORD_FILE", wrong.display().to_string());
    node.spawn()?;
    let (code, log) = node.refused().await?;
    assert_eq!(code, Some(1));
    assert!(log.contains("the password does not open"), "no reason in the log");
    node.set("KEYSTORE_PASSWORD_FILE", right.display().to_string());
    node.start().await?;
    let customer = ground.client(CUSTOMER)?;
    let service = customer.service(&[Ground::address(OPERATOR)]).await?;
    customer.create(service, &[]).await?;
    node.stop().await?;

    let log = node.log();
    let key = devchain::KEYS[OPERATOR];
    let listed = key.iter().map(ToString::to_string).collect::<Vec<_>>();
    for secret in [format!("{key:x}"), listed.join(","), listed.join(", "), "correct horse".to_owned()] {
        assert!(!log.contains(&secret), "a secret of {} characters is in the log", secret.len());
    }
    assert!(log.contains("\"level\":\"TRACE\""), "and the log was as talkative as can be");
    assert_eq!(std::fs::read_dir(node.dir().join("keystore/Ecdsa"))?.count(), 0, "a plaintext key is left");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_within_a_job_names_its_call_job_service_and_sandbox() -> Result<()> {
    let world = World::with(|node| node.set("LOG_FORMAT", "json")).await?;
    let sandbox = world.create().await?;
    world.customer.exec(&sandbox, "true").await?;
    let log = world.node.log();
    let (whole, _) = log.rsplit_once('\n').context("an empty log")?;
    let lines: Vec<Value> = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for (call, job) in [(0, 0), (1, 10)] {
        let call = format!("{}/{call}", world.service);
        let line = lines.iter().find(|line| line["call"] == call.as_str() && line["message"] == "answered");
        let line = line.with_context(|| format!("no line of call {call}"))?;
        let (found_job, service, found) = (&line["job"], &line["service"], &line["sandbox"]);
        assert_eq!(
            (found_job, service, found),
            (&job.into(), &world.service.into(), &sandbox.as_str().into()),
            "{line}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_registry_hears_of_the_operator_and_of_how_full_it_is() -> Result<()> {
    let world = World::with(|node| node.set("HEARTBEAT_SECONDS", "2")).await?;
    world.create().await?;
    let provider = world.ground.chain.provider();
    let registry = IStatusRegistryInstance::new(STATUS_REGISTRY, provider);
    let me = Ground::address(OPERATOR);
    let heard = || async { registry.isOnline(world.service, me).call().await.ok()?.then_some(()) };
    until("a heartbeat", BOUND, heard).await?;
    let metrics = reqwest::get(format!("{}/metrics", world.node.api_url())).await?.text().await?;
    assert!(metrics.contains("sandbox_heartbeats_total{outcome=\"sent\"}"), "{metrics}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_refuses_heartbeats_disturbs_nothing() -> Result<()> {
    let token = devchain::STAKING.token.to_string();
    let world = World::with(|node| {
        node.set("HEARTBEAT_SECONDS", "2");
        node.set("STATUS_REGISTRY_CONTRACT", token);
    })
    .await?;
    let failed = || async {
        let metrics = reqwest::get(format!("{}/metrics", world.node.api_url())).await.ok()?.text().await.ok()?;
        metrics.contains("sandbox_heartbeats_total{outcome=\"failed\"}").then_some(())
    };
    until("a heartbeat to fail", BOUND, failed).await?;
    world.create().await.map(drop)
}
