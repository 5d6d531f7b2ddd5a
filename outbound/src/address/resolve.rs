//! From names to addresses, unchecked: the system's name servers, and the door by which reqwest asks the guard.

use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{ResolverBuilder, TokioResolver};

use super::{Guard, Host};
use crate::limits::LOOKUP_MAX;

/// Looks names up.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of `name`, which has no final dot and is complete: no search list applies.
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The servers in `/etc/resolv.conf`, or others, and the names in `/etc/hosts`; asked without threads: `getaddrinfo`
/// would let a customer's slow name servers use up those that the host's own disk work runs on.
#[derive(Debug, Clone)]
pub struct SystemResolver(TokioResolver);

impl SystemResolver {
    /// Reads the system's configuration.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    pub fn new() -> io::Result<Self> {
        Self::build(TokioResolver::builder_tokio().map_err(io::Error::other)?)
    }

    /// Asks these servers in place of the system's.
    ///
    /// # Errors
    /// Where names in `/etc/hosts` cannot be read.
    pub fn asking(servers: &[SocketAddr]) -> io::Result<Self> {
        let servers = servers.iter().map(name_server).collect();
        let config = ResolverConfig::from_name_servers(servers);
        Self::build(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()))
    }

    fn build(mut builder: ResolverBuilder<TokioRuntimeProvider>) -> io::Result<Self> {
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.timeout = LOOKUP_MAX / 2;
        options.attempts = 1;
        Ok(Self(builder.build().map_err(io::Error::other)?))
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    for connection in &mut server.connections {
        connection.port = address.port();
    }
    server
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
