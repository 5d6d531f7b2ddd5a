//! A host whose disk runs full: no sandbox is made on it, and those that there are go on.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sandbox_tests::engine;
use sandbox_tests::node::Node;

use crate::world::{World, shown};

/// A file system of its own for the disks of a node, as large as it is told to be. The node unmounts it when it ends.
struct Host(PathBuf);

impl Host {
    fn of(node: &Node, size_mb: u64) -> Result<Self> {
        let dir = node.disks_dir();
        std::fs::create_dir_all(&dir)?;
        let options = format!("size={size_mb}m,mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&dir).status()?;
        ensure!(mounted.success(), "cannot mount a file system; this test needs root");
        Ok(Self(dir))
    }

    fn resize(&self, size_mb: u64) -> Result<()> {
        let options = format!("remount,size={size_mb}m");
        let resized = Command::new("mount").args(["-o", &options]).arg(&self.0).status()?;
        ensure!(resized.success(), "cannot resize a file system");
        Ok(())
    }
}

/// What must stay free is a GiB; a few megabytes go to templates and disks.
const ROOM_MB: u64 = 1_500;
const NO_ROOM_MB: u64 = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn on_a_nearly_full_host_nothing_new_is_made_and_what_there_is_is_served_also_after_a_restart() -> Result<()> {
    let mut host = None;
    let mut world = World::with(|node| host = Some(Host::of(node, ROOM_MB))).await?;
    let host = host.context("no host")??;
    let sandbox = world.create().await?;
    assert!(world.customer.exec(&sandbox, "echo kept > note").await?.status.success());
    host.resize(NO_ROOM_MB)?;
    let refused = async |world: &World| {
        let args = ["create", "--within", "60", "--service", &world.service.to_string()];
        let (code, _, stderr) = shown(&world.customer.run(&args).await?);
        ensure!(code == Some(123) && stderr.contains("the operator's disk is full"), "{code:?} {stderr}");
        ensure!(engine::containers(&world.node.run_dir())?.len() == 1, "{:?}", world.leftovers()?);
        ensure!(engine::loops_below(&world.node.disks_dir())?.len() == 1, "{:?}", world.leftovers()?);
        Ok(())
    };
    refused(&world).await?;
    assert_eq!(shown(&world.customer.exec(&sandbox, "cat note").await?).1, "kept\n");

    world.node.kill()?;
    world.node.start().await?;
    assert!(world.node.log().contains("no sandbox is made before there is room"), "{}", world.node.log());
    assert_eq!(shown(&world.customer.exec(&sandbox, "cat note").await?).1, "kept\n");
    refused(&world).await?;
    world.customer.text(&["stop", "--within", "60", &sandbox]).await?;
    world.customer.text(&["resume", "--within", "60", &sandbox]).await?;
    assert_eq!(shown(&world.customer.exec(&sandbox, "cat note").await?).1, "kept\n");

    host.resize(ROOM_MB)?;
    let other = world.create().await?;
    assert!(world.customer.exec(&other, "true").await?.status.success());
    for sandbox in [sandbox, other] {
        world.customer.text(&["rm", "--within", "60", &sandbox]).await?;
    }
    let mut left = world.leftovers()?;
    left.retain(|what| *what != world.node.disks_dir().display().to_string());
    assert_eq!(left, Vec::<String>::new());
    Ok(())
}
