//! A sandbox between its begin and its end: at rest and resumed, kept elsewhere and brought back, and its way out.

use std::time::Duration;

use alloy::sol_types::SolValue;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::abi::{ResumeRequest, SandboxCreateRequest, SandboxIdRequest, SandboxSnapshotRequest};
use sandbox_protocol::http::AnswerBody;
use sandbox_protocol::{Job, SandboxId};
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::requests::JobRequest;
use sandbox_tests::engine;
use sandbox_tests::ground::CUSTOMER;
use sandbox_tests::node::Node;
use sandbox_tests::wait::until;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(60);

/// A world, and its customer's account for jobs that are asked for as they are.
struct Rented {
    world: World,
    account: Account,
    answers: Answers,
}

impl Rented {
    async fn new() -> Result<Self> {
        Self::with(|_| {}).await
    }

    async fn with(set: impl FnOnce(&mut Node)) -> Result<Self> {
        let world = World::with(set).await?;
        let account = world.ground.account(CUSTOMER).await?;
        let answers = Answers::new(account.clone())?;
        Ok(Self { world, account, answers })
    }

    async fn ask(&self, job: Job, request: &impl SolValue) -> Result<AnswerBody> {
        let request = JobRequest { job, inputs: request.abi_encode().into() };
        let submitted = self.account.submit_job(self.world.service, request).await?;
        self.answers.wait_until_settled(&submitted, BOUND).await?.answer.context("no answer")
    }

    /// What came of a create with these reserved keys and variables.
    async fn create(&self, env: Value, change: impl FnOnce(&mut SandboxCreateRequest)) -> Result<AnswerBody> {
        let env_json = if env.is_null() { String::new() } else { env.to_string() };
        let mut request = SandboxCreateRequest { env_json, ..SandboxCreateRequest::default() };
        change(&mut request);
        self.ask(Job::SandboxCreate, &request).await
    }

    async fn stop(&self, sandbox: &str) -> Result<AnswerBody> {
        self.ask(Job::SandboxStop, &SandboxIdRequest { sandbox_id: sandbox.to_owned() }).await
    }

    async fn resume(&self, sandbox: &str, from: &str) -> Result<AnswerBody> {
        let request = ResumeRequest { sandbox_id: sandbox.to_owned(), snapshot_uri: from.to_owned() };
        self.ask(Job::SandboxResume, &request).await
    }

    async fn snapshot(&self, sandbox: &str, destination: &str) -> Result<AnswerBody> {
        let request = SandboxSnapshotRequest {
            sidecar_endpoint: sandbox.to_owned(),
            destination: destination.to_owned(),
            include_workspace: true,
            include_state: true,
        };
        self.ask(Job::SandboxSnapshot, &request).await
    }

    /// What a command prints that succeeds.
    async fn run(&self, sandbox: &str, script: &str) -> Result<String> {
        let (code, stdout, stderr) = shown(&self.world.customer.exec(sandbox, script).await?);
        ensure!(code == Some(0), "{script}: {code:?} {stderr}");
        Ok(stdout)
    }
}

fn made(answer: &AnswerBody) -> Result<String> {
    let id = answer.response_json["sandbox_id"].as_str();
    Ok(id.with_context(|| format!("no sandbox: {}", answer.response_json))?.to_owned())
}

fn state(answer: &AnswerBody) -> Option<&str> {
    answer.response_json["state"].as_str()
}

