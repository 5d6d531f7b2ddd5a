//! The client by which plain requests go out: HTTP/1, over connections that the address guard made.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::Authority;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower_service::Service;

use super::target::{HTTP_PORT, Target};
use crate::address::{AddressError, Guard, HostError};
use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX, POOL_IDLE_MAX, POOL_IDLE_PER_HOST_MAX};

/// One sandbox's: its connections are not shared with others and end with it.
pub(super) type Upstream = Client<Connector, Incoming>;

pub(super) fn client(guard: Guard) -> Upstream {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_MAX)
        .pool_max_idle_per_host(POOL_IDLE_PER_HOST_MAX)
        .http1_max_buf_size(HEADER_BYTES_MAX)
        .http1_max_headers(HEADERS_MAX)
        .set_host(false)
        .build(Connector(guard))
}

/// Connects to where a URI says, if the guard lets it.
#[derive(Clone)]
pub(super) struct Connector(Guard);

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = Arc<AddressError>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let guard = self.0.clone();
        Box::pin(async move {
            let target = uri.authority().and_then(target).ok_or(AddressError::Host(HostError::Name))?;
            connect(&guard, &target).await.map(TokioIo::new).map_err(Arc::new)
        })
    }
}

fn target(authority: &Authority) -> Option<Target> {
    Target::parse(authority, Some(HTTP_PORT)).ok()
}

pub(super) async fn connect(guard: &Guard, target: &Target) -> Result<TcpStream, AddressError> {
    let stream = guard.connect(&target.host, target.port).await?;
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps small packets back");
    }
    Ok(stream)
}
