//! `footprint`: what an idle sidecar and an idle operator hold in memory, and the size of what every sandbox carries.

use std::fs;

use anyhow::{Context, Result};
use sandbox_tests::engine::{containers, docker_text, inspect};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};

use super::{Samples, report};

const SIDECAR: &str = "/usr/local/bin/sandbox-sidecar";
const MIB: f64 = 1024.0 * 1024.0;

pub(super) async fn run() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    let customer = ground.client(CUSTOMER)?;
    let service = customer.service(&[Ground::address(OPERATOR)]).await?;
    let sandbox = customer.create(service, &[]).await?;
    customer.exec(&sandbox, "true").await?;
    let container = containers(&node.run_dir())?.pop().context("no container")?;
    let init = inspect(&container)?["State"]["Pid"].as_u64().context("the container does not run")?;
    let sidecar = child_of(init)?;
    let binary = docker_text(&["exec", &container, "stat", "-c", "%s", SIDECAR])?;

    figure("sidecar_rss_mib", rss_mib(sidecar)?)?;
    figure("sidecar_binary_mib", binary.parse::<f64>().context("size of the sidecar")? / MIB)?;
    figure("operator_rss_mib", rss_mib(node.pid()?.into())?)
}

fn figure(name: &str, ours: f64) -> Result<()> {
    let samples = Samples { ours: vec![ours], baseline: Vec::new() };
    report("footprint", name, "MiB", &samples, (ours, None))
}

/// The one process that the container's init started.
pub(super) fn child_of(init: u64) -> Result<u64> {
    let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children")).context("children of init")?;
    children.split_whitespace().next().context("init has no child")?.parse().context("a process id")
}

/// What a process holds in memory.
pub(super) fn rss_mib(pid: u64) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("status of a process")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("VmRSS")?;
    Ok(kib / 1024.0)
}
