//! How a run is carried out: its turn, its backend, its time, its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox_agent::profile::{Approvals, Profile};
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::{MoveReport, NegotiateBody};
use sandbox_protocol::agent::{RunFailure, RunKind, RunReply, TaskBody, TaskContext};
use sandbox_protocol::limits::{PROMPT_TIMEOUT_MS_MAX, TASK_TIMEOUT_MS_DEFAULT, TASK_TIMEOUT_MS_MAX, TASK_TURNS_MAX};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::run::{Run, RunDesk};
use super::store::{End, Record, Request};
use super::{RunsError, Shared, field, now_ms};
use crate::backend::{Order, Outcome};
use crate::limits::END_GRACE;
use crate::negotiator::Until;

/// Carries a run out, from its turn to its end on disk.
pub(super) async fn carry_out(shared: &Arc<Shared>, run: Arc<Run>, resumed: bool) {
    let id = run.record.id.clone();
    let end = match run.record.request.clone() {
        Some(Request::Task(body)) => task(shared, &run, body, resumed).await,
        Some(Request::Move(body)) => one_move(shared, &run, body).await,
        None => None,
    };
    // Ended with the process and not by itself: the next process goes on.
    let Some(end) = end else { return run.feed.close() };
    let record = Record { request: None, end: Some(end.clone()), ..run.record.clone() };
    if let Err(error) = shared.store.keep(&record) {
        tracing::error!(run = id, %error, "the end of a run is not kept");
    } else {
        shared.store.clear(&id);
    }
    run.ended(end);
}

async fn task(shared: &Arc<Shared>, run: &Arc<Run>, body: TaskBody, resumed: bool) -> Option<End> {
    let record = &run.record;
    let time = time_of(record.kind, &body).unwrap_or_default();
    let watch = Watch::over(shared, run, time);
    let failed = |failure, words: String| Outcome { failure: Some((failure, words)), ..Outcome::default() };
    // In turn among those of its session, then among all.
    let lock = shared.known().session(&record.session_id);
    let turn = async {
        let held = lock.lock_owned().await;
        let place = shared.places.clone().acquire_owned().await;
        (held, place)
    };
    let _turn = match watch.within(turn).await {
        Ok(turn) => turn,
        Err(why) => return why.failure(time).map(|(failure, words)| reply(record, failed(failure, words))),
    };
    run.runs();
    let settings = &shared.settings;
    let backend = shared.backend(&body.agent_backend).cloned();
    let (Some(backend), Some(profile)) = (backend, settings.profiles.get(&body.agent_identifier)) else {
        let words = "its backend or profile is not here any more".to_owned();
        return Some(reply(record, failed(RunFailure::UnknownBackend, words)));
    };
    let order = order(record, body, profile.clone(), (&watch.until, resumed));
    if !resumed {
        run.feed.tell(Told::Started {
            run: record.id.clone(),
            trace_id: record.trace_id.clone(),
            session_id: record.session_id.clone(),
            backend: backend.name().to_owned(),
            model: order.model.clone(),
        });
    }
    let desk = RunDesk { run: run.clone(), approvals: order.profile.approvals.clone() };
    let (done, why) = watch.over_work(tokio::spawn(async move { backend.run(&order, &desk).await })).await;
    let outcome = match done {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => {
            tracing::error!(run = record.id, trace = record.trace_id, %error, "a backend broke");
            failed(RunFailure::Internal, format!("the agent failed; trace {}", record.trace_id))
        }
        None => Outcome::default(),
    };
    // Whoever ended it has the last word on why; what the agent came to by then is kept.
    match why {
        None => Some(reply(record, outcome)),
        Some(why) => why.failure(time).map(|failure| reply(record, Outcome { failure: Some(failure), ..outcome })),
    }
}

async fn one_move(shared: &Arc<Shared>, run: &Arc<Run>, body: NegotiateBody) -> Option<End> {
    let asked = if body.timeout_ms == 0 { TASK_TIMEOUT_MS_MAX } else { body.timeout_ms.min(TASK_TIMEOUT_MS_MAX) };
    let time = Duration::from_millis(asked);
    let watch = Watch::over(shared, run, time);
    let _place = match watch.within(shared.places.clone().acquire_owned()).await {
        Ok(place) => place,
        Err(why) => return why.failure(time).map(|(_, words)| broken(&body, &words)),
    };
    run.runs();
    let (negotiator, place) = (shared.settings.negotiator.clone(), shared.store.run(&run.record.id));
    let desk = RunDesk { run: run.clone(), approvals: Approvals::default() };
    let (asked, until) = (body.clone(), watch.until.clone());
    let working = tokio::spawn(async move { negotiator.negotiate(&asked, &place, &until, &desk).await });
    match watch.over_work(working).await {
        // What is done of it is in its place, where the next process finds it.
        (_, Some(Why::Stopping)) => None,
        (Some(Ok(report)), _) => Some(End::Report(Box::new(report))),
        (Some(Err(error)), _) => {
            tracing::error!(run = run.record.id, %error, "a negotiation broke");
            Some(broken(&body, "the negotiation failed; the sandbox's log says why"))
        }
        (None, _) => Some(broken(&body, "it did not end in time")),
    }
}

