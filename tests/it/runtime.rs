//! The same sandbox on another runtime: asked for by name, or the operator's default.

use anyhow::{Result, ensure};
use sandbox_tests::engine;
use sandbox_tests::node::Node;

use crate::world::{World, shown};

/// A kernel in user space: what runs there does not reach the host's.
const RUNSC: &str = "runsc";

fn must_know(runtime: &str) -> Result<()> {
    let known = engine::runtimes()?;
    ensure!(
        known.iter().any(|name| name == runtime),
        "the engine has no {runtime}, only {known:?}: see `cargo xtask setup`"
    );
    Ok(())
}

/// Creates, looks, stops behind the operator's back, starts again, deletes.
async fn live(world: &World, sandbox: &str, runtime: &str) -> Result<()> {
    let containers = engine::containers(&world.node.run_dir())?;
    let container = containers.iter().find(|name| name.starts_with(sandbox)).map(String::as_str).unwrap_or_default();
    let host = &engine::inspect(container)?["HostConfig"];
    assert_eq!(host["Runtime"], runtime);
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["SecurityOpt"], serde_json::json!(["no-new-privileges:true"]));
    for (script, expected) in [
        ("id -u; id -G", "1000\n1000\n"),
        ("touch /etc/x 2>/dev/null || echo read-only", "read-only\n"),
        ("ls /run/sandbox 2>/dev/null || echo closed", "closed\n"),
        ("echo kept > note; cat note", "kept\n"),
        ("sleep 60 & sh -c 'exit 7'; echo $?", "7\n"),
    ] {
        assert_eq!(
            shown(&world.customer.exec(sandbox, script).await?),
            (Some(0), expected.into(), String::new()),
            "{script}"
        );
    }
    engine::docker_text(&["kill", container])?;
    assert_eq!(shown(&world.customer.exec(sandbox, "cat note").await?).1, "kept\n");
    world.customer.text(&["rm", "--within", "60", sandbox]).await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    Ok(())
}

fn allow_both(node: &mut Node) {
    node.set("SANDBOX_RUNTIMES_ALLOWED", "runc,runsc");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_lives_on_the_runtime_that_it_asks_for_and_its_receipt_names_it() -> Result<()> {
    must_know(RUNSC)?;
    let world = World::with(allow_both).await?;
    for runtime in [RUNSC, "runc"] {
        let saved = world.node.dir().join("answer.json").display().to_string();
        let asked = format!("SANDBOX_RUNTIME={runtime}");
        let sandbox = world.customer.create(world.service, &["--env", &asked, "--save", &saved]).await?;
        let receipt: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&saved)?)?;
        assert_eq!(
            receipt.pointer("/receipt/receipt/runtime").and_then(|name| name.as_str()),
            Some(runtime),
            "{receipt}"
        );
        live(&world, &sandbox, runtime).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_default_runtime_is_that_of_the_pool_as_well() -> Result<()> {
    must_know(RUNSC)?;
    let set = |node: &mut Node| {
        node.set("SANDBOX_RUNTIME", RUNSC);
        node.set("POOL_SIZE", "1");
    };
    let mut world = World::with(set).await?;
    let sandbox = world.create().await?;
    let kernel = shown(&world.customer.exec(&sandbox, "uname -v").await?).1;
    let own = std::fs::read_to_string("/proc/sys/kernel/version")?;
    assert_ne!(kernel, own, "it sees another kernel than the host's");
    world.customer.text(&["rm", "--within", "60", &sandbox]).await?;
    world.node.stop().await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_is_not_offered_is_refused_by_name() -> Result<()> {
    let world = World::new().await?;
    let service = world.service.to_string();
    let refused = world.customer.run(&["create", "--service", &service, "--env", "SANDBOX_RUNTIME=kata"]).await?;
    let (code, _, stderr) = shown(&refused);
    assert!(code != Some(0) && stderr.contains("SANDBOX_RUNTIME"), "{code:?} {stderr}");
    Ok(())
}
