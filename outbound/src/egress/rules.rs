//! Which hosts and ports may be reached: `packages.example`, `*.example.com:443`, `1.1.1.1:53`, `10.1.0.0/16:*`, `*`.
//!
//! A rule is about what was asked for. What that leads to is the address guard's affair.

use std::str::FromStr;

use ipnet::IpNet;

use crate::address::{Host, HostError};
use crate::limits::{RULES_BYTES_MAX, RULES_MAX};

/// Ports of a rule that names none.
const PORTS: [u16; 2] = [80, 443];

/// A list of rules; what none allows is denied. Empty text is the empty list.
///
/// An entry is `host`, `*.suffix` (names below it, not itself), `*` (every name) or a literal address or network; then
/// perhaps `:port` or `:*`. A name never covers an address, nor does `*`. IPv6 stands in brackets: `[2001:db8::/32]:443`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    hosts: Hosts,
    ports: Ports,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    AnyName,
    Name(String),
    /// With its leading dot.
    Below(String),
    Network(IpNet),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ports {
    Web,
    One(u16),
    Any,
}

/// Why a list is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// The text is too long to be read.
    #[error("{bytes} bytes of rules, at most {RULES_BYTES_MAX}")]
    Length {
        /// How long it is.
        bytes: usize,
    },
    /// Too many entries.
    #[error("{count} rules, at most {RULES_MAX}")]
    Count {
        /// How many.
        count: usize,
    },
    /// The port of an entry is neither a number from 1 to 65535 nor `*`.
    #[error("`{entry}`: a port is a number from 1 to 65535, or *")]
    Port {
        /// As written.
        entry: String,
    },
    /// The host of an entry is none.
    #[error("`{entry}`: {source}")]
    Host {
        /// As written.
        entry: String,
        /// What is wrong with it.
        source: HostError,
    },
    /// A star that does not stand alone or for whole labels in front.
    #[error("`{entry}`: a star stands alone or in front, as in *.example.com")]
    Star {
        /// As written.
        entry: String,
    },
}

impl Rules {
    /// Whether some rule allows `host` with `port`.
    #[must_use]
    pub fn allow(&self, host: &Host, port: u16) -> bool {
        self.rules.iter().any(|rule| rule.ports.hold(port) && rule.hosts.hold(host))
    }
}

impl FromStr for Rules {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        if text.len() > RULES_BYTES_MAX {
            return Err(RulesError::Length { bytes: text.len() });
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let count = text.split(',').count();
        if count > RULES_MAX {
            return Err(RulesError::Count { count });
        }
        Ok(Self { rules: text.split(',').map(|entry| entry.trim().parse()).collect::<Result<_, _>>()? })
    }
}

impl FromStr for Rule {
    type Err = RulesError;

    fn from_str(entry: &str) -> Result<Self, RulesError> {
        let (hosts, port) = split_port(entry);
        let ports = port.map_or(Some(Ports::Web), Ports::parse);
        let ports = ports.ok_or_else(|| RulesError::Port { entry: entry.to_owned() })?;
        Ok(Self { hosts: Hosts::parse(hosts, entry)?, ports })
    }
}

/// The last colon outside brackets parts host and port.
fn split_port(entry: &str) -> (&str, Option<&str>) {
    match entry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (entry, None),
    }
}

impl Hosts {
    fn parse(text: &str, entry: &str) -> Result<Self, RulesError> {
        if text == "*" {
            return Ok(Self::AnyName);
        }
        if let Some(network) = network(text) {
            return Ok(Self::Network(network));
        }
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |suffix| (true, suffix));
        if name.contains('*') {
            return Err(RulesError::Star { entry: entry.to_owned() });
        }
        let bare_v6 = name.contains(':') && !name.starts_with('[');
        let host = if bare_v6 { Err(HostError::Name) } else { Host::parse(name) };
        match host.map_err(|source| RulesError::Host { entry: entry.to_owned(), source })? {
            Host::Name(name) if below => Ok(Self::Below(format!(".{name}"))),
            Host::Name(name) => Ok(Self::Name(name)),
            Host::Ip(_) if below => Err(RulesError::Star { entry: entry.to_owned() }),
            Host::Ip(address) => Ok(Self::Network(address.into())),
        }
    }

    fn hold(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::AnyName, Host::Name(_)) => true,
            (Self::Name(allowed), Host::Name(name)) => allowed == name,
            (Self::Below(suffix), Host::Name(name)) => name.len() > suffix.len() && name.ends_with(suffix.as_str()),
            (Self::Network(network), Host::Ip(address)) => network.contains(address),
            (Self::Network(_), Host::Name(_)) => false,
            (Self::AnyName | Self::Name(_) | Self::Below(_), Host::Ip(_)) => false,
        }
    }
}

