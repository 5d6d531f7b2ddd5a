//! The owner of the operator's sandboxes: who exists, what is taken, which driver serves whom.
//!
//! One task behind a bounded queue. Jobs, the API, expiry and start-up all enter by the same commands.

use std::collections::{HashMap, VecDeque};

use alloy_primitives::Address;
use sandbox_protocol::{CallKey, Failure, FailureCode, SandboxId};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::admission::{Admission, Capacity};
use crate::children::{ChildName, ChildOrder, Children, Waiting};
pub use crate::driver::Ports;
use crate::driver::{Driver, Rekeyed, Told};
use crate::guests::Directory;
use crate::handle::{Fleet, View, lost, over};
use crate::keys::KeyOrder;
use crate::limits::{DRIVER_QUEUE_MAX, ENDED_SANDBOXES_MAX, EXPIRY_WARNING_BLOCKS, KEEPER_QUEUE_MAX, RESTED_QUEUE_MAX};
use crate::request::SnapshotUri;
use crate::sandbox::{EndReason, Event, Phase, Sandbox, StopReason};

/// What the keeper is asked.
pub(crate) enum Command {
    Create(Box<Sandbox>, oneshot::Sender<Result<View, Failure>>),
    CreateChild(Waiting),
    Children(CallKey, oneshot::Sender<Vec<Sandbox>>),
    ParentEnded(CallKey),
    Delete(SandboxId, oneshot::Sender<Option<View>>),
    Stop(SandboxId, oneshot::Sender<Option<View>>),
    Resume(SandboxId, Option<SnapshotUri>, oneshot::Sender<Result<Option<View>, Failure>>),
    Find(SandboxId, oneshot::Sender<Option<(View, Activity)>>),
    Rekey(SandboxId, KeyOrder, oneshot::Sender<Result<Rekeyed, Failure>>),
    Forget(SandboxId, oneshot::Sender<()>),
    List(Address, oneshot::Sender<Vec<Sandbox>>),
    Living(oneshot::Sender<Vec<Sandbox>>),
    Tell(SandboxId, Event),
    Head(u64),
    ServiceEnded(u64),
    Count(oneshot::Sender<usize>),
}

/// The task that owns the sandboxes; [`Keeper::run`] is its life.
pub struct Keeper {
    commands: mpsc::Receiver<Command>,
    ports: Ports,
    admission: Admission,
    drivers: HashMap<SandboxId, Handle>,
    /// The same for those who come with a key.
    directory: Directory,
    children: Children,
    /// Those that ended, oldest first: kept for repeats of old calls, and not for ever.
    ended: VecDeque<SandboxId>,
    tasks: JoinSet<SandboxId>,
    rested: mpsc::Receiver<SandboxId>,
    rest: mpsc::Sender<SandboxId>,
    stop: CancellationToken,
}

struct Handle {
    told: mpsc::Sender<Told>,
    view: View,
    activity: Activity,
}

/// Why a child is not made.
enum Refused {
    /// There is no room.
    ForNow,
    /// Waiting would not help.
    ForGood(Failure),
}

impl Keeper {
    /// A keeper with `capacity`, and the way to it.
    pub fn new(capacity: Capacity, ports: Ports) -> (Self, Fleet) {
        let (sender, commands) = mpsc::channel(KEEPER_QUEUE_MAX);
        let (rest, rested) = mpsc::channel(RESTED_QUEUE_MAX);
        let directory = Directory::default();
        let keeper = Self {
            commands,
            ports,
            admission: Admission::new(capacity),
            drivers: HashMap::new(),
            directory: directory.clone(),
            children: Children::default(),
            ended: VecDeque::new(),
            tasks: JoinSet::new(),
            rested,
            rest,
            stop: CancellationToken::new(),
        };
        (keeper, Fleet::new(sender, directory))
    }

