//! A sandbox has the disk that it asked for: no more, whatever it does, and no less, whatever others do.

use std::time::Duration;

use anyhow::{Context, Result};
use sandbox_tests::engine;
use sandbox_tests::wait::until;

use crate::world::{World, shown};

/// In which nobody holds a disk any more that was unmounted.
const DETACHED_WITHIN: Duration = Duration::from_secs(30);

impl World {
    /// What a command printed; it must succeed.
    async fn says(&self, sandbox: &str, script: &str) -> Result<String> {
        let (code, stdout, stderr) = shown(&self.customer.exec(sandbox, script).await?);
        anyhow::ensure!(code == Some(0), "{script}: {code:?} {stderr}");
        Ok(stdout)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_full_for_its_sandbox_alone() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.customer.create(world.service, &["--disk-gb", "1"]).await?;
    let neighbour = world.create().await?;
    let size: u64 = world.says(&sandbox, "df --output=size -m /workspace | tail -1").await?.trim().parse()?;
    assert!((900..=1024).contains(&size), "{size} MiB");
    let fill = "head -c 2G /dev/zero > /home/agent/big; stat -c %s /home/agent/big";
    let (code, written, stderr) = shown(&world.customer.exec(&sandbox, fill).await?);
    assert!(stderr.contains("No space left on device"), "{code:?} {stderr}");
    assert!(written.trim().parse::<u64>()? < 1 << 30, "{written}");
    let (code, _, stderr) = shown(&world.customer.exec(&sandbox, "head -c 1M /dev/zero > more").await?);
    assert!(code != Some(0) && stderr.contains("No space left"), "one quota holds for both: {stderr}");
    world.says(&neighbour, "head -c 64M /dev/zero > fits && sync").await?;
    world.says(&sandbox, "rm /home/agent/big && head -c 64M /dev/zero > fits").await?;
    let image = engine::loops_below(&world.node.disks_dir())?;
    assert_eq!(image.len(), 2, "{image:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_with_more_files_than_its_disk_holds_harms_nobody() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.customer.create(world.service, &["--disk-gb", "1"]).await?;
    let fill = "mkdir many; i=0; while true 2>/dev/null > many/$i; do i=$((i+1)); done; df --output=iavail /workspace; echo $i";
    let said = world.customer.exec(&sandbox, &format!("({fill}) 2>/dev/null")).await?;
    let (_, said, stderr) = shown(&said);
    let words: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [free, files] = words[..] else { anyhow::bail!("{said} {stderr}") };
    assert_eq!(free, 0, "no file more");
    assert!((50_000..80_000).contains(&files), "{files}");
    let neighbour = world.create().await?;
    world.says(&neighbour, "mkdir many; for i in $(seq 100); do : > many/$i; done").await?;
    world.customer.text(&["rm", "--within", "60", &sandbox]).await?;
    world.customer.text(&["rm", "--within", "60", &neighbour]).await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_of_the_host_a_sandbox_has_its_files_and_its_limit() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.customer.create(world.service, &["--disk-gb", "1"]).await?;
    world.says(&sandbox, "echo kept > note").await?;
    let container = engine::containers(&world.node.run_dir())?.pop().context("no container")?;
    world.node.kill()?;
    engine::docker_text(&["kill", &container])?;
    engine::unmount_below(&world.node.disks_dir())?;
    std::fs::remove_dir_all(world.node.run_dir())?;
    // A container that is started beside this test has the host's mounts for a moment, and they their loop devices.
    let detached = || async { engine::loops_below(&world.node.disks_dir()).ok()?.is_empty().then_some(()) };
    until("the disk to be let go of", DETACHED_WITHIN, detached).await?;
    world.node.start().await?;
    assert_eq!(world.says(&sandbox, "cat note").await?, "kept\n");
    let (_, _, stderr) = shown(&world.customer.exec(&sandbox, "head -c 2G /dev/zero > big").await?);
    assert!(stderr.contains("No space left"), "{stderr}");
    world.customer.text(&["rm", "--within", "60", &sandbox]).await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_quotas_a_disk_is_a_directory_and_the_log_says_so() -> Result<()> {
    let world = World::with(|node| node.set("DISK_QUOTA", "none")).await?;
    assert!(world.node.log().contains("DISK_QUOTA=none"), "{}", world.node.log());
    let sandbox = world.create().await?;
    world.says(&sandbox, "echo kept > note && cat ~/.profile > copy && test -s copy").await?;
    assert_eq!(engine::mounts_below(&world.node.disks_dir())?, Vec::<std::path::PathBuf>::new());
    world.customer.text(&["rm", "--within", "60", &sandbox]).await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    Ok(())
}
