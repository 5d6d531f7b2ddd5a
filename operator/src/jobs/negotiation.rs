//! Negotiations: a task whose moves are argued about, each in a sandbox of its own.
//!
//! So many moves are argued about at a time; the sandboxes of the next are made, and those of the last removed, beside
//! them. What came of a move is on disk before its sandbox goes, so another life of the operator's repeats no move that is
//! through, and takes up by its id one that is not. A move that fails ends no other. Only where a sandbox cannot be made,
//! which is not the same as having to wait for room, a move is argued about [in this process](InProcess).

mod in_process;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256};
use alloy::sol_types::SolValue as _;
use futures::future::BoxFuture;
use futures::stream;
use futures::{FutureExt as _, StreamExt as _};
use sandbox_fleet::negotiation::{Finished, NOT_ISOLATED, child, never_ran, result};
use sandbox_fleet::ports::{Agents, SidecarError};
use sandbox_fleet::request::{Errand, ErrandKind};
use sandbox_fleet::sandbox::{Instance, Phase, Sandbox};
use sandbox_fleet::{Fleet, Unfinished, Visit};
use sandbox_protocol::abi::TaskResponse;
use sandbox_protocol::agent::Provider;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::{
    ConversationEntry, LOGS, LOGS_DIRECTORY, Move, MoveReport, NegotiateBody, Negotiation, NegotiationResult,
};
use sandbox_protocol::{CallKey, Failure, FailureCode};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use super::executor::{Begun, Refusal, refusal, unreachable};
use super::{JobCall, Work};
use crate::limits::{
    ATTACH_ATTEMPTS_MAX, ATTACH_PAUSE, NEGOTIATION_AHEAD_MAX, NEGOTIATION_CLEAR_TIMEOUT, NEGOTIATION_SLACK,
};
use crate::records::{MovePlace, Records, RecordsError, now_ms};
use crate::stories::Stories;

pub(crate) use in_process::InProcess;
#[cfg(test)]
pub(crate) use in_process::NotHere;

/// Who conducts negotiations. Clones share everything.
#[derive(Clone)]
pub(crate) struct Conductor {
    pub(crate) fleet: Fleet,
    pub(crate) agents: Arc<dyn Agents>,
    pub(crate) records: Records,
    pub(crate) stories: Stories,
    pub(crate) in_process: Arc<dyn InProcess>,
}

/// A negotiation that is to be held.
struct Order {
    call: CallKey,
    inputs_hash: B256,
    /// What its runs' names begin with.
    run: String,
    /// What its sandboxes' names begin with, where the call's are not all its own.
    scope: Option<String>,
    /// A former life began it.
    resumed: bool,
    owner: Address,
    /// Whose settings the sandboxes of its moves have.
    parent: Sandbox,
    negotiation: Negotiation,
    provider: Option<Provider>,
    model: String,
    /// When its time is over.
    until: Instant,
}

/// What came of a negotiation, and why none of its moves ran where none did.
type Conducted = (NegotiationResult, Option<FailureCode>);

/// A negotiation that is asked for, whoever asks.
pub(crate) struct NegotiationOrder {
    /// Where its moves' sandboxes and records are.
    pub(crate) call: CallKey,
    /// Tells its moves from others of the same call.
    pub(crate) inputs_hash: B256,
    /// What its runs' names begin with.
    pub(crate) run: String,
    /// What its sandboxes' names begin with, where the call may hold others at the same time.
    pub(crate) scope: Option<String>,
    /// A former life began it.
    pub(crate) resumed: bool,
    /// Whose it is.
    pub(crate) owner: Address,
    /// Milliseconds that it may take.
    pub(crate) timeout_ms: u64,
}

/// Holds a negotiation and answers with what it came to.
pub(super) async fn negotiate(call: JobCall, errand: Errand) -> Result<Work, Unfinished> {
    call.is_of(errand.sandbox);
    let order = NegotiationOrder {
        call: call.key,
        inputs_hash: call.inputs_hash,
        run: call.execution.clone(),
        scope: None,
        resumed: call.resumed,
        owner: call.caller,
        timeout_ms: errand.timeout_ms,
    };
    let Held { response, limit, instance } = call.parts().conductor.hold(order, errand).await?;
    Ok(Work { limit, response: response.abi_encode(), ..Work::done(&(), instance) })
}

