//! Bad input of three kinds: refused on chain at no cost, answered with a receipt of outcome 1, or the operator's own.

use std::os::unix::fs::DirBuilderExt as _;
use std::process::Command;
use std::time::Duration;

use alloy::primitives::U256;
use alloy::sol_types::SolValue as _;
use anyhow::{Context, Result};
use sandbox_protocol::Job;
use sandbox_protocol::abi::{JobError, JobReceipt, SandboxCreateRequest, TaskRequest};
use sandbox_protocol::limits::JOB_INPUT_BYTES_MAX;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::calls;
use sandbox_sdk::chain::SendError;
use sandbox_sdk::requests::{ExecBuilder, JobRequest};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, SECOND_OPERATOR, STRANGER};

use crate::world::{World, shown};

#[tokio::test(flavor = "multi_thread")]
async fn what_the_chain_can_see_is_refused_there_without_a_call_or_a_payment() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.create().await?;
    let account = world.ground.account(CUSTOMER).await?;
    let (deployment, service) = (&world.ground.deployment, world.service);
    let balance = async || {
        use alloy::providers::Provider as _;
        world.ground.chain.provider().get_balance(account.address()).await
    };
    let before = balance().await?;
    let request = |job: u8, inputs: Vec<u8>| calls::submit_job(deployment, service, job, inputs.into(), U256::ZERO);

    let with_price = async |job: u8, inputs: Vec<u8>| -> Result<String> {
        let price = account.chain().price(job).await?;
        let invocation = calls::submit_job(deployment, service, job, inputs.into(), price);
        match account.send(&invocation).await {
            Err(SendError::Refused(refusal)) => Ok(refusal.to_string()),
            Err(error) => Err(error.into()),
            Ok(mined) => anyhow::bail!("accepted in {}", mined.transaction),
        }
    };
    for reserved in [5, 9, 13, 24, 33, 39] {
        let refusal = with_price(reserved, Vec::new()).await?;
        assert!(refusal.contains(&format!("job {reserved}")), "{refusal}");
    }
    let beyond = with_price(42, Vec::new()).await?;
    assert!(beyond.contains("42"), "{beyond}");
    for job in [Job::SandboxCreate, Job::SandboxDelete, Job::Exec] {
        for inputs in [vec![], vec![0x20; 31], vec![0xff; 320]] {
            let refusal = with_price(job.id(), inputs).await?;
            assert!(refusal.contains("inputs"), "{refusal}");
        }
        let refusal = with_price(job.id(), vec![0; JOB_INPUT_BYTES_MAX + 32]).await?;
        assert!(refusal.contains("bytes"), "{refusal}");
    }
    assert!(matches!(account.send(&request(0, Vec::new())).await, Err(SendError::Refused(_))), "an unpaid call");
    assert_eq!(balance().await?, before, "nothing was paid");

    for unknown in [format!("sbx-{service}-99-0"), format!("sbx-{service}-0-1"), format!("sbx-{}-0-0", service + 1)] {
        let args = ["run", "--within", "20", &unknown, "--", "true"];
        let refused = world.customer.run(&args).await?;
        assert_eq!(refused.status.code(), Some(121), "{unknown}: {:?}", shown(&refused));
    }
    let stranger = world.ground.client(STRANGER)?;
    let foreign = stranger.exec(&sandbox, "true").await?;
    assert_eq!(foreign.status.code(), Some(121), "{:?}", shown(&foreign));
    assert!(world.customer.exec(&sandbox, "true").await?.status.success(), "the sandbox is unharmed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_execution_shows_is_answered_with_a_receipt_of_outcome_1() -> Result<()> {
    let world = World::new().await?;
    for (request, failure, field) in [
        (change(|r| r.cpu_cores = 1_000_000), "resources_out_of_range", "cpu_cores"),
        (change(|r| r.memory_mb = 1), "resources_out_of_range", "memory_mb"),
        (change(|r| r.disk_gb = u64::MAX), "resources_out_of_range", "disk_gb"),
        (change(|r| r.env_json = r#"{"A":1}"#.into()), "bad_env", "env_json"),
        (change(|r| r.env_json = r#"{"SANDBOX_IMAGE":"evil:1"}"#.into()), "image_not_allowed", "image"),
        (change(|r| r.idle_timeout_seconds = 9), "resources_out_of_range", "idle_timeout_seconds"),
        (change(|r| r.snapshot_destination = "ftp://h/p".into()), "bad_request", "snapshot_destination"),
        (change(|r| r.ssh_enabled = true), "unsupported", "ssh_enabled"),
        (change(|r| r.agent_backend = "oracle".into()), "unknown_backend", "agent_backend"),
        (change(|r| r.agent_identifier = "nobody".into()), "unknown_profile", "agent_identifier"),
    ] {
        assert_eq!(refused_create(&world, request).await?, ("caller".into(), failure.into()), "{field}");
    }
    let output = world.customer.run(&["create", "--service", &world.service.to_string(), "--image", "evil:1"]).await?;
    let (code, _, stderr) = shown(&output);
    assert_eq!((code, stderr.as_str()), (Some(122), "sandbox: image \"evil:1\" is not on the operator's allow-list\n"));
    assert_eq!(world.leftovers()?, Vec::<String>::new());

    let sandbox = world.create().await?;
    let twice =
        r#"{"kind":"negotiation","ticker":"ABC","moves":[{"id":"m1","content":"a"},{"id":"M1","content":"b"}]}"#;
    for (max_turns, context, field) in [(201, "", "max_turns: "), (0, twice, "context_json: moves[1].move_id: ")] {
        let (sidecar_endpoint, prompt, context_json) = (sandbox.clone(), "do".into(), context.into());
        let task = TaskRequest { sidecar_endpoint, prompt, max_turns, context_json, ..TaskRequest::default() };
        let refused = refused(&world, JobRequest { job: Job::Task, inputs: task.abi_encode().into() }).await?;
        assert_eq!((refused.0.as_str(), refused.1.as_str()), ("caller", "bad_request"));
        assert!(refused.2.starts_with(field), "{}", refused.2);
    }
    let late = world.customer.run(&["run", "--timeout", "300", &sandbox, "--", "echo begun; sleep 60"]).await?;
    assert_eq!((late.status.code(), late.stdout.as_slice()), (Some(124), b"begun\n".as_slice()), "{:?}", shown(&late));
    let much = world.customer.exec(&sandbox, "head -c 1048577 /dev/zero").await?;
    assert_eq!((much.status.code(), much.stdout.len()), (Some(122), 1_048_576), "{}", shown(&much).2);
    let fits = world.customer.exec(&sandbox, "head -c 1048576 /dev/zero").await?;
    assert_eq!((fits.status.code(), fits.stdout.len()), (Some(0), 1_048_576), "{}", shown(&fits).2);
    let nowhere = world.customer.run(&["run", "--cwd", "/nowhere", &sandbox, "--", "true"]).await?;
    assert_eq!(nowhere.status.code(), Some(122), "{:?}", shown(&nowhere));
    Ok(())
}

fn change(change: impl FnOnce(&mut SandboxCreateRequest)) -> SandboxCreateRequest {
    let mut request = SandboxCreateRequest::default();
    change(&mut request);
    request
}

/// Outcome and failure of a request that the command line would not send.
async fn refused_create(world: &World, request: SandboxCreateRequest) -> Result<(String, String)> {
    let request = JobRequest { job: Job::SandboxCreate, inputs: request.abi_encode().into() };
    let (outcome, failure, _) = refused(world, request).await?;
    Ok((outcome, failure))
}

/// Outcome, failure and message of a request that the command line would not send.
async fn refused(world: &World, request: JobRequest) -> Result<(String, String, String)> {
    let account = world.ground.account(CUSTOMER).await?;
    let submitted = account.submit_job(world.service, request).await?;
    let body = Answers::new(account)?.wait_for(&submitted, Duration::from_secs(60)).await?;
    let answer = body.answer.context("no answer")?;
    let outcome = serde_json::to_value(answer.outcome)?;
    let failure = answer.failure.context("no failure")?.to_string();
    let message = JobError::abi_decode(&answer.response)?.message;
    Ok((outcome.as_str().unwrap_or_default().to_owned(), failure, message))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_lacks_is_its_own_matter_and_leaves_nothing_half_made() -> Result<()> {
    let world = World::with(|node| node.set("SANDBOX_IMAGES_ALLOWED", "agent-sandbox-nowhere:1")).await?;
    let args = ["create", "--service", &world.service.to_string(), "--image", "agent-sandbox-nowhere:1"];
    let (code, _, stderr) = shown(&world.customer.run(&args).await?);
    assert_eq!(code, Some(123), "{stderr}");
    assert!(stderr.contains("the operator's host does not have the image"), "{stderr}");
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    assert!(world.create().await.is_ok(), "its slot is free again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_the_operators_matter_and_leaves_nothing_half_made() -> Result<()> {
    let full = FullDisk::new()?;
    let world = World::with(|node| node.set("RUN_DIR", full.path())).await?;
    let args = ["create", "--service", &world.service.to_string()];
    let (code, _, stderr) = shown(&world.customer.run(&args).await?);
    assert_eq!(code, Some(123), "{stderr}");
    assert!(stderr.contains("the operator's disk is full"), "{stderr}");
    let label = format!("label=sandbox.run_dir={}", full.path());
    let containers = sandbox_tests::engine::docker_text(&["ps", "--all", "--quiet", "--filter", &label])?;
    assert_eq!(containers, "");
    Ok(())
}

/// A file system without a free inode.
struct FullDisk(tempfile::TempDir);

impl FullDisk {
    fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("sbx").tempdir()?;
        let path = dir.path().display().to_string();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4k,nr_inodes=1", "tmpfs", &path]).status()?;
        anyhow::ensure!(mounted.success(), "cannot mount a small file system; this test needs root");
        let refused = std::fs::DirBuilder::new().mode(0o700).create(dir.path().join("probe"));
        anyhow::ensure!(refused.is_err(), "the file system is not full");
        Ok(Self(dir))
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("clean-up: {} is still mounted", self.path());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_operators_receipt_neither_completes_a_call_nor_is_paid() -> Result<()> {
    let ground = Ground::new().await?;
    let mut first = ground.node(OPERATOR)?;
    let mut second = ground.node(SECOND_OPERATOR)?;
    first.start().await?;
    second.start().await?;
    let customer = ground.client(CUSTOMER)?;
    let service = customer.service(&[Ground::address(OPERATOR), Ground::address(SECOND_OPERATOR)]).await?;
    let sandbox = customer.create(service, &[]).await?;
    let account = ground.account(OPERATOR).await?;
    let id: sandbox_protocol::SandboxId = sandbox.parse()?;
    let holder = account.chain().sandbox(id).await?.operator;
    let (holding, wrong) =
        if holder == account.address() { (&mut first, SECOND_OPERATOR) } else { (&mut second, OPERATOR) };
    holding.kill()?;

    let customer_account = ground.account(CUSTOMER).await?;
    let exec = ExecBuilder::new(id, "true").build()?;
    let submitted = customer_account.submit_job(service, exec).await?;
    let wrong = ground.account(wrong).await?;
    let earned = wrong.chain().pending_rewards(wrong.address()).await?;
    let forged = JobReceipt { outcome: 0, responseHash: [7; 32].into(), detail: U256::ZERO };
    wrong.send(&calls::submit_receipt(&ground.deployment, submitted.key, &forged)).await?;
    let call = wrong.chain().job_call(submitted.key).await?.context("no call")?;
    assert!(!call.completed, "the call is still open");
    assert_eq!(wrong.chain().pending_rewards(wrong.address()).await?, earned, "and nobody was paid");

    holding.start().await?;
    let answers = Answers::new(customer_account)?;
    let body = answers.wait_for(&submitted, Duration::from_secs(60)).await?;
    let receipt = body.answer.context("no answer")?.receipt.receipt;
    assert_eq!((receipt.operator, receipt.outcome), (holder, 0));
    Ok(())
}
