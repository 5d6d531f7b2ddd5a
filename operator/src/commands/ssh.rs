//! Commands on the keys by which customers know the SSH gateway. Only public halves are ever printed.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use sandbox_gateway::hostkeys::HostKeys;
use sandbox_process::source::Source;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{CommandError, Output};
use crate::config;

/// What can be done to them.
#[derive(Debug, Subcommand)]
pub(crate) enum SshKeysCommand {
    /// Prints what customers are to expect: the key that signs, then the one that is to follow it.
    Show,
    /// Makes the key that is to follow: announced at once, it signs after SSH_HOST_KEY_OVERLAP_SECONDS.
    Rotate,
}

/// Carries one out. A running node knows of it at once.
pub(super) fn work(command: SshKeysCommand, source: &impl Source, output: &Output) -> Result<(), CommandError> {
    let data_dir = config::data_dir(source)?;
    let overlap = config::read_ssh_overlap(source)?;
    let (keys, now) = (HostKeys::open(&data_dir)?, SystemTime::now());
    match command {
        SshKeysCommand::Show => {
            let lines: Vec<String> = keys.announced(now)?.iter().map(ToString::to_string).collect();
            output.say(&lines.join("\n"), &json!({ "host_keys": lines }))
        }
        SshKeysCommand::Rotate => {
            let rotation = keys.rotate(now, overlap)?;
            let from_s = rotation.signs_from.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let from =
                OffsetDateTime::from(rotation.signs_from).format(&Rfc3339).unwrap_or_else(|_| from_s.to_string());
            let (next, fingerprint) = (rotation.next.to_string(), rotation.next.fingerprint());
            let line = format!("{next} ({fingerprint}) signs from {from} on");
            output.say(&line, &json!({ "next": next, "fingerprint": fingerprint, "signs_from_s": from_s }))
        }
    }
}
