//! Bodies on their way through: counted, never gathered, and cut off when what they come from is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use sandbox_fleet::activity::Use;
use sandbox_process::link::Driver;

use super::lease::{Lease, Over};
use super::passage::{Flow, Passage};
use super::pulse::Kind;

/// A request's body on its way in.
pub(super) struct Upload {
    pub(super) inner: Body,
    pub(super) passage: Arc<Passage>,
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.passage.passed(Flow::Up, Kind::Plain, data);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// An answer's body on its way out.
pub(super) struct Download {
    inner: Incoming,
    passage: Arc<Passage>,
    kind: Kind,
    over: Pin<Box<dyn Future<Output = Over> + Send>>,
    _driver: Driver,
    _use: Option<Use>,
}

/// Why an answer is cut off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    #[error("it broke off where it comes from")]
    Broken(#[source] hyper::Error),
    #[error(transparent)]
    Over(#[from] Over),
}

impl Download {
    /// What comes over the connection that `driver` drives, for as long as `lease` lasts. A stream of events ends with the
    /// operator; another body that is on its way then is finished.
    pub(super) fn new(
        (inner, driver): (Incoming, Driver),
        passage: Arc<Passage>,
        kind: Kind,
        mut lease: Lease,
        in_use: Option<Use>,
    ) -> Self {
        let over: Pin<Box<dyn Future<Output = Over> + Send>> = match kind {
            Kind::Events => Box::pin(async move { lease.over().await }),
            Kind::Plain | Kind::WebSocket => Box::pin(async move { lease.lost().await }),
        };
        Self { inner, passage, kind, over, _driver: driver, _use: in_use }
    }
}

impl HttpBody for Download {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Poll::Ready(over) = self.over.as_mut().poll(context) {
            // Who reads events takes them up again; of anything else half is not the whole.
            return Poll::Ready((self.kind != Kind::Events).then_some(Err(Cut::Over(over))));
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.passage.passed(Flow::Down, self.kind, data);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Cut::Broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
