//! The routes whose connections outlive their request: terminals, tunnels, events.

use axum::Router;
use axum::routing::get;
use sandbox_protocol::events::ROUTE as EVENTS;
use sandbox_protocol::pty::{LIST_ROUTE as PTYS, ROUTE as PTY};
use sandbox_protocol::tunnel::ROUTE as TCP;

use super::upgraded::Upgraded;
use super::{events, pty, tcp};
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
    /// `/events`.
    pub events: Events,
    /// Where connections are that are terminals' and tunnels' now.
    pub upgraded: Upgraded,
}

impl Streams {
    /// Ends all of them after the signal to stop, and returns when they have ended.
    pub async fn stop(&self) {
        tokio::join!(self.terminals.stop(), self.upgraded.closed());
        self.events.close();
    }

    pub(super) fn routes<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let Self { terminals, tunnels, events, upgraded } = self;
        let of_terminals = Router::new()
            .route(PTY, get(pty::open))
            .route(&format!("{}/{{id}}", PTY), get(pty::attach).delete(pty::delete))
            .route(PTYS, get(pty::list))
            .with_state(pty::Shared { terminals, upgraded: upgraded.clone() });
        let of_tunnels = Router::new()
            .route(&format!("{}/{{port}}", TCP), get(tcp::tunnel))
            .with_state(tcp::Shared { tunnels, upgraded });
        let of_events = Router::new().route(EVENTS, get(events::follow)).with_state(events::Shared::new(events));
        of_terminals.merge(of_tunnels).merge(of_events)
    }
}
