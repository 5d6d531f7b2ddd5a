//! Every job there is, done by three operators for one customer; and every id that is none, refused.
//!
//! | module | what it is |
//! |---|---|
//! | here | the journey: which job follows which, and what must come of it |
//! | `ask` | one job, from its submission to the receipts of all whom it is assigned to |
//! | `refused` | the ids that are reserved |

mod ask;
mod refused;

use std::path::PathBuf;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use sandbox_protocol::abi::{
    BatchCollectResponse, BatchExecResponse, BatchTaskResponse, ExecResponse, PromptResponse, SandboxSnapshotResponse,
    SandboxStatusResponse, SshProvisionResponse, TaskResponse, WorkflowCreateRequest, WorkflowCreateResponse,
};
use sandbox_protocol::batch::{BatchId, BatchReport};
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::workflow::RunStatus;
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::Account;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::WorkflowStatus;
use sandbox_sdk::devchain::STAKED;
use sandbox_sdk::requests::{self as sdk, AgentBuilder, Contents, CreateBuilder, ExecBuilder};
use scripted_provider::{Provider, Script};
use serde_json::json;
use tempfile::TempDir;

use self::ask::Done;
pub use self::ask::Row;
pub use self::refused::Reserved;
use crate::flows::Flows;
use crate::ground::{CUSTOMER, Ground};
use crate::node::{Node, free_port};
use crate::{models, requests};

/// Somebody's key, who is let in for a while.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOmARhRNpL9AB6pLjv23vuQ7RK+RkhrTjHLMC0muvW93";
/// What the model is told, and says again.
const WORDS: &str = "say that you are there";
/// Time for a run to end.
const RUN_WITHIN: Duration = Duration::from_secs(120);

/// Three operators of one service, and who rents it.
pub struct Trio {
    account: Account,
    service: u64,
    nodes: Vec<Node>,
    ground: Ground,
    kept: TempDir,
    /// Answers their sandboxes' prompts.
    _provider: Provider,
}

impl Trio {
    /// Three operators, each a process, started and rented.
    ///
    /// # Errors
    /// One of them does not start, or the chain refuses.
    pub async fn new() -> Result<Self> {
        let provider = Provider::start(Script::echo()).await?;
        let ground = Ground::new().await?;
        let kept = tempfile::Builder::new().prefix("sbx").tempdir().context("no directory for snapshots")?;
        let mut nodes = STAKED.map(|key| ground.node(key)).into_iter().collect::<Result<Vec<_>>>()?;
        for node in &mut nodes {
            models::offer(node, &provider)?;
            node.set("SNAPSHOT_DIRS", kept.path().display().to_string());
            node.set("SSH_BIND", free_port()?.to_string());
        }
        try_join_all(nodes.iter_mut().map(Node::start)).await?;
        let operators = STAKED.map(Ground::address);
        let service = ground.client(CUSTOMER)?.service(&operators).await?;
        let account = ground.account(CUSTOMER).await?;
        Ok(Self { account, service, nodes, ground, kept, _provider: provider })
    }

    /// Has every job done, and shows each answer as it comes.
    ///
    /// # Errors
    /// An answer is not what it must be, or does not come.
    pub async fn every_job(&self, mut show: impl FnMut(&Row)) -> Result<()> {
        let sandbox = self.sandbox_of_its_own(&mut show).await?;
        let batch = self.sandboxes_by_the_batch(&mut show).await?;
        self.workflow(&mut show).await?;
        for sandbox in batch.into_iter().chain([sandbox]) {
            let deleted = self.ask(sdk::delete(sandbox), &mut show).await?.one::<SandboxStatusResponse>()?;
            ensure!(deleted.state == "gone" || deleted.state == "deleted", "a deleted sandbox is {}", deleted.state);
        }
        Ok(())
    }

    /// Ends the operators, each of its own accord.
    ///
    /// # Errors
    /// One does not end well.
    pub async fn stop(mut self) -> Result<Vec<PathBuf>> {
        try_join_all(self.nodes.iter_mut().map(Node::stop)).await?;
        Ok(self.nodes.iter().map(Node::run_dir).collect())
    }

    /// A sandbox with all that is done in one, but its end.
    async fn sandbox_of_its_own(&self, show: &mut impl FnMut(&Row)) -> Result<SandboxId> {
        let created = self.ask(CreateBuilder::new().ssh().build()?, show).await?;
        let sandbox = SandboxId { origin: created.key, slot: 0 };
        let command = ExecBuilder::new(sandbox, "echo kept > note; id -un").build()?;
        let ran: ExecResponse = self.ask(command, show).await?.one()?;
        ensure!(ran.exit_code == 0 && ran.stdout.as_ref() == b"agent\n", "{ran:?}");
        let answered: PromptResponse = self.ask(AgentBuilder::prompt(sandbox, WORDS).build()?, show).await?.one()?;
        ensure!(answered.success && answered.result == WORDS, "{answered:?}");
        let answered: TaskResponse = self.ask(AgentBuilder::task(sandbox, WORDS, 2).build()?, show).await?.one()?;
        ensure!(answered.success && answered.result == WORDS, "{answered:?}");

        let key: PublicKey = KEY.parse()?;
        let admitted: SshProvisionResponse = self.ask(sdk::ssh_provision(sandbox, &key, 0)?, show).await?.one()?;
        ensure!(admitted.host_key.starts_with("ssh-ed25519 "), "{admitted:?}");
        let revoked = self.ask(sdk::ssh_revoke(sandbox, &key)?, show).await?;
        revoked.one::<SandboxStatusResponse>()?;

        let place = format!("file://{}/{:#x}/one.tar.zst", self.kept.path().display(), self.account.address());
        let taken = self.ask(sdk::snapshot(sandbox, Some(place.clone()), Contents::Both)?, show).await?;
        let taken: SandboxSnapshotResponse = taken.one()?;
        ensure!(taken.success && taken.snapshot_uri.starts_with(&place), "{taken:?}");
        let stopped: SandboxStatusResponse = self.ask(sdk::stop(sandbox), show).await?.one()?;
        ensure!(stopped.state == "stopped", "{stopped:?}");
        let resumed = self.ask(sdk::resume(sandbox, Some(taken.snapshot_uri))?, show).await?;
        ensure!(resumed.one::<SandboxStatusResponse>()?.state == "running", "it was not resumed");
        Ok(sandbox)
    }

