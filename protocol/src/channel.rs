//! Programs whose streams an operator carries, for a customer who came by SSH: what it and a sidecar say to each other.
//!
//! `GET /channel` with `Upgrade: sandbox-channel`: a program. After the answer 101 both sides send *frames*: a kind (1
//! byte), a length (4 bytes, big-endian) and so many bytes. The first is the operator's [`Start`]; the answer is `STARTED`
//! or `REFUSED`, and after that come stdin one way, stdout and stderr the other, and at last `EXIT`, before which all
//! has been sent that the program itself wrote; what it left running may go on to write where nobody reads any more, and
//! is waited for a moment only. Where there are as many channels as may be, the request is refused before its upgrade.
//!
//! The operator sends stdin within [`CHANNEL_WINDOW_BYTES`](crate::limits::CHANNEL_WINDOW_BYTES) of what it was told to be
//! `TAKEN`, so that a signal never waits behind it; it is told in pieces of a quarter of that, and also of what a program
//! does not read any more. The end of stdin closes a pipe and does nothing to a terminal, in which it would be typed.
//! Whoever sends more, or what is no frame here, loses the connection.
//!
//! When the connection ends, a program's terminal is hung up, its pipes are closed, and it goes on as it likes, with what
//! it left running; with `END` everything that it started is killed, and `EXIT` tells so where the operator waits for it.
//!
//! `GET /unix?path=…` with `Upgrade: tcp`: bare bytes to and from a Unix socket, opened as the agent. Relative paths start
//! at the workspace. What takes no connection is refused as `port_closed`.
//!
//! `GET /listen` with a [`ListenQuery`] and `Upgrade: sandbox-listen`: the sidecar listens inside as long as the
//! connection is open. The answer 101 has `x-listen-port` or `x-listen-path`. Each connection that comes is told as one
//! [`Arrival`]; the operator fetches it by `GET /accepted/{id}` with `Upgrade: tcp`, or it is closed after
//! [`CHANNEL_ARRIVAL_S`](crate::limits::CHANNEL_ARRIVAL_S). What is taken already, or not the agent's to make, is refused as
//! `conflict`, a port of the sidecar's as `port_reserved`. The path goes when listening ends.

use std::collections::BTreeMap;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::exec::{ByteText, SidecarRefusal};
use crate::fsp::Signal;
use crate::limits::CHANNEL_FRAME_BYTES_MAX;

/// Path of a program's streams.
pub const ROUTE: &str = "/channel";
/// What the upgrade to frames is called.
pub const PROTOCOL: &str = "sandbox-channel";
/// Path of a Unix socket's bytes.
pub const UNIX_ROUTE: &str = "/unix";
/// Path of listening.
pub const LISTEN_ROUTE: &str = "/listen";
/// What the upgrade to arrivals is called.
pub const LISTEN_PROTOCOL: &str = "sandbox-listen";
/// Path, before `/{id}`, of a connection that came.
pub const ACCEPTED_ROUTE: &str = "/accepted";
/// The port that is listened at.
pub const PORT_HEADER: &str = "x-listen-port";
/// The path that is listened at, percent-encoded.
pub const PATH_HEADER: &str = "x-listen-path";
/// Bytes before those of a frame.
pub const FRAME_HEAD_BYTES: usize = 1 + 4;

/// What is to be started: the first frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Which program.
    pub program: Program,
    /// The terminal that it is to have; pipes without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// Added to the clean environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Which program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Program {
    /// The agent's login shell.
    Shell,
    /// What the agent's shell is given to run: any bytes but NUL.
    Command {
        /// The bytes.
        command: ByteText,
    },
    /// The SFTP server.
    Sftp,
}

/// A terminal, as the customer's is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terminal {
    /// `TERM`.
    pub term: String,
    /// Its size.
    pub size: TerminalSize,
    /// Opcodes of RFC 4254 section 8 with their values; unknown ones have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<(u8, u32)>,
}

