//! The owner of the operator's sandboxes: who exists, what is taken, which driver serves whom.
//!
//! One task behind a bounded queue. Jobs, expiry and start-up all enter by the same commands; a command that names a
//! customer is refused unless the sandbox is that customer's.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use alloy_primitives::Address;
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, Capacity};
use crate::driver::{Driver, Ports};
use crate::limits::{DRIVER_QUEUE_MAX, ENDED_SANDBOXES_MAX, KEEPER_QUEUE_MAX};
use crate::ports::{Containers, Sandboxes, Sidecars};
use crate::sandbox::{EndReason, Event, Phase, Sandbox};

type View = watch::Receiver<Sandbox>;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// It failed, for good.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The process is stopping; the next life will go on with it.
    #[error("the operator is stopping")]
    Stopping,
}

enum Command {
    Create(Box<Sandbox>, oneshot::Sender<Result<View, Failure>>),
    Delete(SandboxId, oneshot::Sender<Option<View>>),
    Find(SandboxId, oneshot::Sender<Option<View>>),
    Forget(SandboxId, oneshot::Sender<()>),
    Tell(SandboxId, Event),
    Head(u64),
    ServiceEnded(u64),
    Count(oneshot::Sender<usize>),
}

/// The way to the keeper, for everybody. Clones share it.
#[derive(Clone)]
pub struct Fleet {
    commands: mpsc::Sender<Command>,
}

/// The task that owns the sandboxes; [`Keeper::run`] is its life.
pub struct Keeper {
    commands: mpsc::Receiver<Command>,
    ports: Ports,
    admission: Admission,
    drivers: HashMap<SandboxId, Handle>,
    /// Those that ended, oldest first: kept for repeats of old calls, and not for ever.
    ended: VecDeque<SandboxId>,
    tasks: JoinSet<SandboxId>,
    stop: CancellationToken,
}

struct Handle {
    events: mpsc::Sender<Event>,
    view: View,
}

impl Keeper {
    /// A keeper with `capacity`, and the way to it.
    pub fn new(
        capacity: Capacity,
        containers: Arc<dyn Containers>,
        sidecars: Arc<dyn Sidecars>,
        sandboxes: Arc<dyn Sandboxes>,
    ) -> (Self, Fleet) {
        let (sender, commands) = mpsc::channel(KEEPER_QUEUE_MAX);
        let keeper = Self {
            commands,
            ports: Ports { containers, sidecars, sandboxes },
            admission: Admission::new(capacity),
            drivers: HashMap::new(),
            ended: VecDeque::new(),
            tasks: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        (keeper, Fleet { commands: sender })
    }

    /// Takes up `known` sandboxes where a former life left them, then serves commands until `stop`.
    pub async fn run(mut self, known: Vec<Sandbox>, stop: CancellationToken) {
        self.stop = stop.clone();
        for sandbox in known {
            if !sandbox.phase.is_final() {
                self.admission.readmit(sandbox.id, sandbox.spec.resources);
            }
            self.drive(sandbox);
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = self.tasks.join_next() => self.settle(ended),
                command = self.commands.recv() => match command {
                    Some(command) => self.serve(command),
                    None => break,
                },
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }

    fn serve(&mut self, command: Command) {
        while let Some(ended) = self.tasks.try_join_next() {
            self.settle(ended);
        }
        match command {
            Command::Create(sandbox, reply) => answer(reply, self.create(*sandbox)),
            Command::Delete(id, reply) => answer(reply, self.delete(id)),
            Command::Find(id, reply) => answer(reply, self.drivers.get(&id).map(|handle| handle.view.clone())),
            Command::Forget(id, reply) => answer(reply, self.forget(id)),
            Command::Tell(id, event) => {
                if let Some(handle) = self.drivers.get(&id) {
                    handle.tell(event);
                }
            }
            Command::Head(block) => self
                .end_where(EndReason::Expired, |sandbox| sandbox.expires_at_block.is_some_and(|expiry| expiry < block)),
            Command::ServiceEnded(service) => {
                self.end_where(EndReason::ServiceEnded, |sandbox| sandbox.id.origin.service == service);
            }
            Command::Count(reply) => answer(reply, self.admission.sandboxes()),
        }
    }

    fn create(&mut self, sandbox: Sandbox) -> Result<View, Failure> {
        if let Some(handle) = self.drivers.get(&sandbox.id) {
            return Ok(handle.view.clone());
        }
        self.admission.admit(sandbox.id, sandbox.spec.resources)?;
        Ok(self.drive(sandbox))
    }

    fn delete(&self, id: SandboxId) -> Option<View> {
        let handle = self.drivers.get(&id)?;
        handle.tell(Event::End(EndReason::Deleted));
        Some(handle.view.clone())
    }

    fn forget(&mut self, id: SandboxId) {
        if self.drivers.get(&id).is_some_and(|handle| handle.view.borrow().phase.is_final()) {
            self.drivers.remove(&id);
            self.admission.release(id);
            self.ended.retain(|ended| *ended != id);
        }
    }

    fn end_where(&self, reason: EndReason, ends: impl Fn(&Sandbox) -> bool) {
        for handle in self.drivers.values() {
            let lives =
                |sandbox: &Sandbox| matches!(sandbox.phase, Phase::Requested | Phase::Provisioning | Phase::Running(_));
            let due = {
                let sandbox = handle.view.borrow();
                lives(&sandbox) && ends(&sandbox)
            };
            if due {
                handle.tell(Event::End(reason));
            }
        }
    }

    fn drive(&mut self, sandbox: Sandbox) -> View {
        let (events, queue) = mpsc::channel(DRIVER_QUEUE_MAX);
        let id = sandbox.id;
        let (published, view) = watch::channel(sandbox);
        let driver = Driver { ports: self.ports.clone(), events: queue, published, stop: self.stop.clone() };
        self.tasks.spawn(async move {
            driver.run().await;
            id
        });
        self.drivers.insert(id, Handle { events, view: view.clone() });
        view
    }

    /// Gives back what an ended sandbox held.
    fn settle(&mut self, ended: Result<SandboxId, tokio::task::JoinError>) {
        let id = match ended {
            Ok(id) => id,
            Err(error) => return tracing::error!(%error, "a driver panicked; its sandbox waits for the next start"),
        };
        if self.drivers.get(&id).is_some_and(|handle| handle.view.borrow().phase.is_final()) {
            self.admission.release(id);
            self.ended.push_back(id);
        }
        if self.ended.len() > ENDED_SANDBOXES_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.drivers.remove(&oldest);
        }
    }
}

impl Handle {
    fn tell(&self, event: Event) {
        // A queue is full only of repeats of what a driver was told already.
        if self.events.try_send(event).is_err() {
            tracing::debug!(sandbox = %self.view.borrow().id, "already told");
        }
    }
}

impl Fleet {
    /// Creates a sandbox and waits until it runs. A repeat of an id finds the sandbox that exists.
    ///
    /// # Errors
    /// Why it cannot be had; nothing of it is left then.
    pub async fn create(&self, sandbox: Sandbox) -> Result<Sandbox, Unfinished> {
        let owner = sandbox.owner;
        let view = self.ask(|reply| Command::Create(Box::new(sandbox), reply)).await??;
        let sandbox =
            reached(owned(view, owner)?, |phase| matches!(phase, Phase::Running(_)) || phase.is_final()).await?;
        match &sandbox.phase {
            Phase::Failed(failure) => Err(failure.clone().into()),
            Phase::Gone(_) => Err(Failure::new(FailureCode::SandboxLost, "the sandbox has ended meanwhile").into()),
            Phase::Requested | Phase::Provisioning | Phase::Running(_) | Phase::Deleting(_) | Phase::Discarding(_) => {
                Ok(sandbox)
            }
        }
    }

