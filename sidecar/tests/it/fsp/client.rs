//! The client of the protocol on the server of the protocol: links that break anywhere, consumers that are slow.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sandbox_fsp::{Connection, Dial, Endpoint, Event, Execution, FspError, Link, Place, Token, UnixSocket};
use sandbox_protocol::fsp::{
    ErrorCode, Execute, Extension, Extensions, Extra, Language, Limits, Signal, Status, Stream,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::harness::{PATIENCE, Sidecar, TOKEN};

/// Breaks that the client must live through.
const BREAKS: usize = 1_000;
/// Bytes that a link carries at the most before it breaks. The least is what a handshake takes.
const CARRIED_BYTES: std::ops::Range<usize> = 600..80_000;

/// A way to the sidecar that breaks at random, and then no more.
#[derive(Debug, Clone)]
struct Fragile {
    socket: PathBuf,
    random: Arc<Mutex<StdRng>>,
    breaks: Arc<Mutex<usize>>,
}

/// A link that carries so many bytes to the client.
struct Brittle {
    stream: UnixStream,
    left: usize,
}

#[async_trait]
impl Dial for Fragile {
    async fn dial(&self) -> io::Result<Link> {
        let stream = UnixStream::connect(&self.socket).await?;
        let mut breaks = self.breaks.lock().unwrap();
        if *breaks == BREAKS {
            return Ok(Box::new(stream));
        }
        *breaks += 1;
        let left = self.random.lock().unwrap().random_range(CARRIED_BYTES);
        Ok(Box::new(Brittle { stream, left }))
    }

    fn uri(&self) -> http::Uri {
        http::Uri::from_static("ws://sidecar/fsp")
    }
}

impl AsyncRead for Brittle {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let most = self.left.min(into.remaining());
        let mut some = ReadBuf::new(into.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut some))?;
        let read = some.filled().len();
        into.advance(read);
        self.left -= read;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Brittle {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn endpoint(dial: impl Dial + 'static, wanted: Extensions) -> Endpoint {
    Endpoint::new(dial, Token::fixed(TOKEN), wanted)
}

async fn connect(sidecar: &Sidecar, wanted: Extensions) -> Connection {
    Connection::open(&endpoint(UnixSocket::new(&sidecar.socket), wanted)).await.unwrap()
}

fn shell(id: &str, code: &str) -> Execute {
    Execute {
        id: id.to_owned(),
        language: Language::Shell,
        code: code.to_owned(),
        stdin: None,
        env: std::collections::BTreeMap::new(),
        limits: Limits { timeout_ms: 120_000, max_output_bytes: 1 << 30, ..Limits::default() },
        extra: Extra::default(),
    }
}

/// Holds what came of stdout against what is `expected`, and tells `seen` how far it has come. Answers with the bytes that
/// were announced as lost, and the exit code.
async fn check(mut running: Execution, expected: &[u8], mut seen: impl FnMut(usize)) -> (u64, Option<i32>) {
    let (mut at, mut lost) = (0, 0);
    while let Some(event) = running.next().await.unwrap() {
        match event {
            Event::Output(Stream::Stdout, data) => {
                assert!(expected[at..].starts_with(&data), "not what was due at byte {at}");
                at += data.len();
                seen(at);
            }
            Event::Gap { bytes, .. } => {
                at += bytes as usize;
                lost += bytes;
            }
            Event::Ended(ended) => {
                assert_eq!(at, expected.len(), "the end is missing");
                return (lost, ended.exit_code);
            }
            Event::Ack | Event::Status(_) | Event::Output(Stream::Stderr, _) | Event::Detached => {}
        }
    }
    panic!("no end");
}

/// Numbers as `seq` writes them.
fn lines(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|number| format!("{number}\n")).collect()
}

/// A connection over links that break, and how many have.
async fn connect_over_breaks(sidecar: &Sidecar) -> (Connection, Arc<Mutex<usize>>) {
    let breaks = Arc::new(Mutex::new(0));
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(5)));
    let fragile = Fragile { socket: sidecar.socket.clone(), random, breaks: Arc::clone(&breaks) };
    (Connection::open(&endpoint(fragile, Extensions::all())).await.unwrap(), breaks)
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_thousand_breaks_nothing_is_doubled_and_nothing_is_lost() {
    let sidecar = Sidecar::start();
    let (connection, breaks) = connect_over_breaks(&sidecar).await;
    let batches: Vec<_> = (1..=70).map(|batch| lines(batch * 100_000..(batch + 1) * 100_000)).collect();
    let code = "for batch in $(seq 1 70); do
        seq $((batch * 100000)) $((batch * 100000 + 99999))
        until [ -e $batch ]; do sleep 0.01; done
    done; exit 3";
    let request = Execute { extra: Extra { cwd: Some(String::new()), ..Extra::default() }, ..shell("counted", code) };
    let running = connection.execute(request).await.unwrap();
    let (mut batch, mut until) = (0, batches[0].len());
    // The next batch is written when this one was read, so that the sidecar keeps all that is not.
    let seen = |at| {
        while batch < batches.len() && at >= until {
            batch += 1;
            std::fs::write(sidecar.workspace().join(batch.to_string()), "").unwrap();
            until += batches.get(batch).map_or(0, String::len);
        }
    };
    let expected = batches.concat();
    let ended = timeout(PATIENCE * 3, check(running, expected.as_bytes(), seen)).await.unwrap();
    assert_eq!((ended, *breaks.lock().unwrap()), ((0, Some(3)), BREAKS));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_faster_than_it_is_kept_while_links_break_is_lost_with_a_word() {
    let sidecar = Sidecar::start();
    let (connection, breaks) = connect_over_breaks(&sidecar).await;
    let running = connection.execute(shell("counted", "seq 0 5999999; exit 3")).await.unwrap();
    let expected = lines(0..6_000_000);
    let (lost, exit_code) = timeout(PATIENCE * 3, check(running, expected.as_bytes(), |_| {})).await.unwrap();
    assert!(lost > 0 && *breaks.lock().unwrap() > 1 && exit_code == Some(3), "{lost} bytes lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_connection_runs_a_command() {
    let sidecar = Sidecar::start();
    for wanted in [Extensions::default(), [Extension::Replay].into_iter().collect(), Extensions::all()] {
        let connection = connect(&sidecar, wanted.clone()).await;
        assert_eq!(connection.granted(), &wanted);
        // With replay, an id is everybody's.
        let id = format!("e-{}", wanted.to_header().len());
        let running = connection.execute(shell(&id, "echo out; echo err >&2; exit 7")).await.unwrap();
        let outcome = running.outcome(100).await.unwrap();
        assert_eq!((&outcome.stdout[..], &outcome.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!((outcome.status, outcome.exit_code), (Status::Failed, Some(7)));
        connection.ping().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_fed_signalled_left_and_found_again() {
    let sidecar = Sidecar::start();
    let connection = connect(&sidecar, Extensions::all()).await;
    let code = "trap 'echo caught; exit 5' USR1; read line; echo \"got $line\"; while :; do sleep 0.05; done";
    let request = Execute { extra: Extra { stream_stdin: true, ..Extra::default() }, ..shell("fed", code) };
    let mut running = connection.execute(request).await.unwrap();
    let control = running.control();
    control.stdin("hello\nrest".into(), false).await.unwrap();
    loop {
        if let Some(Event::Output(_, data)) = running.next().await.unwrap() {
            assert_eq!(data, "got hello\n");
            break;
        }
    }
    control.detach().await.unwrap();
    while running.next().await.unwrap() != Some(Event::Detached) {}
    let seen = running.place();
    let other = connect(&sidecar, Extensions::all()).await;
    let again = other.attach("fed", seen, None).await.unwrap();
    again.control().signal(Signal::Usr1).await.unwrap();
    let outcome = again.outcome(100).await.unwrap();
    assert_eq!((&outcome.stdout[..], outcome.exit_code), (&b"caught\n"[..], Some(5)));
    let unknown = other.attach("nobody", Place::default(), None).await.unwrap().outcome(9).await.unwrap_err();
    assert!(matches!(unknown, FspError::Server { code: ErrorCode::UnknownExecution, retryable: false, .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_consumer_holds_up_its_own_command_alone() {
    let sidecar = Sidecar::start();
    let connection = connect(&sidecar, Extensions::all()).await;
    let slow = connection.execute(shell("slow", "head -c 20000000 /dev/zero")).await.unwrap();
    for number in 0..20 {
        let quick = connection.execute(shell(&format!("quick-{number}"), "echo done")).await.unwrap();
        assert_eq!(timeout(PATIENCE, quick.outcome(9)).await.unwrap().unwrap().stdout, "done\n");
    }
    check(slow, &vec![0; 20_000_000], |_| {}).await;
}
