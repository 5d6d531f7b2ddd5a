//! Checks everything that a node needs and says what to do. Nothing is changed, nothing is sent.
//!
//! Checks run side by side, each bounded in time; a dead engine holds up no word on the chain.

mod agents;
mod chain;
mod host;
mod outside;
mod ssh;

use std::fmt;
use std::process::ExitCode;

use sandbox_process::source::Source;
use serde::Serialize;

use super::{CommandError, Output};
use crate::chain::key;
use crate::config::Config;
use crate::limits::CHECK_TIMEOUT;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    check: &'static str,
    verdict: Verdict,
    /// What is.
    said: String,
    /// What to do about it.
    advice: Option<String>,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warning,
    Failure,
}

impl Finding {
    /// All is well.
    fn ok(check: &'static str, said: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, said: said.into(), advice: None }
    }

    /// A node would run, not well.
    fn warning(check: &'static str, said: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, said: said.into(), advice: Some(advice.into()) }
    }

    /// A node would not run, or earn nothing.
    fn failure(check: &'static str, said: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Failure, said: said.into(), advice: Some(advice.into()) }
    }

    /// A node would not run because of this error.
    fn failed(check: &'static str, error: &(dyn std::error::Error + 'static), advice: impl Into<String>) -> Self {
        Self::failure(check, crate::error_chain(error), advice)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failure => "FAILURE",
        };
        write!(f, "{:<8} {:<13} {}", verdict, self.check, self.said)?;
        match &self.advice {
            Some(advice) => write!(f, "\n{:22} → {advice}", ""),
            None => Ok(()),
        }
    }
}

/// Checks, prints, and says by the exit code whether a node would work.
pub(super) async fn doctor(source: &impl Source, output: &Output) -> Result<ExitCode, CommandError> {
    let findings = match Config::read(source) {
        Ok(config) => examine(&config).await,
        Err(error) => vec![Finding::failed("settings", &error, "set it as the README's table of settings says")],
    };
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Failure);
    output.list(&findings, "nothing to check", Finding::to_string)?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn examine(config: &Config) -> Vec<Finding> {
    // First and alone: it may ask for a password.
    let (opened, mut findings) = host::key_checks(config, key::load(&config.keystore));
    let (engine, chain, state, outside, ssh) = tokio::join!(
        host::engine_checks(config),
        chain::checks(config, opened.as_ref()),
        bounded("state", host::state(config)),
        bounded("api", outside::api(config)),
        ssh::checks(config),
    );
    findings.extend(engine);
    findings.push(state);
    findings.push(host::sockets(config));
    findings.extend(host::loops(config));
    findings.push(agents::model(config));
    findings.extend(chain);
    findings.push(outside);
    findings.extend(ssh);
    findings
}

/// The check's finding, or that it took too long.
async fn bounded(check: &'static str, finding: impl Future<Output = Finding>) -> Finding {
    match tokio::time::timeout(CHECK_TIMEOUT, finding).await {
        Ok(finding) => finding,
        Err(_) => {
            let said = format!("no answer within {} s", CHECK_TIMEOUT.as_secs());
            Finding::failure(check, said, "see whether what is asked is overloaded, or behind a firewall")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_check_that_hangs_is_a_failure_in_time() {
        let finding = bounded("engine", std::future::pending()).await;
        assert_eq!((finding.check, finding.verdict), ("engine", Verdict::Failure));
    }

    #[test]
    fn a_finding_says_what_is_and_what_to_do() {
        let finding = Finding::warning("disk", "2 GB are free", "make room");
        assert_eq!(finding.to_string(), format!("warning  disk          2 GB are free\n{:22} → make room", ""));
        assert_eq!(Finding::ok("disk", "80 GB are free").to_string(), "ok       disk          80 GB are free");
    }
}
