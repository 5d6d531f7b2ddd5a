//! The guard between a name that a customer wrote and a connection from the operator's host.
//!
//! A host is read strictly, resolved once, and *every* address it resolves to must be public; the caller then connects
//! to exactly these addresses, so that a name which resolves to something else a moment later changes nothing.
//! Operators except what their sandboxes are meant to reach although it is private.

mod exceptions;
mod host;
mod range;
mod resolve;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

pub use self::exceptions::{Exceptions, ExceptionsError};
pub use self::host::{Host, HostError};
pub use self::range::{Range, range};
pub use self::resolve::{Resolve, SystemResolver};
use crate::limits::{ADDRESSES_MAX, CONNECT_ADDRESS_MAX, CONNECT_MAX, LOOKUP_MAX};

/// Why there is no connection to an address that a customer named.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The text is no host.
    #[error("{0}")]
    Host(#[from] HostError),
    /// A URL that is not to be fetched, by its scheme or for want of a host.
    #[error("not a URL of an outside host")]
    Url,
    /// At least one address of the host is not public. The address is for the operator's log.
    #[error("{host} does not lead to public addresses only")]
    NotPublic {
        /// As asked for.
        host: Host,
        /// What it leads to.
        address: IpAddr,
        /// Why that is refused.
        range: Range,
    },
    /// The resolver could not be set up from the system's configuration.
    #[error("cannot read the system's resolver configuration")]
    Resolver(#[source] io::Error),
    /// The name could not be resolved.
    #[error("{host} cannot be resolved")]
    Lookup {
        /// As asked for.
        host: Host,
        /// What the resolver says.
        #[source]
        source: io::Error,
    },
    /// The name exists but has no address, or far too many.
    #[error("{host} has {count} addresses")]
    Addresses {
        /// As asked for.
        host: Host,
        /// How many.
        count: usize,
    },
    /// No address accepted; the source is the last one's.
    #[error("{host} port {port} does not accept connections")]
    Connect {
        /// As asked for.
        host: Host,
        /// As asked for.
        port: u16,
        /// The last address's refusal.
        #[source]
        source: io::Error,
    },
    /// Nothing came of it in time.
    #[error("{host} did not answer in time")]
    TooSlow {
        /// As asked for.
        host: Host,
    },
}

impl AddressError {
    /// Whether the guard itself refuses: the same request will be refused again.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Host(_) | Self::Url | Self::NotPublic { .. } | Self::Addresses { .. } => true,
            Self::Resolver(_) | Self::Lookup { .. } | Self::Connect { .. } | Self::TooSlow { .. } => false,
        }
    }
}

/// Resolves, checks, connects. Cheap to clone.
#[derive(Clone)]
pub struct Guard {
    exceptions: Arc<Exceptions>,
    resolver: Arc<dyn Resolve>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Guard").field("exceptions", &self.exceptions).finish_non_exhaustive()
    }
}

impl Guard {
    /// A guard over the system's resolver.
    ///
    /// # Errors
    /// [`AddressError::Resolver`].
    pub fn new(exceptions: Exceptions) -> Result<Self, AddressError> {
        Ok(Self::with_resolver(exceptions, Arc::new(SystemResolver::new().map_err(AddressError::Resolver)?)))
    }

    /// A guard over another resolver.
    pub fn with_resolver(exceptions: Exceptions, resolver: Arc<dyn Resolve>) -> Self {
        Self { exceptions: Arc::new(exceptions), resolver }
    }

    /// The addresses of `host`, each of them allowed: what the caller may connect to, and nothing else.
    ///
    /// # Errors
    /// [`AddressError`]; one address that is not allowed refuses them all.
    pub async fn resolve(&self, host: &Host, port: u16) -> Result<Vec<SocketAddr>, AddressError> {
        let addresses = match host {
            Host::Ip(address) => vec![*address],
            Host::Name(name) => self.lookup(host, name).await?,
        };
        if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
            return Err(AddressError::Addresses { host: host.clone(), count: addresses.len() });
        }
        addresses.into_iter().map(|address| self.admit(host, address.to_canonical(), port)).collect()
    }

    /// Whether the operator excepts `reached`, an address of `host`. Such hosts may also be spoken to without TLS.
    #[must_use]
    pub fn excepts(&self, host: &Host, reached: SocketAddr) -> bool {
        self.exceptions.allow(host, reached)
    }

    /// A connection to the first address of `host` that accepts.
    ///
    /// # Errors
    /// [`AddressError`].
    pub async fn connect(&self, host: &Host, port: u16) -> Result<TcpStream, AddressError> {
        let connecting = async {
            let addresses = self.resolve(host, port).await?;
            first_to_accept(&addresses).await.map_err(|source| AddressError::Connect {
                host: host.clone(),
                port,
                source,
            })
        };
        timeout(CONNECT_MAX, connecting).await.map_err(|_| AddressError::TooSlow { host: host.clone() })?
    }

    /// A builder of clients for the origin of `url` (http or https) whose connections go by this guard: no redirects,
    /// no proxies. The client must be used for this origin only, since reqwest does not resolve literal addresses and
    /// it is here that one is checked.
    ///
    /// # Errors
    /// [`AddressError`] where the URL is of no such origin or its host is an address that is not allowed.
    pub fn client(&self, url: &Url) -> Result<reqwest::ClientBuilder, AddressError> {
        let host = Host::parse(url.host_str().ok_or(AddressError::Url)?)?;
        let (true, Some(port)) = (matches!(url.scheme(), "http" | "https"), url.port_or_known_default()) else {
            return Err(AddressError::Url);
        };
        if let Host::Ip(address) = host {
            self.admit(&host, address.to_canonical(), port)?;
        }
        let resolver = resolve::ForReqwest { guard: self.clone(), port };
        Ok(reqwest::Client::builder()
            .dns_resolver(resolver)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_MAX))
    }

    async fn lookup(&self, host: &Host, name: &str) -> Result<Vec<IpAddr>, AddressError> {
        let looked_up = timeout(LOOKUP_MAX, self.resolver.lookup(name)).await;
        let addresses = looked_up.map_err(|_| AddressError::TooSlow { host: host.clone() })?;
        addresses.map_err(|source| AddressError::Lookup { host: host.clone(), source })
    }

    fn admit(&self, host: &Host, address: IpAddr, port: u16) -> Result<SocketAddr, AddressError> {
        let reached = SocketAddr::new(address, port);
        if self.exceptions.allow(host, reached) {
            return Ok(reached);
        }
        match range::range(address).or_else(|| range::own(address)) {
            None => Ok(reached),
            Some(range) => {
                tracing::debug!(%host, %address, %range, "an address that is not public was named");
                Err(AddressError::NotPublic { host: host.clone(), address, range })
            }
        }
    }
}

async fn first_to_accept(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match timeout(CONNECT_ADDRESS_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
