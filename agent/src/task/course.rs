//! The course of a task, turn by turn.

use std::time::Duration;

use sandbox_protocol::agent::RunFailure;
use sandbox_protocol::agent::event::Told;

use super::gate::{Gate, Spot};
use super::halt::Halt;
use super::journal::Step;
use super::ledger::Ledger;
use super::past::Past;
use super::ports::{Desk, Room};
use super::repeats::{Repeats, Verdict};
use super::{TaskEnd, TaskOrder, TaskPorts, prompt};
use crate::limits::{CLOSING_MS, REPEATS_MAX};
use crate::model::{Answer, Ask, Heard, Message, ModelError, Role, Usage};

/// A task under way. Its future may be dropped at any moment; what is here is right then too.
pub(super) struct Course<'a> {
    order: &'a TaskOrder,
    ports: TaskPorts<'a>,
    gate: Gate<'a>,
    past: Past,
    /// Messages of this task that its conversation has from a former life.
    kept: usize,
    ledger: Ledger,
    repeats: Repeats,
    turns: u32,
    /// The turn under way: an answer, and the results that there are.
    turn: Vec<Message>,
    /// Last words.
    words: String,
}

impl<'a> Course<'a> {
    pub(super) fn new(order: &'a TaskOrder, ports: TaskPorts<'a>) -> Self {
        Self {
            order,
            ports,
            gate: Gate::new(order, ports),
            past: Past::default(),
            kept: 0,
            ledger: Ledger::default(),
            repeats: Repeats::default(),
            turns: 0,
            turn: Vec::new(),
            words: String::new(),
        }
    }

    /// Learns what former lives did.
    pub(super) async fn recall(&mut self) -> Result<(), Halt> {
        self.past = Past::of(self.ports.journal.load().await?);
        Ok(())
    }

    /// To the agent's own end.
    pub(super) async fn go(&mut self) -> Result<(), Halt> {
        self.begin().await?;
        loop {
            let answer = self.answer().await?;
            self.turn.push(answer.clone());
            for (at, call) in answer.tool_calls.iter().enumerate() {
                let spot = Spot { turn: self.turns, number: at + 1, of: answer.tool_calls.len() };
                let done = self.gate.pass(&mut self.past, call, spot).await?;
                let verdict = self.repeats.note(&call.name, &call.arguments.to_string(), &done.content);
                self.turn.push(Message::of_tool(&call.id, remarked(done.content, verdict)));
                if verdict == Verdict::End {
                    let words =
                        format!("the agent made the same call more than {REPEATS_MAX} times with the same outcome");
                    return Err(Halt::new(RunFailure::Loop, words));
                }
            }
            let turn = std::mem::take(&mut self.turn);
            // Providers refuse a conversation with an answer that says nothing.
            if !answer.tool_calls.is_empty() || !answer.content.trim().is_empty() {
                self.keep(turn).await?;
            }
            if answer.tool_calls.is_empty() {
                return Ok(());
            }
        }
    }

    /// Leaves the conversation in order, whatever ended the task.
    pub(super) async fn end(mut self, ended: Result<(), Halt>) -> TaskEnd {
        if !self.turn.is_empty() {
            let turn = closed(std::mem::take(&mut self.turn));
            match tokio::time::timeout(Duration::from_millis(CLOSING_MS), self.keep(turn)).await {
                Ok(Ok(())) => {}
                Ok(Err(halt)) => tracing::warn!(words = halt.words, "the last turn of a task is not kept"),
                Err(_) => tracing::warn!("the last turn of a task is not kept: there was no time"),
            }
        }
        // Answers of a former life that this one did not come to count all the same.
        while let Some((message, usage)) = self.past.answer(self.turns + 1) {
            self.count(&message, usage);
        }
        TaskEnd {
            result: self.words,
            failure: ended.err().map(|halt| (halt.failure, halt.words)),
            turns: self.turns,
            usage: self.ledger.usage,
            cost_micro_usd: self.ledger.cost_micro_usd,
        }
    }

    /// Has the customer's words in the conversation.
    async fn begin(&mut self) -> Result<(), Halt> {
        let messages = self.ports.conversation.count().await?;
        match self.past.messages {
            Some(before) => self.kept = usize::try_from(messages.saturating_sub(before)).unwrap_or(usize::MAX),
            None => self.ports.journal.record(Step::Begun { messages }).await?,
        }
        let words = prompt::user_message(&self.order.prompt, &self.order.context);
        self.keep(vec![Message::new(Role::User, words)]).await
    }

