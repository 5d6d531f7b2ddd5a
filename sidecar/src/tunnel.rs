//! Connections to programs inside the sandbox, on behalf of whoever asks the sidecar.
//!
//! Bytes are passed on unread. Not here: HTTP and WebSockets, by which they come.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use sandbox_protocol::limits::TUNNELS_MAX;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::limits::TUNNEL_CONNECT_MAX;

/// Where programs listen that listen for themselves.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Opens tunnels, so many at a time. Clones share the bound.
#[derive(Debug, Clone)]
pub struct Tunnels {
    reserved: Arc<BTreeSet<u16>>,
    room: Arc<Semaphore>,
}

/// A connection to a port, which counts until it is dropped.
#[derive(Debug)]
pub struct Tunnel {
    pub(crate) port: TcpStream,
    pub(crate) place: OwnedSemaphorePermit,
}

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// No program of the agent's can listen there.
    #[error("port {0} is not for programs")]
    Reserved(u16),
    /// Nothing takes connections there.
    #[error("nothing takes connections at port {port}")]
    Closed {
        /// Where.
        port: u16,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// As many tunnels are open as may.
    #[error("as many tunnels are open as may: {TUNNELS_MAX}")]
    Full,
}

impl Tunnels {
    /// Tunnels to all ports but 0 and those that are `reserved`.
    pub fn new(reserved: impl IntoIterator<Item = u16>) -> Self {
        let reserved = reserved.into_iter().chain([0]).collect();
        Self { reserved: Arc::new(reserved), room: Arc::new(Semaphore::new(TUNNELS_MAX)) }
    }

    /// A connection to `port`.
    ///
    /// # Errors
    /// [`TunnelError`].
    pub async fn open(&self, port: u16) -> Result<Tunnel, TunnelError> {
        if self.reserved.contains(&port) {
            return Err(TunnelError::Reserved(port));
        }
        let place = Arc::clone(&self.room).try_acquire_owned().map_err(|_| TunnelError::Full)?;
        let port = dial(port).await.map_err(|source| TunnelError::Closed { port, source })?;
        Ok(Tunnel { port, place })
    }
}

/// The first address that takes the connection.
async fn dial(port: u16) -> io::Result<TcpStream> {
    let mut refused = None;
    for address in LOOPBACK {
        match timeout(TUNNEL_CONNECT_MAX, TcpStream::connect((address, port))).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => refused = refused.or(Some(error)),
            Err(_) => refused = refused.or(Some(io::ErrorKind::TimedOut.into())),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::NotConnected.into()))
}