    /// A sandbox at each operator, made by one call, with all that is done in many.
    async fn sandboxes_by_the_batch(&self, show: &mut impl FnMut(&Row)) -> Result<Vec<SandboxId>> {
        let count = STAKED.len();
        let created = self.ask(requests::batch_create(count as u32, Vec::new()), show).await?;
        ensure!(created.answers.len() == count, "{} operators share the batch", created.answers.len());
        let sandboxes: Vec<_> = (0..count as u8).map(|slot| SandboxId { origin: created.key, slot }).collect();

        let tasks = self.ask(requests::batch_task("tasks", &sandboxes, WORDS), show).await?;
        let answers: Vec<BatchTaskResponse> = tasks.all()?;
        let said = |answer: &BatchTaskResponse| answer.results.iter().any(|one| one.success && one.result == WORDS);
        ensure!(answers.len() == count && answers.iter().all(said), "{answers:?}");
        ensure!(answers.iter().all(|answer| (answer.succeeded, answer.failed) == (1, 0)), "{answers:?}");

        let commands = self.ask(requests::batch_exec("commands", &sandboxes, "id -un"), show).await?;
        let answers: Vec<BatchExecResponse> = commands.all()?;
        let ran = |answer: &BatchExecResponse| answer.results.iter().any(|one| one.stdout.as_ref() == b"agent\n");
        ensure!(answers.len() == count && answers.iter().all(ran), "{answers:?}");

        let collected: Vec<BatchCollectResponse> = self.ask(requests::batch_collect("commands"), show).await?.all()?;
        for answer in &collected {
            let report: BatchReport = serde_json::from_str(&answer.results_json).context("results_json")?;
            let is_whole = report.batch_id == BatchId::asked("commands", commands.key)?
                && report.parts.iter().all(|part| part.is_over && part.call == commands.key.call);
            ensure!(answer.status == "done" && is_whole && report.parts.len() == 1, "{report:?}");
        }
        Ok(sandboxes)
    }

    /// A workflow whose run has a sandbox of its own, from its begin to its end.
    async fn workflow(&self, show: &mut impl FnMut(&Row)) -> Result<()> {
        let step = json!({"id": "who", "kind": "exec", "with": {"command": "id -un"}});
        let request = WorkflowCreateRequest {
            name: "who".into(),
            workflow_json: json!({"steps": [step]}).to_string(),
            trigger_type: "manual".into(),
            sandbox_config_json: json!({"memory_mb": 256}).to_string(),
            ..Default::default()
        };
        let created = self.ask(requests::workflow_create(&request), show).await?;
        let workflow = created.key;
        ensure!(created.one::<WorkflowCreateResponse>()?.status == "active", "it is not active");
        let triggered = self.ask(requests::workflow_trigger(workflow), show).await?;
        let status = triggered.one::<WorkflowCreateResponse>()?.status;
        ensure!(status == "run 1 running", "{status}");
        let run = Flows::at(&self.account, self.operator_of(workflow).await?).await?;
        let run = run.ended(workflow, 1, RUN_WITHIN).await?;
        let output = run.steps.first().and_then(|step| step.outputs.get("stdout")).cloned();
        ensure!(run.run.status == RunStatus::Succeeded && output == Some(json!("agent\n")), "{run:?}");
        let cancelled = self.ask(requests::workflow_cancel(workflow), show).await?;
        ensure!(cancelled.one::<WorkflowCreateResponse>()?.status == "cancelled", "it was not cancelled");
        let (row, _) = self.account.chain().workflow(workflow).await?.context("no such workflow")?;
        ensure!(row.status == WorkflowStatus::Cancelled, "{row:?}");
        Ok(())
    }

    async fn operator_of(&self, call: CallKey) -> Result<Address> {
        let assignment = self.account.chain().assignment(call).await?;
        Ok(assignment.context("no such call")?.operator)
    }

    async fn ask(&self, request: sdk::JobRequest, show: &mut impl FnMut(&Row)) -> Result<Done> {
        let done = ask::ask(&self.ground, &self.account, self.service, request).await?;
        done.rows.iter().for_each(show);
        Ok(done)
    }
}
