//! The sidecar image without an operator, as a developer runs it.

use std::time::Duration;

use anyhow::Result;
use sandbox_tests::engine::{IMAGE, docker, docker_text};
use sandbox_tests::wait::until;

struct Container(String);

impl Drop for Container {
    fn drop(&mut self) {
        if let Err(error) = docker(&["rm", "--force", "--volumes", &self.0]) {
            eprintln!("clean-up: {error:#}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_serves_by_itself_and_makes_a_token_where_none_is_given() -> Result<()> {
    let env = ["SIDECAR_PORT=8080", "AGENT_WORKSPACE_ROOT=/workspace", "AGENT_BACKEND=opencode"];
    let mut args = vec!["run", "--detach", "--network", "none"];
    args.extend(env.iter().flat_map(|env| ["--env", env]));
    args.push(IMAGE);
    let container = Container(docker_text(&args)?);
    let check = ["exec", &container.0, "sandbox-sidecar", "--healthcheck"];
    let healthy = || async { docker(&check).ok()?.status.success().then_some(()) };
    until("the sidecar", Duration::from_secs(30), healthy).await?;
    let logs = docker(&["logs", &container.0])?;
    let printed = String::from_utf8_lossy(&logs.stdout).matches("SIDECAR_AUTH_TOKEN=").count();
    assert_eq!(printed, 1, "{logs:?}");
    Ok(())
}