/// A negotiation that was held.
struct Held {
    response: TaskResponse,
    /// The limit that it ran into.
    limit: Option<FailureCode>,
    instance: Option<Instance>,
}

impl Conductor {
    /// Holds a negotiation to its end; what it came to.
    pub(crate) async fn negotiate(&self, asked: NegotiationOrder, errand: Errand) -> Result<TaskResponse, Unfinished> {
        self.hold(asked, errand).await.map(|held| held.response)
    }

    async fn hold(&self, asked: NegotiationOrder, errand: Errand) -> Result<Held, Unfinished> {
        let ErrandKind::Negotiation(negotiation) = errand.kind else {
            return Err(Failure::new(FailureCode::Internal, "what is to be held is no negotiation").into());
        };
        let begun = Instant::now();
        let parent = self.fleet.find(errand.sandbox, asked.owner).await?;
        if !parent.lives() {
            let message = format!("the sandbox is {}", parent.phase.name());
            return Err(Failure::new(FailureCode::SandboxLost, message).into());
        }
        let NegotiationOrder { call, inputs_hash, run, scope, resumed, owner, timeout_ms } = asked;
        let (provider, model, until) = (errand.provider, errand.model, begun + Duration::from_millis(timeout_ms));
        let order =
            Order { call, inputs_hash, run, scope, resumed, owner, parent, negotiation, provider, model, until };
        let found = self.conduct(&order).await?;
        Ok(held(&order, &found, begun.elapsed())?)
    }
}

/// What a negotiation came to, with whatever came of it when its time was over.
fn held(order: &Order, (found, never_ran): &Conducted, took: Duration) -> Result<Held, Failure> {
    let errors: Vec<String> = found.errors.iter().map(|(id, error)| format!("{id}: {error}")).collect();
    let all = order.negotiation.moves.len();
    let error = match errors.as_slice() {
        [] => String::new(),
        some => format!("{} of {all} moves did not come to their end: {}", some.len(), some.join("; ")),
    };
    // Where nothing ran at all, that is the operator's failure and no result.
    if let Some(code) = never_ran.filter(|code| !code.keeps_response()) {
        return Err(Failure::new(code, error));
    }
    let defect = |error: serde_json::Error| Failure::new(FailureCode::Internal, error.to_string());
    let response = TaskResponse {
        success: errors.is_empty(),
        result: serde_json::to_string(found).map_err(defect)?,
        error,
        trace_id: order.run.clone(),
        turns_used: found.ledger.logical_calls,
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        input_tokens: u32::try_from(found.ledger.input_tokens).unwrap_or(u32::MAX),
        output_tokens: u32::try_from(found.ledger.output_tokens).unwrap_or(u32::MAX),
        session_id: String::new(),
    };
    let limit = (!errors.is_empty() && Instant::now() >= order.until).then_some(FailureCode::Timeout);
    let instance = match &order.parent.phase {
        Phase::Running(instance) => Some(instance.clone()),
        Phase::Requested
        | Phase::Provisioning
        | Phase::Stopping(_)
        | Phase::Stopped(_)
        | Phase::Resuming(..)
        | Phase::Deleting(_)
        | Phase::Gone(_)
        | Phase::Discarding(_)
        | Phase::Failed(_) => None,
    };
    Ok(Held { response, limit, instance })
}

impl Order {
    fn place(&self, index: usize) -> MovePlace {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        MovePlace { call: self.call, inputs_hash: self.inputs_hash, index }
    }

    /// What a move's sandbox is called among the call's.
    fn child_name(&self, one: &Move) -> String {
        match &self.scope {
            Some(scope) => format!("{scope}-{}", one.move_id).to_ascii_lowercase(),
            None => one.sandbox_name(&self.negotiation.ticker),
        }
    }

