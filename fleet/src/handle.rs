//! The way to the keeper, for everybody who wants something of a sandbox.
//!
//! Who names a customer is refused unless the sandbox is that customer's. Every wait is for a phase.

use alloy_primitives::Address;
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::{CallKey, Failure, FailureCode, SandboxId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::activity::{Activity, Use};
use crate::children::{ChildOrder, Waiting};
use crate::driver::Rekeyed;
use crate::guests::{Directory, Guest, NoGuest};
use crate::keeper::Command;
use crate::keys::{KeyChange, KeyOrder, SshKey, Standing};
use crate::request::SnapshotUri;
use crate::sandbox::{EndReason, Event, Instance, Phase, Sandbox, StopReason};

/// A sandbox as its driver publishes it.
pub(crate) type View = watch::Receiver<Sandbox>;

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

/// The way to the keeper. Clones share it.
#[derive(Clone)]
pub struct Fleet {
    commands: mpsc::Sender<Command>,
    directory: Directory,
}

/// A running sandbox in use: it is not idle until this is dropped.
#[derive(Debug)]
pub struct Visit {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Its container.
    pub instance: Instance,
    /// Where what happens in it is noted.
    pub activity: Activity,
    view: View,
    _use: Use,
}

/// An open way into a sandbox, which may be idle all the same: whoever passes something through notes it.
#[derive(Debug, Clone)]
pub struct Stay {
    /// Where it is noted.
    pub activity: Activity,
    /// The container that was entered.
    pub instance: Instance,
    view: View,
}

impl Visit {
    /// The same sandbox for longer than it is in use.
    pub fn stay(&self) -> Stay {
        Stay { activity: self.activity.clone(), instance: self.instance.clone(), view: self.view.clone() }
    }
}

impl Stay {
    /// Whether the container that was entered runs.
    pub fn lasts(&self) -> bool {
        self.view.has_changed().is_ok() && runs(&self.view.borrow(), &self.instance)
    }

    /// Returns once the container that was entered does not run any more, or nobody knows whether it does.
    pub async fn ended(&mut self) {
        let Self { instance, view, .. } = self;
        if view.wait_for(|sandbox| !runs(sandbox, instance)).await.is_err() {
            tracing::debug!("the keeper has stopped");
        }
    }
}

pub(crate) fn runs(sandbox: &Sandbox, entered: &Instance) -> bool {
    matches!(&sandbox.phase, Phase::Running(instance) if instance == entered)
}

impl Fleet {
    pub(crate) const fn new(commands: mpsc::Sender<Command>, directory: Directory) -> Self {
        Self { commands, directory }
    }

    /// Creates a sandbox and waits until it runs. A repeat of an id finds the sandbox that exists.
    ///
    /// # Errors
    /// Why it cannot be had; nothing of it is left then.
    pub async fn create(&self, sandbox: Sandbox) -> Result<Sandbox, Unfinished> {
        let owner = sandbox.owner;
        let view = self.ask(|reply| Command::Create(Box::new(sandbox), reply)).await??;
        made(owned(view, owner)?).await
    }

    /// Has the child of that name that a call has, and waits until it runs: the one that lives, or a new one once there is
    /// room. Who stops waiting gives its turn up; what was made by then ends with the call.
    ///
    /// # Errors
    /// Why it cannot be had; nothing of it is left then.
    pub async fn create_child(&self, order: ChildOrder) -> Result<Sandbox, Unfinished> {
        let owner = order.owner;
        let order = Box::new(order);
        let view = self.ask(|reply| Command::CreateChild(Waiting { order, reply })).await??;
        made(owned(view, owner)?).await
    }

    /// The children of a call that are known, also those that ended lately, in the order of their making.
    ///
    /// # Errors
    /// The keeper has stopped.
    pub async fn children(&self, parent: CallKey) -> Result<Vec<Sandbox>, Unfinished> {
        self.ask(|reply| Command::Children(parent, reply)).await
    }

    /// Begins to end what was made in the course of a call, which has ended.
    pub async fn parent_ended(&self, parent: CallKey) {
        self.tell(Command::ParentEnded(parent)).await;
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

    /// Stops a sandbox of `owner` and waits until it rests. A repeat finds it resting.
    ///
    /// # Errors
    /// It is not known, not this customer's, or at its end.
    pub async fn stop(&self, id: SandboxId, owner: Address) -> Result<Sandbox, Unfinished> {
        self.find(id, owner).await?;
        let view = self.ask(|reply| Command::Stop(id, reply)).await?.ok_or_else(lost)?;
        let rests = reached(view, |phase| matches!(phase, Phase::Stopped(_)) || phase.is_final()).await?;
        if rests.phase.is_final() { Err(over(&rests).into()) } else { Ok(rests) }
    }

    /// Starts a stopped sandbox of `owner` again, with what a snapshot holds where one is named, and waits until it runs. One that runs
    /// is left as it is; a snapshot is then refused.
    ///
    /// # Errors
    /// It is not known, not this customer's, at its end, or cannot be started; then it rests as before.
    pub async fn resume(
        &self,
        id: SandboxId,
        owner: Address,
        from: Option<SnapshotUri>,
    ) -> Result<Sandbox, Unfinished> {
        let (view, _) = self.ask(|reply| Command::Find(id, reply)).await?.ok_or_else(lost)?;
        let settled = reached(owned(view, owner)?, |phase| !matches!(phase, Phase::Stopping(_))).await?;
        let before = match &settled.phase {
            Phase::Stopped(rest) => rest.failed_resumes,
            Phase::Running(_) if from.is_some() => {
                return Err(Failure::new(FailureCode::BadRequest, "stop the sandbox to restore it").into());
            }
            Phase::Requested
            | Phase::Provisioning
            | Phase::Running(_)
            | Phase::Stopping(_)
            | Phase::Resuming(..)
            | Phase::Deleting(_)
            | Phase::Gone(_)
            | Phase::Discarding(_)
            | Phase::Failed(_) => 0,
        };
        let view = self.ask(|reply| Command::Resume(id, from, reply)).await??.ok_or_else(lost)?;
        let tried = reached(view, |phase| match phase {
            Phase::Running(_) => true,
            Phase::Stopped(rest) => rest.failed_resumes > before,
            other => other.is_final(),
        });
        let tried = tried.await?;
        match &tried.phase {
            Phase::Running(_) => Ok(tried),
            Phase::Stopped(rest) => Err(rest.failure.clone().unwrap_or_else(lost).into()),
            Phase::Requested
            | Phase::Provisioning
            | Phase::Stopping(_)
            | Phase::Resuming(..)
            | Phase::Deleting(_)
            | Phase::Gone(_)
            | Phase::Discarding(_)
            | Phase::Failed(_) => Err(over(&tried).into()),
        }
    }

    /// The sandbox `id` of `owner`, in whatever phase.
    ///
    /// # Errors
    /// It is not known, or not this customer's.
    pub async fn find(&self, id: SandboxId, owner: Address) -> Result<Sandbox, Unfinished> {
        let (view, _) = self.ask(|reply| Command::Find(id, reply)).await?.ok_or_else(lost)?;
        Ok(owned(view, owner)?.borrow().clone())
    }

    /// Whether there is a record of `id`, whoever it is of.
    ///
    /// # Errors
    /// The keeper has stopped.
    pub async fn knows(&self, id: SandboxId) -> Result<bool, Unfinished> {
        Ok(self.ask(|reply| Command::Find(id, reply)).await?.is_some())
    }

    /// Enters a running sandbox of `owner` to use it.
    ///
    /// # Errors
    /// It is not known, not this customer's, or does not run.
    pub async fn visit(&self, id: SandboxId, owner: Address) -> Result<Visit, Unfinished> {
        let (view, activity) = self.ask(|reply| Command::Find(id, reply)).await?.ok_or_else(lost)?;
        // Begun before it is looked at: what is seen to run is not stopped for idleness meanwhile.
        let used = activity.begin();
        let view = owned(view, owner)?;
        let sandbox = view.borrow().clone();
        match sandbox.phase.clone() {
            Phase::Running(instance) => Ok(Visit { sandbox, instance, activity, view, _use: used }),
            Phase::Stopping(_) | Phase::Stopped(_) | Phase::Resuming(..) => {
                let message = format!("the sandbox is {}; resume it first", sandbox.phase.name());
                Err(Failure::new(FailureCode::SandboxStopped, message).into())
            }
            Phase::Requested
            | Phase::Provisioning
            | Phase::Deleting(_)
            | Phase::Gone(_)
            | Phase::Discarding(_)
            | Phase::Failed(_) => Err(over(&sandbox).into()),
        }
    }

    /// Has a key open a sandbox of `owner`, in whatever phase it lives; for one that does already, the new end replaces the
    /// former one.
    ///
    /// # Errors
    /// It is not known, not this customer's, or at its end; or as many keys as may be open it already.
    pub async fn admit_key(
        &self,
        id: SandboxId,
        owner: Address,
        key: PublicKey,
        expires_at_block: Option<u64>,
    ) -> Result<Rekeyed, Unfinished> {
        let key = SshKey { key, expires_at_block, admitted_by: owner };
        self.change_keys(id, owner, KeyOrder { change: KeyChange::Admit(key), call: None }).await
    }

    /// Has a key open a sandbox of `owner` no more, and who came with it leave. One that does not open it is left as it is.
    ///
    /// # Errors
    /// It is not known, not this customer's, or at its end.
    pub async fn revoke_key(&self, id: SandboxId, owner: Address, key: PublicKey) -> Result<Rekeyed, Unfinished> {
        self.change_keys(id, owner, KeyOrder { change: KeyChange::Revoke(key), call: None }).await
    }

    /// Changes the keys of a sandbox of `owner` as [`Fleet::admit_key`] and [`Fleet::revoke_key`] do, once for a call: one
    /// that has done so in a former life leaves what came after it as it is.
    ///
    /// # Errors
    /// As theirs.
    pub async fn change_keys(&self, id: SandboxId, owner: Address, order: KeyOrder) -> Result<Rekeyed, Unfinished> {
        self.find(id, owner).await?;
        Ok(self.ask(|reply| Command::Rekey(id, order, reply)).await??)
    }

    /// Where a key stands with a sandbox, whoever that is of; `None` for a key that it has not on record, and for a sandbox
    /// that is not known. Asks nobody.
    pub fn standing(&self, id: SandboxId, key: &PublicKey) -> Option<Standing> {
        self.directory.standing(id, key)
    }

    /// Enters a running sandbox with a key. Asks nobody.
    ///
    /// # Errors
    /// [`NoGuest`].
    pub fn guest(&self, id: SandboxId, key: &PublicKey) -> Result<Guest, NoGuest> {
        self.directory.guest(id, key)
    }

    /// Enters a sandbox with a key, and has it started first where it is stopped.
    ///
    /// # Errors
    /// [`NoGuest`].
    pub async fn guest_resuming(&self, id: SandboxId, key: &PublicKey) -> Result<Guest, NoGuest> {
        let owner = match self.guest(id, key) {
            Err(NoGuest::Stopped) => self.directory.owner(id).ok_or(NoGuest::Stranger)?,
            entered => return entered,
        };
        match self.resume(id, owner, None).await {
            Ok(_) => self.guest(id, key),
            Err(Unfinished::Failed(failure)) => Err(NoGuest::NotResumed(failure)),
            Err(Unfinished::Stopping) => Err(NoGuest::Later),
        }
    }

    /// The sandboxes of `owner` that are known, also those that ended lately, in the order of their ids.
    ///
    /// # Errors
    /// The keeper has stopped.
    pub async fn list(&self, owner: Address) -> Result<Vec<Sandbox>, Unfinished> {
        let mut sandboxes = self.ask(|reply| Command::List(owner, reply)).await?;
        sandboxes.sort_by_key(|sandbox| sandbox.id);
        Ok(sandboxes)
    }

    /// Every sandbox that is not at its end, whoever it is of: of all others nothing is left.
    ///
    /// # Errors
    /// The keeper has stopped.
    pub async fn living(&self) -> Result<Vec<Sandbox>, Unfinished> {
        self.ask(Command::Living).await
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
        let Some((view, _)) = self.ask(|reply| Command::Find(id, reply)).await? else { return Ok(()) };
        self.end(id, EndReason::Abandoned).await;
        reached(view, Phase::is_final).await?;
        self.ask(|reply| Command::Forget(id, reply)).await
    }

    /// Begins to stop a sandbox, whoever it is of.
    pub async fn halt(&self, id: SandboxId, reason: StopReason) {
        self.tell(Command::Tell(id, Event::Stop(reason))).await;
    }

    /// Has a sandbox that does not answer looked after.
    pub async fn check(&self, id: SandboxId) {
        self.tell(Command::Tell(id, Event::Check)).await;
    }

    /// Tells the height of the chain; sandboxes whose expiry block it has passed are ended.
    pub async fn head(&self, block: u64) {
        self.tell(Command::Head(block)).await;
    }

    /// Tells the height of the chain by which SSH keys open sandboxes. No call holds it up, as one may hold up the height by
    /// which sandboxes end.
    pub fn reached(&self, block: u64) {
        self.directory.advance(block);
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

fn owned(view: View, owner: Address) -> Result<View, Failure> {
    if view.borrow().owner == owner { Ok(view) } else { Err(lost()) }
}

/// The sandbox once it is had, or why it is not.
async fn made(view: View) -> Result<Sandbox, Unfinished> {
    let made = reached(view, |phase| !matches!(phase, Phase::Requested | Phase::Provisioning | Phase::Discarding(_)));
    let made = made.await?;
    match &made.phase {
        Phase::Failed(failure) => Err(failure.clone().into()),
        Phase::Gone(_) => Err(Failure::new(FailureCode::SandboxLost, "the sandbox has ended meanwhile").into()),
        Phase::Requested
        | Phase::Provisioning
        | Phase::Running(_)
        | Phase::Stopping(_)
        | Phase::Stopped(_)
        | Phase::Resuming(..)
        | Phase::Deleting(_)
        | Phase::Discarding(_) => Ok(made),
    }
}

async fn reached(mut view: View, there: impl Fn(&Phase) -> bool) -> Result<Sandbox, Unfinished> {
    let found = view.wait_for(|sandbox| there(&sandbox.phase)).await;
    found.map(|sandbox| sandbox.clone()).map_err(|_| Unfinished::Stopping)
}

pub(crate) fn lost() -> Failure {
    Failure::new(FailureCode::SandboxLost, "this operator holds no such sandbox of this customer")
}

pub(crate) fn over(sandbox: &Sandbox) -> Failure {
    Failure::new(FailureCode::SandboxLost, format!("the sandbox is {}", sandbox.phase.name()))
}
