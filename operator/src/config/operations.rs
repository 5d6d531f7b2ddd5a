//! Settings of running a node: its key, whom it serves, how it says that it is there.

use std::path::PathBuf;
use std::time::Duration;

use alloy::primitives::{Address, U256};
use sandbox_fleet::schedule::Cron;
use sandbox_process::source::{ConfigError, Source, optional, or_default};

use crate::chain::policy::{Approve, Policy};
use crate::limits::{
    HEARTBEAT_S_DEFAULT, HEARTBEAT_S_MIN, WORKFLOW_REPORT_S_DEFAULT, WORKFLOW_REPORT_S_MIN, WORKFLOW_TICK_DEFAULT,
    WORKFLOW_TICK_FIELDS,
};

/// Where the operator's key is, and what opens it.
#[derive(Debug, Clone)]
pub(crate) struct KeystoreConfig {
    /// A directory, or an Ethereum JSON keystore file.
    pub(crate) uri: String,
    /// File with the password of an encrypted key.
    pub(crate) password_file: Option<PathBuf>,
}

/// Whether and where the operator says that it is there.
#[derive(Debug, Clone)]
pub(crate) struct HeartbeatConfig {
    /// The status registry; the one that the core names where it is not set.
    pub(crate) registry: Option<Address>,
    /// Time between two heartbeats; `None` sends none.
    pub(crate) interval: Option<Duration>,
}

/// Reads where the key is. A credential that systemd handed over stands in for a password file.
pub(crate) fn read_keystore(source: &impl Source) -> Result<KeystoreConfig, ConfigError> {
    let uri = or_default(source, "KEYSTORE_URI", "./keystore".to_owned())?;
    let credentials: Option<PathBuf> = optional(source, "CREDENTIALS_DIRECTORY")?;
    let credential = credentials.map(|dir| dir.join("keystore-password")).filter(|path| path.exists());
    Ok(KeystoreConfig { uri, password_file: optional(source, "KEYSTORE_PASSWORD_FILE")?.or(credential) })
}

/// Reads whom to serve.
pub(super) fn read_policy(source: &impl Source) -> Result<Policy, ConfigError> {
    Ok(Policy {
        approve: or_default(source, "APPROVE", Approve::Auto)?,
        create_price_min: or_default(source, "CREATE_PRICE_MIN_WEI", U256::ZERO)?,
        ttl_s_min: or_default(source, "SERVICE_TTL_MIN_SECONDS", 0)?,
        allowed: addresses(source, "REQUESTERS_ALLOWED")?,
        denied: addresses(source, "REQUESTERS_DENIED")?,
    })
}

/// Reads whether and where to say that the operator is there.
pub(super) fn read_heartbeat(source: &impl Source) -> Result<HeartbeatConfig, ConfigError> {
    const NAME: &str = "HEARTBEAT_SECONDS";
    let seconds = or_default(source, NAME, HEARTBEAT_S_DEFAULT)?;
    if seconds != 0 && seconds < HEARTBEAT_S_MIN {
        let reason = format!("give 0 for none, or at least {HEARTBEAT_S_MIN}: each is a transaction");
        return Err(ConfigError::invalid(NAME, seconds.to_string(), reason));
    }
    let registry: Option<Address> = optional(source, "STATUS_REGISTRY_CONTRACT")?;
    Ok(HeartbeatConfig {
        registry: registry.filter(|registry| !registry.is_zero()),
        interval: (seconds != 0).then(|| Duration::from_secs(seconds)),
    })
}

/// How workflows are fired.
#[derive(Debug, Clone)]
pub(crate) struct WorkflowsConfig {
    /// When it is looked who is due: second, minute, hour, day of month, month, day of week, in UTC.
    pub(crate) tick: String,
    /// Time between two reports of firings on chain; `None` reports none.
    pub(crate) report_pause: Option<Duration>,
}