/// A terminal's size. Columns and rows of nought are the defaults of [`pty`](crate::pty).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
    /// Width in pixels, 0 where unknown.
    pub width_px: u16,
    /// Height in pixels, 0 where unknown.
    pub height_px: u16,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Its exit code, where it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, as the kernel numbers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the kernel wrote its memory to a file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub core_dumped: bool,
}

/// Why a program was not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// What kind of reason.
    pub code: SidecarRefusal,
    /// The reason, for people.
    pub message: String,
}

/// Query of `GET /unix`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnixQuery {
    /// Of the socket; relative ones start at the workspace.
    pub path: String,
}

/// Query of `GET /listen`: exactly one of the three.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenQuery {
    /// A port of both loopback addresses; 0 is any that is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// A Unix socket, which the agent makes; relative paths start at the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A Unix socket at a path of the sidecar's choice, which only the agent can use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
}

/// A connection that came to where a sidecar listens: 10 bytes, id and port big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// By which it is fetched.
    pub id: u64,
    /// The port that it comes from; 0 for a Unix socket's.
    pub from_port: u16,
}

impl Arrival {
    /// Bytes of one.
    pub const BYTES: usize = 8 + 2;

    /// As it is sent.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.id.to_be_bytes());
        bytes[8..].copy_from_slice(&self.from_port.to_be_bytes());
        bytes
    }

    /// Reads one.
    pub fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let mut bytes = bytes.as_slice();
        Self { id: bytes.get_u64(), from_port: bytes.get_u16() }
    }
}

/// What an operator sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToProgram {
    /// What is to be started. First, and once.
    Start(Start),
    /// Bytes for it to read.
    Stdin(Bytes),
    /// Nothing more for it to read.
    StdinEof,
    /// For its process group; in a terminal, the one in the foreground.
    Signal(Signal),
    /// The terminal has this size now.
    Resize(TerminalSize),
    /// Kill it, and everything that it started.
    End,
}

/// What a sidecar sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromProgram {
    /// It runs.
    Started,
    /// It does not; the connection ends.
    Refused(Refused),
    /// It wrote bytes to stdout, or to its terminal.
    Stdout(Bytes),
    /// It wrote bytes to stderr.
    Stderr(Bytes),
    /// So many more bytes of stdin may be sent.
    Taken(u32),
    /// It has ended; the connection ends.
    Exit(Exit),
}

/// What is no frame, or none of the side that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than [`CHANNEL_FRAME_BYTES_MAX`].
    #[error("a frame of {0} bytes, with {CHANNEL_FRAME_BYTES_MAX} at most")]
    TooLong(usize),
    /// Of no known kind.
    #[error("no frame is of kind {0}")]
    Kind(u8),
    /// Its bytes are not what its kind demands.
    #[error("a frame of kind {0} that is not as its kind")]
    Malformed(u8),
}

mod kind {
    pub(super) const START: u8 = 1;
    pub(super) const STDIN: u8 = 2;
    pub(super) const STDIN_EOF: u8 = 3;
    pub(super) const SIGNAL: u8 = 4;
    pub(super) const RESIZE: u8 = 5;
    pub(super) const END: u8 = 6;
    pub(super) const STARTED: u8 = 17;
    pub(super) const REFUSED: u8 = 18;
    pub(super) const STDOUT: u8 = 19;
    pub(super) const STDERR: u8 = 20;
    pub(super) const TAKEN: u8 = 21;
    pub(super) const EXIT: u8 = 22;
}

/// The head of a frame of stdout with so many bytes, for who sends those from where they are.
pub fn stdout_head(bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
    head(kind::STDOUT, bytes)
}

/// The head of a frame of stderr.
pub fn stderr_head(bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
    head(kind::STDERR, bytes)
}

/// The head of a frame of stdin.
pub fn stdin_head(bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
    head(kind::STDIN, bytes)
}

fn head(kind: u8, bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
    let [a, b, c, d] = u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    [kind, a, b, c, d]
}

