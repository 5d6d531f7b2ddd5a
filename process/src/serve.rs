//! HTTP/1 for whoever connects, within bounds on connections, headers and time, until told to stop.
//!
//! Not here: what is served, and how many may come; the latter is a [`Gate`]'s to say.

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::net::Listener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Pause after a connection that could not be accepted, for want of descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// What one connection may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of a request's line and headers.
    pub header_bytes_max: usize,
    /// Headers of a request.
    pub headers_max: usize,
    /// Time for a request's headers, also the time that an open connection may idle.
    pub header_read_max: Duration,
    /// Age at which a connection gets no further request.
    pub age_max: Duration,
    /// Time that it then, or when told to stop, has for the request in hand: also for a reader that does not read.
    pub last_request_max: Duration,
}

/// Who is at the other end of the connection that a request came through: an extension of each.
#[derive(Debug)]
pub struct Peer<A>(pub Arc<A>);

impl<A> Clone for Peer<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Decides who is served.
pub trait Gate<Peer>: Clone + Send + Sync + 'static {
    /// Held as long as the connection.
    type Pass: Send + 'static;

    /// A pass, perhaps after a wait that holds up everybody behind; or `None`, and the connection is closed.
    fn admit(&self, peer: &Peer) -> impl Future<Output = Option<Self::Pass>> + Send;
}

/// Lets so many in at a time; the next waits.
#[derive(Debug, Clone)]
pub struct Queue(Arc<Semaphore>);

impl Queue {
    /// With this many places.
    pub fn of(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places)))
    }
}

impl<Peer: Sync> Gate<Peer> for Queue {
    type Pass = OwnedSemaphorePermit;

    async fn admit(&self, _: &Peer) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

/// What all doors share: the service, who may come in, what they may take, the signal to stop.
#[derive(Debug)]
pub struct Doorway<S, G> {
    service: S,
    gate: G,
    bounds: Bounds,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl<S, G> Doorway<S, G> {
    /// Nothing is served before [`Self::serve`].
    pub fn new(service: S, gate: G, bounds: Bounds, stop: CancellationToken) -> Self {
        Self { service, gate, bounds, stop, tasks: TaskTracker::new() }
    }

    /// Serves what comes through `listener`, in the background.
    pub fn serve<L, B>(&self, mut listener: L)
    where
        L: Listener<Io: Unpin + Send + 'static, Addr: Send + Sync + 'static> + Send + 'static,
        G: Gate<L::Addr>,
        S: Service<Request<Incoming>, Response = hyper::Response<B>, Error = Infallible, Future: Send>,
        S: Clone + Send + 'static,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let (service, gate, bounds) = (self.service.clone(), self.gate.clone(), self.bounds);
        let (tasks, told, stop) = (self.tasks.clone(), self.stop.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let accepting = async move {
                loop {
                    let (stream, peer) = accept(&mut listener).await;
                    let Some(pass) = gate.admit(&peer).await else { continue };
                    let known = Known { service: service.clone(), peer: Peer(Arc::new(peer)) };
                    let serving = converse(stream, known, bounds, told.clone());
                    tasks.spawn(async move {
                        serving.await;
                        drop(pass);
                    });
                }
            };
            stop.run_until_cancelled(accepting).await;
        });
    }

    /// Returns when, after the signal to stop, the last request has been answered.
    pub async fn closed(self) {
        self.stop.cancelled().await;
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A service that is told who asks.
struct Known<S, A> {
    service: S,
    peer: Peer<A>,
}

impl<S, A> Service<Request<Incoming>> for Known<S, A>
where
    S: Service<Request<Incoming>>,
    A: Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(self.peer.clone());
        self.service.call(request)
    }
}

async fn accept<L: Listener>(listener: &mut L) -> (L::Io, L::Addr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_the_peers(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether a connection failed before it was accepted, which says nothing about the next.
fn is_the_peers(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}

/// Serves one connection. Told to stop, or too old, it answers the request that it has and ends.
async fn converse<I, S, B>(stream: I, service: S, bounds: Bounds, stop: CancellationToken)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = hyper::Response<B>, Error = Infallible>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.header_read_max)
            .max_buf_size(bounds.header_bytes_max)
            .max_headers(bounds.headers_max)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let until_last_request = timeout(bounds.age_max, stop.cancelled());
    let served = tokio::select! {
        served = connection.as_mut() => Ok(served),
        _ = until_last_request => {
            connection.as_mut().graceful_shutdown();
            timeout(bounds.last_request_max, connection).await
        }
    };
    match served {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = &error as &dyn Error, "a connection broke off"),
        Err(_) => tracing::debug!("a connection did not end and was cut"),
    }
}

