//! One run: where it stands, who is asked, how it is ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_agent::model::ToolCall;
use sandbox_agent::profile::Approvals;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{Decision, RunState, RunSummary};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::store::{End, Record};
use crate::backend::Desk;

/// A run that is remembered.
#[derive(Debug)]
pub(crate) struct Run {
    /// As it was begun; its end is in `end`.
    pub(crate) record: Record,
    pub(crate) feed: Feed,
    /// Cancelled when nobody wants it any more.
    pub(crate) cancel: CancellationToken,
    state: watch::Sender<RunState>,
    end: OnceLock<End>,
    asked: Mutex<HashMap<String, oneshot::Sender<Decision>>>,
}

impl Run {
    pub(crate) fn new(mut record: Record, feed: Feed) -> Arc<Self> {
        let end = record.end.take();
        let state = if end.is_some() { RunState::Ended } else { RunState::Queued };
        if end.is_some() {
            feed.close();
        }
        Arc::new(Self {
            record,
            feed,
            cancel: CancellationToken::new(),
            state: watch::Sender::new(state),
            end: end.map_or_else(OnceLock::new, OnceLock::from),
            asked: Mutex::default(),
        })
    }

    pub(crate) fn state(&self) -> RunState {
        *self.state.borrow()
    }

    pub(crate) fn runs(&self) {
        self.state.send_replace(RunState::Running);
    }

    /// Says how it ended; only the first word counts.
    pub(crate) fn ended(&self, end: End) {
        let last = match &end {
            End::Reply(reply) => Told::Done { reply: reply.clone() },
            End::Report(report) => Told::MoveDone { move_id: report.score.move_id.clone() },
        };
        if self.end.set(end).is_ok() {
            self.feed.tell(last);
            self.feed.close();
            self.state.send_replace(RunState::Ended);
        }
    }

    /// How it ended, once it has.
    pub(crate) async fn end(&self) -> Option<&End> {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let _over = state.wait_for(|state| *state == RunState::Ended).await;
        self.end.get()
    }

    pub(crate) fn summary(&self) -> RunSummary {
        let (reply, report) = match self.end.get() {
            Some(End::Reply(reply)) => (Some(reply.clone()), None),
            Some(End::Report(report)) => (None, Some((**report).clone())),
            None => (None, None),
        };
        let Record { id, kind, session_id, .. } = self.record.clone();
        RunSummary { id, kind, state: self.state(), session_id, reply, report, last_seq: self.feed.last_seq() }
    }

    /// Gives a customer's word about a call; whether somebody waited for it.
    pub(crate) fn decide(&self, call: &str, decision: Decision) -> bool {
        self.asked().remove(call).is_some_and(|waiting| waiting.send(decision).is_ok())
    }

    /// Nothing panics while it holds the lock.
    fn asked(&self) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Decision>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run at its backend's side.
#[derive(Debug)]
pub(crate) struct RunDesk {
    pub(crate) run: Arc<Run>,
    pub(crate) approvals: Approvals,
}

#[async_trait]
impl Desk for RunDesk {
    fn tell(&self, told: Told) {
        self.run.feed.tell(told);
    }

    async fn ask(&self, call: &ToolCall) -> Decision {
        let (answer, answered) = oneshot::channel();
        let (id, default) = (call.id.clone(), self.approvals.unanswered);
        self.run.asked().insert(id.clone(), answer);
        self.tell(Told::ApprovalRequired {
            id: id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            default,
            timeout_ms: self.approvals.timeout_ms,
        });
        let patience = Duration::from_millis(self.approvals.timeout_ms);
        let word = tokio::select! {
            word = tokio::time::timeout(patience, answered) => word.ok().and_then(Result::ok),
            () = self.run.cancel.cancelled() => None,
        };
        self.run.asked().remove(&id);
        let decision = word.unwrap_or(default);
        self.tell(Told::ApprovalDecided { id, decision, answered: word.is_some() });
        decision
    }
}
