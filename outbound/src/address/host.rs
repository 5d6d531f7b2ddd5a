//! What a customer may write for a host, and the one form in which it is compared.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use crate::limits::HOST_BYTES_MAX;

/// A host in its one form: a lower-case ASCII name without final dot, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name of DNS.
    Name(String),
    /// A literal address, an IPv4 address in IPv6 clothes taken out of them.
    Ip(IpAddr),
}

/// Why a text is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// No text, or more than DNS allows.
    #[error("a host has 1 to {HOST_BYTES_MAX} characters")]
    Length,
    /// Letters that no name has, or an empty label.
    #[error("not a host name")]
    Name,
    /// An IPv4 address that is not written as four decimal numbers, so that two programs may read it differently.
    #[error("an IPv4 address is written as four decimal numbers")]
    Spelling,
}

impl Host {
    /// Reads a host; an IPv6 address with or without brackets.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if text.is_empty() || text.len() > HOST_BYTES_MAX + 1 {
            return Err(HostError::Length);
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if bare.contains(':') {
            let address: Ipv6Addr = bare.parse().map_err(|_| HostError::Name)?;
            return Ok(Self::Ip(IpAddr::V6(address).to_canonical()));
        }
        Self::name(text.strip_suffix('.').unwrap_or(text))
    }

    /// A name or an IPv4 address.
    fn name(text: &str) -> Result<Self, HostError> {
        // The URL standard would decode these first, and what is compared must be what was written.
        if text.contains('%') {
            return Err(HostError::Name);
        }
        match url::Host::parse(text).map_err(|_| HostError::Name)? {
            url::Host::Ipv4(address) if address.to_string() == text => Ok(Self::Ip(address.into())),
            url::Host::Ipv4(_) => Err(HostError::Spelling),
            url::Host::Ipv6(_) => Err(HostError::Name),
            url::Host::Domain(name) if name.len() > HOST_BYTES_MAX => Err(HostError::Length),
            url::Host::Domain(name) if name.split('.').any(|label| label.is_empty() || label.len() > 63) => {
                Err(HostError::Name)
            }
            url::Host::Domain(name) => Ok(Self::Name(name)),
        }
    }
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::parse(text)
    }
}

/// As in a URL: IPv6 addresses in brackets.
impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => out.write_str(name),
            Self::Ip(IpAddr::V4(address)) => write!(out, "{address}"),
            Self::Ip(IpAddr::V6(address)) => write!(out, "[{address}]"),
        }
    }
}