fn refusal(answer: &AnswerBody) -> (u8, String) {
    (answer.receipt.receipt.outcome, answer.receipt.receipt.failure.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_sandbox_keeps_its_files_and_frees_its_memory_until_it_is_resumed() -> Result<()> {
    let rented = Rented::new().await?;
    let sandbox = made(&rented.create(Value::Null, |_| {}).await?)?;
    rented.run(&sandbox, "echo kept > /workspace/note; echo mine > ~/note; sleep 1000 > /dev/null 2>&1 &").await?;
    assert_eq!(state(&rented.stop(&sandbox).await?), Some("stopped"));
    let containers = engine::containers(&rented.world.node.run_dir())?;
    let [container] = &containers[..] else { anyhow::bail!("{containers:?}") };
    assert_eq!(engine::inspect(container)?["State"]["Running"], false);
    assert_eq!(state(&rented.stop(&sandbox).await?), Some("stopped"), "a repeat finds it resting");

    let (code, _, stderr) = shown(&rented.world.customer.exec(&sandbox, "true").await?);
    assert!(code != Some(0) && stderr.contains("resume it first"), "{code:?} {stderr}");
    assert_eq!(state(&rented.resume(&sandbox, "").await?), Some("running"));
    assert_eq!(
        rented.run(&sandbox, "cat /workspace/note ~/note; cat /proc/[0-9]*/comm | grep -c sleep || true").await?,
        "kept\nmine\n0\n"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sandbox_is_stopped_and_can_be_deleted_at_rest() -> Result<()> {
    let rented = Rented::new().await?;
    let sandbox = made(&rented.create(Value::Null, |request| request.idle_timeout_seconds = 10).await?)?;
    rented.run(&sandbox, "sleep 11; true").await?;
    let containers = engine::containers(&rented.world.node.run_dir())?;
    let container = containers.first().context("no container")?;
    assert_eq!(engine::inspect(container)?["State"]["Running"], true, "it was in use");
    let rests = || async { (engine::inspect(container).ok()?["State"]["Running"] == false).then_some(()) };
    until("the sandbox to rest", BOUND, rests).await?;
    rented.world.customer.text(&["rm", &sandbox]).await?;
    assert_eq!(rented.world.leftovers()?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_at_rest_is_at_rest_after_a_restart_of_the_node() -> Result<()> {
    let mut rented = Rented::new().await?;
    let sandbox = made(&rented.create(Value::Null, |_| {}).await?)?;
    rented.run(&sandbox, "echo kept > note").await?;
    rented.stop(&sandbox).await?;
    rented.world.node.kill()?;
    rented.world.node.start().await?;
    let containers = engine::containers(&rented.world.node.run_dir())?;
    assert_eq!(engine::inspect(containers.first().context("no container")?)?["State"]["Running"], false);
    assert_eq!(state(&rented.resume(&sandbox, "").await?), Some("running"));
    assert_eq!(rented.run(&sandbox, "cat note").await?, "kept\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_brings_files_into_another_sandbox_and_back_into_its_own() -> Result<()> {
    let kept = tempfile::tempdir()?;
    let rented = Rented::with(|node| node.set("SNAPSHOT_DIRS", kept.path().display().to_string())).await?;
    let place = format!("file://{}/{:#x}/one.tar.zst", kept.path().display(), rented.account.address());
    let sandbox = made(&rented.create(Value::Null, |_| {}).await?)?;
    rented
        .run(&sandbox, "mkdir -p deep/er; echo kept > deep/er/note; ln -s note deep/er/link; echo home > ~/h")
        .await?;
    let taken = rented.snapshot(&sandbox, &place).await?;
    let uri = taken.response_json["snapshot_uri"].as_str().with_context(|| taken.response_json.to_string())?.to_owned();
    assert!(uri.starts_with(&place) && uri.contains("#sha256="), "{uri}");

    let twin = made(&rented.create(json!({ "SANDBOX_SNAPSHOT": uri }), |_| {}).await?)?;
    assert_eq!(rented.run(&twin, "cat deep/er/link ~/h; stat -c %U deep/er/note").await?, "kept\nhome\nagent\n");

    rented.run(&sandbox, "rm -r deep; echo new > new").await?;
    rented.stop(&sandbox).await?;
    assert_eq!(state(&rented.resume(&sandbox, &uri).await?), Some("running"));
    assert_eq!(rented.run(&sandbox, "cat deep/er/note; ls").await?, "kept\ndeep\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_command_line_a_snapshot_goes_out_and_becomes_another_sandbox() -> Result<()> {
    let kept = tempfile::tempdir()?;
    let rented = Rented::with(|node| node.set("SNAPSHOT_DIRS", kept.path().display().to_string())).await?;
    let customer = &rented.world.customer;
    let sandbox = rented.world.create().await?;
    rented.run(&sandbox, "echo kept > note; echo home > ~/h").await?;
    let place = format!("file://{}/{:#x}/cli.tar.zst", kept.path().display(), rented.account.address());
    let uri = customer.text(&["snapshot", &sandbox, "--state", "--to", &place]).await?;
    assert!(uri.starts_with(&place) && uri.contains("#sha256="), "{uri}");

    let service = rented.world.service.to_string();
    let twin = customer.text(&["restore", &uri, "--service", &service]).await?;
    assert_ne!(twin, sandbox);
    assert_eq!(rented.run(&twin, "cat note ~/h").await?, "kept\nhome\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_not_what_its_hash_says_is_refused_and_nothing_is_lost() -> Result<()> {
    let kept = tempfile::tempdir()?;
    let rented = Rented::with(|node| node.set("SNAPSHOT_DIRS", kept.path().display().to_string())).await?;
    let own = format!("{}/{:#x}", kept.path().display(), rented.account.address());
    let sandbox = made(&rented.create(Value::Null, |_| {}).await?)?;
    rented.run(&sandbox, "echo first > note").await?;
    let taken = rented.snapshot(&sandbox, &format!("file://{own}/one.tar.zst")).await?;
    let uri = taken.response_json["snapshot_uri"].as_str().context("no snapshot")?.to_owned();
    rented.run(&sandbox, "echo second > note").await?;
    let mut bytes = std::fs::read(format!("{own}/one.tar.zst"))?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(format!("{own}/one.tar.zst"), bytes)?;

    let create = rented.create(json!({ "SANDBOX_SNAPSHOT": uri }), |_| {}).await?;
    assert_eq!(refusal(&create), (1, "snapshot_unreadable".into()), "{}", create.response_json);
    rented.stop(&sandbox).await?;
    let resume = rented.resume(&sandbox, &uri).await?;
    assert_eq!(refusal(&resume), (1, "snapshot_unreadable".into()), "{}", resume.response_json);
    assert_eq!(state(&rented.resume(&sandbox, "").await?), Some("running"));
    assert_eq!(rented.run(&sandbox, "cat note").await?, "second\n");
    assert_eq!(engine::containers(&rented.world.node.run_dir())?.len(), 1, "of the refused create nothing is left");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_a_customer_may_not_name_are_its_own_matter() -> Result<()> {
    let kept = tempfile::tempdir()?;
    let rented = Rented::with(|node| node.set("SNAPSHOT_DIRS", kept.path().display().to_string())).await?;
    let sandbox = made(&rented.create(Value::Null, |_| {}).await?)?;
    let of_another = format!("file://{}/0x00000000000000000000000000000000000000aa/one", kept.path().display());
    for place in
        [of_another.as_str(), "file:///etc/passwd", "https://127.0.0.1/x", "https://169.254.169.254/x", "s3://b/k"]
    {
        let refused = rented.snapshot(&sandbox, place).await?;
        assert_eq!(refusal(&refused), (1, "snapshot_refused".into()), "{place}: {}", refused.response_json);
    }
    Ok(())
}

/// Asks the proxy from within, by what every image has, and prints what it answers.
fn ask_proxy(url: &str) -> String {
    let request = format!(r"GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    format!(r#"bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf "{request}" >&3; cat <&3'"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_reaches_what_both_it_and_its_operator_allow_and_nothing_else() -> Result<()> {
    let origin = TcpListener::bind("127.0.0.1:0").await?;
    let address = origin.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = origin.accept().await {
            let mut request = [0; 4_096];
            if stream.read(&mut request).await.is_ok() {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nreached";
                drop(stream.write_all(answer).await);
            }
        }
    });
    let rented = Rented::with(|node| {
        node.set("EGRESS_POLICY", address.to_string());
        node.set("PRIVATE_ADDRESSES_ALLOWED", address.to_string());
    })
    .await?;
    let open = made(&rented.create(json!({ "SANDBOX_EGRESS_ALLOW": address.to_string() }), |_| {}).await?)?;
    let shut = made(&rented.create(Value::Null, |_| {}).await?)?;
    let url = format!("http://{address}/");
    let answer = rented.run(&open, &ask_proxy(&url)).await?;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("reached"), "{answer}");
    let answer = rented.run(&shut, &ask_proxy(&url)).await?;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("egress_denied"), "{answer}");
    let answer = rented.run(&open, &ask_proxy("http://127.0.0.1:1/")).await?;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(rented.run(&open, "echo $http_proxy").await?, "http://127.0.0.1:3128\n");

    let bad = rented.create(json!({ "SANDBOX_EGRESS_ALLOW": "exa mple:http" }), |_| {}).await?;
    assert_eq!(refusal(&bad), (1, "bad_env".into()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_gets_as_many_sandboxes_as_the_operator_gives_one() -> Result<()> {
    let rented = Rented::with(|node| node.set("CAPACITY_SANDBOXES_PER_CUSTOMER", "1")).await?;
    let first = made(&rented.create(Value::Null, |_| {}).await?)?;
    let refused = rented.create(Value::Null, |_| {}).await?;
    assert_eq!(refusal(&refused), (2, "no_capacity".into()), "{}", refused.response_json);
    rented.world.customer.text(&["rm", &first]).await?;
    let id: SandboxId = made(&rented.create(Value::Null, |_| {}).await?)?.parse()?;
    assert_eq!(id.slot, 0);
    Ok(())
}
