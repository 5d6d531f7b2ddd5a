//! A customer whose operator dies all the while: what it asks for, and what it must find.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sandbox_protocol::holdings::SshKeysBody;
use sandbox_protocol::session::Scope;
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::Account;
use sandbox_sdk::api::sign_in;
use sandbox_sdk::calls::ServiceTerms;
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::ReceiptRecorded;
use sandbox_sdk::requests::{self, Contents, CreateBuilder, ExecBuilder, JobRequest};
use sandbox_tests::engine;
use sandbox_tests::ground::{Ground, OPERATOR, receipts};
use sandbox_tests::wait::until;

use super::{BOUND, TTL_BLOCKS};
use crate::world::World;

/// A customer with a service of its own.
#[derive(Clone)]
pub(super) struct Tenant {
    pub(super) account: Account,
    pub(super) service: u64,
    /// What it asks for: one fits the pool and expires now and then, the other does neither.
    pub(super) wish: CreateBuilder,
    /// Each of its sandboxes begins with what the last one left.
    goes_on: bool,
    run_dir: PathBuf,
    pub(super) store: PathBuf,
    log: PathBuf,
    /// Somebody's, who is let in for a while.
    key: PublicKey,
}

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOmARhRNpL9AB6pLjv23vuQ7RK+RkhrTjHLMC0muvW93";

impl Tenant {
    pub(super) async fn new(
        world: &World,
        (key, service): (usize, u64),
        (wish, goes_on): (CreateBuilder, bool),
        store: &Path,
    ) -> Result<Self> {
        let account = world.ground.account(key).await?;
        let store = store.join(format!("{:#x}", account.address()));
        let (run_dir, log) = (world.node.run_dir(), world.node.log_path());
        Ok(Self { account, service, wish, goes_on, run_dir, store, log, key: KEY.parse()? })
    }

    /// A sandbox from its begin to its end, in a service of its own where that is how this one goes on; what was asked.
    pub(super) async fn live(&self, round: usize) -> Result<(Vec<SubmittedJob>, SandboxId)> {
        if !self.goes_on {
            let before = self.filled();
            let filled = || async { (self.filled() > before).then_some(()) };
            until("the pool to be filled", BOUND, filled).await?;
            return self.stay(round).await;
        }
        let terms = self.account.chain().at_floor(ServiceTerms::named(vec![Ground::address(OPERATOR)])).await?;
        let requested = self.account.request_service(&terms).await?;
        let service = self.account.chain().wait_for_service(&requested, BOUND).await?;
        Self { service, ..self.clone() }.stay(round).await
    }

    async fn stay(&self, round: usize) -> Result<(Vec<SubmittedJob>, SandboxId)> {
        let file = |round: usize| self.store.join(format!("{round}.tar.zst"));
        let at = |round: usize| format!("file://{}", file(round).display());
        let last = (self.goes_on && round > 1).then(|| at(round - 1));
        let wish = last.iter().fold(self.wish.clone(), |wish, last| wish.snapshot(last));
        let created = self.done(wish.build()?).await?;
        let sandbox = SandboxId { origin: created.key, slot: 0 };
        let mut asked = vec![created];
        if last.is_some() {
            let kept = self.inside(sandbox, "cat /workspace/kept")?;
            ensure!(kept == format!("{}", round - 1), "restored: {kept}");
        }
        for name in ["one", "two"] {
            asked.push(self.exec(sandbox, &format!("{name}-{round}")).await?);
        }
        self.inside(sandbox, &format!("echo {round} > /workspace/kept"))?;
        asked.push(self.done(requests::snapshot(sandbox, Some(at(round)), Contents::Both)?).await?);
        ensure!(file(round).exists(), "{} is not there", file(round).display());
        asked.extend(self.key_comes_and_goes(sandbox).await?);
        asked.push(self.done(requests::stop(sandbox)).await?);
        ensure!(!self.runs(sandbox)?, "{sandbox} was not stopped");
        asked.push(self.done(requests::resume(sandbox, None)?).await?);
        ensure!(self.runs(sandbox)?, "{sandbox} was not resumed");
        asked.push(self.exec(sandbox, &format!("three-{round}")).await?);
        let found = self.inside(sandbox, "cd /workspace && cat one-* two-* three-* | sort | uniq -d")?;
        ensure!(found.is_empty(), "done twice: {found}");
        // The others expire.
        if self.goes_on || round.is_multiple_of(2) {
            asked.push(self.done(requests::delete(sandbox)).await?);
            ensure!(self.container(sandbox)?.is_none(), "{sandbox} was not deleted");
        }
        Ok((asked, sandbox))
    }

