//! One task per sandbox: the only writer of its phase.
//!
//! The intended phase is stored before an effect begins and the outcome after it ended, so whoever reads the record after
//! a crash knows what may have happened, and repeating the effect is harmless. Events are taken in while an effect is
//! under way; the machine says which of them must wait. What the engine leaves open is tried again with growing pauses: an
//! engine that does not answer is a reason to wait.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sandbox_protocol::{Failure, FailureCode, SandboxId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::handle::over;
use crate::keeper::answer;
use crate::keys::KeyOrder;
use crate::limits::{RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use crate::ports::{Containers, Egress, PortError, Sandboxes, Sidecars, Snapshots};
use crate::request::SnapshotUri;
use crate::sandbox::{Effect, Event, Instance, Phase, Sandbox, Step, StopReason, step};

/// What drivers work with.
#[derive(Clone)]
pub struct Ports {
    /// The engine.
    pub containers: Arc<dyn Containers>,
    /// The sidecars.
    pub sidecars: Arc<dyn Sidecars>,
    /// The way out.
    pub egress: Arc<dyn Egress>,
    /// Contents kept elsewhere.
    pub snapshots: Arc<dyn Snapshots>,
    /// The records.
    pub sandboxes: Arc<dyn Sandboxes>,
}

pub(crate) struct Driver {
    pub(crate) ports: Ports,
    pub(crate) events: mpsc::Receiver<Told>,
    pub(crate) published: watch::Sender<Sandbox>,
    pub(crate) activity: Activity,
    /// Told when the sandbox has come to rest.
    pub(crate) rested: mpsc::Sender<SandboxId>,
    pub(crate) stop: CancellationToken,
}

/// What a driver is told.
#[derive(Debug)]
pub(crate) enum Told {
    /// For the machine.
    Event(Event),
    /// The sandbox's expiry block is near.
    EndIsNear,
    /// Its keys are to be changed, at this head.
    Keys(KeyOrder, Option<u64>, oneshot::Sender<Result<Rekeyed, Failure>>),
}

/// A sandbox whose keys are as they were asked to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Whether they were otherwise before.
    pub changed: bool,
}

/// The effect under way, if any; it ends with the event that tells its outcome.
struct UnderWay {
    effect: Pin<Box<dyn Future<Output = Event> + Send>>,
    busy: bool,
}

impl UnderWay {
    fn nothing() -> Self {
        Self { effect: Box::pin(pending()), busy: false }
    }

    fn with(effect: impl Future<Output = Event> + Send + 'static) -> Self {
        Self { effect: Box::pin(effect), busy: true }
    }
}

impl Driver {
    /// Drives the sandbox to its end, or until told to stop.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.drive() => {}
        }
    }

    async fn drive(&mut self) {
        let mut waiting = VecDeque::from([Told::Event(Event::Start)]);
        let mut later = Vec::new();
        let mut under_way = UnderWay::nothing();
        while !self.published.borrow().phase.is_final() {
            let Some(event) = self.next(&mut waiting, &mut under_way).await else { return };
            let event = match event {
                Told::Event(event) => event,
                Told::EndIsNear => {
                    self.warn().await;
                    continue;
                }
                Told::Keys(change, head, reply) => {
                    answer(reply, self.rekey(change, head).await);
                    continue;
                }
            };
            // Who looks already need not be told to look: beginning anew each time, it would never come to an end.
            if event == Event::Check && under_way.busy {
                continue;
            }
            let phase = self.published.borrow().phase.clone();
            match step(&phase, event.clone()) {
                Step::Already => {}
                Step::Later => later.push(event),
                Step::To(phase, effect) => {
                    let sandbox = self.enter(phase).await;
                    if let Some(effect) = effect {
                        under_way = UnderWay::with(perform(self.ports.clone(), sandbox, effect));
                    }
                    waiting.extend(later.drain(..).map(Told::Event));
                }
            }
        }
    }

    /// Stores the phase, then publishes it.
    async fn enter(&self, phase: Phase) -> Sandbox {
        let mut sandbox = self.published.borrow().clone();
        sandbox.phase = phase;
        self.save(&sandbox).await;
        tracing::info!(sandbox = %sandbox.id, phase = sandbox.phase.name(), "phase");
        self.published.send_replace(sandbox.clone());
        if matches!(sandbox.phase, Phase::Stopped(_)) && self.rested.send(sandbox.id).await.is_err() {
            tracing::debug!(sandbox = %sandbox.id, "the keeper has stopped");
        }
        sandbox
    }

    /// Tells the owner, once, that the sandbox's time is nearly over: whoever keeps the records tells it on.
    async fn warn(&self) {
        let mut sandbox = self.published.borrow().clone();
        if !sandbox.warned {
            sandbox.warned = true;
            self.save(&sandbox).await;
            self.published.send_replace(sandbox);
        }
    }

    /// Changes the keys, durably before anybody hears of it.
    async fn rekey(&self, KeyOrder { change, call }: KeyOrder, head: Option<u64>) -> Result<Rekeyed, Failure> {
        let mut sandbox = self.published.borrow().clone();
        if !sandbox.lives() {
            return Err(over(&sandbox));
        }
        // What came after it, a revocation say, stands.
        if call.is_some() && sandbox.keys_call == call {
            return Ok(Rekeyed { sandbox, changed: false });
        }
        let changed = sandbox.ssh_keys.change(change, head)?;
        sandbox.keys_call = call.or(sandbox.keys_call);
        if changed || call.is_some() {
            self.save(&sandbox).await;
            self.published.send_replace(sandbox.clone());
        }
        Ok(Rekeyed { sandbox, changed })
    }

    async fn next(&mut self, waiting: &mut VecDeque<Told>, under_way: &mut UnderWay) -> Option<Told> {
        if let Some(event) = waiting.pop_front() {
            return Some(event);
        }
        let idle = idle(&self.activity, &self.published.borrow());
        tokio::select! {
            outcome = &mut under_way.effect => {
                *under_way = UnderWay::nothing();
                Some(Told::Event(outcome))
            }
            event = self.events.recv() => event,
            () = idle => Some(Told::Event(Event::Stop(StopReason::Idle))),
        }
    }

    async fn save(&self, sandbox: &Sandbox) {
        retrying("save", sandbox, || self.ports.sandboxes.save(sandbox)).await;
    }
}

