//! A time of day of a node's own: Debian's libfaketime, loaded into its process. Time that passes is left as it is, as it
//! is when a host's clock is set.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::node::Node;
use crate::wait::until;

/// Where libraries are, by machine.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
const SHOWN_WITHIN: Duration = Duration::from_secs(20);
/// Hosts agree to the second, and a node shows whole ones.
const ERROR_MAX: Duration = Duration::from_secs(30);

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
            let wrong = self.shown().await.ok()? - OffsetDateTime::now_utc() - time::Duration::hours(hours_ahead);
            (wrong.unsigned_abs() < ERROR_MAX).then_some(())
        };
        until("the node's clock to jump", SHOWN_WITHIN, shows).await
    }

    /// The time of day that the node puts on its answers.
    async fn shown(&self) -> Result<OffsetDateTime> {
        let answer = reqwest::get(format!("{}/health", self.api_url)).await?;
        let date = answer.headers().get("date").context("no date")?.to_str()?.to_owned();
        Ok(OffsetDateTime::parse(&date, &Rfc2822)?)
    }
}

fn library() -> Result<PathBuf> {
    let machines = std::fs::read_dir(LIBRARIES).context("no libraries")?.flatten();
    let found = machines.map(|machine| machine.path().join(LIBRARY)).find(|path| path.exists());
    found.with_context(|| format!("{LIBRARY} is missing: apt-get install libfaketime, which cargo xtask setup does"))
}
