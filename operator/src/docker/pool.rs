//! Containers that run before they are asked for, of the common shape: a create takes one by giving it the sandbox's
//! name.
//!
//! What is the sandbox's own (environment, keys, labels) travels with each command, so nothing inside needs to change.
//! The pool is refilled between creates, within the node's capacity, and is gone when the node ends.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox_fleet::admission::Capacity;
use sandbox_fleet::ports::{PortError, Sidecars};
use sandbox_fleet::sandbox::{Phase, Sandbox};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Census;
use super::host::{Host, Wanted};
use crate::error_chain;
use crate::limits::{POOL_LOOK_PAUSE, POOL_PATIENCE, POOL_REST, POOL_RETRY_PAUSE, POOL_STARTS_MAX};

/// How its containers begin.
pub(super) const PREFIX: &str = "pool-";

/// The pool as creates see it.
pub(super) struct Pool {
    host: Arc<Host>,
    size: usize,
    wanted: Wanted,
    state: Mutex<State>,
    serving: AtomicUsize,
    wake: Notify,
    claimed: AtomicU64,
    cold: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct State {
    ready: VecDeque<String>,
    /// Every vessel of this life of which something may exist, also those that were claimed.
    known: HashSet<String>,
    /// When a create was last served.
    served_at: Option<Instant>,
}

/// What the pool did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolCounts {
    /// Containers that wait.
    pub(crate) ready: usize,
    /// Sandboxes that got one.
    pub(crate) claimed: u64,
    /// Sandboxes that were started from nothing.
    pub(crate) cold: u64,
    /// Containers that could not be made ready.
    pub(crate) failed: u64,
}

/// A create that is being served; refills wait for it.
pub(super) struct Serving<'a>(&'a Pool);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.state().served_at = Some(Instant::now());
        if self.0.serving.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.wake.notify_one();
        }
    }
}

