//! Promises of a session's memory, and those it is kept with: a model that notes what it is asked, and vectors that count words.

mod budget;
mod durability;
mod finding;
mod summaries;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use super::*;
use crate::model::{Answer, Ask, Embedder, Heard, Model, ModelError, Role, ToolCall};

/// A model that writes every fact down: words that begin with `fact`.
struct Scribe {
    asks: watch::Sender<Vec<Ask>>,
    running: AtomicUsize,
    most_running: AtomicUsize,
    /// A permit for each answer.
    gate: Semaphore,
    fails: AtomicBool,
    /// Words after the facts.
    filler_words: AtomicUsize,
}

impl Scribe {
    fn new() -> Arc<Self> {
        let scribe = Self::silent();
        scribe.gate.add_permits(Semaphore::MAX_PERMITS);
        scribe
    }

    /// One that answers when it is let.
    fn silent() -> Arc<Self> {
        Arc::new(Self {
            asks: watch::Sender::new(Vec::new()),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            fails: AtomicBool::new(false),
            filler_words: AtomicUsize::new(0),
        })
    }

    fn asked(&self) -> usize {
        self.asks.borrow().len()
    }

    async fn is_asked(&self, times: usize) {
        self.asks.subscribe().wait_for(|asks| asks.len() >= times).await.unwrap();
    }
}

#[async_trait]
impl Model for Scribe {
    async fn answer(&self, ask: &Ask, _: &mut (dyn for<'h> FnMut(Heard<'h>) + Send)) -> Result<Answer, ModelError> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        self.asks.send_modify(|asks| asks.push(ask.clone()));
        self.gate.acquire().await.unwrap().forget();
        self.running.fetch_sub(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(ModelError::Failed { status: 500 });
        }
        let words = ask.messages[1].content.split_whitespace();
        let facts: Vec<&str> = words.filter(|word| word.starts_with("fact")).collect();
        let filler = " filler".repeat(self.filler_words.load(Ordering::SeqCst));
        Ok(Answer { text: format!("Facts: {}{filler}", facts.join(" ")), ..Answer::default() })
    }
}

/// Vectors that count words, of which some mean the same.
#[derive(Default)]
struct Bag {
    fails: AtomicBool,
    hangs: AtomicBool,
    texts: AtomicUsize,
}

#[async_trait]
impl Embedder for Bag {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(ModelError::Failed { status: 500 });
        }
        self.texts.fetch_add(texts.len(), Ordering::SeqCst);
        Ok(texts.iter().map(|text| bag(text)).collect())
    }
}

fn bag(text: &str) -> Vec<f32> {
    let mut vector = vec![0.0; 512];
    for word in text.to_lowercase().split_whitespace() {
        let word = if word == "automobile" { "car" } else { word };
        let hash = word.bytes().fold(7_usize, |hash, byte| hash.wrapping_mul(31) + usize::from(byte));
        vector[hash % 512] += 1.0;
    }
    vector
}

/// A place for sessions, and who works on them.
struct Desk {
    directory: TempDir,
    scribe: Arc<Scribe>,
    embedder: Option<Arc<Bag>>,
    tokenizer: Arc<dyn Tokenizer>,
    budget_tokens: usize,
}

impl Desk {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            scribe: Scribe::new(),
            embedder: None,
            tokenizer: Arc::new(Estimate),
            budget_tokens: 8_000,
        }
    }

    fn settings(&self, session: &str) -> Settings {
        Settings {
            directory: self.directory.path().into(),
            session: session.into(),
            tokenizer: self.tokenizer.clone(),
            model: self.scribe.clone(),
            embedder: self.embedder.clone().map(|embedder| embedder as Arc<dyn Embedder>),
            budget_tokens: self.budget_tokens,
        }
    }

    fn open(&self, session: &str) -> Memory {
        Memory::open(self.settings(session)).unwrap()
    }
}

fn user(text: impl Into<String>) -> Message {
    Message::new(Role::User, text)
}

fn assistant(text: impl Into<String>) -> Message {
    Message::new(Role::Assistant, text)
}

/// An assistant's message that makes these calls.
fn calling(text: &str, ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall { id: (*id).into(), name: "read_file".into(), arguments: json!({ "path": id }) };
    Message { tool_calls: ids.iter().map(call).collect(), ..assistant(text) }
}

/// A text of so many tokens, as [`Estimate`] counts them, that begins with this word.
fn long(word: &str, tokens: usize) -> String {
    let text = format!("{word} {}", "ab ".repeat(tokens));
    text[..tokens * 3].to_string()
}

fn ids(messages: &[Remembered]) -> Vec<u64> {
    messages.iter().map(|one| one.id).collect()
}