/// Returns when a running sandbox has been idle for as long as it may be.
fn idle(activity: &Activity, sandbox: &Sandbox) -> impl Future<Output = ()> + use<> {
    let timeout = sandbox.spec.idle_timeout_s.map(Duration::from_secs);
    let runs = matches!(sandbox.phase, Phase::Running(_));
    let activity = activity.clone();
    async move {
        match timeout.filter(|_| runs) {
            Some(timeout) => activity.idle_for(timeout).await,
            None => pending().await,
        }
    }
}

async fn perform(ports: Ports, sandbox: Sandbox, effect: Effect) -> Event {
    match effect {
        // One attempt: the customer waits, and may ask elsewhere.
        Effect::Provision => match provision(&ports, &sandbox).await {
            Ok(instance) => Event::Provisioned(instance),
            Err(error) => {
                log("provision", &sandbox, &error);
                Event::ProvisionFailed(error.failure)
            }
        },
        Effect::Adopt => match retrying("adopt", &sandbox, || adopt(&ports, &sandbox)).await {
            Some(instance) => Event::Provisioned(instance),
            None => lost(),
        },
        Effect::Halt => {
            ports.egress.close(&sandbox).await;
            if retrying("halt", &sandbox, || ports.containers.halt(&sandbox)).await { Event::Halted } else { lost() }
        }
        // One attempt here too; what is in the sandbox stays.
        Effect::Resume => match resume(&ports, &sandbox).await {
            Ok(Some(instance)) => Event::Provisioned(instance),
            Ok(None) => lost(),
            Err(error) => {
                log("resume", &sandbox, &error);
                Event::ResumeFailed(error.failure)
            }
        },
        Effect::Remove => {
            ports.egress.close(&sandbox).await;
            retrying("remove", &sandbox, || ports.containers.remove(&sandbox)).await;
            Event::Removed
        }
    }
}

fn lost() -> Event {
    Event::Vanished(Failure::new(FailureCode::SandboxLost, "the sandbox no longer exists"))
}

async fn provision(ports: &Ports, sandbox: &Sandbox) -> Result<Instance, PortError> {
    let instance = ports.containers.provision(sandbox).await?;
    serve(ports, sandbox, &instance, sandbox.spec.snapshot.as_ref()).await?;
    Ok(instance)
}

/// Whatever keeps a sandbox from being adopted, its files are its customer's: it is tried again, never discarded.
async fn adopt(ports: &Ports, sandbox: &Sandbox) -> Result<Option<Instance>, PortError> {
    let adopted = ports.containers.adopt(sandbox).await?;
    if let Some(instance) = &adopted {
        serve(ports, sandbox, instance, None).await?;
    }
    Ok(adopted)
}

async fn resume(ports: &Ports, sandbox: &Sandbox) -> Result<Option<Instance>, PortError> {
    let from = match &sandbox.phase {
        Phase::Resuming(_, from) => from.as_ref(),
        Phase::Requested
        | Phase::Provisioning
        | Phase::Running(_)
        | Phase::Stopping(_)
        | Phase::Stopped(_)
        | Phase::Deleting(_)
        | Phase::Gone(_)
        | Phase::Discarding(_)
        | Phase::Failed(_) => None,
    };
    let started = ports.containers.adopt(sandbox).await?;
    if let Some(instance) = &started {
        serve(ports, sandbox, instance, from).await?;
    }
    Ok(started)
}

/// Gets a started container to where its customer can use it.
async fn serve(
    ports: &Ports,
    sandbox: &Sandbox,
    instance: &Instance,
    from: Option<&SnapshotUri>,
) -> Result<(), PortError> {
    ports.sidecars.ready(instance).await?;
    ports.egress.open(sandbox, instance).await?;
    if let Some(from) = from {
        ports.snapshots.restore(sandbox, instance, from).await?;
    }
    Ok(())
}

async fn retrying<T, F>(what: &'static str, sandbox: &Sandbox, attempt: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, PortError>>,
{
    let mut pause = RETRY_PAUSE_MIN;
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) => log(what, sandbox, &error),
        }
        tokio::time::sleep(pause).await;
        pause = Duration::min(pause * 2, RETRY_PAUSE_MAX);
    }
}

fn log(what: &'static str, sandbox: &Sandbox, error: &PortError) {
    let cause: &(dyn std::error::Error + 'static) = error.source.as_ref();
    tracing::warn!(sandbox = %sandbox.id, what, failure = %error.failure, cause, "effect failed");
}