fn put(bytes: &mut BytesMut, kind: u8, content: &[u8]) {
    bytes.put_slice(&head(kind, content.len()));
    bytes.put_slice(content);
}

fn put_json(bytes: &mut BytesMut, kind: u8, content: &impl Serialize) {
    put(bytes, kind, &serde_json::to_vec(content).unwrap_or_default());
}

/// Takes the first frame's kind and content off `bytes`; `None` where it is not whole yet.
fn take(bytes: &mut BytesMut) -> Result<Option<(u8, Bytes)>, FrameError> {
    let Some(&[kind, a, b, c, d]) = bytes.first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > CHANNEL_FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    if bytes.len() < FRAME_HEAD_BYTES + length {
        return Ok(None);
    }
    bytes.advance(FRAME_HEAD_BYTES);
    Ok(Some((kind, bytes.split_to(length).freeze())))
}

fn json<'a, T: Deserialize<'a>>(kind: u8, content: &'a [u8]) -> Result<T, FrameError> {
    serde_json::from_slice(content).map_err(|_| FrameError::Malformed(kind))
}

fn empty<T>(kind: u8, content: &[u8], frame: T) -> Result<T, FrameError> {
    if content.is_empty() { Ok(frame) } else { Err(FrameError::Malformed(kind)) }
}

impl ToProgram {
    /// Appends it to `bytes`.
    pub fn encode(&self, bytes: &mut BytesMut) {
        match self {
            Self::Start(start) => put_json(bytes, kind::START, start),
            Self::Stdin(data) => put(bytes, kind::STDIN, data),
            Self::StdinEof => put(bytes, kind::STDIN_EOF, b""),
            Self::Signal(signal) => put_json(bytes, kind::SIGNAL, signal),
            Self::Resize(size) => put_json(bytes, kind::RESIZE, size),
            Self::End => put(bytes, kind::END, b""),
        }
    }

    /// Takes one off the front of `bytes`; `None` where it is not whole yet.
    ///
    /// # Errors
    /// What is there is none, and nothing that follows can be understood.
    pub fn decode(bytes: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some((kind, content)) = take(bytes)? else { return Ok(None) };
        Ok(Some(match kind {
            kind::START => Self::Start(json(kind, &content)?),
            kind::STDIN => Self::Stdin(content),
            kind::STDIN_EOF => empty(kind, &content, Self::StdinEof)?,
            kind::SIGNAL => Self::Signal(json(kind, &content)?),
            kind::RESIZE => Self::Resize(json(kind, &content)?),
            kind::END => empty(kind, &content, Self::End)?,
            _ => return Err(FrameError::Kind(kind)),
        }))
    }
}

impl FromProgram {
    /// Appends it to `bytes`.
    pub fn encode(&self, bytes: &mut BytesMut) {
        match self {
            Self::Started => put(bytes, kind::STARTED, b""),
            Self::Refused(refused) => put_json(bytes, kind::REFUSED, refused),
            Self::Stdout(data) => put(bytes, kind::STDOUT, data),
            Self::Stderr(data) => put(bytes, kind::STDERR, data),
            Self::Taken(count) => put(bytes, kind::TAKEN, &count.to_be_bytes()),
            Self::Exit(exit) => put_json(bytes, kind::EXIT, exit),
        }
    }

