//! Language-model work in a sandbox: prompts, tasks, their events, and the sessions that they leave.
//!
//! A run goes on by itself. What is lost when a connection breaks is the view of it, which is taken up again where it was.

use std::time::Duration;

use http::header::{ACCEPT, HeaderName};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rand::Rng as _;
use reqwest::{Method, RequestBuilder};
use sandbox_protocol::agent::event::{RunEvent, Told};
use sandbox_protocol::agent::{
    ApprovalBody, Decision, PROMPT, PromptBody, RUNS, RunReply, RunSummary, RunsBody, SESSIONS, SessionSummary,
    SessionsBody, TASK, TaskBody,
};
use serde::Deserialize;

use super::Inside;
use crate::api::sse::{Bounds, Frame, Frames};
use crate::api::{ApiError, body_of};
use crate::limits::{EVENT_SILENCE, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, RUN_EVENT_BYTES_MAX, RUN_TRIES_MAX};

const EVENT_STREAM: &str = "text/event-stream";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// What is written otherwise in a path.
const NOT_IN_IDS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

impl Inside {
    /// One turn of the agent: waits for its answer.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn prompt(&self, body: PromptBody) -> Result<RunReply, ApiError> {
        self.follow_prompt(body).reply().await
    }

    /// A task of many turns: waits for its end.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn task(&self, body: TaskBody) -> Result<RunReply, ApiError> {
        self.follow_task(body).reply().await
    }

    /// One turn of the agent, event by event. It is asked for with the first event.
    pub fn follow_prompt(&self, body: PromptBody) -> RunEvents {
        RunEvents::starting(self.clone(), PROMPT, body)
    }

    /// A task of many turns, event by event. It is asked for with the first event.
    pub fn follow_task(&self, body: TaskBody) -> RunEvents {
        RunEvents::starting(self.clone(), TASK, body)
    }

    /// A run that the sandbox knows, event by event, behind the one of this number; all with 0.
    pub fn follow_run(&self, run: &str, after: u64) -> RunEvents {
        RunEvents::new(self.clone(), run.to_owned(), after)
    }

    /// Runs that the sandbox knows, oldest first.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn runs(&self) -> Result<Vec<RunSummary>, ApiError> {
        let body: RunsBody = self.session.answer(self.request(Method::GET, RUNS)).await?;
        Ok(body.runs)
    }

    /// Where a run stands.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn run(&self, run: &str) -> Result<RunSummary, ApiError> {
        self.session.answer(self.request(Method::GET, &run_of(run, ""))).await
    }

    /// Ends a run; one that has ended stays as it is.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn cancel_run(&self, run: &str) -> Result<RunSummary, ApiError> {
        self.session.answer(self.request(Method::POST, &run_of(run, "/cancel"))).await
    }

    /// Says whether a tool call that asks is carried out.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn decide(&self, run: &str, call: &str, decision: Decision) -> Result<(), ApiError> {
        let route = run_of(run, &format!("/approvals/{}", segment(call)));
        self.done(self.request(Method::POST, &route).json(&ApprovalBody { decision })).await
    }

    /// Conversations that the sandbox keeps, oldest first.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn sessions(&self) -> Result<Vec<SessionSummary>, ApiError> {
        let body: SessionsBody = self.session.answer(self.request(Method::GET, SESSIONS)).await?;
        Ok(body.sessions)
    }

    /// Deletes a conversation with all that is remembered of it.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_session(&self, id: &str) -> Result<(), ApiError> {
        self.done(self.request(Method::DELETE, &format!("{SESSIONS}/{}", segment(id)))).await
    }

    async fn done(&self, request: RequestBuilder) -> Result<(), ApiError> {
        let response = self.session.send(request).await?;
        body_of(&self.session.url, response).await.map(drop)
    }
}

/// Events of a run, each once and in order, over as many connections as it takes.
#[derive(Debug)]
pub struct RunEvents {
    inside: Inside,
    run: String,
    /// What is to be asked for, until the sandbox has it. A repeat is harmless: the run's id is in it.
    start: Option<(&'static str, Box<TaskBody>)>,
    frames: Option<Frames>,
    /// Number of the last event that was told.
    last: u64,
    ended: bool,
    /// Attempts since the last sign of life.
    tries: u32,
}

/// What every event has, those of a later version too.
#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

impl RunEvents {
    fn new(inside: Inside, run: String, last: u64) -> Self {
        Self { inside, run, start: None, frames: None, last, ended: false, tries: 0 }
    }

