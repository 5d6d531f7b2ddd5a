//! One operator with one service, and a customer who rents it.

use anyhow::Result;
use sandbox_tests::client::Client;
use sandbox_tests::engine;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::node::Node;

/// Ready to be used by [`CUSTOMER`].
pub(crate) struct World {
    pub(crate) customer: Client,
    pub(crate) service: u64,
    pub(crate) node: Node,
    pub(crate) ground: Ground,
}

impl World {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(|_| {}).await
    }

    /// As [`World::new`], with settings of the operator changed before its start.
    pub(crate) async fn with(set: impl FnOnce(&mut Node)) -> Result<Self> {
        let ground = Ground::new().await?;
        let mut node = ground.node(OPERATOR)?;
        set(&mut node);
        node.start().await?;
        let customer = ground.client(CUSTOMER)?;
        let service = customer.service(&[Ground::address(OPERATOR)]).await?;
        Ok(Self { customer, service, node, ground })
    }

    pub(crate) async fn create(&self) -> Result<String> {
        self.customer.create(self.service, &[]).await
    }

    /// What of this operator's sandboxes exists on the machine: containers, volumes, socket directories, disks, mounts,
    /// loop devices.
    pub(crate) fn leftovers(&self) -> Result<Vec<String>> {
        let (run_dir, disks_dir) = (self.node.run_dir(), self.node.disks_dir());
        let mut found = engine::containers(&run_dir)?;
        found.extend(engine::volumes(&run_dir)?);
        found.extend(engine::mounts_below(&disks_dir)?.iter().map(|mount| mount.display().to_string()));
        found.extend(engine::loops_below(&disks_dir)?);
        for dir in [run_dir, disks_dir] {
            let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            found.extend(entries.map(|entry| entry.path().display().to_string()));
        }
        found.retain(|path| !path.ends_with("/disks/templates"));
        Ok(found)
    }
}

/// Exit code and both outputs, as text.
pub(crate) fn shown(output: &std::process::Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}
