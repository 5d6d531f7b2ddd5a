//! A web server over TLS that keeps what it is given, as it is told by the first segment of a path.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, LOCATION};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use sandbox_outbound::blobs::{Patience, Stores, StoresConfig};

use super::serve::{Identity, Server, serve};
use super::{Names, offering_nothing};

/// The name on the certificate, besides 127.0.0.1.
pub(crate) const NAME: &str = "snapshots.example";

type Streamed = StreamBody<futures::stream::BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>;
type Answer = Response<Either<Full<Bytes>, Streamed>>;
type Kept = Arc<Mutex<HashMap<String, Bytes>>>;

pub(crate) struct Web {
    pub(crate) server: Server,
    identity: Identity,
    kept: Kept,
}

impl Web {
    pub(crate) async fn start() -> Self {
        let identity = Identity::of(&["127.0.0.1", NAME]);
        let kept = Kept::default();
        let held = Arc::clone(&kept);
        let service = service_fn(move |request: Request<Incoming>| {
            let held = Arc::clone(&held);
            async move { Ok::<_, Infallible>(answer(request, &held).await) }
        });
        Self { server: serve(Some(&identity), service).await, identity, kept }
    }

    /// That reach this server by address and by `names`.
    pub(crate) fn stores_with(&self, patience: Option<Patience>, names: Arc<Names>) -> Stores {
        let mut config = offering_nothing(&self.server.address.to_string(), names);
        config.patience = patience.unwrap_or(config.patience);
        Stores::new(StoresConfig { trusted_pem: Some(self.identity.pem.clone()), ..config }).unwrap()
    }

    pub(crate) fn stores(&self) -> Stores {
        self.stores_with(None, Names::new(&[]))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.server.address)
    }

    /// Bytes kept under a name, whole uploads only.
    pub(crate) fn kept(&self, name: &str) -> Option<Bytes> {
        self.kept.lock().unwrap().get(name).cloned()
    }

    pub(crate) fn keep(&self, name: &str, bytes: impl Into<Bytes>) {
        self.kept.lock().unwrap().insert(name.to_owned(), bytes.into());
    }
}

/// `verb/name`, with what follows a name percent-free.
async fn answer(request: Request<Incoming>, kept: &Kept) -> Answer {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let (verb, name) = path.split_once('/').unwrap_or((&path, ""));
    let known = kept.lock().unwrap().get(name).cloned();
    match (request.method(), verb) {
        (_, "never") => std::future::pending().await,
        (&Method::PUT, "signed") if !request.headers().contains_key(CONTENT_LENGTH) => {
            plain(StatusCode::LENGTH_REQUIRED)
        }
        (&Method::PUT, "take" | "signed") => take(request, name, kept).await,
        (_, "forbidden") => plain(StatusCode::FORBIDDEN),
        (_, "broken") => plain(StatusCode::BAD_GATEWAY),
        (_, "to") => redirect(request.uri().query().unwrap_or_default()),
        (_, "hops") => match name.parse::<usize>().unwrap() {
            0 => redirect("/take/end"),
            left => redirect(&format!("/hops/{}", left - 1)),
        },
        (&Method::GET, _) => match known {
            None => plain(StatusCode::NOT_FOUND),
            Some(bytes) => give(verb, bytes),
        },
        _ => plain(StatusCode::METHOD_NOT_ALLOWED),
    }
}

async fn take(request: Request<Incoming>, name: &str, kept: &Kept) -> Answer {
    // An upload that breaks off is kept by nobody.
    let Ok(body) = request.into_body().collect().await else { return plain(StatusCode::BAD_REQUEST) };
    kept.lock().unwrap().insert(name.to_owned(), body.to_bytes());
    plain(StatusCode::CREATED)
}

fn give(verb: &str, bytes: Bytes) -> Answer {
    let half = bytes.slice(..bytes.len() / 2);
    let broken = || stream::iter([Err(std::io::Error::other("gone"))]);
    match verb {
        "take" => Response::new(Either::Left(Full::new(bytes))),
        "coded" => {
            let answer = Response::builder().header(CONTENT_ENCODING, "zstd");
            answer.body(Either::Left(Full::new(bytes))).unwrap()
        }
        // With the whole's length, and without.
        "cut" => {
            let answer = Response::builder().header(CONTENT_LENGTH, bytes.len());
            answer.body(streamed(stream::iter([Ok(half)]).chain(broken()))).unwrap()
        }
        "cut-chunked" => Response::new(streamed(stream::iter([Ok(half)]).chain(broken()))),
        "end-early" => Response::new(streamed(stream::iter([Ok(half)]))),
        "stall" => Response::new(streamed(stream::iter([Ok(half)]).chain(stream::pending()))),
        _ => plain(StatusCode::NOT_FOUND),
    }
}

fn streamed(chunks: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static) -> Either<Full<Bytes>, Streamed> {
    Either::Right(StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data)).boxed()))
}

fn plain(status: StatusCode) -> Answer {
    Response::builder().status(status).body(Either::Left(Full::default())).unwrap()
}

fn redirect(to: &str) -> Answer {
    let answer = Response::builder().status(StatusCode::TEMPORARY_REDIRECT).header(LOCATION, to);
    answer.body(Either::Left(Full::default())).unwrap()
}
