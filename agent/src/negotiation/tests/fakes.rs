//! A model that knows its call by the words it is told, checkpoints in memory, and a room around both.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::{Move, MoveReport, NegotiateBody};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::*;
use crate::model::{Answer, Ask, Heard, Model, ModelError, Usage};

type Reply = Box<dyn Fn(&Asked) -> Result<Answer, ModelError> + Send + Sync>;

/// What the model was told, and which call it is.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// From 0 on.
    pub(super) number: usize,
    /// Such as `critique D1 2`.
    pub(super) label: String,
    pub(super) system: String,
    pub(super) user: String,
}

/// A model with a script.
pub(super) struct Scripted {
    reply: Reply,
    delay: Duration,
    pub(super) asked: Mutex<Vec<Asked>>,
    /// Of who may be asked, where calls come one after the other.
    pub(super) turns: Option<Arc<Semaphore>>,
    now: AtomicUsize,
    pub(super) at_once: AtomicUsize,
}

/// Everything around a debate.
pub(super) struct Hall {
    pub(super) model: Scripted,
    pub(super) kept: Box<dyn Checkpoints>,
    pub(super) told: Mutex<Vec<Told>>,
    pub(super) context_tokens: Option<usize>,
    pub(super) cancel: CancellationToken,
    pub(super) deadline: Option<Instant>,
}

/// Checkpoints of one life.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) former: Vec<Completed>,
    pub(super) recorded: Arc<Mutex<Vec<Completed>>>,
    pub(super) fails: bool,
}

#[async_trait]
impl Checkpoints for Kept {
    fn load(&self) -> Vec<Completed> {
        self.former.clone()
    }

    async fn record(&self, completed: &Completed) -> Result<(), CheckpointError> {
        self.recorded.lock().unwrap().push(completed.clone());
        if self.fails { Err(CheckpointError::BrokenOff) } else { Ok(()) }
    }

    async fn settle(&self) -> Result<(), CheckpointError> {
        if self.fails { Err(CheckpointError::BrokenOff) } else { Ok(()) }
    }
}

impl Hall {
    /// A room whose model says what it is asked for.
    pub(super) fn new() -> Self {
        Self::with(|asked| Ok(answered(&usual(&asked.label))))
    }

    pub(super) fn with(reply: impl Fn(&Asked) -> Result<Answer, ModelError> + Send + Sync + 'static) -> Self {
        let model = Scripted {
            reply: Box::new(reply),
            delay: Duration::ZERO,
            asked: Mutex::default(),
            turns: None,
            now: AtomicUsize::new(0),
            at_once: AtomicUsize::new(0),
        };
        let (told, cancel) = (Mutex::default(), CancellationToken::new());
        Self { model, kept: Box::new(Kept::default()), told, context_tokens: None, cancel, deadline: None }
    }

    pub(super) fn slow(mut self, delay: Duration) -> Self {
        self.model.delay = delay;
        self
    }

    pub(super) fn keeping(mut self, kept: impl Checkpoints + 'static) -> Self {
        self.kept = Box::new(kept);
        self
    }

    pub(super) async fn debate(&self, brief: &Brief) -> MoveReport {
        let tell = |told| self.told.lock().unwrap().push(told);
        let budget = Budget { context_tokens: self.context_tokens, count: &tokens };
        let price = |usage: Usage| Some(usage.input_tokens + 10 * usage.output_tokens);
        let (model, checkpoints) = (&self.model, self.kept.as_ref());
        let (cancel, deadline) = (self.cancel.clone(), self.deadline);
        negotiate(brief, &Room { model, checkpoints, tell: &tell, budget, price: &price, cancel, deadline }).await
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.model.asked.lock().unwrap().clone()
    }

    pub(super) fn labels(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.label).collect()
    }

    pub(super) fn told(&self, name: &str) -> Vec<Told> {
        self.told.lock().unwrap().iter().filter(|told| told.name() == name).cloned().collect()
    }
}

#[async_trait]
impl Model for Scripted {
    async fn answer(&self, ask: &Ask, _: &mut (dyn for<'h> FnMut(Heard<'h>) + Send)) -> Result<Answer, ModelError> {
        if let Some(turns) = &self.turns {
            turns.acquire().await.unwrap().forget();
        }
        let (system, user) = (ask.messages[0].content.clone(), ask.messages[1].content.clone());
        let asked = {
            let mut all = self.asked.lock().unwrap();
            let asked = Asked { number: all.len(), label: label(&system, &user), system, user };
            all.push(asked.clone());
            asked
        };
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once.fetch_max(now, Ordering::SeqCst);
        if !self.delay.is_zero() {
            // A provider takes its time; the clock is paused.
            sleep_until(Instant::now() + self.delay).await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
        (self.reply)(&asked)
    }
}

/// Which call a model is told of.
fn label(system: &str, user: &str) -> String {
    let personas = [("Growth", "D1"), ("Operational", "D2"), ("Stakeholder", "D3")];
    let maker = personas.iter().find(|(word, _)| system.starts_with(&format!("You are a{} {word}", n(word))));
    let maker = maker.map_or("?", |(_, id)| *id);
    let between = |from: &str, to: &str| user.split_once(from).and_then(|(_, rest)| Some(rest.split_once(to)?.0));
    if user.contains("Provide your initial counterpoints") {
        "opening".into()
    } else if let Some(round) = between("You are in round ", " ") {
        format!("critique {} {round}", between("Your conversation with ", " ").unwrap_or("?"))
    } else if user.contains("You are defending this business move") {
        let last = user.rsplit_once("] CRITIC:**").and_then(|(before, _)| before.rsplit_once("**[Round "));
        format!("defence {maker} {}", last.map_or("?", |(_, round)| round))
    } else if let Some(through) = between("Write the minutes of rounds 2 to ", " ") {
        format!("summary {through}")
    } else {
        format!("scoring {maker}")
    }
}

fn n(word: &str) -> &'static str {
    if word.starts_with('O') { "n" } else { "" }
}

/// What the usual model says; of scores, those of the design's example.
pub(super) fn usual(label: &str) -> String {
    let scores = |metrics: [u32; 4]| {
        let [impact, feasibility, risk, alignment] = metrics;
        format!(
            r#"{{"impact": {impact}, "feasibility": {feasibility}, "risk_adjusted_return": {risk},
            "strategic_alignment": {alignment}, "reasoning": "Sound."}}"#
        )
    };
    match label {
        "scoring D1" => scores([8, 9, 7, 8]),
        "scoring D2" => scores([7, 8, 8, 9]),
        "scoring D3" => scores([9, 8, 8, 9]),
        label => format!("Words of {label}."),
    }
}

pub(super) fn answered(text: &str) -> Answer {
    let usage = Usage { input_tokens: 10, output_tokens: 5 };
    Answer { text: text.to_owned(), usage, ..Answer::default() }
}

pub(super) fn body(rounds: u32) -> NegotiateBody {
    NegotiateBody {
        id: "r".into(),
        ticker: "ACME".into(),
        one: Move { move_id: "m1".into(), content: "Buy the competitor.".into() },
        max_rounds: rounds,
        personas: BTreeMap::new(),
        provider: None,
        model: String::new(),
        env: BTreeMap::new(),
        timeout_ms: 0,
        attach_only: false,
    }
}

pub(super) fn brief(rounds: u32) -> Brief {
    Brief::of(&body(rounds))
}

pub(super) fn tokens(text: &str) -> usize {
    text.len().div_ceil(4)
}
