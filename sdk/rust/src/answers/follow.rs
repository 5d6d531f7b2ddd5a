//! What is told of a call while it is under way: the states that it comes to, and the events of its work.
//!
//! It is a view and no answer: nothing here is proven, and nothing that is missing here is missing in the answer.

use std::time::Duration;

use alloy::primitives::Address;
use sandbox_protocol::CallKey;
use sandbox_protocol::agent::event::RunEvent;

use super::{AnswerError, Answers};
use crate::api::sse::{Frame, Frames};
use crate::limits::{RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, RUN_TRIES_MAX};

/// Something that was told of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallTold {
    /// It has come to this state: `queued`, `running`, `answered` or `settled`.
    State(String),
    /// An event of its work.
    Event(Box<RunEvent>),
}

/// The events of one call, over as many connections as it takes.
#[derive(Debug)]
pub struct CallEvents<'a> {
    answers: &'a Answers,
    key: CallKey,
    /// Who is to tell; by itself the one that must answer.
    teller: Option<Address>,
    frames: Option<Frames>,
    /// Id of the last frame, for the operator to go on behind it.
    last_id: Option<String>,
    heard: Heard,
    tries: u32,
}

/// What was told before, to tell nothing twice: an operator may begin anew.
#[derive(Debug, Default)]
struct Heard {
    state: Option<&'static str>,
    seq: u64,
    ended: bool,
}

const STATES: [&str; 4] = ["queued", "running", "answered", "settled"];

impl Answers {
    /// What is told of a call until it is answered. Fetch the answer itself beside it.
    pub fn follow(&self, key: CallKey) -> CallEvents<'_> {
        self.told_by(None, key)
    }

    /// What one operator tells of its part of a batch until it has answered.
    pub fn follow_part(&self, key: CallKey, operator: Address) -> CallEvents<'_> {
        self.told_by(Some(operator), key)
    }

    fn told_by(&self, teller: Option<Address>, key: CallKey) -> CallEvents<'_> {
        CallEvents { answers: self, key, teller, frames: None, last_id: None, heard: Heard::default(), tries: 0 }
    }
}

impl CallEvents<'_> {
    /// What is told next; `None` once the call is answered. A call that is dropped loses nothing.
    ///
    /// # Errors
    /// [`AnswerError`] where the operator tells nothing, however often it is asked.
    pub async fn next(&mut self) -> Result<Option<CallTold>, AnswerError> {
        while !self.heard.ended {
            let broken = match self.step().await {
                Ok(Some(told)) => return Ok(Some(told)),
                Ok(None) => None,
                Err(error) => Some(error),
            };
            self.frames = None;
            self.tries += 1;
            match broken {
                Some(error) if !error.retryable() || self.tries >= RUN_TRIES_MAX => return Err(error),
                None if self.tries >= RUN_TRIES_MAX => return Ok(None),
                _ => tokio::time::sleep(pause(self.tries)).await,
            }
        }
        Ok(None)
    }

    async fn step(&mut self) -> Result<Option<CallTold>, AnswerError> {
        if self.frames.is_none() {
            let operator = match self.teller {
                Some(operator) => self.answers.operator_at(operator).await?,
                None => self.answers.operator_of(self.key).await?,
            };
            self.frames = Some(operator.follow(self.key, self.last_id.as_deref()).await?);
        }
        while let Some(frames) = &mut self.frames {
            let Some(frame) = frames.next().await.map_err(AnswerError::Stream)? else { return Ok(None) };
            self.tries = 0;
            if frame.id.is_some() {
                self.last_id.clone_from(&frame.id);
            }
            if let Some(told) = self.heard.new_one(&frame) {
                return Ok(Some(told));
            }
        }
        Ok(None)
    }
}

impl Heard {
    /// What a frame tells that is new; kinds of a later version are passed over.
    fn new_one(&mut self, frame: &Frame) -> Option<CallTold> {
        if let Some(state) = STATES.into_iter().find(|state| *state == frame.event) {
            self.ended |= matches!(state, "answered" | "settled");
            let is_new = self.state.replace(state) != Some(state);
            return is_new.then(|| CallTold::State(state.to_owned()));
        }
        let event: RunEvent = serde_json::from_str(&frame.data).ok()?;
        if event.seq <= self.seq {
            return None;
        }
        self.seq = event.seq;
        Some(CallTold::Event(Box::new(event)))
    }
}

fn pause(tries: u32) -> Duration {
    (RETRY_PAUSE_MIN * 2_u32.saturating_pow(tries.saturating_sub(1))).min(RETRY_PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(event: &str, data: &str) -> Frame {
        Frame { event: event.into(), id: None, data: data.into() }
    }

    #[test]
    fn states_and_events_are_told_once_and_what_is_unknown_never() {
        let mut heard = Heard::default();
        let round = |seq: u64| {
            let data = serde_json::json!({
                "seq": seq, "time_ms": 1, "type": "sandbox_round", "move": "m1", "round": 1, "status": "dm_responded"
            });
            frame("sandbox_round", &data.to_string())
        };
        assert_eq!(heard.new_one(&frame("running", "{}")), Some(CallTold::State("running".into())));
        assert_eq!(heard.new_one(&frame("running", "{}")), None);
        assert!(matches!(heard.new_one(&round(1)), Some(CallTold::Event(event)) if event.seq == 1));
        assert_eq!((heard.new_one(&round(1)), heard.new_one(&frame("later", "{}"))), (None, None));
        assert_eq!((heard.new_one(&frame("", "")), heard.ended), (None, false));
        assert!(heard.new_one(&round(2)).is_some());
        assert!(heard.new_one(&frame("answered", "{}")).is_some() && heard.ended);
    }
}
