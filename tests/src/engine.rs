//! The container engine, seen through its own command line: independent of the client that the operator uses.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The image that set-up builds.
pub const IMAGE: &str = "agent-sandbox-sidecar:dev";
/// The one with the tools that people expect, which `cargo xtask setup --full` builds.
pub const FULL_IMAGE: &str = "agent-sandbox-sidecar:full";

/// Runs `docker` and returns its output, whatever its exit code.
///
/// # Errors
/// It cannot be started.
pub fn docker(args: &[&str]) -> Result<Output> {
    let command = Command::new("docker").args(args).stdin(Stdio::null()).output();
    command.with_context(|| format!("cannot run docker {}", args.join(" ")))
}

/// Runs `docker`, which must succeed, and returns what it printed.
///
/// # Errors
/// It did not succeed.
pub fn docker_text(args: &[&str]) -> Result<String> {
    let output = docker(args)?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "docker {}: {stderr}", args.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Names of the containers of nodes with this socket directory, running or not.
///
/// # Errors
/// The engine does not answer.
pub fn containers(run_dir: &Path) -> Result<Vec<String>> {
    list(&["ps", "--all", "--format", "{{.Names}}", "--filter", &label(run_dir)])
}

/// Names of the volumes of nodes with this socket directory.
///
/// # Errors
/// The engine does not answer.
pub fn volumes(run_dir: &Path) -> Result<Vec<String>> {
    list(&["volume", "ls", "--format", "{{.Name}}", "--filter", &label(run_dir)])
}

/// What the engine says of a container.
///
/// # Errors
/// The engine does not know it.
pub fn inspect(container: &str) -> Result<Value> {
    let text = docker_text(&["inspect", "--type", "container", container])?;
    let mut found: Vec<Value> = serde_json::from_str(&text).context("docker inspect printed no JSON")?;
    found.pop().context("docker inspect printed nothing")
}

/// Removes every container and volume of nodes with this socket directory.
///
/// # Errors
/// The engine does not answer.
pub fn clear(run_dir: &Path) -> Result<()> {
    for container in containers(run_dir)? {
        docker_text(&["rm", "--force", "--volumes", &container])?;
    }
    for volume in volumes(run_dir)? {
        docker_text(&["volume", "rm", "--force", &volume])?;
    }
    Ok(())
}

/// What is mounted below a directory.
///
/// # Errors
/// The kernel does not say.
pub fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("no table of mounts")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    Ok(points.filter(|point| point.starts_with(dir)).collect())
}

/// Files below a directory that a loop device is made of, also removed ones.
///
/// # Errors
/// The kernel does not say.
pub fn loops_below(dir: &Path) -> Result<Vec<String>> {
    let devices = std::fs::read_dir("/sys/block").context("no block devices")?.flatten();
    let files = devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    Ok(files.map(|file| file.trim_end().to_owned()).filter(|file| Path::new(file).starts_with(dir)).collect())
}

/// Lets go of everything that is mounted below a directory, as a reboot does.
///
/// # Errors
/// Something cannot be unmounted.
pub fn unmount_below(dir: &Path) -> Result<()> {
    for point in mounts_below(dir)? {
        let unmounted = Command::new("umount").arg("--lazy").arg(&point).status().context("cannot run umount")?;
        ensure!(unmounted.success(), "{} stays mounted", point.display());
    }
    Ok(())
}

/// Runtimes that the engine knows.
///
/// # Errors
/// The engine does not answer.
pub fn runtimes() -> Result<Vec<String>> {
    let text = docker_text(&["info", "--format", "{{range $name, $_ := .Runtimes}}{{$name}}\n{{end}}"])?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn label(run_dir: &Path) -> String {
    format!("label=sandbox.run_dir={}", run_dir.display())
}

fn list(args: &[&str]) -> Result<Vec<String>> {
    Ok(docker_text(args)?.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect())
}
