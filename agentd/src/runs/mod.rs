//! Runs: begun once by their id, kept until their end, told to whoever follows, taken up again by the next process.

mod error;
mod feed;
mod run;
mod store;
mod work;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use futures::Stream;
use sandbox_agent::memory;
use sandbox_agent::profile::Profile;
use sandbox_protocol::agent::event::RunEvent;
use sandbox_protocol::agent::negotiation::NegotiateBody;
use sandbox_protocol::agent::{
    Decision, NATIVE, RunKind, RunState, RunSummary, SessionSummary, TaskBody, TaskContext, is_id,
};
use sandbox_protocol::limits::{PROMPT_BYTES_MAX, RUNS_KEPT_MAX, RUNS_QUEUED_MAX, RUNS_RUNNING_MAX, TASK_TURNS_MAX};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::error::RunsError;
pub(crate) use self::run::Run;
pub(crate) use self::store::{CALLS, End, STEPS};
use self::store::{Record, Request, SessionRecord, Store};
use crate::backend::{Backend, ForgetError};
use crate::negotiator::Negotiator;

/// What runs are carried out by and kept in.
pub struct Settings {
    /// Directory that nobody else may read.
    pub storage: PathBuf,
    /// All backends.
    pub backends: Vec<Arc<dyn Backend>>,
    /// Carries moves of negotiations out.
    pub negotiator: Arc<dyn Negotiator>,
    /// All profiles, by name.
    pub profiles: BTreeMap<String, Profile>,
    /// Backend where neither task nor context name one.
    pub backend_default: String,
    /// Profile where neither name one.
    pub profile_default: String,
    /// Ends everything.
    pub stop: CancellationToken,
}

/// All runs. Clones share everything.
#[derive(Clone)]
pub struct Runs {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    store: Store,
    known: Mutex<Known>,
    /// Held while it runs.
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Known {
    runs: HashMap<String, Arc<Run>>,
    /// By age.
    order: Vec<String>,
    /// One run at a time in each session.
    sessions: HashMap<String, Arc<tokio::sync::Mutex<()>>>,
}

impl Runs {
    /// The runs below the storage. Those that had not ended go on, where they can.
    ///
    /// # Errors
    /// The storage cannot be used.
    pub fn open(settings: Settings) -> io::Result<Self> {
        let store = Store::open(&settings.storage)?;
        let records = store.records()?;
        let shared = Shared {
            settings,
            store,
            known: Mutex::default(),
            places: Arc::new(Semaphore::new(RUNS_RUNNING_MAX)),
            tasks: TaskTracker::new(),
        };
        let runs = Self { shared: Arc::new(shared) };
        for record in records {
            let feed = feed::Feed::open(&runs.shared.store.run(&record.id).join("events.jsonl"))?;
            let run = Run::new(record, feed);
            runs.shared.known().enter(run.clone());
            if run.state() != RunState::Ended {
                tracing::info!(run = run.record.id, "taken up again");
                runs.begin(run, true);
            }
        }
        Ok(runs)
    }

    /// The run of a prompt or task: the one that has its id, or a new one.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn task(&self, kind: RunKind, mut body: TaskBody) -> Result<Arc<Run>, RunsError> {
        if let Some(run) = self.attached(body.id.as_deref(), body.attach_only, &body)? {
            return Ok(run);
        }
        check(kind, &body)?;
        let context = TaskContext::parse(&body.context_json)?;
        if context.negotiation.is_some() {
            return field("context_json", "kind: a negotiation is a job of its operator's");
        }
        let hash = hash(&body);
        body.agent_backend = self.backend(&body, &context)?.name().to_owned();
        body.agent_identifier = self.profile(&body, &context)?.name.clone();
        let session_id = self.session(&body)?;
        self.accept(Record {
            id: body.id.clone().unwrap_or_else(|| random_name("run")),
            kind,
            session_id,
            trace_id: random_name("trace"),
            hash,
            began_ms: now_ms(),
            request: Some(Request::Task(body)),
            end: None,
        })
    }