    /// Ends a sandbox of `owner` and waits until nothing is left of it. A repeat finds it gone.
    ///
    /// # Errors
    /// It is not known, or not this customer's.
    pub async fn delete(&self, id: SandboxId, owner: Address) -> Result<Sandbox, Unfinished> {
        self.find(id, owner).await?;
        let view = self.ask(|reply| Command::Delete(id, reply)).await?.ok_or_else(lost)?;
        reached(view, Phase::is_final).await
    }

    /// The sandbox `id` of `owner`, in whatever phase.
    ///
    /// # Errors
    /// It is not known, or not this customer's.
    pub async fn find(&self, id: SandboxId, owner: Address) -> Result<Sandbox, Unfinished> {
        let view = self.ask(|reply| Command::Find(id, reply)).await?.ok_or_else(lost)?;
        Ok(owned(view, owner)?.borrow().clone())
    }

    /// Begins to end a sandbox, whoever it is of.
    pub async fn end(&self, id: SandboxId, reason: EndReason) {
        self.tell(Command::Tell(id, Event::End(reason))).await;
    }

    /// Ends a sandbox whose creating call is no more, whoever it is of, and waits until nothing is left of it: its id may then
    /// stand for another.
    ///
    /// # Errors
    /// The keeper has stopped.
    pub async fn forget(&self, id: SandboxId) -> Result<(), Unfinished> {
        let Some(view) = self.ask(|reply| Command::Find(id, reply)).await? else { return Ok(()) };
        self.end(id, EndReason::Abandoned).await;
        reached(view, Phase::is_final).await?;
        self.ask(|reply| Command::Forget(id, reply)).await
    }

    /// Has a sandbox that does not answer looked after.
    pub async fn check(&self, id: SandboxId) {
        self.tell(Command::Tell(id, Event::Check)).await;
    }

    /// Tells the height of the chain; sandboxes whose expiry block it has passed are ended.
    pub async fn head(&self, block: u64) {
        self.tell(Command::Head(block)).await;
    }

    /// Tells that a service ended, and its sandboxes with it.
    pub async fn service_ended(&self, service: u64) {
        self.tell(Command::ServiceEnded(service)).await;
    }

    /// How many sandboxes hold capacity.
    ///
    /// # Errors
    /// The keeper has stopped.
    pub async fn count(&self) -> Result<usize, Unfinished> {
        self.ask(Command::Count).await
    }

    async fn tell(&self, command: Command) {
        if self.commands.send(command).await.is_err() {
            tracing::debug!("the keeper has stopped");
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Unfinished> {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply)).await;
        answer.await.map_err(|_| Unfinished::Stopping)
    }
}

fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    if reply.send(value).is_err() {
        tracing::debug!("nobody waits for the answer any more");
    }
}

fn owned(view: View, owner: Address) -> Result<View, Failure> {
    if view.borrow().owner == owner { Ok(view) } else { Err(lost()) }
}

async fn reached(mut view: View, there: impl Fn(&Phase) -> bool) -> Result<Sandbox, Unfinished> {
    let found = view.wait_for(|sandbox| there(&sandbox.phase)).await;
    found.map(|sandbox| sandbox.clone()).map_err(|_| Unfinished::Stopping)
}

fn lost() -> Failure {
    Failure::new(FailureCode::SandboxLost, "this operator holds no such sandbox of this customer")
}
