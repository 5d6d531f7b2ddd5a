//! A task with fakes behind all its ports. Each may be the place where the process dies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_agent::log::LogError;
use sandbox_agent::model::{Answer, Ask, Heard, Message, Model, ModelError, Role, ToolCall, Usage};
use sandbox_agent::profile::Profile;
use sandbox_agent::task::journal::{Journal, Step};
use sandbox_agent::task::ports::{Conversation, ConversationError, Desk, Room};
use sandbox_agent::task::{KeyOf, TaskEnd, TaskOrder, TaskPorts, run};
use sandbox_agent::tools::fakes::{FakeFiles, FakeSandbox, wrote};
use sandbox_agent::tools::ports::{Execution, Ran, Sandbox, SandboxError};
use sandbox_agent::tools::{Surroundings, Toolbox};
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{Decision, RunFailure};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Every moment at which a process may die, counted; at one of them it does.
#[derive(Default)]
pub(crate) struct Fate {
    moments: AtomicUsize,
    last: Mutex<Option<usize>>,
    died: Notify,
}

impl Fate {
    /// From now on the process dies at this moment, or never.
    pub(crate) fn die_at(&self, moment: Option<usize>) {
        self.moments.store(0, Ordering::SeqCst);
        *self.last.lock().unwrap() = moment;
    }

    async fn moment(&self) {
        let moment = self.moments.fetch_add(1, Ordering::SeqCst);
        if *self.last.lock().unwrap() == Some(moment) {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// What the model does when it is asked.
pub(crate) enum Reply {
    /// Says this, in these pieces, and wants these calls.
    Says(Vec<Heard<'static>>, Answer),
    /// Fails.
    Fails(ModelError),
    /// Never answers.
    Hangs,
}

/// A model that answers by how many turns it is told of.
#[derive(Default)]
pub(crate) struct Script {
    turns: Mutex<BTreeMap<usize, Vec<Reply>>>,
    pub(crate) asks: Mutex<Vec<Ask>>,
}

impl Script {
    /// As the next turn: these replies, one at each call, the last one from then on.
    fn turn(&self, replies: Vec<Reply>) {
        let mut turns = self.turns.lock().unwrap();
        let number = turns.len();
        turns.insert(number, replies);
    }
}

/// A conversation in memory.
#[derive(Default)]
pub(crate) struct Talk {
    pub(crate) messages: Mutex<Vec<Message>>,
    pub(crate) rooms: Mutex<Vec<Room>>,
}

/// A journal in memory, which may refuse the step of this number.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) steps: Mutex<Vec<Step>>,
    pub(crate) refused: Mutex<Option<usize>>,
}

/// Readers, and a customer who decides so, or never.
#[derive(Default)]
pub(crate) struct Readers {
    pub(crate) told: Mutex<Vec<Told>>,
    pub(crate) asked: Mutex<Vec<ToolCall>>,
    pub(crate) decision: Mutex<Option<Decision>>,
}

/// A sandbox whose process may die before and after a program, with what each program did.
pub(crate) struct Machine {
    fate: Arc<Fate>,
    pub(crate) fake: FakeSandbox,
    pub(crate) effects: Arc<Mutex<Vec<String>>>,
    hangs: Mutex<bool>,
}

/// A task, and all it works with.
pub(crate) struct Ground {
    pub(crate) fate: Arc<Fate>,
    pub(crate) model: Script,
    pub(crate) talk: Talk,
    pub(crate) journal: Steps,
    pub(crate) readers: Readers,
    pub(crate) sandbox: Arc<Machine>,
    pub(crate) files: Arc<FakeFiles>,
    pub(crate) toolbox: Toolbox,
    pub(crate) order: TaskOrder,
    pub(crate) price: fn(Usage) -> Option<u64>,
}

/// One step of a script: a call of a tool.
pub(crate) fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments }
}

/// What each answer costs.
pub(crate) const USAGE: Usage = Usage { input_tokens: 100, output_tokens: 10 };

impl Ground {
    pub(crate) fn new() -> Self {
        let fate = Arc::new(Fate::default());
        let effects = Arc::new(Mutex::new(Vec::new()));
        let done = Arc::clone(&effects);
        let fake = FakeSandbox::new(move |execution| {
            done.lock().unwrap().push(execution.id.clone());
            Ok(wrote(&execution.code))
        });
        let sandbox = Arc::new(Machine { fate: fate.clone(), fake, effects, hangs: Mutex::new(false) });
        let files = Arc::new(FakeFiles::default());
        Self {
            fate,
            model: Script::default(),
            talk: Talk::default(),
            journal: Steps::default(),
            readers: Readers::default(),
            toolbox: Toolbox::new(sandbox.clone(), files.clone(), Surroundings::default()),
            sandbox,
            files,
            order: TaskOrder {
                run: "run".into(),
                prompt: "Go.".into(),
                context: Map::new(),
                max_turns: 20,
                profile: Profile::named("p"),
                key_of: KeyOf::Customer,
                deadline: Instant::now() + Duration::from_secs(600),
                cancel: CancellationToken::new(),
            },
            price: |_| None,
        }
    }

    /// The model says this, and is done.
    pub(crate) fn says(self, text: &'static str) -> Self {
        let answer = Answer { text: text.into(), usage: USAGE, ..Answer::default() };
        self.replies(vec![Reply::Says(vec![Heard::Text(text)], answer)])
    }