    /// The run of a move: the one that has its id, or a new one.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn negotiation(&self, body: NegotiateBody) -> Result<Arc<Run>, RunsError> {
        if let Some(run) = self.attached(Some(&body.id), body.attach_only, &body)? {
            return Ok(run);
        }
        body.check()?;
        self.accept(Record {
            id: body.id.clone(),
            kind: RunKind::Negotiation,
            session_id: String::new(),
            trace_id: random_name("trace"),
            hash: hash(&body),
            began_ms: now_ms(),
            request: Some(Request::Move(body)),
            end: None,
        })
    }

    /// A run by its id.
    pub(crate) fn run(&self, id: &str) -> Result<Arc<Run>, RunsError> {
        self.shared.known().runs.get(id).cloned().ok_or(RunsError::UnknownRun)
    }

    /// All that are remembered, oldest first.
    pub fn all(&self) -> Vec<RunSummary> {
        let known = self.shared.known();
        known.order.iter().filter_map(|id| known.runs.get(id)).map(|run| run.summary()).collect()
    }

    /// Gives a customer's word about a call that asks.
    ///
    /// # Errors
    /// Nobody asked.
    pub fn decide(&self, id: &str, call: &str, decision: Decision) -> Result<(), RunsError> {
        if self.run(id)?.decide(call, decision) { Ok(()) } else { Err(RunsError::NotAsked) }
    }

    /// Follows the events of a run.
    ///
    /// # Errors
    /// There is no such run.
    pub fn follow(
        &self,
        id: &str,
        after: u64,
    ) -> Result<impl Stream<Item = io::Result<RunEvent>> + Send + use<>, RunsError> {
        Ok(self.run(id)?.feed.follow(after))
    }

    /// All sessions, oldest first.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn sessions(&self) -> Result<Vec<SessionSummary>, RunsError> {
        let told = memory::sessions(self.shared.store.sessions()).unwrap_or_default();
        let told: HashMap<String, u64> = told.into_iter().map(|session| (session.id, session.messages)).collect();
        let summary = |(id, record): (String, SessionRecord)| {
            let messages = told.get(&id).copied().unwrap_or_default();
            SessionSummary { id, backend: record.backend, messages }
        };
        Ok(self.shared.store.all_sessions()?.into_iter().map(summary).collect())
    }

    /// Forgets a session.
    ///
    /// # Errors
    /// There is none, or it is in use.
    pub async fn forget_session(&self, id: &str) -> Result<(), RunsError> {
        let known = is_id(id).then(|| self.shared.store.session(id)).flatten().ok_or(RunsError::UnknownSession)?;
        let lock = self.shared.known().session(id);
        let _held = lock.try_lock().map_err(|_| RunsError::SessionInUse)?;
        if let Some(backend) = self.shared.backend(&known.backend) {
            backend.forget(id).await.map_err(|error| match error {
                ForgetError::InUse => RunsError::SessionInUse,
                ForgetError::Kept(cause) => RunsError::NotForgotten(cause),
            })?;
        }
        Ok(self.shared.store.forget_session(id)?)
    }

    /// Returns when, after the signal to stop, nothing runs any more.
    pub async fn stopped(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// The run that has the id already, if it is of the same request.
    fn attached<B: serde::Serialize>(
        &self,
        id: Option<&str>,
        only: bool,
        body: &B,
    ) -> Result<Option<Arc<Run>>, RunsError> {
        let Some(id) = id else { return if only { Err(RunsError::UnknownRun) } else { Ok(None) } };
        if !is_id(id) {
            return field("id", "letters, digits, dots, dashes and underscores, and no dot in front");
        }
        match self.run(id) {
            Ok(run) if run.record.hash == hash(body) => Ok(Some(run)),
            Ok(_) => Err(RunsError::OtherRun),
            Err(error) if only => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn backend(&self, body: &TaskBody, context: &TaskContext) -> Result<&Arc<dyn Backend>, RunsError> {
        let settings = &self.shared.settings;
        let name = chosen(&body.agent_backend, context.agent_backend.as_deref(), &settings.backend_default, NATIVE);
        self.shared.backend(name).ok_or_else(|| RunsError::UnknownBackend(name.to_owned()))
    }

    fn profile(&self, body: &TaskBody, context: &TaskContext) -> Result<&Profile, RunsError> {
        let settings = &self.shared.settings;
        let named = (context.agent_identifier.as_deref(), settings.profile_default.as_str());
        let name = chosen(&body.agent_identifier, named.0, named.1, sandbox_protocol::agent::DEFAULT_PROFILE);
        settings.profiles.get(name).ok_or_else(|| RunsError::UnknownProfile(name.to_owned()))
    }

    /// The session that is named, or a new one.
    fn session(&self, body: &TaskBody) -> Result<String, RunsError> {
        let id = if body.session_id.is_empty() { random_name("ses") } else { body.session_id.clone() };
        if !is_id(&id) {
            return field("session_id", "letters, digits, dots, dashes and underscores, and no dot in front");
        }
        match self.shared.store.session(&id) {
            Some(session) if session.backend != body.agent_backend => Err(RunsError::OtherBackend(session.backend)),
            Some(_) => Ok(id),
            None => {
                let session = SessionRecord { backend: body.agent_backend.clone(), began_ms: now_ms() };
                self.shared.store.keep_session(&id, &session)?;
                Ok(id)
            }
        }
    }

    /// Keeps a new run and begins it.
    fn accept(&self, record: Record) -> Result<Arc<Run>, RunsError> {
        let mut known = self.shared.known();
        if let Some(run) = known.runs.get(&record.id) {
            return if run.record.hash == record.hash { Ok(run.clone()) } else { Err(RunsError::OtherRun) };
        }
        let open = known.runs.values().filter(|run| run.state() != RunState::Ended).count();
        if open >= RUNS_RUNNING_MAX + RUNS_QUEUED_MAX || self.shared.settings.stop.is_cancelled() {
            return Err(RunsError::Busy);
        }
        self.shared.store.keep(&record)?;
        let feed = feed::Feed::open(&self.shared.store.run(&record.id).join("events.jsonl"))?;
        let run = Run::new(record, feed);
        known.enter(run.clone());
        for old in known.surplus() {
            if let Err(error) = self.shared.store.forget(&old) {
                tracing::warn!(run = old, %error, "an old run is not forgotten");
            }
        }
        drop(known);
        self.begin(run.clone(), false);
        Ok(run)
    }

    fn begin(&self, run: Arc<Run>, resumed: bool) {
        let shared = self.shared.clone();
        self.shared.tasks.spawn(async move { work::carry_out(&shared, run, resumed).await });
    }
}

impl Shared {
    fn backend(&self, name: &str) -> Option<&Arc<dyn Backend>> {
        self.settings.backends.iter().find(|backend| backend.name() == name)
    }

    /// Nothing panics while it holds the lock.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn enter(&mut self, run: Arc<Run>) {
        self.order.push(run.record.id.clone());
        self.runs.insert(run.record.id.clone(), run);
    }

    fn session(&mut self, id: &str) -> Arc<tokio::sync::Mutex<()>> {
        // One that nobody else holds has no run.
        self.sessions.retain(|_, lock| Arc::strong_count(lock) > 1);
        self.sessions.entry(id.to_owned()).or_default().clone()
    }

    /// Takes out the oldest that have ended and are more than are remembered.
    fn surplus(&mut self) -> Vec<String> {
        let ended = |id: &&String| self.runs.get(*id).is_none_or(|run| run.state() == RunState::Ended);
        let count = self.order.iter().filter(ended).count().saturating_sub(RUNS_KEPT_MAX);
        let old: Vec<String> = self.order.iter().filter(ended).take(count).cloned().collect();
        self.order.retain(|id| !old.contains(id));
        for id in &old {
            self.runs.remove(id);
        }
        old
    }
}

fn check(kind: RunKind, body: &TaskBody) -> Result<(), RunsError> {
    if body.prompt.trim().is_empty() || body.prompt.len() > PROMPT_BYTES_MAX {
        return field("prompt", &format!("a text of at most {PROMPT_BYTES_MAX} bytes"));
    }
    if body.max_turns > TASK_TURNS_MAX {
        return field("max_turns", &format!("at most {TASK_TURNS_MAX}"));
    }
    work::time_of(kind, body).map(drop)
}

fn field<T>(field: &'static str, message: &str) -> Result<T, RunsError> {
    Err(RunsError::Field { field, message: message.to_owned() })
}

/// The first of these that says something.
fn chosen<'a>(task: &'a str, context: Option<&'a str>, sandbox: &'a str, default: &'a str) -> &'a str {
    [task, context.unwrap_or_default(), sandbox].into_iter().find(|name| !name.is_empty()).unwrap_or(default)
}

/// By which a repeat of a request is known. Whether it may begin anything, and how much time its asker has left, is no part of it.
fn hash(body: &impl serde::Serialize) -> String {
    let mut value = serde_json::to_value(body).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.remove("attach_only");
        object.remove("timeout_ms");
    }
    hex::encode(Sha256::digest(value.to_string()))
}

fn random_name(kind: &str) -> String {
    format!("{kind}-{:016x}", rand::random::<u64>())
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