    /// Adds messages to the conversation, unless a former life did.
    async fn keep(&mut self, mut messages: Vec<Message>) -> Result<(), Halt> {
        let had = self.kept.min(messages.len());
        self.kept -= had;
        messages.drain(..had);
        if messages.is_empty() { Ok(()) } else { Ok(self.ports.conversation.append(messages).await?) }
    }

    /// The next answer: a former life's, or the model's.
    async fn answer(&mut self) -> Result<Message, Halt> {
        let turn = self.turns + 1;
        let (message, usage, is_new) = match self.past.answer(turn) {
            Some((message, usage)) => (message, usage, false),
            None => {
                self.check_bounds()?;
                let Answer { text, tool_calls, usage, retries: _ } = self.ask().await?;
                let message = Message { tool_calls, ..Message::new(Role::Assistant, text) };
                let step = Step::AnswerStored { turn, message: message.clone(), usage };
                self.ports.journal.record(step).await?;
                (message, usage, true)
            }
        };
        self.count(&message, usage);
        if is_new {
            let Ledger { usage, cost_micro_usd } = self.ledger;
            let (input_tokens, output_tokens) = (usage.input_tokens, usage.output_tokens);
            self.ports.desk.tell(Told::Usage { input_tokens, output_tokens, cost_micro_usd });
        }
        Ok(message)
    }

    fn count(&mut self, answer: &Message, usage: Usage) {
        self.turns += 1;
        self.ledger.add(usage, self.ports.price);
        self.words.clone_from(&answer.content);
    }

    /// Whether the model may be asked once more.
    fn check_bounds(&self) -> Result<(), Halt> {
        let turns_max = self.order.max_turns.max(1);
        if self.turns >= turns_max {
            return Err(Halt::new(RunFailure::TurnLimit, format!("the task has had its {turns_max} turns")));
        }
        if self.ledger.is_spent(self.order.profile.cost_micro_usd_max) {
            return Err(Halt::new(RunFailure::CostLimit, "the task has cost as much as it may"));
        }
        Ok(())
    }

    async fn ask(&self) -> Result<Answer, Halt> {
        let answer = match self.ask_within(Room::Whole).await? {
            Err(ModelError::ContextOverflow) => {
                let message = "the conversation is longer than the model takes; it is told half of it".to_owned();
                self.ports.desk.tell(Told::Warning { message });
                self.ask_within(Room::Half).await?
            }
            answer => answer,
        };
        answer.map_err(|error| Halt::of_model(&error, self.order.key_of))
    }

    async fn ask_within(&self, room: Room) -> Result<Result<Answer, ModelError>, Halt> {
        let system_prompt = prompt::system_prompt(&self.order.profile.system_prompt);
        let messages = self.ports.conversation.messages(system_prompt, &self.order.prompt, room).await?;
        let tools = self.ports.tools.specs(|tool| self.gate.has(tool));
        let mut ear = Ear { desk: self.ports.desk, heard: false };
        let ask = Ask { messages, tools, output_tokens_max: None };
        let answer = self.ports.model.answer(&ask, &mut |piece| ear.hear(piece)).await;
        if let Ok(answer) = &answer
            && !ear.heard
            && !answer.text.is_empty()
        {
            ear.hear(Heard::Text(&answer.text));
        }
        Ok(answer)
    }
}

/// Tells readers what the model says while it says it.
struct Ear<'a> {
    desk: &'a dyn Desk,
    /// Something of this answer was told.
    heard: bool,
}

impl Ear<'_> {
    fn hear(&mut self, piece: Heard<'_>) {
        let told = match piece {
            Heard::Text(text) => Told::Message { text: text.to_owned() },
            Heard::Reasoning(text) => return self.desk.tell(Told::Reasoning { text: text.to_owned() }),
            Heard::Again if self.heard => {
                let message = "the model begins its answer anew: what it said of it before does not count".to_owned();
                Told::Warning { message }
            }
            Heard::Again => return,
        };
        self.heard = matches!(told, Told::Message { .. });
        self.desk.tell(told);
    }
}

fn remarked(content: String, verdict: Verdict) -> String {
    match verdict {
        Verdict::Fine | Verdict::End => content,
        Verdict::Tell => format!(
            "{content}\n\n[This is the {REPEATS_MAX}rd time that this call has this outcome. Do something else: the task ends \
             if it comes once more.]"
        ),
    }
}

/// A turn in which every call has a result.
fn closed(mut turn: Vec<Message>) -> Vec<Message> {
    let missing: Vec<Message> = turn[0]
        .tool_calls
        .iter()
        .skip(turn.len() - 1)
        .map(|call| {
            let words =
                "The task ended before this call did. It may have been carried out in full, in part or not at all.";
            Message::of_tool(&call.id, words)
        })
        .collect();
    turn.extend(missing);
    turn
}
