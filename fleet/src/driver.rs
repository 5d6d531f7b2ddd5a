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

use sandbox_protocol::{Failure, FailureCode};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::limits::{RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use crate::ports::{Containers, PortError, Sandboxes, Sidecars};
use crate::sandbox::{Effect, Event, Instance, Sandbox, Step, step};

/// What a driver works with.
#[derive(Clone)]
pub(crate) struct Ports {
    pub(crate) containers: Arc<dyn Containers>,
    pub(crate) sidecars: Arc<dyn Sidecars>,
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
}

pub(crate) struct Driver {
    pub(crate) ports: Ports,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) published: watch::Sender<Sandbox>,
    pub(crate) stop: CancellationToken,
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
        let mut waiting = VecDeque::from([Event::Start]);
        let mut later = Vec::new();
        let mut under_way = UnderWay::nothing();
        while !self.published.borrow().phase.is_final() {
            let Some(event) = self.next(&mut waiting, &mut under_way).await else { return };
            // Who looks already need not be told to look: beginning anew each time, it would never come to an end.
            if event == Event::Check && under_way.busy {
                continue;
            }
            let mut sandbox = self.published.borrow().clone();
            match step(&sandbox.phase, event.clone()) {
                Step::Already => {}
                Step::Later => later.push(event),
                Step::To(phase, effect) => {
                    sandbox.phase = phase;
                    self.save(&sandbox).await;
                    tracing::info!(sandbox = %sandbox.id, phase = sandbox.phase.name(), "phase");
                    self.published.send_replace(sandbox.clone());
                    if let Some(effect) = effect {
                        under_way = UnderWay::with(perform(self.ports.clone(), sandbox, effect));
                    }
                    waiting.extend(later.drain(..));
                }
            }
        }
    }

    async fn next(&mut self, waiting: &mut VecDeque<Event>, under_way: &mut UnderWay) -> Option<Event> {
        if let Some(event) = waiting.pop_front() {
            return Some(event);
        }
        tokio::select! {
            outcome = &mut under_way.effect => {
                *under_way = UnderWay::nothing();
                Some(outcome)
            }
            event = self.events.recv() => event,
        }
    }

    async fn save(&self, sandbox: &Sandbox) {
        retrying("save", sandbox, || self.ports.sandboxes.save(sandbox)).await;
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
            None => Event::Vanished(Failure::new(FailureCode::SandboxLost, "the sandbox no longer exists")),
        },
        Effect::Remove => {
            retrying("remove", &sandbox, || ports.containers.remove(sandbox.id)).await;
            Event::Removed
        }
    }
}

async fn provision(ports: &Ports, sandbox: &Sandbox) -> Result<Instance, PortError> {
    let instance = ports.containers.provision(sandbox).await?;
    ports.sidecars.ready(sandbox).await?;
    Ok(instance)
}

/// Whatever keeps a sandbox from being adopted, its files are its customer's: it is tried again, never discarded.
async fn adopt(ports: &Ports, sandbox: &Sandbox) -> Result<Option<Instance>, PortError> {
    let adopted = ports.containers.adopt(sandbox).await?;
    if adopted.is_some() {
        ports.sidecars.ready(sandbox).await?;
    }
    Ok(adopted)
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
