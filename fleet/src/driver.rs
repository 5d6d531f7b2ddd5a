//! One task per sandbox: the only writer of its phase.
//!
//! The intended phase is stored before an effect begins and the outcome after it ended, so whoever reads the record after
//! a crash knows what may have happened, and repeating the effect is harmless. An effect that the engine left open is
//! tried again with growing pauses: an engine that does not answer is a reason to wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sandbox_protocol::{Failure, FailureCode};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::limits::{RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use crate::ports::{Containers, PortError, Sandboxes, Sidecars};
use crate::sandbox::{Effect, Event, Sandbox, Step, step};

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
        loop {
            let event = match waiting.pop_front() {
                Some(event) => event,
                None => match self.events.recv().await {
                    Some(event) => event,
                    None => return,
                },
            };
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
                        waiting.push_back(self.perform(&sandbox, effect).await);
                    }
                    waiting.extend(later.drain(..));
                }
            }
            if self.published.borrow().phase.is_final() {
                return;
            }
        }
    }

    async fn save(&self, sandbox: &Sandbox) {
        retrying("save", sandbox, || self.ports.sandboxes.save(sandbox)).await;
    }

    async fn perform(&self, sandbox: &Sandbox, effect: Effect) -> Event {
        match effect {
            Effect::Provision => self.provision(sandbox).await,
            Effect::Adopt => match retrying("adopt", sandbox, || self.ports.containers.adopt(sandbox)).await {
                Some(instance) => Event::Provisioned(instance),
                None => Event::Vanished(Failure::new(FailureCode::SandboxLost, "the sandbox no longer exists")),
            },
            Effect::Remove => {
                retrying("remove", sandbox, || self.ports.containers.remove(sandbox.id)).await;
                Event::Removed
            }
        }
    }

    /// One attempt: the customer waits, and may ask elsewhere.
    async fn provision(&self, sandbox: &Sandbox) -> Event {
        let made = async {
            let instance = self.ports.containers.provision(sandbox).await?;
            self.ports.sidecars.ready(sandbox).await?;
            Ok::<_, PortError>(instance)
        };
        match made.await {
            Ok(instance) => Event::Provisioned(instance),
            Err(error) => {
                log("provision", sandbox, &error);
                Event::ProvisionFailed(error.failure)
            }
        }
    }
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
