//! Settings of the SSH gateway. Without an address to listen at there is none.

use std::net::SocketAddr;
use std::time::Duration;

use alloy::transports::http::reqwest::Url;
use sandbox_process::source::{ConfigError, Source, optional, or_default};

use crate::limits::{SSH_HOST_KEY_OVERLAP_S_DEFAULT, SSH_HOST_KEY_OVERLAP_S_MAX};

/// Where customers come over SSH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshConfig {
    /// Where the gateway listens.
    pub(crate) bind: SocketAddr,
    /// The host that customers are told.
    pub(crate) host: String,
    /// The port that they are told, where it is not the one that is listened at.
    pub(crate) port: Option<u16>,
}

/// Reads where to listen for SSH, and what customers are told of it.
pub(super) fn read_ssh(source: &impl Source, api_url: &str) -> Result<Option<SshConfig>, ConfigError> {
    let bind: Option<SocketAddr> = optional(source, "SSH_BIND")?;
    let host: Option<String> = optional(source, "SSH_HOST")?;
    let port: Option<u16> = optional(source, "SSH_PORT")?;
    read_overlap(source)?;
    let Some(bind) = bind else {
        let lone = |name: &str, text: String| Err(ConfigError::invalid(name, text, "it goes together with SSH_BIND"));
        return match (host, port) {
            (Some(host), _) => lone("SSH_HOST", host),
            (None, Some(port)) => lone("SSH_PORT", port.to_string()),
            (None, None) => Ok(None),
        };
    };
    let host = host.or_else(|| host_of(api_url)).unwrap_or_else(|| bind.ip().to_string());
    if host.chars().any(|letter| letter.is_whitespace() || letter.is_control() || "[]/@,".contains(letter)) {
        return Err(ConfigError::invalid("SSH_HOST", host, "give a name or an address, without brackets and port"));
    }
    if port == Some(0) {
        return Err(ConfigError::invalid("SSH_PORT", "0", "give the port that customers are to connect to"));
    }
    Ok(Some(SshConfig { bind, host, port }))
}

/// For how long the next host key is announced before it signs.
pub(crate) fn read_overlap(source: &impl Source) -> Result<Duration, ConfigError> {
    const NAME: &str = "SSH_HOST_KEY_OVERLAP_SECONDS";
    let seconds = or_default(source, NAME, SSH_HOST_KEY_OVERLAP_S_DEFAULT)?;
    if seconds <= SSH_HOST_KEY_OVERLAP_S_MAX {
        return Ok(Duration::from_secs(seconds));
    }
    let reason = format!("a rotation overlaps for at most {SSH_HOST_KEY_OVERLAP_S_MAX} seconds");
    Err(ConfigError::invalid(NAME, seconds.to_string(), reason))
}

/// The host of a URL, as SSH writes it: addresses of version 6 without brackets.
fn host_of(url: &str) -> Option<String> {
    let url: Url = url.parse().ok()?;
    url.host_str().map(|host| host.trim_start_matches('[').trim_end_matches(']').to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(pairs: &[(&str, &str)], api_url: &str) -> Result<Option<SshConfig>, String> {
        let settings: HashMap<_, _> =
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        read_ssh(&settings, api_url).map_err(|error| error.to_string())
    }

    #[test]
    fn there_is_a_gateway_where_an_address_is_set_and_customers_are_told_the_apis_host() {
        assert_eq!(read(&[], "https://op.example:8443"), Ok(None));
        let told = |pairs: &[(&str, &str)], url| {
            let config = read(pairs, url).unwrap().unwrap();
            (config.host, config.port)
        };
        let bind = ("SSH_BIND", "0.0.0.0:2222");
        assert_eq!(told(&[bind], "https://op.example:8443"), ("op.example".into(), None));
        assert_eq!(told(&[bind], "http://[2001:db8::1]:80"), ("2001:db8::1".into(), None));
        let named = [bind, ("SSH_HOST", "ssh.example"), ("SSH_PORT", "22")];
        assert_eq!(told(&named, "https://op.example"), ("ssh.example".into(), Some(22)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let bind = ("SSH_BIND", "0.0.0.0:2222");
        for pairs in [
            &[("SSH_BIND", "2222")][..],
            &[("SSH_HOST", "ssh.example")],
            &[("SSH_PORT", "22")],
            &[("SSH_HOST", "ssh.example:22 "), bind, ("SSH_PORT", "0")],
            &[("SSH_HOST", "[::1]"), bind],
            &[("SSH_PORT", "0"), bind],
            &[("SSH_PORT", "65536"), bind],
            &[("SSH_HOST_KEY_OVERLAP_SECONDS", "7776001")],
        ] {
            let refused = read(pairs, "https://op.example").unwrap_err();
            assert!(refused.starts_with("SSH_"), "{refused}");
        }
        assert!(read(&[("SSH_HOST_KEY_OVERLAP_SECONDS", "7776000")], "https://op.example").is_ok());
    }
}
