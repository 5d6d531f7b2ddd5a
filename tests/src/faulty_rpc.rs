//! A node of the chain that fails as nodes do, by a script: a proxy before the real one.
//!
//! What fails is drawn from a seed and the number of the request, so a run can be had again.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::wait::pass;

/// What the node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// It works.
    Well,
    /// It closes every connection.
    Down,
    /// It takes requests and says nothing, for so long.
    Stalled(Duration),
    /// Of every so many requests one succeeds, at random; the others fail in all the ways that there are.
    Flapping {
        /// What is drawn from.
        seed: u64,
        /// One of so many succeeds.
        one_in: u64,
    },
    /// It answers, but takes no transaction.
    Mute,
    /// It answers, but has no logs.
    Deaf,
    /// It answers, but its newest block is so many blocks old, now and then.
    Behind {
        /// How many.
        blocks: u64,
    },
}

/// One failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The connection is closed, before the request reached the node.
    Dropped,
    /// The connection is closed after it.
    Lost,
    Stalled(Duration),
    Late(Duration),
    ServerError,
    Truncated,
    NoLogs,
    OldHead(u64),
}

/// The proxy; it ends when this is dropped.
pub struct FaultyNode {
    url: Url,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    upstream: Url,
    client: reqwest::Client,
    script: Mutex<Script>,
    requests: AtomicU64,
    faults: AtomicU64,
}

type Body = BoxBody<Bytes, io::Error>;

impl FaultyNode {
    /// A proxy before `upstream` that works well.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn before(upstream: Url) -> Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.context("no free port")?;
        let url = format!("http://{}", listener.local_addr().context("no address")?).parse().context("no URL")?;
        let shared = Arc::new(Shared {
            upstream,
            client: reqwest::Client::new(),
            script: Mutex::new(Script::Well),
            requests: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        });
        let task = tokio::spawn(serve(listener, shared.clone()));
        Ok(Self { url, shared, task })
    }

    /// Where it listens.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// What it does from now on.
    pub fn play(&self, script: Script) {
        *self.shared.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }

    /// How many requests came so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// How many requests failed so far.
    pub fn faults(&self) -> u64 {
        self.shared.faults.load(Ordering::Relaxed)
    }
}

impl Drop for FaultyNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        let service = hyper::service::service_fn(move |request| {
            let shared = shared.clone();
            async move { shared.answer(request).await }
        });
        // A failure here is one that was asked for.
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let asked = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        let fault = self.fault(&asked);
        if fault != Fault::None {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        match fault {
            Fault::Dropped => return Err(io::ErrorKind::ConnectionReset.into()),
            Fault::Stalled(time) => {
                pass(time).await;
                return Err(io::ErrorKind::TimedOut.into());
            }
            Fault::Late(time) => pass(time).await,
            Fault::ServerError => return response(StatusCode::INTERNAL_SERVER_ERROR, whole("out of order".into())),
            Fault::None | Fault::Lost | Fault::Truncated | Fault::NoLogs | Fault::OldHead(_) => {}
        }
        let answered = self.ask(asked.clone()).await?;
        match fault {
            Fault::Lost => Err(io::ErrorKind::ConnectionReset.into()),
            Fault::Truncated => response(StatusCode::OK, cut(&answered)),
            Fault::NoLogs => response(StatusCode::OK, whole(with_result(answered, json!([])))),
            Fault::OldHead(blocks) => response(StatusCode::OK, whole(self.aged(&asked, answered, blocks).await?)),
            _ => response(StatusCode::OK, whole(answered)),
        }
    }

    async fn ask(&self, body: Bytes) -> io::Result<Bytes> {
        let sent = self.client.post(self.upstream.clone()).header("content-type", "application/json").body(body);
        sent.send().await.map_err(io::Error::other)?.bytes().await.map_err(io::Error::other)
    }

    /// The answer of a node that is so many blocks behind, where it was asked for its head.
    async fn aged(&self, asked: &Bytes, answered: Bytes, blocks: u64) -> io::Result<Bytes> {
        let (Ok(mut question), Ok(answer)) =
            (serde_json::from_slice::<Value>(asked), serde_json::from_slice(&answered))
        else {
            return Ok(answered);
        };
        let answer: Value = answer;
        let older = |head: &Value| {
            let head = u64::from_str_radix(head.as_str()?.trim_start_matches("0x"), 16).ok()?;
            Some(json!(format!("{:#x}", head.saturating_sub(blocks))))
        };
        if question["method"] == "eth_blockNumber" {
            return Ok(older(&answer["result"]).map_or(answered.clone(), |head| with_result(answered, head)));
        }
        if question["method"] == "eth_getBlockByNumber" && question["params"][0] == "latest" {
            question["params"][0] = older(&answer["result"]["number"]).unwrap_or(json!("latest"));
            return self.ask(Bytes::from(question.to_string())).await;
        }
        Ok(answered)
    }

    fn fault(&self, asked: &Bytes) -> Fault {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let asks = |method: &str| serde_json::from_slice::<Value>(asked).is_ok_and(|asked| asked["method"] == method);
        match *self.script.lock().unwrap_or_else(PoisonError::into_inner) {
            Script::Well => Fault::None,
            Script::Mute if asks("eth_sendRawTransaction") => Fault::Dropped,
            Script::Deaf if asks("eth_getLogs") => Fault::NoLogs,
            Script::Mute | Script::Deaf => Fault::None,
            Script::Down => Fault::Dropped,
            Script::Stalled(time) => Fault::Stalled(time),
            Script::Behind { blocks } => Fault::OldHead(number % (blocks + 1)),
            Script::Flapping { seed, one_in } => {
                let drawn = scrambled(seed ^ scrambled(number));
                if drawn.is_multiple_of(one_in) { Fault::None } else { drawn_fault(drawn / one_in) }
            }
        }
    }
}

const fn drawn_fault(drawn: u64) -> Fault {
    match drawn % 6 {
        0 => Fault::Dropped,
        1 => Fault::Lost,
        2 => Fault::Late(Duration::from_millis(200)),
        3 => Fault::ServerError,
        4 => Fault::Truncated,
        _ => Fault::OldHead(drawn / 6 % 4),
    }
}

/// splitmix64: neighbours in, strangers out.
const fn scrambled(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The same answer with another result.
fn with_result(answered: Bytes, result: Value) -> Bytes {
    match serde_json::from_slice::<Value>(&answered) {
        Ok(mut answer) => {
            answer["result"] = result;
            Bytes::from(answer.to_string())
        }
        Err(_) => answered,
    }
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed()
}

/// The first half, then the end of the connection.
fn cut(bytes: &Bytes) -> Body {
    let half = bytes.slice(..bytes.len() / 2);
    let frames = [Ok(Frame::data(half)), Err(io::ErrorKind::ConnectionReset.into())];
    StreamBody::new(stream::iter(frames)).boxed()
}

fn response(status: StatusCode, body: Body) -> io::Result<Response<Body>> {
    Response::builder().status(status).header("content-type", "application/json").body(body).map_err(io::Error::other)
}
