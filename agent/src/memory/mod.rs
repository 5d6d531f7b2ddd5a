//! Memory of a conversation, in three tiers: what was said last, word for word; a summary of what is older; and what of it is
//! like the question. Each call of the model is given a context built anew, of a bounded number of tokens.
//!
//! A session is the one truth and only grows: messages are on disk when [`Memory::append`] returns. Summaries and vectors are
//! made from it in the background, and can be made again at any time.
//!
//! Not here: prompts, and when the model is called. A system prompt is not counted in the budget.

mod background;
mod context;
mod error;
mod retrieval;
mod session;
mod store;
mod summary;
mod tiers;
mod tokenizer;
mod units;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::context::{ATTRIBUTION, Context, Metadata, Remembered, SUMMARY_HEADER};
pub use self::error::MemoryError;
pub use self::store::{SessionInfo, delete, sessions};
pub use self::tokenizer::{Cl100k, Estimate, O200k, Tokenizer, message_tokens, tokenizer_of};

use self::context::attributed;
use self::retrieval::{Question, Vectors, embedded};
use self::session::Session;
use self::store::{Journal, Place, Stored};
use self::summary::{Digests, Kept, Summariser, Summary};
use self::tiers::Budget;
use crate::limits::{CONTEXT_TOKENS_MIN, MEMORY_MESSAGE_BYTES_MAX, MEMORY_MESSAGES_MAX, QUESTION_EMBEDDING_MS_MAX};
use crate::model::{Embedder, Message, Model};

/// What a session's memory needs.
pub struct Settings {
    /// Where sessions are kept, each in a directory of its own.
    pub directory: PathBuf,
    /// Id of the session: letters, digits, `-`, `_` and, not in front, `.`; at most 128.
    pub session: String,
    /// Counts tokens as the model does that is given the context.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// Makes summaries. It must take as many tokens as the budget, and as many as it answers.
    pub model: Arc<dyn Model>,
    /// Makes vectors of messages; without one their words are searched.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// Tokens of a context.
    pub budget_tokens: usize,
}

/// A handle to a session. When the last one is dropped, what is done in the background ends.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
    _stop: Arc<DropGuard>,
}

struct Inner {
    id: String,
    place: Place,
    budget: Budget,
    tokenizer: Arc<dyn Tokenizer>,
    summariser: Arc<Summariser>,
    embedder: Option<Arc<dyn Embedder>>,
    journal: Arc<AsyncMutex<Journal>>,
    session: RwLock<Session>,
    digests: Arc<AsyncMutex<Digests>>,
    asked: Mutex<Option<Asked>>,
    /// Tasks in the background.
    busy: watch::Sender<usize>,
    stop: CancellationToken,
}

/// The question before, since a loop asks the same again and again.
struct Asked {
    text: String,
    /// If it has one.
    vector: Option<Arc<[f32]>>,
}

impl Memory {
    /// Opens a session or begins it, and does what was due when it was left. Reads the session's files, and must be called
    /// where tasks can be spawned.
    ///
    /// # Errors
    /// Every [`MemoryError`] but those of storing, listing and deleting; [`MemoryError::Busy`] while another handle, in
    /// whichever process, has the session open.
    pub fn open(settings: Settings) -> Result<Self, MemoryError> {
        let Settings { directory, session, tokenizer, model, embedder, budget_tokens } = settings;
        if budget_tokens < CONTEXT_TOKENS_MIN {
            return Err(MemoryError::Budget(budget_tokens));
        }
        let place = Place::of(&directory, &session)?;
        let (journal, mut messages) = Journal::open(&place)?;
        messages.iter_mut().for_each(|stored| count_again(&*tokenizer, stored));
        let budget = Budget::of(budget_tokens);
        let summariser = Summariser::new(model, tokenizer.clone(), budget_tokens, budget.summary);
        let Kept { summary, digests } = kept(&place, &session);
        let summary = summary.map(|summary| fitting(&summariser, budget, summary));
        let vectors = Vectors::open(place.vectors(), messages.len());
        let stop = CancellationToken::new();
        let inner = Arc::new(Inner {
            id: session,
            place,
            budget,
            tokenizer,
            summariser: Arc::new(summariser),
            embedder,
            journal: Arc::new(AsyncMutex::new(journal)),
            session: RwLock::new(Session::new(messages, vectors, summary)),
            digests: Arc::new(AsyncMutex::new(digests)),
            asked: Mutex::new(None),
            busy: watch::Sender::new(0),
            stop: stop.clone(),
        });
        inner.tend();
        Ok(Self { inner, _stop: Arc::new(stop.drop_guard()) })
    }

    /// Stores messages, in this order: all of them or, on an error, none. They are on disk when this returns, also when
    /// nobody waits for it any more.
    ///
    /// # Errors
    /// [`MemoryError::MessageTooLong`], [`MemoryError::Full`], [`MemoryError::Write`], [`MemoryError::InDoubt`],
    /// [`MemoryError::Encode`], [`MemoryError::Interrupted`].
    pub async fn append(&self, messages: Vec<Message>) -> Result<(), MemoryError> {
        if messages.is_empty() {
            return Ok(());
        }
        let lengths = messages.iter().map(message_bytes);
        if let Some(bytes) = lengths.max().filter(|bytes| *bytes > MEMORY_MESSAGE_BYTES_MAX) {
            return Err(MemoryError::MessageTooLong(bytes));
        }
        // In a task: were it dropped half-way, messages would be on disk and not in memory.
        let inner = self.inner.clone();
        tokio::spawn(async move { inner.append(messages).await }).await.map_err(MemoryError::Interrupted)?
    }