    /// Takes one off the front of `bytes`; `None` where it is not whole yet.
    ///
    /// # Errors
    /// What is there is none, and nothing that follows can be understood.
    pub fn decode(bytes: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some((kind, content)) = take(bytes)? else { return Ok(None) };
        Ok(Some(match kind {
            kind::STARTED => empty(kind, &content, Self::Started)?,
            kind::REFUSED => Self::Refused(json(kind, &content)?),
            kind::STDOUT => Self::Stdout(content),
            kind::STDERR => Self::Stderr(content),
            kind::TAKEN => {
                let count = content.as_ref().try_into().map_err(|_| FrameError::Malformed(kind))?;
                Self::Taken(u32::from_be_bytes(count))
            }
            kind::EXIT => Self::Exit(json(kind, &content)?),
            _ => return Err(FrameError::Kind(kind)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn data() -> Bytes {
        Bytes::from_static(b"a\0\xff")
    }

    fn start() -> Start {
        let size = TerminalSize { cols: 80, rows: 24, width_px: 0, height_px: 0 };
        Start {
            program: Program::Command { command: ByteText(b"ls \xff".to_vec()) },
            terminal: Some(Terminal { term: "xterm".to_owned(), size, modes: vec![(53, 0)] }),
            env: BTreeMap::from([("LANG".to_owned(), "C".to_owned())]),
        }
    }

    #[test]
    fn frames_are_read_as_they_were_written_however_they_are_cut() {
        let to = [
            ToProgram::Start(start()),
            ToProgram::Stdin(data()),
            ToProgram::StdinEof,
            ToProgram::Signal(Signal::Hup),
            ToProgram::Resize(TerminalSize::default()),
            ToProgram::End,
        ];
        let exit = Exit { exit_code: None, signal: Some(11), core_dumped: true };
        let from = [
            FromProgram::Started,
            FromProgram::Refused(Refused { code: SidecarRefusal::Busy, message: "full".to_owned() }),
            FromProgram::Stdout(data()),
            FromProgram::Stderr(data()),
            FromProgram::Taken(7),
            FromProgram::Exit(exit),
        ];
        let (mut sent_to, mut sent_from) = (BytesMut::new(), BytesMut::new());
        to.iter().for_each(|frame| frame.encode(&mut sent_to));
        from.iter().for_each(|frame| frame.encode(&mut sent_from));
        let (mut read_to, mut read_from) = (Vec::new(), Vec::new());
        let (mut got_to, mut got_from) = (BytesMut::new(), BytesMut::new());
        for byte in sent_to {
            got_to.put_u8(byte);
            read_to.extend(ToProgram::decode(&mut got_to).unwrap());
        }
        for byte in sent_from {
            got_from.put_u8(byte);
            read_from.extend(FromProgram::decode(&mut got_from).unwrap());
        }
        assert_eq!((read_to.as_slice(), read_from.as_slice()), (to.as_slice(), from.as_slice()));
    }

    #[test]
    fn a_frame_has_so_many_bytes_and_none_more() {
        let mut bytes = BytesMut::new();
        ToProgram::Stdin(Bytes::from(vec![0; CHANNEL_FRAME_BYTES_MAX])).encode(&mut bytes);
        assert!(matches!(ToProgram::decode(&mut bytes), Ok(Some(ToProgram::Stdin(_)))));
        let mut bytes = BytesMut::from(&stdin_head(CHANNEL_FRAME_BYTES_MAX + 1)[..]);
        assert_eq!(ToProgram::decode(&mut bytes), Err(FrameError::TooLong(CHANNEL_FRAME_BYTES_MAX + 1)));
    }

    #[test]
    fn a_side_does_not_understand_its_own_frames() {
        let mut bytes = BytesMut::new();
        FromProgram::Started.encode(&mut bytes);
        assert_eq!(ToProgram::decode(&mut bytes), Err(FrameError::Kind(kind::STARTED)));
        let mut bytes = BytesMut::new();
        ToProgram::End.encode(&mut bytes);
        assert_eq!(FromProgram::decode(&mut bytes), Err(FrameError::Kind(kind::END)));
    }

    #[test]
    fn an_arrival_is_read_as_it_was_written() {
        let arrival = Arrival { id: u64::MAX - 1, from_port: 50_000 };
        assert_eq!(Arrival::decode(arrival.encode()), arrival);
    }

    proptest! {
        #[test]
        fn no_bytes_confuse_the_readers(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let mut given = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = ToProgram::decode(&mut given) {}
            let mut given = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = FromProgram::decode(&mut given) {}
        }
    }
}