#[cfg(test)]
mod tests {
    use hyper::Response;
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;
    use tokio::time::{Instant, sleep_until};

    use super::*;

    const BOUNDS: Bounds = Bounds {
        header_bytes_max: 16 * 1024,
        headers_max: 10,
        header_read_max: Duration::from_secs(30),
        age_max: Duration::from_secs(100),
        last_request_max: Duration::from_secs(50),
    };
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n";

    /// Answers with the path, after as many seconds as the path says.
    async fn answer(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
        let wait = request.uri().path().trim_start_matches('/').parse().unwrap_or_default();
        sleep_until(Instant::now() + Duration::from_secs(wait)).await;
        Ok(Response::new(request.uri().path().to_owned()))
    }

    /// A conversation with the server; the pipe holds a few bytes each way.
    fn connect(stop: &CancellationToken) -> DuplexStream {
        let (ours, theirs) = duplex(64);
        let stop = stop.clone();
        tokio::spawn(async move { converse(theirs, service_fn(answer), BOUNDS, stop).await });
        ours
    }

    /// Everything up to the end of the connection, and the seconds until then.
    async fn rest(stream: &mut DuplexStream) -> (String, u64) {
        let (begun, mut text) = (Instant::now(), String::new());
        stream.read_to_string(&mut text).await.unwrap();
        (text, begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_sends_no_request_is_closed_in_time() {
        let mut stream = connect(&CancellationToken::new());
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        assert_eq!(rest(&mut stream).await, (String::new(), 30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_hand_is_answered_at_the_end_of_a_connection() {
        let stop = CancellationToken::new();
        let mut stream = connect(&stop);
        stream.write_all(b"GET /120 HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        let (text, seconds) = rest(&mut stream).await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n/120"), "{text}");
        assert_eq!(seconds, 120);

        let mut stream = connect(&stop);
        stream.write_all(b"GET /20 HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        tokio::task::yield_now().await;
        stop.cancel();
        let (text, seconds) = rest(&mut stream).await;
        assert!(text.ends_with("/20"), "{text}");
        assert_eq!(seconds, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_asks_and_never_reads_is_cut() {
        let begun = Instant::now();
        let mut stream = connect(&CancellationToken::new());
        let asking = async { while stream.write_all(REQUEST).await.is_ok() {} };
        asking.await;
        assert_eq!(begun.elapsed().as_secs(), 150);
    }

    /// Lets one in; the rest is closed.
    #[derive(Clone)]
    struct One(Arc<Semaphore>);

    impl Gate<std::net::SocketAddr> for One {
        type Pass = tokio::sync::OwnedSemaphorePermit;

        async fn admit(&self, _: &std::net::SocketAddr) -> Option<Self::Pass> {
            Arc::clone(&self.0).try_acquire_owned().ok()
        }
    }

    #[tokio::test]
    async fn who_gets_no_pass_is_closed_at_once_and_a_pass_ends_with_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop, passes) = (listener.local_addr().unwrap(), CancellationToken::new(), Semaphore::new(1));
        let gate = One(Arc::new(passes));
        let doorway = Doorway::new(service_fn(answer), gate.clone(), BOUNDS, stop.clone());
        doorway.serve(listener);

        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(REQUEST).await.unwrap();
        let mut answered = [0; 15];
        first.read_exact(&mut answered).await.unwrap();
        assert_eq!(&answered, b"HTTP/1.1 200 OK");
        let mut second = TcpStream::connect(address).await.unwrap();
        assert_eq!(second.read(&mut [0]).await.unwrap_or_default(), 0, "closed");
        drop(first);
        drop(gate.0.acquire().await.unwrap());
        stop.cancel();
        doorway.closed().await;
    }
}
