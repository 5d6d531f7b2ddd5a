//! What passes for one request, counted both ways, and told of in one line of the log when it is over.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use alloy::primitives::Address;
use axum::http::{Method, StatusCode};
use sandbox_fleet::activity::Activity;
use sandbox_protocol::SandboxId;
use sandbox_protocol::session::Scope;
use tokio::time::Instant;

use super::pulse::Kind;
use super::route::Inside;

/// A request on its way through. The last one to hold it ends it.
#[derive(Debug)]
pub(super) struct Passage {
    whose: Address,
    sandbox: SandboxId,
    /// The route's name: paths, queries and headers are the caller's own business.
    route: String,
    scope: Scope,
    method: Method,
    begun: Instant,
    activity: Activity,
    up_bytes: AtomicU64,
    down_bytes: AtomicU64,
    /// 0 until there is an answer.
    status: AtomicU16,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Into the sandbox.
    Up,
    /// Out of it.
    Down,
}

impl Passage {
    /// A request of `whose` that begins now.
    pub(super) fn new(
        (whose, sandbox): (Address, SandboxId),
        inside: &Inside,
        method: Method,
        activity: Activity,
    ) -> Self {
        Self {
            whose,
            sandbox,
            route: inside.name(),
            scope: inside.scope(),
            method,
            begun: Instant::now(),
            activity,
            up_bytes: AtomicU64::new(0),
            down_bytes: AtomicU64::new(0),
            status: AtomicU16::new(0),
        }
    }

    /// Counts these bytes, which keep the sandbox awake unless they are a sign of life alone.
    pub(super) fn passed(&self, flow: Flow, kind: Kind, bytes: &[u8]) {
        self.counted(flow, bytes.len());
        if kind.is_use(bytes) {
            self.activity.touch();
        }
    }

    /// Counts so many bytes.
    pub(super) fn counted(&self, flow: Flow, bytes: usize) {
        let count = match flow {
            Flow::Up => &self.up_bytes,
            Flow::Down => &self.down_bytes,
        };
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Where what happens in the sandbox is noted.
    pub(super) const fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The answer has begun.
    pub(super) fn answered(&self, status: StatusCode) {
        self.status.store(status.as_u16(), Ordering::Relaxed);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let Self { whose, sandbox, route, method, .. } = self;
        let (up_bytes, down_bytes) = (*self.up_bytes.get_mut(), *self.down_bytes.get_mut());
        let (status, duration_ms) = (*self.status.get_mut(), self.begun.elapsed().as_millis() as u64);
        if self.scope == Scope::SandboxesFiles {
            tracing::debug!(%whose, %sandbox, route, %method, status, up_bytes, down_bytes, duration_ms, "proxied");
        } else {
            tracing::info!(%whose, %sandbox, route, %method, status, up_bytes, down_bytes, duration_ms, "proxied");
        }
    }
}