    fn body(&self, one: &Move) -> NegotiateBody {
        let left = self.until.saturating_duration_since(Instant::now()).as_millis();
        NegotiateBody {
            id: format!("{}-{}", self.run, one.move_id),
            ticker: self.negotiation.ticker.clone(),
            one: one.clone(),
            max_rounds: self.negotiation.max_rounds,
            personas: self.negotiation.personas.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            env: self.parent.spec.env.clone(),
            // 0 would be the default.
            timeout_ms: u64::try_from(left).unwrap_or(u64::MAX).max(1),
            attach_only: false,
        }
    }
}

/// What became of a move's sandbox.
enum Home {
    Made(Box<Visit>),
    /// It cannot be made.
    None(Failure),
}

impl Conductor {
    /// Holds a negotiation to its end, or to the end of its time.
    async fn conduct(&self, order: &Order) -> Result<Conducted, Unfinished> {
        let now_ms = now_ms();
        // What a former life told had numbers below.
        self.stories.begin(order.call, if order.resumed { now_ms } else { 1 }, now_ms);
        let places = order.negotiation.concurrency as usize;
        let runs = Semaphore::new(places);
        let moves: Vec<BoxFuture<'_, _>> = (order.negotiation.moves.iter().enumerate())
            .map(|(index, one)| {
                let finished = self.finished(order, index, one, &runs);
                finished.map(move |finished| finished.map(|finished| (index, finished))).boxed()
            })
            .collect();
        // One that cannot go on in this life leaves the others to theirs.
        let ended: Vec<_> = stream::iter(moves).buffer_unordered(places + NEGOTIATION_AHEAD_MAX).collect().await;
        let mut finished = ended.into_iter().collect::<Result<Vec<_>, _>>()?;
        finished.sort_by_key(|(index, _)| *index);
        let finished: Vec<Finished> = finished.into_iter().map(|(_, finished)| finished).collect();
        let scored = finished.iter().filter(|one| one.is_scored()).count();
        let total_policies_scored = u32::try_from(scored).unwrap_or(u32::MAX);
        let never_ran = never_ran(&finished);
        let found = result(&order.negotiation, finished);
        self.tell(order, Told::LayerComplete { layer: "sandbox".into(), status: "done".into(), total_policies_scored });
        Ok((found, never_ran))
    }

    /// A move that is through, in this life or a former one, and whose sandbox is gone.
    async fn finished(
        &self,
        order: &Order,
        index: usize,
        one: &Move,
        runs: &Semaphore,
    ) -> Result<Finished, Unfinished> {
        let place = order.place(index);
        let known = self.records.finished_move(place).map_err(|error| stopping(&error))?;
        let mut finished = match known {
            Some(known) => {
                self.tell_again(order, &known);
                known
            }
            None => {
                let argued = timeout_at(order.until + NEGOTIATION_SLACK, self.argued(order, one, runs)).await;
                let finished = argued.unwrap_or_else(|_| Ok(Finished::failed(one, over())))?;
                if finished.code.is_some() {
                    let message = finished.report.error.clone().unwrap_or_default();
                    self.tell(order, Told::SandboxFailed { move_id: one.move_id.clone(), message });
                }
                self.records.finish_move(place, &finished).await.map_err(|error| stopping(&error))?;
                finished
            }
        };
        finished.report.warnings.extend(self.cleared(order, one).await);
        Ok(finished)
    }

    /// Argues about a move where that can be done.
    async fn argued(&self, order: &Order, one: &Move, runs: &Semaphore) -> Result<Finished, Unfinished> {
        if Instant::now() >= order.until {
            return Ok(Finished::failed(one, over()));
        }
        let home = match self.home(order, one).await {
            Err(Unfinished::Failed(failure)) => return Ok(Finished::failed(one, failure)),
            home => home?,
        };
        let Ok(_place) = runs.acquire().await else { return Err(Unfinished::Stopping) };
        if Instant::now() >= order.until {
            return Ok(Finished::failed(one, over()));
        }
        Ok(match home {
            Home::None(failure) => self.in_process(order, one, failure).await,
            Home::Made(visit) => match self.in_sandbox(order, one, &visit).await {
                Ok(report) => {
                    let report = self.with_logs_compared(&visit, report).await;
                    Finished { report, isolation: visit.instance.runtime.clone(), code: None }
                }
                Err(failure) => Finished::failed(one, failure),
            },
        })
    }