    /// The model wants these calls.
    pub(crate) fn calls(self, tool_calls: impl IntoIterator<Item = ToolCall>) -> Self {
        let answer = Answer { tool_calls: tool_calls.into_iter().collect(), usage: USAGE, ..Answer::default() };
        self.replies(vec![Reply::Says(Vec::new(), answer)])
    }

    /// In its next turn the model does the first of these, and the next when it is asked again.
    pub(crate) fn replies(self, replies: Vec<Reply>) -> Self {
        self.model.turn(replies);
        self
    }

    /// No program ever ends.
    pub(crate) fn hanging(self) -> Self {
        *self.sandbox.hangs.lock().unwrap() = true;
        self
    }

    pub(crate) fn ports(&self) -> TaskPorts<'_> {
        TaskPorts {
            model: self,
            conversation: self,
            tools: &self.toolbox,
            desk: self,
            journal: self,
            price: &self.price,
        }
    }

    /// The task to its end.
    pub(crate) async fn run(&self) -> TaskEnd {
        run(&self.order, self.ports()).await
    }

    /// A life of the task; `None` if the process died.
    pub(crate) async fn live(&self, ports: TaskPorts<'_>) -> Option<TaskEnd> {
        tokio::select! {
            biased;
            () = self.fate.died.notified() => None,
            end = run(&self.order, ports) => Some(end),
        }
    }

    /// How it failed.
    pub(crate) async fn failure(&self) -> Option<RunFailure> {
        self.run().await.failure.map(|(failure, _)| failure)
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.talk.messages.lock().unwrap().clone()
    }

    /// What the model was told of its calls.
    pub(crate) fn results(&self) -> Vec<String> {
        let of_tools = self.messages().into_iter().filter(|message| message.role == Role::Tool);
        of_tools.map(|message| message.content).collect()
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        self.readers.told.lock().unwrap().clone()
    }

    /// What runs have done in the sandbox, in order.
    pub(crate) fn effects(&self) -> Vec<String> {
        self.sandbox.effects.lock().unwrap().clone()
    }
}

#[async_trait]
impl Model for Ground {
    async fn answer(&self, ask: &Ask, hear: &mut (dyn for<'h> FnMut(Heard<'h>) + Send)) -> Result<Answer, ModelError> {
        self.fate.moment().await;
        self.model.asks.lock().unwrap().push(ask.clone());
        let turn = ask.messages.iter().filter(|message| message.role == Role::Assistant).count();
        let known = self
            .journal
            .steps
            .lock()
            .unwrap()
            .iter()
            .any(|step| matches!(step, Step::AnswerStored { turn: stored, .. } if *stored as usize == turn + 1));
        assert!(!known, "the journal has the answer of turn {}", turn + 1);
        let reply = {
            let mut turns = self.model.turns.lock().unwrap();
            let replies = turns.get_mut(&turn).unwrap_or_else(|| panic!("nobody thought of turn {}", turn + 1));
            if replies.len() > 1 {
                replies.remove(0)
            } else {
                match &replies[0] {
                    Reply::Says(pieces, answer) => Reply::Says(pieces.clone(), answer.clone()),
                    Reply::Hangs => Reply::Hangs,
                    Reply::Fails(_) => replies.remove(0),
                }
            }
        };
        let answer = match reply {
            Reply::Says(pieces, answer) => {
                pieces.into_iter().for_each(&mut *hear);
                Ok(answer)
            }
            Reply::Fails(error) => Err(error),
            Reply::Hangs => std::future::pending().await,
        };
        self.fate.moment().await;
        answer
    }
}

#[async_trait]
impl Conversation for Ground {
    async fn append(&self, messages: Vec<Message>) -> Result<(), ConversationError> {
        self.fate.moment().await;
        self.talk.messages.lock().unwrap().extend(messages);
        self.fate.moment().await;
        Ok(())
    }

    async fn count(&self) -> Result<u64, ConversationError> {
        self.fate.moment().await;
        Ok(self.messages().len() as u64)
    }

    async fn messages(&self, system_prompt: &str, query: &str, room: Room) -> Result<Vec<Message>, ConversationError> {
        self.fate.moment().await;
        assert_eq!(query, self.order.prompt);
        self.talk.rooms.lock().unwrap().push(room);
        let mut messages = vec![Message::new(Role::System, system_prompt)];
        messages.extend(self.messages());
        Ok(messages)
    }
}

#[async_trait]
impl Journal for Ground {
    async fn load(&self) -> Result<Vec<Step>, LogError> {
        self.fate.moment().await;
        Ok(self.journal.steps.lock().unwrap().clone())
    }

    async fn record(&self, step: Step) -> Result<(), LogError> {
        self.fate.moment().await;
        {
            let mut steps = self.journal.steps.lock().unwrap();
            if *self.journal.refused.lock().unwrap() == Some(steps.len()) {
                return Err(LogError::Full { bytes_max: 0 });
            }
            steps.push(step);
        }
        self.fate.moment().await;
        Ok(())
    }
}

#[async_trait]
impl Desk for Ground {
    fn tell(&self, told: Told) {
        self.readers.told.lock().unwrap().push(told);
    }

    async fn ask(&self, call: &ToolCall) -> Decision {
        self.fate.moment().await;
        self.readers.asked.lock().unwrap().push(call.clone());
        let decision = *self.readers.decision.lock().unwrap();
        match decision {
            Some(decision) => decision,
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Sandbox for Machine {
    async fn run(&self, execution: Execution) -> Result<Ran, SandboxError> {
        self.fate.moment().await;
        if *self.hangs.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        let ran = self.fake.run(execution).await;
        self.fate.moment().await;
        ran
    }
}