    fn starting(inside: Inside, route: &'static str, mut body: TaskBody) -> Self {
        let run = body.id.get_or_insert_with(|| format!("run-{:032x}", rand::rng().random::<u128>())).clone();
        Self { start: Some((route, Box::new(body))), ..Self::new(inside, run, 0) }
    }

    /// Id of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The next event; `None` behind the last. A call that is dropped loses nothing.
    ///
    /// # Errors
    /// [`ApiError`]; with [`ApiError::Garbled`] too where the sandbox knows an event no more.
    pub async fn next(&mut self) -> Result<Option<RunEvent>, ApiError> {
        while !self.ended {
            let broken = match self.step().await {
                Ok(Some(event)) => {
                    self.ended = event.told.is_last();
                    return Ok(Some(event));
                }
                Ok(None) => self.inside.broken("the events end before the run does"),
                Err(error) => error,
            };
            self.frames = None;
            self.tries += 1;
            if !broken.retryable() || self.tries >= RUN_TRIES_MAX {
                self.ended = true;
                return Err(broken);
            }
            tokio::time::sleep(pause(self.tries)).await;
        }
        Ok(None)
    }

    /// How a prompt or task ended, with all events passed over.
    ///
    /// # Errors
    /// As [`RunEvents::next`].
    pub async fn reply(mut self) -> Result<RunReply, ApiError> {
        while let Some(event) = self.next().await? {
            if let Told::Done { reply } = event.told {
                return Ok(reply);
            }
        }
        Err(self.inside.session.garbled("a run that ends without a reply"))
    }

    /// The next event of the connection there is, or of a new one; `None` where that ends.
    async fn step(&mut self) -> Result<Option<RunEvent>, ApiError> {
        if self.frames.is_none() {
            self.frames = Some(self.open().await?);
            self.start = None;
        }
        while let Some(frames) = &mut self.frames {
            let Some(frame) = frames.next().await? else { return Ok(None) };
            self.tries = 0;
            if let Some(event) = self.new_one(&frame)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    async fn open(&self) -> Result<Frames, ApiError> {
        let request = match &self.start {
            Some((route, body)) => self.inside.request(Method::POST, route).json(body),
            None => self.inside.request(Method::GET, &run_of(&self.run, "/events")).header(LAST_EVENT_ID, self.last),
        };
        let session = &self.inside.session;
        // No bound on the whole: silence has its own.
        let response = session.send(request.header(ACCEPT, EVENT_STREAM).timeout(Duration::MAX)).await?;
        if !response.status().is_success() {
            return Err(body_of(&session.url, response).await.err().unwrap_or_else(|| session.garbled("no stream")));
        }
        let bounds = Bounds { frame_bytes_max: RUN_EVENT_BYTES_MAX, silence: EVENT_SILENCE };
        Ok(Frames::new(session.url.clone(), response, bounds))
    }

    /// The event of a frame, unless it is a sign of life, was told before, or is of a kind of a later version.
    fn new_one(&mut self, frame: &Frame) -> Result<Option<RunEvent>, ApiError> {
        if frame.data.is_empty() {
            return Ok(None);
        }
        let garbled = |error: serde_json::Error| self.inside.session.garbled(&error.to_string());
        let Numbered { seq } = serde_json::from_str(&frame.data).map_err(garbled)?;
        if seq <= self.last {
            return Ok(None);
        }
        let awaited = self.last + 1;
        if seq != awaited {
            let why = format!("event {seq} of run {} where {awaited} was awaited", self.run);
            return Err(self.inside.session.garbled(&why));
        }
        self.last = seq;
        Ok(serde_json::from_str(&frame.data).ok())
    }
}

fn pause(tries: u32) -> Duration {
    (RETRY_PAUSE_MIN * 2_u32.saturating_pow(tries.saturating_sub(1))).min(RETRY_PAUSE_MAX)
}

fn run_of(run: &str, below: &str) -> String {
    format!("{RUNS}/{}{below}", segment(run))
}

/// An id as one part of a path, whatever letters a provider gave it.
fn segment(id: &str) -> String {
    utf8_percent_encode(id, NOT_IN_IDS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_part_of_a_path() {
        assert_eq!(run_of("../a_b-c", "/cancel"), "/runs/%2E%2E%2Fa_b-c/cancel");
    }

    #[test]
    fn pauses_grow_up_to_a_bound() {
        assert_eq!((pause(1), pause(2)), (RETRY_PAUSE_MIN, RETRY_PAUSE_MIN * 2));
        assert_eq!(pause(RUN_TRIES_MAX), RETRY_PAUSE_MAX);
    }
}