    /// The context for a call of the model. `query` is what the customer said last, or what the step is about.
    ///
    /// # Errors
    /// None so far: what fails on the way, such as a vector, is done without.
    pub async fn build(&self, query: &str) -> Result<Context, MemoryError> {
        self.build_within(query, self.inner.budget).await
    }

    /// The same, in half as many tokens: for a model that takes less than was thought. Its summary may be left out.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub async fn build_in_half(&self, query: &str) -> Result<Context, MemoryError> {
        self.build_within(query, self.inner.budget.half()).await
    }

    async fn build_within(&self, query: &str, budget: Budget) -> Result<Context, MemoryError> {
        let inner = &*self.inner;
        let vector = inner.vector_of(query).await;
        let question = Question { text: query, vector: vector.as_deref() };
        let session = inner.session();
        let tiers = session.tiers(&*inner.tokenizer, budget, question);
        let summary = session.summary.as_ref().filter(|summary| summary.tokens <= budget.summary);
        let messages = tiers.recent.iter().chain(&tiers.semantic);
        let total_tokens = messages.map(|one| one.tokens).sum::<usize>() + summary.map_or(0, |summary| summary.tokens);
        let metadata = Metadata {
            recent_count: tiers.recent.len(),
            semantic_count: tiers.semantic.len(),
            has_summary: summary.is_some(),
            built_at: SystemTime::now(),
        };
        Ok(Context {
            session_id: inner.id.clone(),
            summary: summary.map(|summary| summary.text.clone()),
            recent_messages: tiers.recent,
            semantic_messages: tiers.semantic,
            total_tokens,
            metadata,
        })
    }

    /// Waits until nothing is done in the background.
    pub async fn settle(&self) {
        // The sender lives as long as this handle.
        drop(self.inner.busy.subscribe().wait_for(|tasks| *tasks == 0).await);
    }

    /// Messages of the session.
    pub fn len(&self) -> usize {
        self.inner.session().len()
    }

    /// Whether nothing was said yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    async fn append(self: Arc<Self>, messages: Vec<Message>) -> Result<(), MemoryError> {
        let mut journal = self.journal.clone().lock_owned().await;
        if self.session().len() + messages.len() > MEMORY_MESSAGES_MAX {
            return Err(MemoryError::Full);
        }
        let tokenizer = self.tokenizer.clone();
        let storing = spawn_blocking(move || {
            let at_ms = now_ms();
            let stored: Vec<Stored> =
                messages.into_iter().map(|message| counted(&*tokenizer, at_ms, message)).collect();
            journal.add(&stored)?;
            Ok((stored, journal))
        });
        let (stored, journal) = storing.await.map_err(MemoryError::Interrupted)??;
        self.session_mut().add(stored);
        drop(journal);
        self.tend();
        Ok(())
    }

    async fn vector_of(&self, query: &str) -> Option<Arc<[f32]>> {
        let embedder = self.embedder.as_ref()?;
        let text = embedded(query);
        if text.is_empty() {
            return None;
        }
        if let Some(asked) = &*self.asked.lock().unwrap_or_else(PoisonError::into_inner)
            && asked.text == text
        {
            return asked.vector.clone();
        }
        let texts = [text.to_string()];
        let made = timeout(Duration::from_millis(QUESTION_EMBEDDING_MS_MAX), embedder.embed(&texts)).await;
        let vector = match made {
            Ok(Ok(vectors)) => vectors.into_iter().next().map(Arc::from),
            Ok(Err(error)) => {
                tracing::warn!(session = self.id, %error, "the question has no vector, its words are searched");
                None
            }
            Err(_) => {
                tracing::warn!(session = self.id, "the question's vector takes too long, its words are searched");
                None
            }
        };
        let [text] = texts;
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Asked { text, vector: vector.clone() });
        vector
    }

    fn session(&self) -> RwLockReadGuard<'_, Session> {
        self.session.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn session_mut(&self) -> RwLockWriteGuard<'_, Session> {
        self.session.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message with its tokens.
fn counted(tokenizer: &dyn Tokenizer, at_ms: u64, message: Message) -> Stored {
    Stored {
        at_ms,
        counted_by: tokenizer.name().to_string(),
        tokens: message_tokens(tokenizer, &message),
        attributed_tokens: message_tokens(tokenizer, &attributed(&message)),
        message,
    }
}

/// Counts what another tokenizer counted: the session goes on with another model.
fn count_again(tokenizer: &dyn Tokenizer, stored: &mut Stored) {
    if stored.counted_by != tokenizer.name() {
        *stored = counted(tokenizer, stored.at_ms, stored.message.clone());
    }
}

/// What was kept beside the messages; nothing where it cannot be read, since it can be made again.
fn kept(place: &Place, session: &str) -> Kept {
    let read = place.read_summary().map(|bytes| serde_json::from_slice(&bytes)).transpose();
    read.unwrap_or_else(|error| {
        tracing::warn!(session, %error, "the summary is damaged, and will be made again");
        None
    })
    .unwrap_or_default()
}

/// A summary that was made for another tokenizer or budget, as it has room now.
fn fitting(summariser: &Summariser, budget: Budget, summary: Summary) -> Summary {
    if summary.counted_by == summariser.tokenizer.name() && summary.tokens <= budget.summary {
        return summary;
    }
    summariser.summary(&summary.text, summary.through)
}

fn message_bytes(message: &Message) -> usize {
    let calls = message.tool_calls.iter();
    let calls = calls.map(|call| call.id.len() + call.name.len() + call.arguments.to_string().len());
    message.content.len() + message.tool_call_id.as_ref().map_or(0, String::len) + calls.sum::<usize>()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