/// What ends a run that does not end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Cancelled,
    TimedOut,
    /// The process ends, and the next one goes on.
    Stopping,
}

impl Why {
    fn failure(self, time: Duration) -> Option<(RunFailure, String)> {
        match self {
            Self::Cancelled => Some((RunFailure::Cancelled, "it was cancelled".to_owned())),
            Self::TimedOut => Some((RunFailure::Timeout, format!("it did not end within {} ms", time.as_millis()))),
            Self::Stopping => None,
        }
    }
}

/// Sees to it that a run ends.
struct Watch {
    /// What the work is told.
    until: Until,
    cancelled: CancellationToken,
    stop: CancellationToken,
}

impl Watch {
    /// Of a run that has so much time from its beginning on, in whatever process that was.
    fn over(shared: &Shared, run: &Run, time: Duration) -> Self {
        let gone = Duration::from_millis(now_ms().saturating_sub(run.record.began_ms));
        let until = Until { deadline: Instant::now() + time.saturating_sub(gone), cancel: CancellationToken::new() };
        Self { until, cancelled: run.cancel.clone(), stop: shared.settings.stop.clone() }
    }

    /// Returns when the run is to end.
    async fn ended(&self) -> Why {
        tokio::select! {
            () = self.cancelled.cancelled() => Why::Cancelled,
            () = self.stop.cancelled() => Why::Stopping,
            () = tokio::time::sleep_until(self.until.deadline.into()) => Why::TimedOut,
        }
    }

    async fn within<T>(&self, waiting: impl Future<Output = T>) -> Result<T, Why> {
        tokio::select! {
            biased;
            why = self.ended() => Err(why),
            value = waiting => Ok(value),
        }
    }

    /// What came of the work, and what ended it if not itself. Work that does not heed its end is left behind.
    async fn over_work<T>(&self, working: JoinHandle<T>) -> (Option<Result<T, JoinError>>, Option<Why>) {
        let mut working = AbortOnDropHandle::new(working);
        let why = tokio::select! {
            biased;
            done = &mut working => return (Some(done), None),
            why = self.ended() => why,
        };
        if why == Why::Stopping {
            // As in a crash: what it says now would count as its end.
            working.abort();
            let _gone = working.await;
            return (None, Some(why));
        }
        self.until.cancel.cancel();
        (tokio::time::timeout(END_GRACE, working).await.ok(), Some(why))
    }
}

fn order(record: &Record, body: TaskBody, profile: Profile, (until, resumed): (&Until, bool)) -> Order {
    // It was read when the run was accepted.
    let context = TaskContext::parse(&body.context_json).unwrap_or_default();
    let asked = if body.max_turns == 0 { TASK_TURNS_MAX } else { body.max_turns };
    let allowed = if profile.max_turns == 0 { TASK_TURNS_MAX } else { profile.max_turns };
    Order {
        id: record.id.clone(),
        is_prompt: record.kind == RunKind::Prompt,
        prompt: body.prompt,
        context: context.rest,
        session: record.session_id.clone(),
        continues: !body.session_id.is_empty(),
        resumed,
        profile,
        model: body.model,
        provider: context.provider,
        env: body.env,
        max_turns: asked.min(allowed),
        deadline: until.deadline,
        cancel: until.cancel.clone(),
    }
}

fn reply(record: &Record, outcome: Outcome) -> End {
    let (failure, error) = outcome.failure.map_or((None, String::new()), |(failure, words)| (Some(failure), words));
    End::Reply(RunReply {
        id: record.id.clone(),
        success: failure.is_none(),
        result: outcome.result,
        error,
        failure,
        trace_id: record.trace_id.clone(),
        turns_used: outcome.turns,
        duration_ms: now_ms().saturating_sub(record.began_ms),
        input_tokens: u32::try_from(outcome.usage.input_tokens).unwrap_or(u32::MAX),
        output_tokens: u32::try_from(outcome.usage.output_tokens).unwrap_or(u32::MAX),
        cost_micro_usd: outcome.cost_micro_usd,
        session_id: record.session_id.clone(),
    })
}

/// The end of a move that came to nothing.
fn broken(body: &NegotiateBody, why: &str) -> End {
    End::Report(Box::new(MoveReport::unscored(&body.one.move_id, why)))
}

/// The time that a task or prompt has.
pub(super) fn time_of(kind: RunKind, body: &TaskBody) -> Result<Duration, RunsError> {
    let max = if kind == RunKind::Prompt { PROMPT_TIMEOUT_MS_MAX } else { TASK_TIMEOUT_MS_MAX };
    match body.timeout_ms {
        0 => Ok(Duration::from_millis(TASK_TIMEOUT_MS_DEFAULT)),
        asked if asked <= max => Ok(Duration::from_millis(asked)),
        _ => field("timeout_ms", &format!("at most {max}")),
    }
}
