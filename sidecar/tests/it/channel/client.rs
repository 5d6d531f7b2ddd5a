//! An operator's end of a channel.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HeaderMap, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use sandbox_process::link::link;
use sandbox_process::upgrade::Stream;
use sandbox_protocol::channel::{
    Exit, FRAME_HEAD_BYTES, FromProgram, PROTOCOL, Program, ROUTE, Refused, Start, Terminal, TerminalSize, ToProgram,
};
use sandbox_protocol::exec::ByteText;
use sandbox_protocol::http::ErrorBody;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::net::UnixStream;
use tokio::time::timeout;

use bytes::BytesMut;

use crate::harness::{PATIENCE, Sidecar, TOKEN};

/// A connection to `target` that has left HTTP, with the answer's headers; or status and code of the refusal.
pub(super) async fn opened(socket: &Path, target: &str, protocol: &str) -> Result<(Stream, HeaderMap), (u16, String)> {
    let (mut sender, _driver) = link(UnixStream::connect(socket).await.unwrap()).await.unwrap();
    let request = Request::get(target)
        .header("host", "sidecar")
        .header("authorization", format!("Bearer {TOKEN}"))
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, protocol)
        .body(Empty::<Bytes>::new())
        .unwrap();
    let mut response = timeout(PATIENCE, sender.send_request(request)).await.expect("no answer").unwrap();
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let headers = response.headers().clone();
        return Ok((TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap()), headers));
    }
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Err((status, serde_json::from_slice::<ErrorBody>(&body).unwrap().code))
}

/// A channel to a program, and what came through it.
pub(super) struct Channel {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) taken: usize,
}

pub(super) struct Reader(ReadHalf<Stream>);
pub(super) struct Writer(WriteHalf<Stream>);

pub(super) fn command(command: impl AsRef<[u8]>) -> Start {
    let program = Program::Command { command: ByteText(command.as_ref().to_vec()) };
    Start { program, terminal: None, env: BTreeMap::new() }
}

pub(super) fn in_terminal(start: Start, modes: &[(u8, u32)]) -> Start {
    let size = TerminalSize { cols: 100, rows: 40, width_px: 800, height_px: 600 };
    Start { terminal: Some(Terminal { term: "vt100".to_owned(), size, modes: modes.to_vec() }), ..start }
}

pub(super) const fn exited(exit_code: i32) -> Exit {
    Exit { exit_code: Some(exit_code), signal: None, core_dumped: false }
}

pub(super) const fn ended_by(signal: i32) -> Exit {
    Exit { exit_code: None, signal: Some(signal), core_dumped: false }
}

impl Channel {
    /// A connection on which nothing was said yet.
    pub(super) async fn open(sidecar: &Sidecar) -> Self {
        Self::open_at(&sidecar.socket).await
    }

    async fn open_at(socket: &Path) -> Self {
        let (stream, _) = opened(socket, ROUTE, PROTOCOL).await.unwrap();
        let (reader, writer) = split(stream);
        Self { reader: Reader(reader), writer: Writer(writer), stdout: Vec::new(), stderr: Vec::new(), taken: 0 }
    }

    pub(super) async fn start(sidecar: &Sidecar, start: Start) -> Self {
        Self::start_at(&sidecar.socket, start).await
    }

    pub(super) async fn start_at(socket: &Path, start: Start) -> Self {
        let mut channel = Self::open_at(socket).await;
        channel.say(ToProgram::Start(start)).await;
        assert_eq!(channel.reader.frame().await, Some(FromProgram::Started));
        channel
    }

    pub(super) async fn sh(sidecar: &Sidecar, text: &str) -> Self {
        Self::start(sidecar, command(text)).await
    }

    /// Why it is not started.
    pub(super) async fn refusal(sidecar: &Sidecar, first: ToProgram) -> Refused {
        let mut channel = Self::open(sidecar).await;
        channel.say(first).await;
        let Some(FromProgram::Refused(refused)) = channel.reader.frame().await else { panic!("not refused") };
        assert_eq!(channel.reader.frame().await, None);
        refused
    }

    pub(super) async fn say(&mut self, frame: ToProgram) {
        self.writer.say(frame).await;
    }

    pub(super) async fn type_in(&mut self, text: &str) {
        self.say(ToProgram::Stdin(Bytes::copy_from_slice(text.as_bytes()))).await;
    }

    /// Waits for the next frame and keeps what it holds; the program's end, where it is that, and `None` at the
    /// connection's.
    pub(super) async fn next(&mut self) -> Option<Option<Exit>> {
        match self.reader.frame().await? {
            FromProgram::Stdout(bytes) => self.stdout.extend_from_slice(&bytes),
            FromProgram::Stderr(bytes) => self.stderr.extend_from_slice(&bytes),
            FromProgram::Taken(bytes) => self.taken += bytes as usize,
            FromProgram::Exit(exit) => return Some(Some(exit)),
            frame @ (FromProgram::Started | FromProgram::Refused(_)) => panic!("{frame:?}"),
        }
        Some(None)
    }

    /// Waits until stdout, or the terminal, has shown `text`, and forgets all up to it.
    pub(super) async fn until(&mut self, text: &str) {
        loop {
            let found = self.stdout.windows(text.len()).position(|shown| shown == text.as_bytes());
            if let Some(start) = found {
                self.stdout.drain(..start + text.len());
                return;
            }
            let came = self.next().await;
            assert_eq!(came, Some(None), "ended before {text:?}: {:?}", String::from_utf8_lossy(&self.stdout));
        }
    }

    /// Waits for the end of program and connection.
    pub(super) async fn end(&mut self) -> Exit {
        let exit = loop {
            if let Some(exit) = self.next().await.expect("the connection ended without the program's end") {
                break exit;
            }
        };
        assert_eq!(self.next().await, None);
        exit
    }

    /// Waits for the end of the connection, whatever comes before it.
    pub(super) async fn closed(&mut self) {
        while self.next().await.is_some() {}
    }

    pub(super) fn shown(&self) -> (&str, &str) {
        (std::str::from_utf8(&self.stdout).unwrap(), std::str::from_utf8(&self.stderr).unwrap())
    }
}

impl Writer {
    pub(super) async fn say(&mut self, frame: ToProgram) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.0.write_all(&bytes).await.unwrap();
    }

    /// Sends what may be no frame.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Sends what may cost the connection, and so may find it closed.
    pub(super) async fn provoke(&mut self, bytes: &[u8]) {
        if let Err(error) = self.0.write_all(bytes).await {
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
    }
}

impl Reader {
    /// `None` where the connection has ended.
    pub(super) async fn frame(&mut self) -> Option<FromProgram> {
        timeout(PATIENCE, async {
            let mut head = [0; FRAME_HEAD_BYTES];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
            let mut bytes = BytesMut::from(&head[..]);
            bytes.resize(FRAME_HEAD_BYTES + length, 0);
            self.0.read_exact(&mut bytes[FRAME_HEAD_BYTES..]).await.ok()?;
            Some(FromProgram::decode(&mut bytes).unwrap().unwrap())
        })
        .await
        .expect("no frame came")
    }
}
