//! From names to addresses, unchecked: the system's name servers, and the door by which reqwest asks the guard.

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;

use super::{Guard, Host};
use crate::limits::LOOKUP_MAX;

/// Looks names up.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of `name`, which has no final dot and is complete: no search list applies.
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The servers in `/etc/resolv.conf` and the names in `/etc/hosts`, asked without threads: `getaddrinfo` would let a
/// customer's slow name servers use up those that the host's own disk work runs on.
#[derive(Debug, Clone)]
pub struct SystemResolver(TokioResolver);

impl SystemResolver {
    /// Reads the system's configuration.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    pub fn new() -> io::Result<Self> {
        let mut builder = TokioResolver::builder_tokio().map_err(io::Error::other)?;
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.timeout = LOOKUP_MAX / 2;
        options.attempts = 1;
        Ok(Self(builder.build().map_err(io::Error::other)?))
    }
}

#[async_trait]
impl Resolve for SystemResolver {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = self.0.lookup_ip(format!("{name}.")).await.map_err(io::Error::other)?;
        Ok(found.iter().collect())
    }
}

/// The guard as reqwest's resolver, for connections to one port.
pub(super) struct ForReqwest {
    pub guard: Guard,
    pub port: u16,
}

impl reqwest::dns::Resolve for ForReqwest {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let (guard, port) = (self.guard.clone(), self.port);
        Box::pin(async move {
            let host = Host::parse(name.as_str())?;
            let addresses = guard.resolve(&host, port).await?;
            Ok(Box::new(addresses.into_iter()) as reqwest::dns::Addrs)
        })
    }
}
