//! Requests and events that fire workflows.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use reqwest::StatusCode;
use sandbox_protocol::limits::HOOK_WINDOW_S_MAX;
use sandbox_protocol::workflow::{HOOK_DELIVERY, HOOK_SIGNATURE, HOOK_TIMESTAMP, sign_hook};
use sandbox_tests::ground::STRANGER;
use sandbox_tests::wait::until;
use serde_json::{Value, json};

use super::{BOUND, create, ended, found, runs};
use crate::world::{World, shown};

/// A webhook, and who sends to it.
struct Hook {
    url: String,
    secret: String,
}

impl Hook {
    async fn of(world: &World, workflow: &str) -> Result<Self> {
        let told = world.customer.json(&["workflow", "secret", workflow]).await?;
        let text = |name: &str| told[name].as_str().map(str::to_owned).with_context(|| format!("no {name} in {told}"));
        Ok(Self { url: text("url")?, secret: text("secret")? })
    }

    async fn send(&self, timestamp_s: u64, body: &str, delivery: Option<&str>) -> Result<(StatusCode, Value)> {
        self.send_signed(timestamp_s, body, (&sign_hook(&self.secret, timestamp_s, body.as_bytes()), delivery)).await
    }

    async fn send_signed(
        &self,
        timestamp_s: u64,
        body: &str,
        (signature, delivery): (&str, Option<&str>),
    ) -> Result<(StatusCode, Value)> {
        let request = reqwest::Client::new().post(&self.url).body(body.to_owned());
        let request = request.header(HOOK_TIMESTAMP, timestamp_s).header(HOOK_SIGNATURE, signature);
        let request = match delivery {
            Some(delivery) => request.header(HOOK_DELIVERY, delivery),
            None => request,
        };
        let answer = request.send().await?;
        Ok((answer.status(), answer.json().await?))
    }
}

fn now_s() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_request_fires_once_and_any_other_not_at_all() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.create().await?;
    let body = json!({"sandbox_id": sandbox, "steps": [
        {"id": "tell", "kind": "exec", "with": {"command": "cat", "stdin": "${{ trigger.body.ref }}"}}]});
    let workflow = create(&world, &body, &["--webhook", "--overlap", "queue"]).await?;
    let (hook, now_s) = (Hook::of(&world, &workflow).await?, now_s()?);
    let payload = r#"{"ref":"main; rm -rf /"}"#;
    let (status, fired) = hook.send(now_s, payload, Some("d-1")).await?;
    assert_eq!(
        (status, &fired["run"], &fired["is_repeat"]),
        (StatusCode::ACCEPTED, &json!(1), &json!(false)),
        "{fired}"
    );
    let run = ended(&world.customer, &workflow, 1).await?;
    assert_eq!(found(&run, "tell")?["outputs"]["stdout"], "main; rm -rf /", "{run}");

    for (timestamp_s, delivery) in [(now_s, None), (now_s, Some("d-2")), (now_s + 1, Some("d-1"))] {
        let (status, repeat) = hook.send(timestamp_s, payload, delivery).await?;
        assert_eq!((status, &repeat["run"], &repeat["is_repeat"]), (StatusCode::ACCEPTED, &json!(1), &json!(true)));
    }
    let good = sign_hook(&hook.secret, now_s, payload.as_bytes());
    for (timestamp_s, body, signature) in [
        (now_s, r#"{"ref":"other"}"#, good.clone()),
        (now_s + 1, payload, good),
        (now_s, payload, sign_hook("whsec_guess", now_s, payload.as_bytes())),
        (now_s, payload, "v1=00".to_owned()),
    ] {
        let (status, refused) = hook.send_signed(timestamp_s, body, (&signature, None)).await?;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{refused}");
    }
    let (status, late) = hook.send(now_s - HOOK_WINDOW_S_MAX - 60, payload, None).await?;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{late}");
    assert_eq!(runs(&world.customer, &workflow).await?.len(), 1);

    let stranger = world.ground.client(STRANGER)?;
    let told = stranger.run(&["workflow", "secret", &workflow]).await?;
    assert!(!told.status.success(), "{:?}", shown(&told));
    world.customer.text(&["workflow", "secret", &workflow, "--replace"]).await?;
    let (status, _) = hook.send(now_s + 2, payload, None).await?;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "the former secret is good no more");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_a_sandbox_and_what_a_contract_logs_fires() -> Result<()> {
    let world = World::new().await?;
    let (sandbox, watched) = (world.create().await?, world.create().await?);
    let body = json!({"sandbox_id": sandbox, "steps": [
        {"id": "tell", "kind": "exec", "with": {"command": "cat", "stdin": "${{ trigger.body.sandbox || trigger.body.address }}"}}]});
    let stopped = json!({"event": "sandbox.stopped", "sandbox": watched}).to_string();
    let by_sandbox = create(&world, &body, &["--event", &stopped]).await?;
    let manager = world.ground.deployment.manager;
    let answered = "ReceiptRecorded(uint64,uint64,address,uint8,bytes32,uint256)";
    let logged = json!({"event": answered, "address": manager}).to_string();
    let by_log = create(&world, &body, &["--event", &logged]).await?;

    world.customer.text(&["stop", &watched]).await?;
    for (workflow, told) in [(by_sandbox, watched.as_str()), (by_log, &manager.to_string().to_lowercase())] {
        let first = || async { runs(&world.customer, &workflow).await.ok()?.pop() };
        until("an event to fire", BOUND, first).await?;
        let run = ended(&world.customer, &workflow, 1).await?;
        let said = found(&run, "tell")?["outputs"]["stdout"].as_str().unwrap_or_default().to_lowercase();
        assert_eq!((&run["cause"]["kind"], said.as_str()), (&json!("event"), told), "{run}");
    }
    Ok(())
}
