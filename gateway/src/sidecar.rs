//! What a sandbox's sidecar serves of a connection: streams of programs, and bare ones.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Response;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use sandbox_process::link::link;
use sandbox_process::upgrade::{Stream, UpgradeError, upgrade_with_headers};
use sandbox_protocol::channel::{
    self, ACCEPTED_ROUTE, Arrival, FRAME_HEAD_BYTES, FrameError, FromProgram, LISTEN_PROTOCOL, LISTEN_ROUTE,
    ListenQuery, PATH_HEADER, PORT_HEADER, UNIX_ROUTE, UnixQuery,
};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::limits::CHANNEL_FRAME_BYTES_MAX;
use sandbox_protocol::tunnel;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::limits::{SIDECAR_ANSWER_MAX, SIDECAR_REFUSAL_BYTES_MAX};
use crate::ports::Room;

/// Why a sidecar did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SidecarError {
    /// It is not there, or breaks off.
    #[error("the sandbox cannot be reached")]
    Unreachable(#[source] std::io::Error),
    /// It did not answer for [`SIDECAR_ANSWER_MAX`].
    #[error("the sandbox does not answer")]
    Silent,
    /// It said no.
    #[error("{message}")]
    Refused { code: Option<SidecarRefusal>, message: String },
    /// It said what is none of its words.
    #[error("the sandbox's sidecar is of another version")]
    Words(#[from] FrameError),
    /// The request could not be written.
    #[error("no such request")]
    Request(#[from] http::Error),
}

impl From<std::io::Error> for SidecarError {
    fn from(error: std::io::Error) -> Self {
        Self::Unreachable(error)
    }
}

impl From<hyper::Error> for SidecarError {
    fn from(error: hyper::Error) -> Self {
        Self::Unreachable(std::io::Error::other(error))
    }
}

/// A connection for the streams of one program.
pub(crate) async fn program(room: &dyn Room) -> Result<Stream, SidecarError> {
    opened(room, channel::ROUTE, channel::PROTOCOL).await.map(|(stream, _)| stream)
}

/// A connection to a port inside.
pub(crate) async fn port(room: &dyn Room, port: u16) -> Result<Stream, SidecarError> {
    bare(room, &format!("{}/{port}", tunnel::ROUTE)).await
}

/// A connection to a Unix socket inside.
pub(crate) async fn unix(room: &dyn Room, path: &str) -> Result<Stream, SidecarError> {
    bare(room, &with_query(UNIX_ROUTE, UnixQuery { path: path.to_owned() })).await
}

/// A connection that came to where the sidecar listens.
pub(crate) async fn accepted(room: &dyn Room, arrival: Arrival) -> Result<Stream, SidecarError> {
    bare(room, &format!("{ACCEPTED_ROUTE}/{}", arrival.id)).await
}

/// A socket inside that is listened at, as long as this is there.
pub(crate) struct Listener {
    stream: Stream,
    /// At this port, if it is one.
    pub(crate) port: u16,
    /// At this path, if it has one.
    pub(crate) path: Option<String>,
}

impl Listener {
    /// Waits for a connection; `None` when it is not listened any more.
    pub(crate) async fn next(&mut self) -> Option<Arrival> {
        let mut bytes = [0; Arrival::BYTES];
        self.stream.read_exact(&mut bytes).await.ok()?;
        Some(Arrival::decode(bytes))
    }
}

/// Has the sidecar listen.
pub(crate) async fn listen(room: &dyn Room, query: &ListenQuery) -> Result<Listener, SidecarError> {
    let (stream, headers) = opened(room, &with_query(LISTEN_ROUTE, query), LISTEN_PROTOCOL).await?;
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let port = said(PORT_HEADER).and_then(|port| port.parse().ok()).unwrap_or_default();
    let path = said(PATH_HEADER).map(|path| percent_decode_str(path).decode_utf8_lossy().into_owned());
    Ok(Listener { stream, port, path })
}

fn with_query(route: &str, query: impl Serialize) -> String {
    let query = serde_urlencoded::to_string(query).unwrap_or_default();
    format!("{route}?{query}")
}

async fn bare(room: &dyn Room, target: &str) -> Result<Stream, SidecarError> {
    opened(room, target, tunnel::PROTOCOL).await.map(|(stream, _)| stream)
}

async fn opened(room: &dyn Room, target: &str, protocol: &'static str) -> Result<(Stream, HeaderMap), SidecarError> {
    let opening = async {
        let request = Request::get(target)
            .header(HOST, "sidecar")
            .header(AUTHORIZATION, room.authorization())
            .body(Empty::<Bytes>::new())?;
        let (mut sender, _driver) = link(room.connect().await?).await?;
        match upgrade_with_headers(&mut sender, request, protocol).await {
            Ok(opened) => Ok(opened),
            Err(UpgradeError::Broken(error)) => Err(error.into()),
            Err(UpgradeError::Refused(response)) => Err(refused(*response).await),
        }
    };
    timeout(SIDECAR_ANSWER_MAX, opening).await.map_err(|_| SidecarError::Silent)?
}

async fn refused(response: Response<Incoming>) -> SidecarError {
    let status = response.status();
    let body = Limited::new(response.into_body(), SIDECAR_REFUSAL_BYTES_MAX).collect().await;
    let bytes = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    match serde_json::from_slice::<ErrorBody>(&bytes) {
        Ok(body) => SidecarError::Refused { code: SidecarRefusal::from_code(&body.code), message: body.message },
        Err(_) => SidecarError::Refused { code: None, message: format!("the sandbox answered {status}") },
    }
}

/// Reads one frame; `None` at the end. Nothing is held while none comes.
pub(crate) async fn read_frame<R>(reader: &mut R) -> Result<Option<FromProgram>, SidecarError>
where
    R: AsyncRead + Unpin,
{
    let mut head = [0; FRAME_HEAD_BYTES];
    match reader.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let [_, a, b, c, d] = head;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > CHANNEL_FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(length).into());
    }
    let whole = FRAME_HEAD_BYTES + length;
    let mut bytes = BytesMut::with_capacity(whole);
    bytes.put_slice(&head);
    while bytes.len() < whole {
        let left = whole - bytes.len();
        if (&mut *reader).take(left as u64).read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    Ok(FromProgram::decode(&mut bytes)?)
}

/// Writes a head and what belongs to it, in one go where the connection takes it.
pub(crate) async fn write_with_head<W>(writer: &mut W, head: &[u8], bytes: &[u8]) -> std::io::Result<()>
where
    W: tokio::io::AsyncWrite + Unpin,
{
    let mut chained = bytes::Buf::chain(head, bytes);
    writer.write_all_buf(&mut chained).await
}