    /// The sandbox of a move: the one there is, or a new one as soon as there is room.
    async fn home(&self, order: &Order, one: &Move) -> Result<Home, Unfinished> {
        let wrong = |error| Failure::new(FailureCode::BadRequest, format!("context_json: {error}"));
        let name = order.child_name(one);
        let wanted = child(&order.parent, (order.call, &name), &order.negotiation.ticker, one).map_err(wrong)?;
        match self.fleet.create_child(wanted).await {
            Ok(made) => Ok(Home::Made(Box::new(self.fleet.visit(made.id, order.owner).await?))),
            Err(Unfinished::Failed(failure)) if cannot_be_made(failure.code) => Ok(Home::None(failure)),
            Err(other) => Err(other),
        }
    }

    /// Has a move argued about in its sandbox; a run of its id goes on where it stands.
    async fn in_sandbox(&self, order: &Order, one: &Move, visit: &Visit) -> Result<MoveReport, Failure> {
        let body = order.body(one);
        let running = Begun::run(self.agents.clone(), &visit.instance, &body.id);
        let (mut told, mut broken_off) = (0, 0);
        while broken_off < ATTACH_ATTEMPTS_MAX {
            let before = told;
            let error = match self.followed(order, visit, &body, &mut told).await {
                Ok(report) => {
                    running.over();
                    return Ok(report);
                }
                Err(error) => error,
            };
            broken_off = if told > before { 1 } else { broken_off + 1 };
            match refusal(error, "run") {
                Refusal::ForGood(failure) => return Err(failure),
                Refusal::NotSent(error) | Refusal::BrokenOff(error) => {
                    tracing::debug!(sandbox = %visit.sandbox.id, %error, "the sidecar does not answer");
                }
            }
            self.fleet.check(visit.sandbox.id).await;
            tokio::time::sleep(ATTACH_PAUSE).await;
        }
        Err(unreachable())
    }

    /// Follows the run of a move to its end and tells what is new.
    async fn followed(
        &self,
        order: &Order,
        visit: &Visit,
        body: &NegotiateBody,
        told: &mut u64,
    ) -> Result<MoveReport, SidecarError> {
        let mut events = self.agents.negotiate(&visit.instance, body.clone()).await?;
        while let Some(event) = events.next().await? {
            let is_last = event.told.is_last();
            if event.seq > *told {
                *told = event.seq;
                self.tell_on(order, event.told);
            }
            if is_last {
                let summary = self.agents.summary(&visit.instance, &body.id).await?;
                return summary.report.ok_or(SidecarError::Lost);
            }
        }
        Err(SidecarError::Unreachable("the events ended before the run".into()))
    }

    async fn in_process(&self, order: &Order, one: &Move, failure: Failure) -> Finished {
        tracing::warn!(call = %order.call, one = one.move_id, %failure, "a move gets no sandbox");
        let tell = |told| self.tell_on(order, told);
        match self.in_process.negotiate(&order.parent, order.body(one), &tell).await {
            Ok(mut report) => {
                let why = failure.message;
                report.warnings.push(format!("argued about without isolation: its sandbox could not be made ({why})"));
                Finished { report, isolation: NOT_ISOLATED.into(), code: None }
            }
            Err(other) => {
                let message = format!("{}; {}", failure.message, other.message);
                Finished::failed(one, Failure::new(failure.code, message))
            }
        }
    }

    /// The report, with a warning for each conversation that is not in the sandbox as it tells.
    async fn with_logs_compared(&self, visit: &Visit, mut report: MoveReport) -> MoveReport {
        let told = [&report.logs.i1, &report.logs.i2, &report.logs.i3];
        let mut warnings = Vec::new();
        for (name, told) in LOGS.into_iter().zip(told) {
            let path = format!("{LOGS_DIRECTORY}/{name}.json");
            match self.agents.file(&visit.instance, &path).await {
                Ok(kept) if serde_json::from_slice::<Vec<ConversationEntry>>(&kept).is_ok_and(|kept| kept == *told) => {
                }
                // Where nothing was said there is nothing to be kept.
                Err(_) if told.is_empty() => {}
                Ok(_) => warnings.push(format!("{path} in the sandbox differs from what was said")),
                Err(error) => warnings.push(format!("{path} cannot be read back: {error}")),
            }
        }
        report.warnings.extend(warnings);
        report
    }

