//! One's workflows at the operator that fires them: their runs, step by step, and the secrets of their webhooks.
//!
//! A run goes on by itself. What is lost when a connection breaks is the view of it, which is taken up again where it was.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use sandbox_protocol::CallKey;
use sandbox_protocol::limits::{PAGE_ENTRIES_MAX, WAIT_S_MAX};
use sandbox_protocol::workflow::{
    RunBody, RunQuery, RunsPage, RunsQuery, SecretBody, WorkflowEntry, WorkflowsBody, WorkflowsQuery,
};
use tokio::time::Instant;

use super::{ApiError, Session, answer_within, body_of};
use crate::limits::{
    ANSWER_GRACE, API_ACT_WITHIN, API_PAGES_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, RUN_TRIES_MAX,
    WORKFLOW_RUN_BODY_BYTES_MAX,
};

impl Session {
    /// One's workflows that this operator fires, page by page.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn workflows(&self) -> Result<Vec<WorkflowEntry>, ApiError> {
        let (mut query, mut all) = (WorkflowsQuery { cursor: None, limit: PAGE_ENTRIES_MAX }, Vec::new());
        for _ in 0..API_PAGES_MAX {
            let request = self.request(Method::GET, "/v1/workflows").query(&query);
            let page: WorkflowsBody = self.answer(request).await?;
            all.extend(page.workflows);
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(all),
            }
        }
        Err(self.garbled("pages without end"))
    }

    /// A workflow, named by the call that created it.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn workflow(&self, workflow: CallKey) -> Result<WorkflowEntry, ApiError> {
        self.answer(self.request(Method::GET, &path(workflow, ""))).await
    }

    /// A page of its runs, the newest first.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn workflow_runs(&self, workflow: CallKey, query: &RunsQuery) -> Result<RunsPage, ApiError> {
        self.answer(self.request(Method::GET, &path(workflow, "/runs")).query(query)).await
    }

    /// One of its runs, with all steps.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn workflow_run(&self, workflow: CallKey, number: u64) -> Result<RunBody, ApiError> {
        self.run(self.request(Method::GET, &run_path(workflow, number))).await
    }

    /// Ends a run, and returns once it has ended; one that is over stays as it is.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn cancel_workflow_run(&self, workflow: CallKey, number: u64) -> Result<RunBody, ApiError> {
        let request = self.request(Method::POST, &(run_path(workflow, number) + "/cancel"));
        self.run(request.timeout(API_ACT_WITHIN)).await
    }

    /// A run as it changes, from where it is now to its end.
    pub fn follow_workflow_run(&self, workflow: CallKey, number: u64) -> RunChanges {
        RunChanges { session: self.clone(), workflow, number, version: 0, ended: false, tries: 0 }
    }

    /// Where a workflow's webhook is, and what its senders sign with.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn hook_secret(&self, workflow: CallKey) -> Result<SecretBody, ApiError> {
        self.answer(self.request(Method::GET, &path(workflow, "/secret"))).await
    }

    /// The same of a workflow that its operator may not have read of yet, asked for at most `bound`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn hook_secret_within(&self, workflow: CallKey, bound: Duration) -> Result<SecretBody, ApiError> {
        let until = Instant::now() + bound;
        loop {
            let error = match self.hook_secret(workflow).await {
                Ok(secret) => return Ok(secret),
                Err(error) => error,
            };
            let is_unknown = matches!(error, ApiError::Refused { status: 404, .. });
            if !(is_unknown || error.retryable()) || Instant::now() >= until {
                return Err(error);
            }
            tokio::time::sleep(RETRY_PAUSE_MIN).await;
        }
    }

    /// The same with a new secret; the one before is good no more.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn replace_hook_secret(&self, workflow: CallKey) -> Result<SecretBody, ApiError> {
        self.answer(self.request(Method::POST, &path(workflow, "/secret"))).await
    }

    /// The JSON Schema of what a workflow does.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn workflow_schema(&self) -> Result<String, ApiError> {
        let response = self.send(self.request(Method::GET, "/v1/workflows/schema")).await?;
        let body = body_of(&self.url, response).await?;
        String::from_utf8(body).map_err(|_| self.garbled("a schema that is no text"))
    }

    async fn run(&self, request: RequestBuilder) -> Result<RunBody, ApiError> {
        answer_within(&self.url, request, WORKFLOW_RUN_BODY_BYTES_MAX).await
    }
}

/// A run, each time that it has changed.
#[derive(Debug)]
pub struct RunChanges {
    session: Session,
    workflow: CallKey,
    number: u64,
    /// What was told last.
    version: u64,
    ended: bool,
    /// Attempts since the last answer.
    tries: u32,
}

impl RunChanges {
    /// The run as it is once it has changed, at first as it is; `None` behind its end. A call that is dropped loses nothing.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn next(&mut self) -> Result<Option<RunBody>, ApiError> {
        while !self.ended {
            match self.ask().await {
                Ok(body) => {
                    self.tries = 0;
                    let is_new = self.version == 0 || body.version > self.version;
                    self.ended = body.run.status.is_final();
                    if is_new || self.ended {
                        self.version = body.version;
                        return Ok(Some(body));
                    }
                    // One that does not hold its answer back is not asked without pause.
                    tokio::time::sleep(RETRY_PAUSE_MIN).await;
                }
                Err(error) => {
                    self.tries += 1;
                    if !error.retryable() || self.tries >= RUN_TRIES_MAX {
                        self.ended = true;
                        return Err(error);
                    }
                    tokio::time::sleep(self.pause()).await;
                }
            }
        }
        Ok(None)
    }

    /// The run; one that was told already is held back until it has changed.
    async fn ask(&self) -> Result<RunBody, ApiError> {
        let wait = if self.version == 0 { 0 } else { WAIT_S_MAX };
        let query = RunQuery { wait, after: self.version };
        let request = self.session.request(Method::GET, &run_path(self.workflow, self.number)).query(&query);
        self.session.run(request.timeout(Duration::from_secs(wait) + ANSWER_GRACE)).await
    }

    fn pause(&self) -> Duration {
        (RETRY_PAUSE_MIN * 2_u32.saturating_pow(self.tries.saturating_sub(1))).min(RETRY_PAUSE_MAX)
    }
}

fn path(workflow: CallKey, below: &str) -> String {
    format!("/v1/services/{}/workflows/{}{below}", workflow.service, workflow.call)
}

fn run_path(workflow: CallKey, number: u64) -> String {
    path(workflow, &format!("/runs/{number}"))
}