    /// A command that leaves a line behind, which is there once, or at most once where nobody knows what became of it.
    async fn exec(&self, sandbox: SandboxId, name: &str) -> Result<SubmittedJob> {
        let request = ExecBuilder::new(sandbox, format!("echo {name} >> /workspace/{name}")).build()?;
        let (submitted, outcome) = self.ask(request).await?;
        let lines = self.inside(sandbox, &format!("cat /workspace/{name} 2>/dev/null | wc -l"))?;
        let expected = if outcome == 0 { lines == "1" } else { lines == "0" || lines == "1" };
        ensure!(expected, "{}: outcome {outcome}, {lines} lines", submitted.key);
        Ok(submitted)
    }

    /// A key is let in, and again until another block, and let in no more: in this order, however often the node dies.
    async fn key_comes_and_goes(&self, sandbox: SandboxId) -> Result<[SubmittedJob; 3]> {
        let provided = self.done(requests::ssh_provision(sandbox, &self.key, 0)?).await?;
        let again =
            self.account.submit_job(self.service, requests::ssh_provision(sandbox, &self.key, TTL_BLOCKS)?).await?;
        let revoked = self.done(requests::ssh_revoke(sandbox, &self.key)?).await?;
        let keys = until("the keys on record", BOUND, || async { self.keys(sandbox).await.ok() }).await?;
        ensure!(keys.keys.is_empty(), "a revoked key is let in again: {keys:?}");
        Ok([provided, again, revoked])
    }

    async fn keys(&self, sandbox: SandboxId) -> Result<SshKeysBody> {
        let operator = Ground::address(OPERATOR);
        let url = self.account.chain().operator(operator).await?.apiUrl;
        let session = sign_in(&self.account, (operator, &url), &[Scope::SandboxesSsh]).await?;
        Ok(session.ssh_keys(sandbox).await?)
    }

    pub(super) async fn done(&self, request: JobRequest) -> Result<SubmittedJob> {
        let (submitted, outcome) = self.ask(request).await?;
        ensure!(outcome == 0, "{} {:?}: outcome {outcome}", submitted.key, submitted.request.job);
        Ok(submitted)
    }

    /// Submits a job and waits until its receipt is on chain.
    async fn ask(&self, request: JobRequest) -> Result<(SubmittedJob, u8)> {
        let submitted = self.account.submit_job(self.service, request).await?;
        let settled = || async { self.receipts(submitted.key).await.ok()?.first().map(|receipt| receipt.outcome) };
        let what = format!("the receipt of {} {:?}", submitted.key, submitted.request.job);
        let outcome = until(&what, BOUND, settled).await?;
        Ok((submitted, outcome))
    }

    pub(super) async fn receipts(&self, key: CallKey) -> Result<Vec<ReceiptRecorded>> {
        let chain = self.account.chain();
        receipts(chain.provider(), chain.deployment().manager, key).await
    }

    pub(super) fn container(&self, sandbox: SandboxId) -> Result<Option<String>> {
        let found = engine::containers(&self.run_dir)?;
        Ok(found.into_iter().find(|name| name.starts_with(&format!("{sandbox}-"))))
    }

    /// How often a container came to wait in the pool.
    fn filled(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.matches("a container waits in the pool").count()
    }

    fn runs(&self, sandbox: SandboxId) -> Result<bool> {
        let container = self.container(sandbox)?.context("no container")?;
        Ok(engine::inspect(&container)?["State"]["Running"] == true)
    }

    /// What a script prints that the engine runs in the sandbox, past its operator.
    pub(super) fn inside(&self, sandbox: SandboxId, script: &str) -> Result<String> {
        let container = self.container(sandbox)?.context("no container")?;
        engine::docker_text(&["exec", "--user", "1000:1000", &container, "sh", "-c", script])
    }
}
