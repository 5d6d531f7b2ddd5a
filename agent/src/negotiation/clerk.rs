//! Who makes a single call: unless it was made in a former life, within what the model takes, and recorded when it has ended.

use std::collections::HashMap;

use sandbox_protocol::agent::negotiation::{ConversationLogs, Ledger};
use tokio::time::{Instant, sleep_until};

use super::brief::{Brief, Room};
use super::call::{Call, Completed, Maker, Outcome};
use super::log::{Log, Summary};
use super::prompts::{Words, words};
use crate::limits::{MESSAGE_BYTES_MAX, NEGOTIATION_ANSWER_BYTES_MAX};
use crate::model::{Answer, Ask, Heard, Message, ModelError, Role};
use crate::redact::cleaned;

/// Why a debate does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// A call failed for good: which, and why.
    Failed(String),
    /// Nobody wants its report any more.
    Cancelled,
    /// Its time is over.
    OutOfTime,
}

/// A conversation with what it cost.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) log: Log,
    pub(super) ledger: Ledger,
    pub(super) warnings: Vec<String>,
}

/// Who makes calls.
pub(super) struct Clerk<'a> {
    pub(super) brief: &'a Brief,
    pub(super) room: &'a Room<'a>,
    past: HashMap<Call, Completed>,
}

impl<'a> Clerk<'a> {
    pub(super) fn new(brief: &'a Brief, room: &'a Room<'a>) -> Self {
        let past = room.checkpoints.load().into_iter().map(|completed| (completed.call, completed)).collect();
        Self { brief, room, past }
    }

    /// Whether a former life made this call.
    pub(super) fn knows(&self, call: Call) -> bool {
        self.past.contains_key(&call)
    }

    /// A decision maker's seat, with the summaries of former lives.
    pub(super) fn seat(&self, maker: Maker) -> Seat {
        let mut seat = Seat::default();
        for completed in self.past.values() {
            let Call::Summary { maker: whose, through } = completed.call else { continue };
            let Outcome::Answered { text, .. } = &completed.outcome else { continue };
            if whose != maker {
                continue;
            }
            completed.count(&mut seat.ledger);
            if seat.log.summary.as_ref().is_none_or(|known| known.through < through) {
                seat.log.summary = Some(Summary { through, text: text.clone() });
            }
        }
        seat
    }

    /// The answer to a call about the seat's conversation.
    pub(super) async fn speak(&self, seat: &mut Seat, call: Call) -> Result<String, Ended> {
        let completed = match self.past.get(&call) {
            Some(completed) => completed.clone(),
            None => {
                let completed = self.ask(seat, call).await?;
                self.record(seat, &completed).await;
                completed
            }
        };
        completed.count(&mut seat.ledger);
        match completed.outcome {
            Outcome::Answered { text, .. } => {
                if text.trim().is_empty() {
                    seat.warnings.push(format!("{call}: the model said nothing"));
                }
                Ok(text)
            }
            Outcome::Failed { reason } => Err(Ended::Failed(format!("{call}: {reason}"))),
        }
    }

    /// Asks the model, and shortens the conversation for as long as it is longer than the model takes.
    async fn ask(&self, seat: &mut Seat, call: Call) -> Result<Completed, Ended> {
        let mut overflows = 0;
        loop {
            let words = words(self.brief, &seat.log, call);
            if self.room.budget.holds(&words) {
                match self.answer(words).await? {
                    Err(ModelError::ContextOverflow) => overflows += 1,
                    answered => return Ok(completed(call, overflows, answered)),
                }
            }
            if let Err(error) = self.shorten(seat, call).await? {
                return Ok(completed(call, overflows, Err(error)));
            }
        }
    }

    /// Has a summary take the place of older rounds.
    async fn shorten(&self, seat: &mut Seat, call: Call) -> Result<Result<(), ModelError>, Ended> {
        let (Some(maker), Some((first, last))) = (call.maker(), seat.log.shortenable()) else {
            return Ok(Err(ModelError::ContextOverflow));
        };
        // As many rounds at once as the model takes; at least one.
        let of = |through| Call::Summary { maker, through };
        let holds = |through: &u32| self.room.budget.holds(&words(self.brief, &seat.log, of(*through)));
        let through = (first..=last).rev().find(holds).unwrap_or(first);
        let answered = self.answer(words(self.brief, &seat.log, of(through))).await?;
        if let Err(error) = answered {
            return Ok(Err(error));
        }
        let summary = completed(of(through), 0, answered);
        self.record(seat, &summary).await;
        summary.count(&mut seat.ledger);
        if let Outcome::Answered { text, .. } = summary.outcome {
            seat.log.summary = Some(Summary { through, text });
        }
        Ok(Ok(()))
    }

    async fn record(&self, seat: &mut Seat, completed: &Completed) {
        if let Err(error) = self.room.checkpoints.record(completed).await {
            tracing::warn!(call = %completed.call, error = &error as &dyn std::error::Error, "a call is not recorded");
            seat.warnings.push(format!("{}: {error}; a restart would make the call again", completed.call));
        }
    }

    /// Returns when all that was said before is on disk, or says why it is not.
    pub(super) async fn settle(&self) -> Option<String> {
        let error = self.room.checkpoints.settle().await.err()?;
        Some(format!("{error}; a restart may make calls again"))
    }

    async fn answer(&self, words: Words) -> Result<Result<Answer, ModelError>, Ended> {
        let Words { system, user } = words;
        let messages = vec![Message::new(Role::System, system), Message::new(Role::User, user)];
        let ask = Ask { messages, ..Ask::default() };
        let mut unheard = |_: Heard<'_>| ();
        tokio::select! {
            biased;
            () = self.room.cancel.cancelled() => Err(Ended::Cancelled),
            () = passed(self.room.deadline) => Err(Ended::OutOfTime),
            answered = self.room.model.answer(&ask, &mut unheard) => Ok(answered),
        }
    }
}

/// Returns at the deadline; never without one.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn completed(call: Call, overflows: u32, answered: Result<Answer, ModelError>) -> Completed {
    match answered {
        Ok(Answer { text, usage, retries, .. }) => {
            let outcome = Outcome::Answered { text: bounded(text), usage };
            Completed { call, retries: retries + overflows, outcome }
        }
        Err(error) => {
            let reason = cleaned(&error.to_string(), MESSAGE_BYTES_MAX);
            Completed { call, retries: overflows, outcome: Outcome::Failed { reason } }
        }
    }
}

/// An answer of a length that every prompt after it can bear.
fn bounded(mut text: String) -> String {
    let kept = text.floor_char_boundary(NEGOTIATION_ANSWER_BYTES_MAX);
    let dropped = text.len() - kept;
    if dropped > 0 {
        text.truncate(kept);
        text.push_str(&format!("... ({dropped} more bytes)"));
    }
    text
}

/// The three conversations as they are reported.
pub(super) fn logs(move_id: &str, seats: &[Seat; 3]) -> ConversationLogs {
    let [i1, i2, i3] = seats.each_ref().map(|seat| seat.log.entries.clone());
    ConversationLogs { move_id: move_id.to_owned(), i1, i2, i3 }
}
