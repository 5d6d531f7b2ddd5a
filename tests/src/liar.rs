//! A door before an operator's API behind which its answers say something else than it attested to.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::TryStreamExt as _;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

/// The door; it ends when this is dropped.
pub struct Liar {
    url: String,
    task: JoinHandle<()>,
}

/// What the operator said, and what is told instead; equally long, since lengths stand in answers too.
#[derive(Clone, Copy)]
struct Lie {
    said: &'static str,
    told: &'static str,
}

type Body = BoxBody<Bytes, io::Error>;

impl Liar {
    /// A door before the API at `upstream` that tells `told` wherever it said `said`, also inside of encoded responses.
    ///
    /// # Errors
    /// There is no free port.
    pub fn before(upstream: String, said: &'static str, told: &'static str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
        listener.set_nonblocking(true).context("no listener")?;
        let url = format!("http://{}", listener.local_addr().context("no address")?);
        let listener = tokio::net::TcpListener::from_std(listener).context("no listener")?;
        let task = tokio::spawn(serve(listener, upstream, Lie { said, told }));
        Ok(Self { url, task })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: tokio::net::TcpListener, upstream: String, lie: Lie) {
    let client = reqwest::Client::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (client, upstream) = (client.clone(), upstream.clone());
        let service = hyper::service::service_fn(move |request| {
            let (client, upstream) = (client.clone(), upstream.clone());
            async move { answer(&client, &upstream, request, lie).await }
        });
        // A client that breaks off is its own business.
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    client: &reqwest::Client,
    upstream: &str,
    request: Request<Incoming>,
    lie: Lie,
) -> io::Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    for name in [HOST, ACCEPT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let asked = client.request(head.method, format!("{upstream}{}", head.uri)).headers(head.headers).body(body);
    let answered = asked.send().await.map_err(io::Error::other)?;
    let mut response = Response::builder().status(answered.status());
    let kind = answered.headers().get(CONTENT_TYPE).cloned();
    if let Some(kind) = &kind {
        response = response.header(CONTENT_TYPE, kind);
    }
    let is_json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let body = if is_json {
        let text = answered.text().await.map_err(io::Error::other)?;
        Full::new(lie.tell(&text).into()).map_err(|never: Infallible| match never {}).boxed()
    } else {
        StreamBody::new(answered.bytes_stream().map_ok(Frame::data).map_err(io::Error::other)).boxed()
    };
    response.body(body).map_err(io::Error::other)
}

impl Lie {
    fn tell(self, text: &str) -> String {
        text.replace(self.said, self.told).replace(&hex::encode(self.said), &hex::encode(self.told))
    }
}
