//! What an operator tells of workflows, read by their owner.

use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context, Result};
use sandbox_protocol::CallKey;
use sandbox_protocol::session::Scope;
use sandbox_protocol::workflow::{RunBody, WorkflowEntry, WorkflowsBody};
use sandbox_sdk::Account;
use sandbox_sdk::api::sign_in;
use serde::de::DeserializeOwned;

use crate::wait::until;

/// Who reads at one operator.
pub struct Flows {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Flows {
    /// The account's workflows at `operator`.
    ///
    /// # Errors
    /// It does not let the account in.
    pub async fn at(account: &Account, operator: Address) -> Result<Self> {
        let url = account.chain().operator(operator).await.context("the operator")?.apiUrl;
        let session = sign_in(account, (operator, &url), &[Scope::WorkflowsRead]).await.context("sign-in")?;
        let token = session.token().token.clone();
        Ok(Self { http: reqwest::Client::new(), url: url.trim_end_matches('/').to_owned(), token })
    }

    /// All that it fires.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn all(&self) -> Result<Vec<WorkflowEntry>> {
        let (mut all, mut path) = (Vec::new(), "/v1/workflows?limit=100".to_owned());
        loop {
            let page: WorkflowsBody = self.read(&path).await?;
            all.extend(page.workflows);
            let Some(next) = page.next else { return Ok(all) };
            path = format!("/v1/workflows?limit=100&cursor={next}");
        }
    }

    /// A run, once it has ended.
    ///
    /// # Errors
    /// It does not in time.
    pub async fn ended(&self, workflow: CallKey, number: u64, bound: Duration) -> Result<RunBody> {
        let CallKey { service, call } = workflow;
        // Held back until the run is over, since none has so high a version; a look every so many seconds all the same.
        let path = format!("/v1/services/{service}/workflows/{call}/runs/{number}?wait=10&after={}", u64::MAX);
        let ended = || async { self.read::<RunBody>(&path).await.ok().filter(|body| body.run.status.is_final()) };
        until(&format!("the end of run {number} of workflow {workflow}"), bound, ended).await
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let request = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        let answer = request.send().await.context("no answer")?.error_for_status().context("refused")?;
        answer.json().await.context("no answer of ours")
    }
}
