//! The customer of a bench: the library's calls, each waited for to its end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox_protocol::http::CallBody;
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::requests::{CreateBuilder, ExecBuilder, JobRequest, delete};

const BOUND: Duration = Duration::from_secs(60);

/// Ready to submit jobs in a service.
#[derive(Clone)]
pub(super) struct Customer {
    account: Account,
    answers: Arc<Answers>,
    service: u64,
}

impl Customer {
    pub(super) fn new(account: Account, service: u64) -> Result<Self> {
        Ok(Self { answers: Arc::new(Answers::new(account.clone())?), account, service })
    }

    pub(super) const fn account(&self) -> &Account {
        &self.account
    }

    pub(super) async fn create(&self) -> Result<SandboxId> {
        let origin = self.done(CreateBuilder::new().build()?).await?;
        Ok(SandboxId { origin, slot: 0 })
    }

    /// Runs `true`; returns with its proven answer.
    pub(super) async fn exec_true(&self, sandbox: SandboxId) -> Result<()> {
        let submitted = self.submit_true(sandbox).await?;
        self.answered(&submitted).await
    }

    /// Sends `true`; what comes of it is not waited for.
    pub(super) async fn submit_true(&self, sandbox: SandboxId) -> Result<SubmittedJob> {
        self.submit(ExecBuilder::new(sandbox, "true").build()?).await
    }

    pub(super) async fn delete(&self, sandbox: SandboxId) -> Result<()> {
        self.done(delete(sandbox)).await.map(drop)
    }

    /// Sends a request; what comes of it is not waited for.
    pub(super) async fn submit(&self, request: JobRequest) -> Result<SubmittedJob> {
        Ok(self.account.submit_job(self.service, request).await?)
    }

    /// Waits until a job is answered well: the operator has signed its answer, and the proof was checked.
    pub(super) async fn answered(&self, submitted: &SubmittedJob) -> Result<()> {
        well(self.answers.wait_for(submitted, BOUND).await?)
    }

    /// Waits until a job is answered well, and its receipt is on chain.
    pub(super) async fn settled(&self, submitted: &SubmittedJob) -> Result<CallKey> {
        well(self.answers.wait_until_settled(submitted, BOUND).await?)?;
        Ok(submitted.key)
    }

    /// Has a job done: answered well, its receipt on chain.
    pub(super) async fn done(&self, request: JobRequest) -> Result<CallKey> {
        let submitted = self.submit(request).await?;
        self.settled(&submitted).await
    }
}

fn well(body: CallBody) -> Result<()> {
    let answer = body.answer.context("no answer")?;
    ensure!(answer.receipt.receipt.outcome == 0, "{}", answer.response_json);
    Ok(())
}
