//! What the operator lets be reached although it is private: `10.1.0.0/16`, `10.1.2.3:9000`, `minio.lan:9000`.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::host::{Host, HostError};
use crate::limits::EXCEPTIONS_MAX;

/// The operator's list. A network is meant with every port or one; a name with one, whatever it resolves to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exceptions {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Network { network: IpNet, port: Option<u16> },
    Name { host: Host, port: u16 },
}

/// Why a list is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExceptionsError {
    /// More than anybody can keep in view.
    #[error("{count} exceptions, at most {EXCEPTIONS_MAX}")]
    Count {
        /// How many.
        count: usize,
    },
    /// Neither network nor `host:port`.
    #[error("`{entry}` is neither a network nor host:port")]
    Entry {
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
}

impl Exceptions {
    /// Reads a comma-separated list; empty text is an empty list.
    ///
    /// # Errors
    /// [`ExceptionsError`], which names the entry.
    pub fn parse(text: &str) -> Result<Self, ExceptionsError> {
        let entries: Vec<&str> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
        if entries.len() > EXCEPTIONS_MAX {
            return Err(ExceptionsError::Count { count: entries.len() });
        }
        Ok(Self { entries: entries.into_iter().map(Entry::parse).collect::<Result<_, _>>()? })
    }

    /// Whether `reached`, an address of `host`, is excepted.
    #[must_use]
    pub fn allow(&self, host: &Host, reached: SocketAddr) -> bool {
        self.entries.iter().any(|entry| match entry {
            Entry::Network { network, port } => {
                network.contains(&reached.ip()) && port.is_none_or(|port| port == reached.port())
            }
            Entry::Name { host: name, port } => name == host && *port == reached.port(),
        })
    }
}

impl Entry {
    fn parse(text: &str) -> Result<Self, ExceptionsError> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network { network: network.trunc(), port: None });
        }
        let unreadable = || ExceptionsError::Entry { entry: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(unreadable)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(unreadable)?;
        let host = Host::parse(host).map_err(|source| ExceptionsError::Host { entry: text.to_owned(), source })?;
        Ok(match host {
            Host::Ip(address) => Self::Network { network: address.into(), port: Some(port) },
            Host::Name(_) => Self::Name { host, port },
        })
    }
}