/// `10.0.0.0/8` or `[2001:db8::/32]`.
fn network(text: &str) -> Option<IpNet> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let network: IpNet = bare.unwrap_or(text).parse().ok()?;
    (bare.is_some() == matches!(network, IpNet::V6(_))).then(|| network.trunc())
}

impl Ports {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "*" => Some(Self::Any),
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port != 0).map(Self::One)
            }
            _ => None,
        }
    }

    fn hold(self, port: u16) -> bool {
        match self {
            Self::Web => PORTS.contains(&port),
            Self::One(allowed) => allowed == port,
            Self::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rules: &str, host: &str, port: u16, allowed: bool) {
        let rules: Rules = rules.parse().unwrap();
        assert_eq!(rules.allow(&Host::parse(host).unwrap(), port), allowed, "{rules:?} {host}:{port}");
    }

    #[test]
    fn no_rule_allows_nothing() {
        check("", "example.com", 443, false);
        check("  ", "1.1.1.1", 443, false);
    }

    #[test]
    fn a_name_is_meant_exactly_and_with_the_web_s_ports() {
        check("Example.COM.", "example.com", 443, true);
        check("example.com", "EXAMPLE.com.", 80, true);
        check("example.com", "example.com", 8080, false);
        check("example.com", "www.example.com", 443, false);
        check("example.com", "example.com.evil.org", 443, false);
        check("bücher.example", "xn--bcher-kva.example", 443, true);
    }

    #[test]
    fn a_suffix_is_meant_for_names_below_it() {
        check("*.example.com", "a.b.example.com", 443, true);
        check("*.example.com", "example.com", 443, false);
        check("*.example.com", "badexample.com", 443, false);
        check("*.example.com", "example.com.evil.org", 443, false);
    }

    #[test]
    fn ports_are_meant_as_written() {
        check("example.com:22", "example.com", 22, true);
        check("example.com:22", "example.com", 443, false);
        check("example.com:*", "example.com", 1, true);
        check("a.org, example.com:22", "a.org", 443, true);
    }

    #[test]
    fn an_address_needs_a_rule_of_its_own() {
        check("*:*", "example.com", 5432, true);
        check("*:*", "1.1.1.1", 443, false);
        check("1.1.1.1:53", "1.1.1.1", 53, true);
        check("1.1.1.1", "1.1.1.2", 443, false);
        check("1.0.0.0/8:*", "1.2.3.4", 7, true);
        check("[2606:4700::1111]:443", "[2606:4700::1111]", 443, true);
        check("[2606:4700::/32]", "2606:4700::1", 80, true);
        check("1.1.1.1", "[::ffff:1.1.1.1]", 443, true);
    }

    #[track_caller]
    fn refused(text: &str, message: &str) {
        assert_eq!(text.parse::<Rules>().unwrap_err().to_string(), message);
    }

    #[test]
    fn a_bad_entry_is_named() {
        refused("a.org,b.org:0", "`b.org:0`: a port is a number from 1 to 65535, or *");
        refused("b.org:65536", "`b.org:65536`: a port is a number from 1 to 65535, or *");
        refused("b.org:+80", "`b.org:+80`: a port is a number from 1 to 65535, or *");
        refused("b.org:", "`b.org:`: a port is a number from 1 to 65535, or *");
        refused("a.*.org", "`a.*.org`: a star stands alone or in front, as in *.example.com");
        refused("*.1.1.1.1", "`*.1.1.1.1`: a star stands alone or in front, as in *.example.com");
        refused("**", "`**`: a star stands alone or in front, as in *.example.com");
        refused("a.org,,b.org", "``: a host has 1 to 253 characters");
        refused("http://a.org", "`http://a.org`: a port is a number from 1 to 65535, or *");
        refused("a b.org", "`a b.org`: not a host name");
        refused("0x7f.1:80", "`0x7f.1:80`: an IPv4 address is written as four decimal numbers");
        refused("2606:4700::1111", "`2606:4700::1111`: not a host name");
    }

    #[test]
    fn a_list_has_a_length_and_a_count() {
        let list = |count: usize| vec!["a.org"; count].join(",");
        assert!(list(RULES_MAX).parse::<Rules>().is_ok());
        assert_eq!(list(RULES_MAX + 1).parse::<Rules>(), Err(RulesError::Count { count: RULES_MAX + 1 }));
        let padded = |bytes: usize| format!("a.org{}", " ".repeat(bytes - 5));
        assert!(padded(RULES_BYTES_MAX).parse::<Rules>().is_ok());
        assert_eq!(
            padded(RULES_BYTES_MAX + 1).parse::<Rules>(),
            Err(RulesError::Length { bytes: RULES_BYTES_MAX + 1 })
        );
    }
}
