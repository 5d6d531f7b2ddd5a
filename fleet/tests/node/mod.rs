//! A keeper over a world of fakes, and the way to it.

use std::sync::Arc;

use sandbox_fleet::admission::Capacity;
use sandbox_fleet::fakes::FakeWorld;
use sandbox_fleet::request::Resources;
use sandbox_fleet::sandbox::Sandbox;
use sandbox_fleet::{Fleet, Keeper, Unfinished};
use sandbox_protocol::FailureCode;
use tokio_util::sync::CancellationToken;

pub(crate) struct Node {
    pub(crate) world: Arc<FakeWorld>,
    pub(crate) fleet: Fleet,
    pub(crate) stop: CancellationToken,
}

impl Node {
    /// Starts a keeper of so many sandboxes, so many of them one customer's, from what a former life left.
    pub(crate) fn start(
        world: Arc<FakeWorld>,
        (sandboxes, sandboxes_each_max): (u32, u32),
        known: Vec<Sandbox>,
    ) -> Self {
        let resources = Resources { cpu_cores: 100, memory_mb: 100_000, disk_gb: 100_000 };
        let capacity = Capacity { sandboxes, sandboxes_each_max, resources, cpu_cores_each_max: 8 };
        let (keeper, fleet) = Keeper::new(capacity, world.ports());
        let stop = CancellationToken::new();
        tokio::spawn(keeper.run(known, stop.clone()));
        Self { world, fleet, stop }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Why something was not done.
pub(crate) fn code(unfinished: Unfinished) -> FailureCode {
    match unfinished {
        Unfinished::Failed(failure) => failure.code,
        Unfinished::Stopping => panic!("the node is not stopping"),
    }
}
