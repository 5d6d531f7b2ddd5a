//! A time of day of a node's own: Debian's libfaketime, loaded into its process. Time that passes is left as it is, as it
//! is when a host's clock is set.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use sandbox_protocol::session::NonceBody;
use time::OffsetDateTime;

use crate::node::Node;
use crate::wait::until;

/// Where libraries are, by machine.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
const SHOWN_WITHIN: Duration = Duration::from_secs(20);
/// Far more than an answer takes, far less than a jump.
const ERROR_S_MAX: u64 = 60;
/// Life of a nonce.
const NONCE_LIFE_S: i64 = 300;
const S_PER_HOUR: i64 = 3_600;

/// The clock of one node.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
    api_url: String,
}

impl Clock {
    /// Gives `node` a clock, from its next start on.
    ///
    /// # Errors
    /// The library is not installed.
    pub fn of(node: &mut Node) -> Result<Self> {
        let clock = Self { file: node.dir().join("clock"), api_url: node.api_url() };
        std::fs::write(&clock.file, "+0").context("cannot write a clock")?;
        node.set("LD_PRELOAD", library()?.display().to_string());
        node.set("FAKETIME_TIMESTAMP_FILE", clock.file.display().to_string());
        node.set("FAKETIME_NO_CACHE", "1");
        node.set("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Ok(clock)
    }

    /// Sets it so many hours ahead of this host's, or behind, and waits until the node shows it.
    ///
    /// # Errors
    /// The node does not.
    pub async fn set(&self, hours_ahead: i64) -> Result<()> {
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{hours_ahead:+}h")).context("cannot write a clock")?;
        // Never half written.
        std::fs::rename(&next, &self.file).context("cannot write a clock")?;
        let shows = || async {
            let (shown, here) = (self.shown().await.ok()?, OffsetDateTime::now_utc().unix_timestamp());
            (shown.abs_diff(here + hours_ahead * S_PER_HOUR) < ERROR_S_MAX).then_some(())
        };
        until("the node's clock to jump", SHOWN_WITHIN, shows).await
    }

    /// The node's time of day: it gives nonces that end a known time later. (The date of an answer never goes back.)
    async fn shown(&self) -> Result<i64> {
        let asked = reqwest::Client::new().post(format!("{}/v1/auth/nonce", self.api_url));
        let nonce: NonceBody = asked.send().await?.json().await?;
        Ok(i64::try_from(nonce.expires_at)? - NONCE_LIFE_S)
    }
}

fn library() -> Result<PathBuf> {
    let machines = std::fs::read_dir(LIBRARIES).context("no libraries")?.flatten();
    let found = machines.map(|machine| machine.path().join(LIBRARY)).find(|path| path.exists());
    found.with_context(|| format!("{LIBRARY} is missing: apt-get install libfaketime, which cargo xtask setup does"))
}
