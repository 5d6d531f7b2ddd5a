//! `GET /files/watch`: what changes, as server-sent events.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::Event;
use sandbox_protocol::files::{WATCH_CHANGE, WATCH_OVERFLOW, WATCH_READY, WatchQuery, WatchReady};
use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::{Shared, on_roots, parsed};
use crate::files::{FilesError, Told, Watch};
use crate::http::error::ApiError;
use crate::http::sse::{LAST_EVENT_ID, heartbeat, with_data};
use crate::limits::FILES_CHANGES_MAX;

pub(super) async fn watch(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let query = parsed::<WatchQuery>(query)?;
    let roots = Arc::clone(&shared);
    let find = move || {
        let roots = (*roots).as_ref().map_err(|error| *error)?;
        roots.place(&query.path)?.find()
    };
    let watch = on_roots(shared, move |_| Watch::new(find, query.recursive)).await?;
    let ready = WatchReady { directories: watch.directories() };
    let watch = registered(watch)?;
    let (send, events) = mpsc::channel(FILES_CHANGES_MAX);
    let mut teller = Teller { send, id: 0 };
    let resumed = headers.contains_key(LAST_EVENT_ID);
    tokio::spawn(async move {
        teller.tell(WATCH_READY, &ready).await;
        if resumed {
            teller.tell(WATCH_OVERFLOW, &Nothing {}).await;
        }
        let gone = teller.send.clone();
        tokio::select! {
            told = teller.tell_all(watch) => drop(told),
            () = gone.closed() => {}
        }
    });
    Ok(Sse::new(ReceiverStream::new(events).map(Ok)).keep_alive(heartbeat()))
}

/// A watch that is waited for.
#[allow(deprecated)] // its successor is unsafe for what may lose its descriptor; a watch owns its own as long as it lives
fn registered(watch: Watch) -> Result<AsyncFd<Watch>, FilesError> {
    AsyncFd::new(watch).map_err(|_| FilesError::NoRoom)
}

#[derive(Serialize)]
struct Nothing {}

/// Numbers events and hands them on.
struct Teller {
    send: mpsc::Sender<Event>,
    id: u64,
}

impl Teller {
    /// Tells what `watch` sees until what is watched is gone.
    async fn tell_all(&mut self, mut watch: AsyncFd<Watch>) -> io::Result<()> {
        loop {
            let mut readable = watch.readable_mut().await?;
            let Ok(told) = readable.try_io(|watch| Ok(watch.get_mut().read()?)) else { continue };
            for told in told? {
                match told {
                    Told::Change(change) => self.tell(WATCH_CHANGE, &change).await,
                    Told::Overflow => self.tell(WATCH_OVERFLOW, &Nothing {}).await,
                    Told::End => return Ok(()),
                }
            }
        }
    }

    async fn tell(&mut self, name: &str, data: &impl Serialize) {
        self.id += 1;
        // Where nobody listens any more, the task is about to end.
        self.send.send(with_data(name, data).id(self.id.to_string())).await.ok();
    }
}
