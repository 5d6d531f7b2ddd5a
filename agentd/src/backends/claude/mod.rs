//! The backend `claude-agent`: `claude -p`, once for each run, steered by lines of JSON in both directions.
//!
//! What a profile wants asked, the program asks by such a line, and is answered by the customer. It speaks Anthropic's protocol
//! and no other.

mod config;
mod event;
mod story;

use std::sync::Arc;

use async_trait::async_trait;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{ProviderKind, RunFailure};
use serde_json::json;

use self::config::{INSTRUCTIONS, SETTINGS, Strictness};
use self::story::ClaudeStory;
use super::access::{Access, environment};
use super::drive::{Opening, Over, drive, not_run};
use super::place::{Settings, launch_id, remove, time_max, write};
use super::programs::{Launch, ProgramError, Programs};
use super::sessions::Sessions;
use super::tally::{Failure, Tally, shown};
use super::turn::{interrupted, prompt, unreadable};
use crate::backend::{Backend, Desk, ForgetError, Order, Outcome};

const NAME: &str = "claude-agent";
/// What the program says of a conversation that it does not have.
const NO_SESSION: &str = "No conversation found";

/// Carries orders out with the program `claude`.
pub struct ClaudeAgent {
    programs: Arc<dyn Programs>,
    settings: Settings,
    sessions: Sessions,
}

impl ClaudeAgent {
    /// A backend that starts its program so.
    pub fn new(programs: Arc<dyn Programs>, settings: Settings) -> Self {
        let sessions = Sessions::at(settings.sessions(NAME));
        Self { programs, settings, sessions }
    }

    /// Forgets a session: the conversation, and all that the program kept of it.
    ///
    /// # Errors
    /// Not all of it may be gone.
    async fn clear(&self, session: &str) -> Result<(), ProgramError> {
        self.sessions.forget(session).await.map_err(|error| ProgramError::Lost(Box::new(error)))?;
        remove(&*self.programs, &self.settings.directory(NAME, session)).await
    }

    async fn carry_out(&self, order: &Order, desk: &dyn Desk) -> Result<Outcome, Failure> {
        let access = Access::of(order, &self.settings.own)?;
        if access.kind != ProviderKind::Anthropic {
            let words = "provider: claude-agent speaks to Anthropic's protocol only; give the kind anthropic";
            return Err((RunFailure::BadRequest, words.to_owned()));
        }
        let strictness = Strictness::of(&order.profile);
        strictness.tell(desk);
        let theirs = self.sessions.theirs(&order.session).await.map_err(unreadable)?;
        if order.continues && theirs.is_none() {
            let message = "what this session said before is not known any more".to_owned();
            desk.tell(Told::Warning { message });
        }
        let directory = self.settings.directory(NAME, &order.session);
        let files = [(SETTINGS, strictness.settings()), (INSTRUCTIONS, order.profile.system_prompt.clone())];
        let files = files.map(|(name, content)| (directory.join(name), content));
        write(&*self.programs, files).await.map_err(|error| not_run(&error))?;
        let launch = self.launch(order, &access, &strictness, theirs.as_deref());
        let said = json!({ "type": "user", "message": { "role": "user", "content": prompt(order) } });
        let opening = Opening { text: format!("{said}\n"), is_all: false };
        let mut story = ClaudeStory::new(access, order.profile.clone());
        let over = drive(&*self.programs, launch, opening, (order, desk), &mut story).await;
        Ok(self.concluded(order, over, story.into_tally()).await.outcome())
    }

    fn launch(&self, order: &Order, access: &Access, strictness: &Strictness, theirs: Option<&str>) -> Launch {
        let directory = self.settings.directory(NAME, &order.session);
        let mut env = environment(order);
        env.extend(config::environment(&directory, access));
        let mut argv = vec![self.settings.program.clone()];
        argv.extend(config::arguments(&directory, order, access, strictness));
        argv.extend(theirs.into_iter().flat_map(|theirs| ["--resume".to_owned(), theirs.to_owned()]));
        let (id, cwd) = (launch_id(NAME, order), self.settings.workspace.clone());
        Launch { id, argv, env, cwd, time_max: time_max(order) }
    }

    async fn concluded(&self, order: &Order, over: Over, mut tally: Tally) -> Tally {
        let Over { stopped, ended, complaint } = over;
        if complaint.contains(NO_SESSION) {
            self.sessions.forget(&order.session).await.unwrap_or_default();
            let words = "session_id: claude does not have this conversation any more; begin a new one";
            tally.failure = Some((RunFailure::BadRequest, words.to_owned()));
        } else if let Some(theirs) = &tally.session
            && let Err(error) = self.sessions.note(&order.session, theirs).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "a session will not be known again");
        }
        if let Some(failure) = stopped {
            tally.fail(failure);
        } else if ended.and_then(|ended| ended.exit_code) != Some(0) {
            tally.fail((RunFailure::Internal, format!("claude failed: {}", shown(&complaint))));
        }
        tally
    }
}

#[async_trait]
impl Backend for ClaudeAgent {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn run(&self, order: &Order, desk: &dyn Desk) -> Outcome {
        if order.resumed {
            return interrupted(&*self.programs, &launch_id(NAME, order)).await;
        }
        self.carry_out(order, desk)
            .await
            .unwrap_or_else(|failure| Outcome { failure: Some(failure), ..Outcome::default() })
    }

    async fn forget(&self, session: &str) -> Result<(), ForgetError> {
        self.clear(session).await.map_err(|error| ForgetError::Kept(error.into()))
    }
}