impl Pool {
    pub(super) fn new(host: Arc<Host>, size: usize, wanted: Wanted) -> Self {
        Self {
            host,
            size,
            wanted,
            state: Mutex::default(),
            serving: AtomicUsize::new(0),
            wake: Notify::new(),
            claimed: AtomicU64::new(0),
            cold: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Holds refills back while it lives.
    pub(super) fn serving(&self) -> Serving<'_> {
        self.serving.fetch_add(1, Ordering::Relaxed);
        Serving(self)
    }

    /// A container that can become what is wanted. Cores and memory can be changed later, the rest cannot.
    pub(super) fn take(&self, wanted: &Wanted) -> Option<String> {
        let runtime = wanted.runtime.as_ref().or(self.host.runtime.as_ref());
        // Nor can its labels.
        let fits = wanted.labels.is_empty()
            && wanted.image == self.wanted.image
            && wanted.resources.disk_gb == self.wanted.resources.disk_gb
            && runtime == self.host.runtime.as_ref();
        if !fits {
            return None;
        }
        self.state().ready.pop_front()
    }

    /// Takes back a container that was not used.
    pub(super) fn give_back(&self, vessel: String) {
        self.state().ready.push_front(vessel);
    }

    /// Notes that a sandbox got one.
    pub(super) fn count_claimed(&self) {
        self.claimed.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a sandbox got none.
    pub(super) fn count_cold(&self) {
        self.cold.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets a vessel of which nothing is left, or what is left is nobody's.
    pub(super) fn forget(&self, vessel: &str) {
        self.state().known.remove(vessel);
    }

    /// Whether something of this vessel may be in use, as far as the pool knows.
    pub(super) fn knows(&self, vessel: &str) -> bool {
        self.state().known.contains(vessel)
    }

    pub(super) fn counts(&self) -> PoolCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let ready = self.state().ready.len();
        PoolCounts { ready, claimed: read(&self.claimed), cold: read(&self.cold), failed: read(&self.failed) }
    }

    /// Whether a create is being served, or was a moment ago: its answer has yet to be written and sent.
    fn is_busy(&self, now: Instant) -> bool {
        let was_just_now = self.state().served_at.is_some_and(|at| now < at + POOL_REST);
        was_just_now || self.serving.load(Ordering::Relaxed) > 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What keeps the pool filled.
pub(super) struct Refill {
    pub(super) pool: Arc<Pool>,
    pub(super) sidecars: Arc<dyn Sidecars>,
    pub(super) census: Arc<dyn Census>,
    pub(super) capacity: Capacity,
}

impl Refill {
    /// Fills the pool until `stop`, then empties it.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut making = JoinSet::new();
        let mut next_look = Instant::now();
        let mut not_before = Instant::now();
        let mut busy_since = None;
        while !stop.is_cancelled() {
            if Instant::now() >= next_look {
                self.look_after().await;
                next_look = Instant::now() + POOL_LOOK_PAUSE;
            }
            let missing = self.missing(making.len()).await;
            let now = Instant::now();
            busy_since = self.pool.is_busy(now).then(|| busy_since.unwrap_or(now));
            let quiet = busy_since.is_none_or(|since| now >= since + POOL_PATIENCE);
            if missing > 0 && making.len() < POOL_STARTS_MAX && quiet && now >= not_before {
                making.spawn(make(self.pool.clone(), self.sidecars.clone()));
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                Some(made) = making.join_next() => {
                    let failed = !made.unwrap_or(false);
                    not_before = if failed { Instant::now() + POOL_RETRY_PAUSE } else { Instant::now() };
                }
                () = self.pool.wake.notified() => {}
                () = sleep(if missing > 0 { POOL_REST } else { POOL_PATIENCE }) => {}
            }
        }
        while making.join_next().await.is_some() {}
        self.shrink(0).await;
    }

    /// How many are to be made, after surplus ones are gone.
    async fn missing(&self, making: usize) -> usize {
        let room = match self.census.living().await {
            Ok(living) => room(self.capacity, &living, &self.pool.wanted),
            Err(error) => {
                let error = error_chain(error.as_ref());
                tracing::warn!(error, "the pool is not refilled: sandboxes cannot be counted");
                return 0;
            }
        };
        let size = self.pool.size.min(room);
        if self.pool.state().ready.len() > size {
            self.shrink(size).await;
        }
        size.saturating_sub(self.pool.state().ready.len() + making)
    }

    /// Removes what waits beyond `size`.
    async fn shrink(&self, size: usize) {
        let mut removing = JoinSet::new();
        loop {
            let surplus = {
                let mut state = self.pool.state();
                if state.ready.len() <= size { None } else { state.ready.pop_back() }
            };
            let Some(vessel) = surplus else { break };
            removing.spawn(discard(self.pool.clone(), vessel));
        }
        while removing.join_next().await.is_some() {}
    }

    /// Replaces those that died.
    async fn look_after(&self) {
        let ready: Vec<String> = self.pool.state().ready.iter().cloned().collect();
        for vessel in ready {
            // No answer says nothing of the container.
            let Ok(found) = self.pool.host.engine.inspect(&vessel).await else { return };
            let runs = found.and_then(|found| found.state?.running).unwrap_or(false);
            if runs {
                continue;
            }
            let taken = {
                let mut state = self.pool.state();
                let before = state.ready.len();
                state.ready.retain(|other| *other != vessel);
                before != state.ready.len()
            };
            if taken {
                discard(self.pool.clone(), vessel).await;
            }
        }
    }
}

/// How many more containers of this shape the node has room for.
fn room(capacity: Capacity, living: &[Sandbox], wanted: &Wanted) -> usize {
    let awake = living.iter().filter(|sandbox| !matches!(sandbox.phase, Phase::Stopped(_)));
    let (mut cores, mut memory) = (0_u64, 0_u64);
    for sandbox in awake {
        cores = cores.saturating_add(sandbox.spec.resources.cpu_cores);
        memory = memory.saturating_add(sandbox.spec.resources.memory_mb);
    }
    let disk: u64 = living.iter().map(|sandbox| sandbox.spec.resources.disk_gb).sum();
    let fit = |all: u64, used: u64, each: u64| all.saturating_sub(used) / each.max(1);
    let (all, each) = (capacity.resources, wanted.resources);
    let rooms = [
        u64::from(capacity.sandboxes).saturating_sub(living.len() as u64),
        fit(all.cpu_cores, cores, each.cpu_cores),
        fit(all.memory_mb, memory, each.memory_mb),
        fit(all.disk_gb, disk, each.disk_gb),
    ];
    rooms.into_iter().min().and_then(|room| usize::try_from(room).ok()).unwrap_or(0)
}

/// Makes one container ready. `false`: it could not be.
async fn make(pool: Arc<Pool>, sidecars: Arc<dyn Sidecars>) -> bool {
    let vessel = format!("{PREFIX}{:016x}-{}", rand::random::<u64>(), pool.host.ground.places.tag());
    pool.state().known.insert(vessel.clone());
    let made = async {
        pool.host.build(&vessel, &pool.wanted).await?;
        let instance = pool.host.settle(&vessel, &pool.wanted).await?;
        sidecars.ready(&instance).await
    };
    match made.await {
        Ok(()) => {
            tracing::info!(vessel, "a container waits in the pool");
            pool.state().ready.push_back(vessel);
            true
        }
        Err(error) => {
            let error: PortError = error;
            tracing::warn!(vessel, error = %error_chain(&error), "a container for the pool could not be made ready");
            pool.failed.fetch_add(1, Ordering::Relaxed);
            discard(pool, vessel).await;
            false
        }
    }
}

/// Removes a container of the pool's. What cannot be removed now is found by the next sweep.
async fn discard(pool: Arc<Pool>, vessel: String) {
    if let Err(error) = pool.host.clear(&vessel).await {
        tracing::warn!(vessel, error = %error_chain(&error), "a container of the pool is left for the sweep");
    }
    pool.forget(&vessel);
}

#[cfg(test)]
mod tests {
    use sandbox_fleet::request::Resources;
    use sandbox_fleet::sandbox::{Rest, StopReason};

    use super::*;

    fn wanted() -> Wanted {
        let resources = Resources { cpu_cores: 1, memory_mb: 64, disk_gb: 1 };
        Wanted { image: "sidecar".into(), resources, runtime: None, labels: Default::default() }
    }

    fn check(living: &[Sandbox], resources: Resources, expected: usize) {
        let capacity = Capacity { sandboxes: 4, sandboxes_each_max: 4, resources, cpu_cores_each_max: 1 };
        assert_eq!(room(capacity, living, &wanted()), expected);
    }

    #[test]
    fn the_pool_takes_no_more_than_what_sandboxes_leave_of_each_resource() {
        let plenty = Resources { cpu_cores: 100, memory_mb: 10_000, disk_gb: 100 };
        let one = [sandbox_fleet::fakes::sandbox(1)];
        check(&[], plenty, 4);
        check(&one, plenty, 3);
        check(&one, Resources { cpu_cores: 3, ..plenty }, 2);
        check(&one, Resources { memory_mb: 127, ..plenty }, 0);
        check(&one, Resources { memory_mb: 128, ..plenty }, 1);
        check(&one, Resources { disk_gb: 2, ..plenty }, 1);
    }

    #[test]
    fn a_sandbox_at_rest_keeps_its_place_and_disk_but_neither_cores_nor_memory() {
        let mut resting = sandbox_fleet::fakes::sandbox(1);
        let rest = Rest {
            instance: sandbox_fleet::sandbox::Instance::default(),
            reason: StopReason::Asked,
            failed_resumes: 0,
            failure: None,
        };
        resting.phase = Phase::Stopped(rest);
        check(&[resting.clone()], Resources { cpu_cores: 3, memory_mb: 192, disk_gb: 100 }, 3);
        check(&[resting], Resources { cpu_cores: 3, memory_mb: 192, disk_gb: 2 }, 1);
    }
}