    /// Removes a move's sandbox, where there is one; a warning where it stays for now.
    async fn cleared(&self, order: &Order, one: &Move) -> Option<String> {
        let name = order.child_name(one);
        let clearing = self.remove(order.call, |child| child == name);
        match timeout(NEGOTIATION_CLEAR_TIMEOUT, clearing).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("its sandbox was not removed: {error}")),
            Err(_) => Some("its sandbox was not removed in time; it ends with the call".into()),
        }
    }

    /// Removes what is left of a negotiation of this scope; what stays is removed with the call.
    pub(crate) async fn clear(&self, call: CallKey, scope: &str) {
        let is_its = |child: &str| child.strip_prefix(scope).is_some_and(|rest| rest.starts_with('-'));
        match timeout(NEGOTIATION_CLEAR_TIMEOUT, self.remove(call, is_its)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%call, %error, "a negotiation's sandboxes are not removed"),
            Err(_) => tracing::warn!(%call, "a negotiation's sandboxes are not removed yet"),
        }
    }

    /// Removes those children of a call whose names are meant.
    async fn remove(&self, call: CallKey, is_meant: impl Fn(&str) -> bool) -> Result<(), Unfinished> {
        for found in self.fleet.children(call).await? {
            if found.lives() && found.child.as_ref().is_some_and(|child| is_meant(&child.to_string())) {
                self.fleet.delete(found.id, found.owner).await?;
            }
        }
        Ok(())
    }

    /// Tells what is for the negotiation's followers of what is told of a move.
    fn tell_on(&self, order: &Order, told: Told) {
        match &told {
            Told::SandboxRound { .. }
            | Told::SandboxScored { .. }
            | Told::SandboxFailed { .. }
            | Told::Warning { .. } => self.tell(order, told),
            Told::Started { .. }
            | Told::Message { .. }
            | Told::Reasoning { .. }
            | Told::ToolCall { .. }
            | Told::ApprovalRequired { .. }
            | Told::ApprovalDecided { .. }
            | Told::ToolResult { .. }
            | Told::Usage { .. }
            | Told::LayerComplete { .. }
            | Told::BatchItem { .. }
            | Told::Done { .. }
            | Told::MoveDone { .. } => {}
        }
    }

    /// Tells how a move came off that was through before this life.
    fn tell_again(&self, order: &Order, finished: &Finished) {
        let score = &finished.report.score;
        let move_id = score.move_id.clone();
        let told = match &finished.report.error {
            Some(error) if !finished.is_scored() => Told::SandboxFailed { move_id, message: error.clone() },
            Some(_) | None => Told::SandboxScored {
                move_id,
                score: score.total_score,
                breakdown: serde_json::to_value(&score.scores_by_agent).unwrap_or_default(),
            },
        };
        self.tell(order, told);
    }

    fn tell(&self, order: &Order, told: Told) {
        self.stories.tell(order.call, told, now_ms());
    }
}

fn over() -> Failure {
    Failure::new(FailureCode::Timeout, "the time for the negotiation was over")
}

/// Whether waiting for a sandbox would not help: the reason is the operator's engine, or that it is too small for any.
const fn cannot_be_made(code: FailureCode) -> bool {
    matches!(
        code,
        FailureCode::Engine
            | FailureCode::Hardening
            | FailureCode::ImageMissing
            | FailureCode::DiskFull
            | FailureCode::NoCapacity
            | FailureCode::ResourcesOutOfRange
            | FailureCode::Internal
    )
}

/// A store that failed ends the process; its next life goes on.
fn stopping(error: &RecordsError) -> Unfinished {
    tracing::error!(error = %crate::error_chain(error), "a negotiation is left for the next start");
    Unfinished::Stopping
}