    /// Takes up `known` sandboxes where a former life left them, then serves commands until `stop`.
    pub async fn run(mut self, known: Vec<Sandbox>, stop: CancellationToken) {
        self.stop = stop.clone();
        for sandbox in known {
            if !sandbox.phase.is_final() {
                self.admission.readmit(&sandbox);
            }
            self.drive(sandbox);
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = self.tasks.join_next() => self.settle(ended),
                Some(id) = self.rested.recv() => self.came_to_rest(id),
                command = self.commands.recv() => match command {
                    Some(command) => self.serve(command),
                    None => break,
                },
            }
            self.make_room_for_waiting();
        }
        self.rested.close();
        while self.tasks.join_next().await.is_some() {}
    }

    fn serve(&mut self, command: Command) {
        // What has ended or rests by now counts for what is asked now.
        while let Some(ended) = self.tasks.try_join_next() {
            self.settle(ended);
        }
        while let Ok(id) = self.rested.try_recv() {
            self.came_to_rest(id);
        }
        match command {
            Command::Create(sandbox, reply) => answer(reply, self.create(*sandbox)),
            Command::CreateChild(waiting) => self.create_child(waiting),
            Command::Children(parent, reply) => answer(reply, self.children_of(parent)),
            Command::ParentEnded(parent) => self.parent_ended(parent),
            Command::Delete(id, reply) => answer(reply, self.told(id, Event::End(EndReason::Deleted))),
            Command::Stop(id, reply) => answer(reply, self.told(id, Event::Stop(StopReason::Asked))),
            Command::Resume(id, from, reply) => answer(reply, self.resume(id, from)),
            Command::Find(id, reply) => {
                answer(reply, self.drivers.get(&id).map(|handle| (handle.view.clone(), handle.activity.clone())));
            }
            Command::Rekey(id, order, reply) => self.rekey(id, order, reply),
            Command::Forget(id, reply) => {
                self.forget(id);
                answer(reply, ());
            }
            Command::List(owner, reply) => answer(reply, self.list(owner)),
            Command::Living(reply) => answer(reply, self.living()),
            Command::Tell(id, event) => {
                self.told(id, event);
            }
            Command::Head(block) => self.keep_time(block),
            Command::ServiceEnded(service) => {
                self.end_where(EndReason::ServiceEnded, |sandbox| sandbox.id.origin.service == service);
                self.children.give_up(|parent| parent.service == service);
            }
            Command::Count(reply) => answer(reply, self.admission.sandboxes()),
        }
    }

    fn create(&mut self, sandbox: Sandbox) -> Result<View, Failure> {
        if let Some(handle) = self.drivers.get(&sandbox.id) {
            return Ok(handle.view.clone());
        }
        self.admission.admit(&sandbox)?;
        Ok(self.drive(sandbox))
    }

    /// The child of that name that is not at its end, or a new one as soon as there is room.
    fn create_child(&mut self, waiting: Waiting) {
        let order = &waiting.order;
        if let Some(view) = self.living_child(order.parent, &order.name) {
            return answer(waiting.reply, Ok(view));
        }
        match self.admitted_child(order) {
            Ok(sandbox) if self.children.is_nobody_waiting() => {
                let view = self.drive(sandbox);
                answer(waiting.reply, Ok(view));
            }
            Ok(sandbox) => {
                self.admission.release(sandbox.id);
                self.children.wait(waiting);
            }
            Err(Refused::ForNow) => self.children.wait(waiting),
            Err(Refused::ForGood(failure)) => answer(waiting.reply, Err(failure)),
        }
    }

    /// Makes those that wait, in turn, as far as there is room.
    fn make_room_for_waiting(&mut self) {
        while let Some(waiting) = self.children.next() {
            let order = &waiting.order;
            if let Some(view) = self.living_child(order.parent, &order.name) {
                answer(waiting.reply, Ok(view));
                continue;
            }
            match self.admitted_child(order) {
                Ok(sandbox) => {
                    let view = self.drive(sandbox);
                    answer(waiting.reply, Ok(view));
                }
                Err(Refused::ForNow) => return self.children.wait_on(waiting),
                Err(Refused::ForGood(failure)) => answer(waiting.reply, Err(failure)),
            }
        }
    }

    fn living_child(&self, parent: CallKey, name: &ChildName) -> Option<View> {
        let mut views = self.children.named(parent, name).filter_map(|id| self.drivers.get(&id));
        views.find(|handle| handle.view.borrow().lives()).map(|handle| handle.view.clone())
    }

    /// A child with a number of its own, and room for it.
    fn admitted_child(&mut self, order: &ChildOrder) -> Result<Sandbox, Refused> {
        self.make_number_free(order.parent);
        let slot = self.children.free_slot(order.parent).map_err(Refused::ForGood)?;
        let sandbox = order.sandbox(slot);
        if self.drivers.contains_key(&sandbox.id) {
            let message = "a call that creates sandboxes on chain has no children";
            return Err(Refused::ForGood(Failure::new(FailureCode::Internal, message)));
        }
        self.admission.could_admit(&sandbox).map_err(Refused::ForGood)?;
        self.admission.admit(&sandbox).map_err(|_| Refused::ForNow)?;
        Ok(sandbox)
    }

    /// Where all numbers of a parent are had, forgets one of its children that has ended: a workflow has any number of them.
    fn make_number_free(&mut self, parent: CallKey) {
        if self.children.free_slot(parent).is_ok() {
            return;
        }
        let is_over = |id: &SandboxId| self.drivers.get(id).is_some_and(|handle| handle.view.borrow().phase.is_final());
        let ended = self.children.of(parent).find(is_over);
        if let Some(id) = ended {
            self.forget(id);
        }
    }

    fn children_of(&self, parent: CallKey) -> Vec<Sandbox> {
        let views = self.children.of(parent).filter_map(|id| self.drivers.get(&id));
        views.map(|handle| handle.view.borrow().clone()).collect()
    }

    fn parent_ended(&mut self, parent: CallKey) {
        let children: Vec<SandboxId> = self.children.of(parent).collect();
        for id in children {
            self.told(id, Event::End(EndReason::ParentEnded));
        }
        self.children.give_up(|waiting| waiting == parent);
    }

    fn told(&self, id: SandboxId, event: Event) -> Option<View> {
        let handle = self.drivers.get(&id)?;
        handle.tell(Told::Event(event));
        Some(handle.view.clone())
    }

    fn rekey(&self, id: SandboxId, order: KeyOrder, reply: oneshot::Sender<Result<Rekeyed, Failure>>) {
        let Some(handle) = self.drivers.get(&id) else { return answer(reply, Err(lost())) };
        match handle.told.try_send(Told::Keys(order, self.directory.head(), reply)) {
            Ok(()) => {}
            Err(TrySendError::Full(Told::Keys(.., reply))) => {
                answer(
                    reply,
                    Err(Failure::new(FailureCode::SandboxBusy, "too much is asked of the sandbox at a time")),
                );
            }
            Err(TrySendError::Closed(Told::Keys(.., reply))) => answer(reply, Err(over(&handle.view.borrow()))),
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => {}
        }
    }

    fn forget(&mut self, id: SandboxId) {
        if self.drivers.get(&id).is_some_and(|handle| handle.view.borrow().phase.is_final()) {
            self.drivers.remove(&id);
            self.directory.leave(id);
            self.children.leave(id);
            self.admission.release(id);
            self.ended.retain(|ended| *ended != id);
        }
    }

    /// Where it rests, its memory and cores must be had again first.
    fn resume(&mut self, id: SandboxId, from: Option<SnapshotUri>) -> Result<Option<View>, Failure> {
        let rests = self.drivers.get(&id).is_some_and(|handle| matches!(handle.view.borrow().phase, Phase::Stopped(_)));
        if rests {
            self.admission.wake(id)?;
        }
        Ok(self.told(id, Event::Resume(from)))
    }

    fn list(&self, owner: Address) -> Vec<Sandbox> {
        let all = self.drivers.values().map(|handle| handle.view.borrow());
        all.filter(|sandbox| sandbox.owner == owner && sandbox.child.is_none()).map(|sandbox| sandbox.clone()).collect()
    }

    /// Whatever may have something in the engine, now or later: a driver is there before it makes anything.
    fn living(&self) -> Vec<Sandbox> {
        let all = self.drivers.values().map(|handle| handle.view.borrow());
        all.filter(|sandbox| !sandbox.phase.is_final()).map(|sandbox| sandbox.clone()).collect()
    }

    /// Ends what has expired, and warns those that soon will.
    fn keep_time(&self, block: u64) {
        self.end_where(EndReason::Expired, |sandbox| sandbox.expires_at_block.is_some_and(|expiry| expiry < block));
        for handle in self.drivers.values() {
            let near = {
                let sandbox = handle.view.borrow();
                let expiry = sandbox.expires_at_block.filter(|_| sandbox.lives() && !sandbox.warned);
                expiry.is_some_and(|expiry| expiry >= block && expiry - block <= EXPIRY_WARNING_BLOCKS)
            };
            if near {
                handle.tell(Told::EndIsNear);
            }
        }
    }

    fn end_where(&self, reason: EndReason, ends: impl Fn(&Sandbox) -> bool) {
        for handle in self.drivers.values() {
            let due = {
                let sandbox = handle.view.borrow();
                sandbox.lives() && ends(&sandbox)
            };
            if due {
                handle.tell(Told::Event(Event::End(reason)));
            }
        }
    }

    fn drive(&mut self, sandbox: Sandbox) -> View {
        let (told, events) = mpsc::channel(DRIVER_QUEUE_MAX);
        let id = sandbox.id;
        self.children.enter(&sandbox);
        let activity = Activity::default();
        let (published, view) = watch::channel(sandbox);
        let driver = Driver {
            ports: self.ports.clone(),
            events,
            published,
            activity: activity.clone(),
            rested: self.rest.clone(),
            stop: self.stop.clone(),
        };
        self.tasks.spawn(async move {
            driver.run().await;
            id
        });
        self.directory.enter(id, view.clone(), activity.clone());
        self.drivers.insert(id, Handle { told, view: view.clone(), activity });
        view
    }

    /// Gives back what a resting sandbox does not need. It may have been woken since it said so.
    fn came_to_rest(&mut self, id: SandboxId) {
        if self.drivers.get(&id).is_some_and(|handle| matches!(handle.view.borrow().phase, Phase::Stopped(_))) {
            self.admission.rest(id);
        }
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
            self.directory.leave(oldest);
            self.children.leave(oldest);
        }
    }
}

impl Handle {
    fn tell(&self, told: Told) {
        // A queue is full only of repeats of what a driver was told already.
        if self.told.try_send(told).is_err() {
            tracing::debug!(sandbox = %self.view.borrow().id, "already told");
        }
    }
}

pub(crate) fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    if reply.send(value).is_err() {
        tracing::debug!("nobody waits for the answer any more");
    }
}
