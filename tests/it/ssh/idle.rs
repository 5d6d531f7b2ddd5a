//! What keeps a sandbox in use, and what does not.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Guests, Stay};

/// The shortest that there is.
const IDLE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn bytes_keep_a_sandbox_in_use_and_an_open_connection_does_not() -> Result<()> {
    let guests = Guests::with(|node| node.set("IDLE_TIMEOUT_SECONDS", IDLE.as_secs().to_string())).await?;
    let key = guests.key("mine")?;
    let way = guests.way(guests.sandbox, &key).await?;
    let kept_alive = ["-o", "ServerAliveInterval=1"];
    let script = "for second in $(seq 13); do echo $second; sleep 1; done; echo silent; exec sleep 4008";
    let mut stay = Stay::begin(way.ssh(&kept_alive, script))?;
    let begun = Instant::now();
    while stay.line().await? != "silent" {}
    assert!(begun.elapsed() > IDLE, "it was in use for longer than it may be idle");
    let silent = Instant::now();
    let (code, complaints) = stay.ended().await?;
    let rested = silent.elapsed();
    assert!(code == Some(255) && complaints.contains("the sandbox does not run any more"), "{code:?} {complaints}");
    // Earlier than in half the time nothing may end it; that it ended at all is what keep-alives did not keep it from.
    assert!(rested > IDLE / 2, "{rested:?}");
    Ok(())
}
