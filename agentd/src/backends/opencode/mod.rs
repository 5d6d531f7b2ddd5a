//! The backend `opencode`: `opencode run --format json`, once for each run.
//!
//! The program cannot ask a customer while it has no terminal, so what a profile wants asked is refused, and told to be. What it
//! tells of a tool it tells when the tool is done. It asks a failing provider for ever, so its failures are counted here.

mod config;
mod story;

use std::sync::Arc;

use async_trait::async_trait;
use sandbox_protocol::agent::RunFailure;
use sandbox_protocol::agent::event::Told;

use self::config::{INSTRUCTIONS, KEY, NO_INSTALL, Strictness};
use self::story::OpencodeStory;
use super::access::{Access, environment};
use super::drive::{Opening, Over, drive, not_run};
use super::place::{Settings, launch_id, remove, time_max, write};
use super::programs::{Launch, ProgramError, Programs};
use super::sessions::Sessions;
use super::tally::{Failure, Tally, shown};
use super::turn::{interrupted, prompt, unreadable};
use crate::backend::{Backend, Desk, ForgetError, Order, Outcome};

const NAME: &str = "opencode";
/// What the program says of a conversation that it does not have.
const NO_SESSION: &str = "Session not found";

/// Carries orders out with the program `opencode`.
pub struct Opencode {
    programs: Arc<dyn Programs>,
    settings: Settings,
    sessions: Sessions,
}

impl Opencode {
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
        let strictness = Strictness::of(&order.profile);
        strictness.tell(desk);
        let theirs = self.sessions.theirs(&order.session).await.map_err(unreadable)?;
        if order.continues && theirs.is_none() {
            let message = "what this session said before is not known any more".to_owned();
            desk.tell(Told::Warning { message });
        }
        self.lay_out(order, &access).await.map_err(|error| not_run(&error))?;
        let launch = self.launch(order, &access, &strictness, theirs.as_deref());
        let opening = Opening { text: prompt(order), is_all: true };
        let mut story = OpencodeStory::new(order, access);
        let over = drive(&*self.programs, launch, opening, (order, desk), &mut story).await;
        let tally = self.concluded(order, over, story.into_tally()).await;
        Ok(tally.outcome())
    }

    /// Writes what the program reads.
    async fn lay_out(&self, order: &Order, access: &Access) -> Result<(), ProgramError> {
        let directory = self.settings.directory(NAME, &order.session);
        let key = access.key.as_ref().map_or("none", |key| key.reveal());
        let files = [(KEY, key), (INSTRUCTIONS, &order.profile.system_prompt)].into_iter().chain(NO_INSTALL);
        let files = files.map(|(path, content)| (directory.join(path), content.to_owned()));
        write(&*self.programs, files).await
    }

    fn launch(&self, order: &Order, access: &Access, strictness: &Strictness, theirs: Option<&str>) -> Launch {
        let directory = self.settings.directory(NAME, &order.session);
        let mut env = environment(order);
        let agent = format!("sandbox-{:032x}", rand::random::<u128>());
        env.extend(config::environment(&directory, &agent, access, strictness));
        let fixed =
            ["run", "--format", "json", "--pure", "--thinking", "--print-logs", "--log-level", "ERROR", "--agent"];
        let session = match theirs {
            Some(theirs) => ["--session", theirs],
            // Without a title the program has the model make one, which is one call more.
            None => ["--title", "session"],
        };
        let program = self.settings.program.as_str();
        let argv =
            [program].into_iter().chain(fixed).chain([agent.as_str()]).chain(session).map(str::to_owned).collect();
        let (id, cwd) = (launch_id(NAME, order), self.settings.workspace.clone());
        Launch { id, argv, env, cwd, time_max: time_max(order) }
    }

    async fn concluded(&self, order: &Order, over: Over, mut tally: Tally) -> Tally {
        if let Some(theirs) = &tally.session
            && let Err(error) = self.sessions.note(&order.session, theirs).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "a session will not be known again");
        }
        let Over { stopped, ended, complaint } = over;
        if complaint.contains(NO_SESSION) && tally.session.is_none() {
            self.sessions.forget(&order.session).await.unwrap_or_default();
            let words = "session_id: opencode does not have this conversation any more; begin a new one";
            tally.fail((RunFailure::BadRequest, words.to_owned()));
        }
        if let Some(failure) = stopped {
            tally.fail(failure);
        } else if ended.and_then(|ended| ended.exit_code) != Some(0) {
            tally.fail((RunFailure::Internal, format!("opencode failed: {}", shown(&complaint))));
        }
        tally
    }
}

#[async_trait]
impl Backend for Opencode {
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
