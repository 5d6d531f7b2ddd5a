//! Where the sidecar listens for a client: each connection that comes becomes a channel to the client.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use russh::server::Msg;
use sandbox_protocol::channel::{Arrival, ListenQuery};
use sandbox_protocol::limits::CHANNEL_ARRIVAL_S;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::guest::Guest;
use crate::outlet::Window;
use crate::sidecar::{self, Listener, SidecarError};
use crate::tunnel;

/// Where connections come from, when seen from the client.
const ORIGIN: &str = "127.0.0.1";

/// What a client asked to be listened at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A port, under the address that the client called it by.
    Port(String, u16),
    /// A Unix socket.
    Path(String),
    /// Where programs find the client's agent.
    Agent,
}

impl Place {
    fn query(&self) -> ListenQuery {
        match self {
            Self::Port(_, port) => ListenQuery { port: Some(*port), ..ListenQuery::default() },
            Self::Path(path) => ListenQuery { path: Some(path.clone()), ..ListenQuery::default() },
            Self::Agent => ListenQuery { private: true, ..ListenQuery::default() },
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Port(address, port) => format!("{address}:{port}"),
            Self::Path(path) => path.clone(),
            Self::Agent => "agent".to_owned(),
        }
    }
}

/// Whether listening at `address` is listening at loopback, which is all there is: as with servers that open no ports to
/// others, the names for every address mean it too.
pub(crate) fn is_local(address: &str) -> bool {
    matches!(address, "" | "*" | "localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.is_loopback() || address.is_unspecified())
}

/// Listens at `place` until `stop`, and tells the port.
pub(crate) async fn begin(guest: &Arc<Guest>, mut place: Place, stop: CancellationToken) -> Result<u16, SidecarError> {
    let listener = sidecar::listen(&*guest.room, &place.query()).await?;
    if let Place::Port(_, port) = &mut place {
        *port = listener.port;
    }
    let port = listener.port;
    guest.tasks.spawn(take(Arc::clone(guest), place, listener, stop));
    Ok(port)
}

/// Listens for programs that want the client's agent, once in a connection, and tells where.
pub(crate) async fn agent(guest: &Arc<Guest>) -> Result<String, SidecarError> {
    let path = guest.agent.get_or_try_init(|| async {
        let listener = sidecar::listen(&*guest.room, &Place::Agent.query()).await?;
        let path = listener.path.clone().unwrap_or_default();
        guest.tasks.spawn(take(Arc::clone(guest), Place::Agent, listener, guest.left.child_token()));
        Ok(path)
    });
    path.await.cloned()
}

async fn take(guest: Arc<Guest>, place: Place, mut listener: Listener, stop: CancellationToken) {
    while let Some(Some(arrival)) = stop.run_until_cancelled(listener.next()).await {
        guest.tasks.spawn(deliver(Arc::clone(&guest), place.clone(), arrival));
    }
}

/// Brings a connection that came to the client.
async fn deliver(guest: Arc<Guest>, place: Place, arrival: Arrival) {
    // One more than may be unconfirmed is left where it came, and closed there.
    let Ok(turn) = guest.unconfirmed.try_acquire() else { return };
    let patience = Duration::from_secs(CHANNEL_ARRIVAL_S);
    let channel = match timeout(patience, open(&guest, &place, arrival)).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => {
            tracing::debug!(%error, place = place.text(), "a client does not take a connection");
            return;
        }
        Err(_) => {
            // russh waits for the client on; so its place stays taken.
            turn.forget();
            return;
        }
    };
    drop(turn);
    let served = guest.admit(channel, Window::default());
    guest.opened(served.id, "forwarded", place.text());
    match sidecar::accepted(&*guest.room, arrival).await {
        Ok(stream) => tunnel::serve(guest, served, stream).await,
        Err(error) => guest.done(&served, error.to_string()).await,
    }
}

async fn open(guest: &Guest, place: &Place, arrival: Arrival) -> Result<russh::Channel<Msg>, russh::Error> {
    let handle = &guest.handle;
    match place {
        Place::Port(address, port) => {
            let (port, from) = (u32::from(*port), u32::from(arrival.from_port));
            handle.channel_open_forwarded_tcpip(address, port, ORIGIN, from).await
        }
        Place::Path(path) => handle.channel_open_forwarded_streamlocal(path).await,
        Place::Agent => handle.channel_open_agent().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_is_at_loopback_whatever_it_is_called() {
        for address in ["", "*", "localhost", "127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::"] {
            assert!(is_local(address), "{address}");
        }
        for address in ["10.0.0.1", "example.org", "127.0.0.1.example.org", "fe80::1"] {
            assert!(!is_local(address), "{address}");
        }
    }
}