/// Reads how workflows are fired.
pub(super) fn read_workflows(source: &impl Source) -> Result<WorkflowsConfig, ConfigError> {
    const TICK: &str = "WORKFLOW_CRON_SCHEDULE";
    const REPORT: &str = "WORKFLOW_REPORT_SECONDS";
    let tick: String = or_default(source, TICK, WORKFLOW_TICK_DEFAULT.to_owned())?;
    if tick.split_whitespace().count() != WORKFLOW_TICK_FIELDS {
        return Err(ConfigError::invalid(TICK, tick, "give six fields, the first of them seconds"));
    }
    if let Err(error) = Cron::parse(&tick, "UTC") {
        return Err(ConfigError::invalid(TICK, tick, error));
    }
    let seconds = or_default(source, REPORT, WORKFLOW_REPORT_S_DEFAULT)?;
    if seconds != 0 && seconds < WORKFLOW_REPORT_S_MIN {
        let reason = format!("give 0 for none, or at least {WORKFLOW_REPORT_S_MIN}: each is a transaction");
        return Err(ConfigError::invalid(REPORT, seconds.to_string(), reason));
    }
    Ok(WorkflowsConfig { tick, report_pause: (seconds != 0).then(|| Duration::from_secs(seconds)) })
}

/// Addresses, by commas.
fn addresses(source: &impl Source, name: &str) -> Result<Vec<Address>, ConfigError> {
    let text: String = or_default(source, name, String::new())?;
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|reason| ConfigError::invalid(name, word, reason))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn settings(name: &str, text: &str) -> HashMap<String, String> {
        HashMap::from([(name.to_owned(), text.to_owned())])
    }

    #[test]
    fn whom_to_serve_is_read_or_refused_by_name() {
        let one = Address::repeat_byte(1);
        let policy = read_policy(&settings("REQUESTERS_DENIED", &format!(" {one}, "))).unwrap();
        assert_eq!((policy.denied, policy.approve), (vec![one], Approve::Auto));
        for (name, text) in [
            ("REQUESTERS_ALLOWED", "0x12"),
            ("REQUESTERS_DENIED", "somebody"),
            ("APPROVE", "sometimes"),
            ("SERVICE_TTL_MIN_SECONDS", "-1"),
        ] {
            let refused = read_policy(&settings(name, text)).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{name}=")), "{refused}");
        }
    }

    #[test]
    fn heartbeats_are_off_at_zero_and_not_closer_than_the_least_interval() {
        let interval = |text: String| read_heartbeat(&settings("HEARTBEAT_SECONDS", &text)).map(|read| read.interval);
        assert_eq!(interval("0".into()).unwrap(), None);
        assert_eq!(interval(HEARTBEAT_S_MIN.to_string()).unwrap(), Some(Duration::from_secs(HEARTBEAT_S_MIN)));
        assert!(interval((HEARTBEAT_S_MIN - 1).to_string()).is_err());
    }

    #[test]
    fn workflows_are_looked_at_every_minute_and_reported_every_minute_unless_told_otherwise() {
        let read = |name: &str, text: &str| read_workflows(&settings(name, text));
        let config = read("OTHER", "").unwrap();
        assert_eq!((config.tick.as_str(), config.report_pause), ("0 * * * * *", Some(Duration::from_secs(60))));
        assert_eq!(read("WORKFLOW_CRON_SCHEDULE", "*/10 * * * * *").unwrap().tick, "*/10 * * * * *");
        assert!(read("WORKFLOW_CRON_SCHEDULE", "* * * * *").is_err());
        assert!(read("WORKFLOW_CRON_SCHEDULE", "x * * * * *").is_err());
        let report = |seconds: u64| read("WORKFLOW_REPORT_SECONDS", &seconds.to_string());
        assert_eq!(report(0).unwrap().report_pause, None);
        assert!(report(WORKFLOW_REPORT_S_MIN).is_ok() && report(WORKFLOW_REPORT_S_MIN - 1).is_err());
    }

    #[test]
    fn a_systemd_credential_is_the_password_unless_a_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let set = settings("CREDENTIALS_DIRECTORY", &dir.path().display().to_string());
        assert_eq!(read_keystore(&set).unwrap().password_file, None);
        std::fs::write(dir.path().join("keystore-password"), "secret").unwrap();
        assert_eq!(read_keystore(&set).unwrap().password_file, Some(dir.path().join("keystore-password")));
        let named = set.into_iter().chain(settings("KEYSTORE_PASSWORD_FILE", "/pw")).collect::<HashMap<_, _>>();
        assert_eq!(read_keystore(&named).unwrap().password_file, Some("/pw".into()));
    }
}
