//! The routes whose connections outlive their request: terminals, tunnels, channels, events.

use axum::Router;
use axum::routing::get;
use sandbox_protocol::channel::{ACCEPTED_ROUTE, LISTEN_ROUTE, ROUTE as CHANNEL, UNIX_ROUTE};
use sandbox_protocol::events::ROUTE as EVENTS;
use sandbox_protocol::pty::{LIST_ROUTE as PTYS, ROUTE as PTY};
use sandbox_protocol::tunnel::ROUTE as TCP;

use super::upgraded::Upgraded;
use super::{channel, events, pty, tcp};
use crate::channel::Channels;
use crate::events::Events;
use crate::pty::Terminals;
use crate::tunnel::Tunnels;

/// What has connections that outlive their request.
#[derive(Debug, Clone)]
pub struct Streams {
    /// `/pty`.
    pub terminals: Terminals,
    /// `/tcp`.
    pub tunnels: Tunnels,
    /// `/channel`, `/unix`, `/listen`, `/accepted`.
    pub channels: Channels,
    /// `/events`.
    pub events: Events,
    /// Where connections are that are terminals', tunnels' and channels' now.
    pub upgraded: Upgraded,
}

impl Streams {
    /// Ends all of them after the signal to stop, and returns when they have ended.
    pub async fn stop(&self) {
        tokio::join!(self.terminals.stop(), self.upgraded.closed());
        self.events.close();
    }

    pub(super) fn routes<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let Self { terminals, tunnels, channels, events, upgraded } = self;
        let of_terminals = Router::new()
            .route(PTY, get(pty::open))
            .route(&format!("{}/{{id}}", PTY), get(pty::attach).delete(pty::delete))
            .route(PTYS, get(pty::list))
            .with_state(pty::Shared { terminals, upgraded: upgraded.clone() });
        let of_tunnels = Router::new()
            .route(&format!("{}/{{port}}", TCP), get(tcp::tunnel))
            .with_state(tcp::Shared { tunnels, upgraded: upgraded.clone() });
        let of_channels = Router::new()
            .route(CHANNEL, get(channel::program))
            .route(UNIX_ROUTE, get(channel::unix))
            .route(LISTEN_ROUTE, get(channel::listen))
            .route(&format!("{}/{{id}}", ACCEPTED_ROUTE), get(channel::accepted))
            .with_state(channel::Shared { channels, upgraded });
        let of_events = Router::new().route(EVENTS, get(events::follow)).with_state(events::Shared::new(events));
        of_terminals.merge(of_tunnels).merge(of_channels).merge(of_events)
    }
}
