//! Agents without a model behind them: a run ends when its test lets it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sandbox_protocol::agent::event::{RunEvent, Told};
use sandbox_protocol::agent::negotiation::{
    ConversationEntry, ConversationLogs, Ledger, MoveReport, NegotiateBody, PolicyScore, Scores,
};
use sandbox_protocol::agent::{RunKind, RunReply, RunState, RunSummary, TaskBody};
use tokio::sync::Semaphore;

use crate::ports::{Agents, RunEvents, SidecarError, Turns};
use crate::sandbox::Instance;

/// Agents of every sandbox that there is.
#[derive(Debug)]
pub struct FakeAgents {
    state: Mutex<State>,
    /// A permit for each run that may end.
    ends: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    /// What was begun, by the runs' ids.
    moves: BTreeMap<String, NegotiateBody>,
    begun: Vec<String>,
    asked: Vec<TaskBody>,
    answers: VecDeque<Result<RunReply, SidecarError>>,
    cancelled: Vec<String>,
    logs_are_spoilt: bool,
    breaks: usize,
}

impl Default for FakeAgents {
    fn default() -> Self {
        Self { state: Mutex::default(), ends: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)) }
    }
}

impl FakeAgents {
    /// Agents whose runs go on until [`FakeAgents::let_end`].
    pub fn slow() -> Self {
        Self { ends: Arc::new(Semaphore::new(0)), ..Self::default() }
    }

    /// So many more runs may end.
    pub fn let_end(&self, runs: usize) {
        self.ends.add_permits(runs);
    }

    /// The next prompt or task is answered so.
    pub fn answer_next(&self, answer: Result<RunReply, SidecarError>) {
        self.state().answers.push_back(answer);
    }

    /// The next so many streams of events break off.
    pub fn break_next(&self, streams: usize) {
        self.state().breaks = streams;
    }

    /// From now on what is in the workspace is not what was said.
    pub fn spoil_logs(&self) {
        self.state().logs_are_spoilt = true;
    }

    /// The moves that were begun, in order; one that was attached to is in it once.
    pub fn begun(&self) -> Vec<String> {
        self.state().begun.clone()
    }

    /// What was asked, in order.
    pub fn asked(&self) -> Vec<TaskBody> {
        self.state().asked.clone()
    }

    /// Runs that were cancelled, in order.
    pub fn cancelled(&self) -> Vec<String> {
        self.state().cancelled.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What these agents say of a move: a round, 4 points for each decision maker, 12 in all.
fn report(body: &NegotiateBody) -> MoveReport {
    let said = |role: &str| vec![ConversationEntry { role: role.into(), content: body.one.content.clone(), round: 1 }];
    let score = Scores { impact: 1, feasibility: 1, risk_adjusted_return: 1, strategic_alignment: 1, reasoning: None };
    let move_id = body.one.move_id.clone();
    MoveReport {
        score: PolicyScore {
            move_id: move_id.clone(),
            total_score: 12,
            scores_by_agent: ["D1", "D2", "D3"].map(|name| (name.to_owned(), score.clone())).into(),
        },
        logs: ConversationLogs { move_id, i1: said("D1"), i2: said("D2"), i3: said("D3") },
        rounds: 1,
        error: None,
        transcript_hash: "00".into(),
        ledger: Ledger { logical_calls: 7, input_tokens: 70, output_tokens: 7, ..Ledger::default() },
        warnings: Vec::new(),
    }
}

struct FakeEvents {
    left: VecDeque<Told>,
    seq: u64,
    ends: Arc<Semaphore>,
    breaks: bool,
}

#[async_trait]
impl RunEvents for FakeEvents {
    async fn next(&mut self) -> Result<Option<RunEvent>, SidecarError> {
        if self.breaks {
            return Err(SidecarError::Unreachable("told to break off".into()));
        }
        let Some(told) = self.left.pop_front() else { return Ok(None) };
        if told.is_last()
            && let Ok(permit) = self.ends.acquire().await
        {
            permit.forget();
        }
        self.seq += 1;
        Ok(Some(RunEvent { seq: self.seq, time_ms: 0, told }))
    }
}

#[async_trait]
impl Agents for FakeAgents {
    async fn run(&self, _: &Instance, _: Turns, body: TaskBody) -> Result<RunReply, SidecarError> {
        let mut state = self.state();
        let (id, result) = (body.id.clone().unwrap_or_default(), body.prompt.clone());
        state.asked.push(body);
        let reply = RunReply { id, success: true, result, ..RunReply::default() };
        state.answers.pop_front().unwrap_or(Ok(reply))
    }

    async fn negotiate(&self, _: &Instance, body: NegotiateBody) -> Result<Box<dyn RunEvents>, SidecarError> {
        let mut state = self.state();
        let (id, move_id) = (body.id.clone(), body.one.move_id.clone());
        let score = report(&body).score;
        if state.moves.insert(id.clone(), body).is_none() {
            state.begun.push(id);
        }
        let breaks = state.breaks > 0;
        state.breaks = state.breaks.saturating_sub(1);
        let left = [
            Told::SandboxRound { move_id: move_id.clone(), round: 1, status: "critic_responded".into() },
            Told::SandboxScored { move_id: move_id.clone(), score: score.total_score, breakdown: Default::default() },
            Told::MoveDone { move_id },
        ];
        Ok(Box::new(FakeEvents { left: left.into(), seq: 0, ends: self.ends.clone(), breaks }))
    }

    async fn summary(&self, _: &Instance, run: &str) -> Result<RunSummary, SidecarError> {
        let state = self.state();
        let body = state.moves.get(run).ok_or(SidecarError::Lost)?;
        Ok(RunSummary {
            id: run.to_owned(),
            kind: RunKind::Negotiation,
            state: RunState::Ended,
            session_id: String::new(),
            reply: None,
            report: Some(report(body)),
            last_seq: 3,
        })
    }

    async fn cancel(&self, _: &Instance, run: &str) -> Result<(), SidecarError> {
        self.state().cancelled.push(run.to_owned());
        Ok(())
    }

    /// Of the first move: tests give all moves the same words.
    async fn file(&self, _: &Instance, path: &str) -> Result<Vec<u8>, SidecarError> {
        let state = self.state();
        if state.logs_are_spoilt {
            return Ok(b"[]".to_vec());
        }
        let Some(body) = state.moves.values().next() else { return Err(SidecarError::Lost) };
        let logs = report(body).logs;
        let log = match path {
            "logs/i1.json" => logs.i1,
            "logs/i2.json" => logs.i2,
            "logs/i3.json" => logs.i3,
            _ => return Err(SidecarError::Refused("no such file".into())),
        };
        serde_json::to_vec(&log).map_err(|error| SidecarError::Unreachable(error.into()))
    }
}
