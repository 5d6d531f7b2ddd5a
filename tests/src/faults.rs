//! An engine that can be made to stall, to fail and to go away: a socket between an operator and the real one.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Where the real engine is.
const ENGINE: &str = "/var/run/docker.sock";
const REFUSAL: &str = "{\"message\":\"a failure\"}\n";

/// What becomes of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are answered.
    Pass,
    /// They wait until that changes.
    Stall,
    /// Each gets a 500.
    Fail,
    /// Nobody listens, and who was connected is cut off.
    Away,
}

/// What becomes of the next request of a kind.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Its method.
    pub method: Method,
    /// A part of its path.
    pub path: &'static str,
    /// What becomes of it.
    pub kind: FaultKind,
}

/// What becomes of a single request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It gets this status, and the engine never hears of it.
    Status(u16),
    /// The engine does it, and the connection ends in the middle of its answer.
    Cut,
}

/// The engine behind a socket of its own.
pub struct Engine {
    path: PathBuf,
    mode: watch::Sender<Mode>,
    faults: Arc<Faults>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Faults(Mutex<VecDeque<Fault>>);

type Body = BoxBody<Bytes, io::Error>;

impl Engine {
    /// Listens in `dir`.
    ///
    /// # Errors
    /// It cannot.
    pub fn start(dir: &Path) -> Result<Self> {
        let path = dir.join("engine.sock");
        let listener = UnixListener::bind(&path).context("cannot listen for the engine's requests")?;
        let (mode, watched) = watch::channel(Mode::Pass);
        let faults = Arc::new(Faults::default());
        let accepting = tokio::spawn(accept(listener, path.clone(), watched, faults.clone()));
        Ok(Self { path, mode, faults, accepting })
    }

    /// What an operator is to be given as `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// From now on.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Once, as soon as there is such a request.
    pub fn meet(&self, fault: Fault) {
        self.faults.waiting().push_back(fault);
    }

    /// Whether there was a request for every fault.
    pub fn has_met_all(&self) -> bool {
        self.faults.waiting().is_empty()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Faults {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first that is meant for this request.
    fn of(&self, request: &Request<Incoming>) -> Option<FaultKind> {
        let mut waiting = self.waiting();
        let path = request.uri().path();
        let at = waiting.iter().position(|fault| fault.method == request.method() && path.contains(fault.path))?;
        Some(waiting.remove(at)?.kind)
    }
}

/// Listens whenever the engine is not away.
async fn accept(listener: UnixListener, path: PathBuf, mut mode: watch::Receiver<Mode>, faults: Arc<Faults>) {
    let mut listener = Some(listener);
    loop {
        if mode.wait_for(|mode| *mode != Mode::Away).await.is_err() {
            return;
        }
        let bound = match listener.take() {
            Some(listener) => Ok(listener),
            None => std::fs::remove_file(&path).and_then(|()| UnixListener::bind(&path)),
        };
        let listening = match bound {
            Ok(listener) => listener,
            Err(error) => return eprintln!("the engine does not come back: {error}"),
        };
        let (mut connections, watched) = (JoinSet::new(), mode.clone());
        loop {
            tokio::select! {
                away = mode.wait_for(|mode| *mode == Mode::Away) => match away {
                    Ok(_) => break,
                    Err(_) => return,
                },
                Ok((client, _)) = listening.accept() => {
                    connections.spawn(serve(client, watched.clone(), faults.clone()));
                }
            }
        }
        connections.shutdown().await;
    }
}

async fn serve(client: UnixStream, mode: watch::Receiver<Mode>, faults: Arc<Faults>) {
    let service = hyper::service::service_fn(|request| answer(request, mode.clone(), faults.clone()));
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service).await;
    if let Err(error) = served {
        // As a rule one that was asked for.
        eprintln!("a connection to the engine: {error}");
    }
}

async fn answer(
    request: Request<Incoming>,
    mut mode: watch::Receiver<Mode>,
    faults: Arc<Faults>,
) -> io::Result<Response<Body>> {
    let now = *mode.wait_for(|mode| *mode != Mode::Stall).await.map_err(io::Error::other)?;
    let fault = faults.of(&request);
    match fault {
        _ if now == Mode::Fail => refusal(500),
        Some(FaultKind::Status(status)) => refusal(status),
        Some(FaultKind::Cut) => cut(forward(request).await?).await,
        None => forward(request).await,
    }
}

async fn forward(request: Request<Incoming>) -> io::Result<Response<Body>> {
    let engine = UnixStream::connect(ENGINE).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(engine)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let answered = sender.send_request(request).await.map_err(io::Error::other)?;
    Ok(answered.map(|body| body.map_err(io::Error::other).boxed()))
}

/// The first half of an answer, then the end of the connection.
async fn cut(answered: Response<Body>) -> io::Result<Response<Body>> {
    let (head, body) = answered.into_parts();
    let body = body.collect().await?.to_bytes();
    if body.is_empty() {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    let half = body.slice(..body.len() / 2);
    let frames = [Ok(Frame::data(half)), Err(io::ErrorKind::ConnectionReset.into())];
    Ok(Response::from_parts(head, StreamBody::new(stream::iter(frames)).boxed()))
}

fn refusal(status: u16) -> io::Result<Response<Body>> {
    let body = Full::new(Bytes::from_static(REFUSAL.as_bytes())).map_err(|never| match never {}).boxed();
    Response::builder().status(status).header("content-type", "application/json").body(body).map_err(io::Error::other)
}
