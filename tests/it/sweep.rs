//! Nothing stays behind that belongs to nobody, and nothing goes that belongs to somebody.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox_tests::engine;
use sandbox_tests::wait::until;

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(60);

/// A container like those of a node with this tag.
fn container(name: &str, tag: &str, run_dir: &str) -> Result<()> {
    let labels =
        [format!("sandbox.node={tag}"), format!("sandbox.run_dir={run_dir}"), format!("sandbox.vessel={name}")];
    let mut args = vec!["create", "--name", name, "--network", "none"];
    args.extend(labels.iter().flat_map(|label| ["--label", label.as_str()]));
    args.push(engine::IMAGE);
    engine::docker_text(&args).map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_life_left_is_removed_and_what_is_somebodys_stays() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    assert!(world.customer.exec(&sandbox, "echo kept > note").await?.status.success());
    let run_dir = world.node.run_dir();
    let ours = engine::containers(&run_dir)?.pop().context("no container")?;
    let tag = ours.rsplit('-').next().context("no tag")?.to_owned();
    world.node.kill()?;

    let of_run_dir = run_dir.display().to_string();
    let orphan = format!("sbx-{}-77-0-{tag}", world.service);
    let pooled = format!("pool-0123456789abcdef-{tag}");
    let foreign = format!("sbx-{}-77-0-{}", world.service, "0".repeat(8));
    for name in [&orphan, &pooled] {
        container(name, &tag, &of_run_dir)?;
    }
    container(&foreign, "00000000", &of_run_dir)?;
    for name in [&orphan, &pooled, &foreign] {
        std::fs::create_dir(run_dir.join(name))?;
    }
    let disks = world.node.disks_dir();
    std::fs::copy(disks.join(format!("{ours}.img")), disks.join(format!("{orphan}.img")))
        .map(drop)
        .or_else(|_| std::fs::write(disks.join(format!("{orphan}.img")), ""))?;
    std::fs::create_dir(disks.join(&orphan))?;
    let mounted =
        std::process::Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(disks.join(&orphan)).status()?;
    ensure!(mounted.success(), "cannot mount");
    std::fs::write(disks.join(format!("{pooled}.new")), "half")?;
    let volume = format!("{orphan}-home");
    engine::docker_text(&[
        "volume",
        "create",
        "--label",
        &format!("sandbox.node={tag}"),
        "--label",
        &format!("sandbox.run_dir={of_run_dir}"),
        &volume,
    ])?;

    world.node.start().await?;
    let expected = || async {
        let mut containers = engine::containers(&run_dir).ok()?;
        containers.sort();
        let mut left = vec![ours.clone(), foreign.clone()];
        left.sort();
        let swept = containers == left && engine::volumes(&run_dir).ok()?.is_empty();
        let others = world.leftovers().ok()?;
        (swept && !others.iter().any(|path| path.contains(&orphan) || path.contains(&pooled))).then_some(())
    };
    let swept = until("the leftovers to go", BOUND, expected).await;
    assert!(swept.is_ok(), "{:?}\n{}", world.leftovers()?, world.node.log());
    assert!(run_dir.join(&foreign).exists(), "another node's directory stays");
    assert_eq!(shown(&world.customer.exec(&sandbox, "cat note").await?).1, "kept\n");
    Ok(())
}
