//! The container engine, seen through its own command line: independent of the client that the operator uses.

use std::path::Path;
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

fn label(run_dir: &Path) -> String {
    format!("label=sandbox.run_dir={}", run_dir.display())
}

fn list(args: &[&str]) -> Result<Vec<String>> {
    Ok(docker_text(args)?.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect())
}
