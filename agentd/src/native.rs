//! The native agent: the loop of the `agent` crate, with this sandbox's hands, a provider's model and a session's memory.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sandbox_agent::memory::{self, Memory, MemoryError, tokenizer_of};
use sandbox_agent::model::{Embedder, Message, Model, Usage};
use sandbox_agent::profile::Profile;
use sandbox_agent::provider::{Layers, ProviderEmbedder, ProviderModel, ProviderSettings, SettingsError, resolve};
use sandbox_agent::task::journal::FileJournal;
use sandbox_agent::task::ports::{Conversation, ConversationError, Room};
use sandbox_agent::task::{self, KeyOf, TaskOrder, TaskPorts};
use sandbox_agent::tools::{Surroundings, Toolbox};
use sandbox_protocol::agent::{NATIVE, RunFailure};
use tokio::task::JoinHandle;

use crate::backend::{Backend, Desk, ForgetError, Order, Outcome};
use crate::hands::Sidecar;
use crate::runs::STEPS;

/// What it works with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Programs and files.
    pub sidecar: Sidecar,
    /// By which providers are reached.
    pub http: reqwest::Client,
    /// Settings of providers, by the sandbox's environment.
    pub providers: BTreeMap<String, String>,
    /// Sessions, a directory each.
    pub sessions: PathBuf,
    /// Runs, a directory each.
    pub runs: PathBuf,
}

/// The native agent.
pub struct Native {
    settings: Settings,
    /// What is still done in the background of a session: its next run waits for it.
    settling: Mutex<HashMap<String, JoinHandle<()>>>,
}

/// Why a run does not begin.
#[derive(Debug, thiserror::Error)]
enum BeginError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Model(#[from] sandbox_agent::model::ModelError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl Native {
    /// An agent that does nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, settling: Mutex::default() }
    }

    fn provider(&self, order: &Order) -> Result<ProviderSettings, SettingsError> {
        let model = if order.model.is_empty() { &order.profile.model } else { &order.model };
        let layers = Layers { context: order.provider.as_ref(), order: &order.env, own: &self.settings.providers };
        resolve(layers, model)
    }

    /// The session's memory. What its last run left to be done is done first.
    async fn remember(
        &self,
        order: &Order,
        provider: &ProviderSettings,
        model: Arc<dyn Model>,
    ) -> Result<Memory, BeginError> {
        let left = self.settling().remove(&order.session);
        if let Some(left) = left {
            let _done = order.cancel.run_until_cancelled(left).await;
        }
        let embedder: Option<Arc<dyn Embedder>> = match provider.embedding_model {
            Some(_) => Some(Arc::new(ProviderEmbedder::new(provider.clone(), &self.settings.http)?)),
            None => None,
        };
        Ok(Memory::open(memory::Settings {
            directory: self.settings.sessions.clone(),
            session: order.session.clone(),
            tokenizer: tokenizer_of(&provider.model),
            model,
            embedder,
            budget_tokens: budget(&order.profile, provider),
        })?)
    }

    async fn begin(&self, order: &Order, desk: &dyn Desk) -> Result<Outcome, BeginError> {
        let provider = self.provider(order)?;
        let price = {
            let price = provider.prices.of(&provider.model);
            move |usage: Usage| Some(price?.cost_micro_usd(usage))
        };
        let model = Arc::new(ProviderModel::new(provider.clone(), self.settings.http.clone())?);
        let memory = self.remember(order, &provider, model.clone()).await?;
        let hands = Arc::new(self.settings.sidecar.clone());
        let surroundings = Surroundings { env: order.env.clone(), ..Surroundings::default() };
        let task = TaskOrder {
            run: order.id.clone(),
            prompt: order.prompt.clone(),
            context: order.context.clone(),
            max_turns: u32::try_from(order.max_turns).unwrap_or(u32::MAX),
            profile: order.profile.clone(),
            key_of: if provider.is_key_of_operator { KeyOf::Operator } else { KeyOf::Customer },
            deadline: order.deadline.into(),
            cancel: order.cancel.clone(),
        };
        let ports = TaskPorts {
            model: &*model,
            conversation: &Remembered(memory.clone()),
            tools: &Toolbox::new(hands.clone(), hands, surroundings),
            desk,
            journal: &FileJournal::new(self.settings.runs.join(&order.id).join(STEPS)),
            price: &price,
        };
        let end = task::run(&task, ports).await;
        let settled = tokio::spawn(async move { memory.settle().await });
        self.settling().insert(order.session.clone(), settled);
        let sandbox_agent::task::TaskEnd { result, failure, turns, usage, cost_micro_usd } = end;
        Ok(Outcome { result, failure, turns, usage, cost_micro_usd })
    }

    /// Nothing panics while it holds the lock.
    fn settling(&self) -> MutexGuard<'_, HashMap<String, JoinHandle<()>>> {
        let mut settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        settling.retain(|_, left| !left.is_finished());
        settling
    }
}

/// Tokens of a conversation that a call is given: half of what the model takes, at most.
fn budget(profile: &Profile, provider: &ProviderSettings) -> usize {
    let takes = provider.context_tokens.map_or(usize::MAX, |tokens| tokens as usize / 2);
    profile.context_tokens.min(takes)
}

#[async_trait]
impl Backend for Native {
    fn name(&self) -> &'static str {
        NATIVE
    }

    async fn run(&self, order: &Order, desk: &dyn Desk) -> Outcome {
        self.begin(order, desk).await.unwrap_or_else(|error| {
            let failure = match error {
                BeginError::Settings(_) | BeginError::Model(_) => RunFailure::BadRequest,
                BeginError::Memory(MemoryError::Budget(_)) => RunFailure::BadRequest,
                BeginError::Memory(_) => {
                    tracing::error!(run = order.id, error = &error as &dyn std::error::Error, "no memory of a session");
                    RunFailure::Internal
                }
            };
            Outcome { failure: Some((failure, error.to_string())), ..Outcome::default() }
        })
    }

    async fn forget(&self, session: &str) -> Result<(), ForgetError> {
        let left = self.settling().remove(session);
        if let Some(left) = left {
            left.abort();
            let _gone = left.await;
        }
        match memory::delete(&self.settings.sessions, session) {
            Err(MemoryError::Busy) => Err(ForgetError::InUse),
            Err(error) => Err(ForgetError::Kept(error.into())),
            Ok(_) => Ok(()),
        }
    }
}

/// A session's memory as the loop sees it.
struct Remembered(Memory);

#[async_trait]
impl Conversation for Remembered {
    async fn append(&self, messages: Vec<Message>) -> Result<(), ConversationError> {
        self.0.append(messages).await.map_err(|error| ConversationError(error.into()))
    }

    async fn count(&self) -> Result<u64, ConversationError> {
        Ok(self.0.len() as u64)
    }

    async fn messages(&self, system_prompt: &str, query: &str, room: Room) -> Result<Vec<Message>, ConversationError> {
        let built = match room {
            Room::Whole => self.0.build(query).await,
            Room::Half => self.0.build_in_half(query).await,
        };
        Ok(built.map_err(|error| ConversationError(error.into()))?.messages(system_prompt))
    }
}
