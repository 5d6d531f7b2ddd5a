//! `GET /files/content` and `PUT /files/content`: bytes between a file and a connection, a few chunks at a time.

use std::io;
use std::os::unix::fs::FileExt as _;

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue, IF_MATCH, IF_NONE_MATCH,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::files::{FilesRefusal, ReadQuery, WriteQuery, WriteReply};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::range::{Asked, is_known, matches};
use super::{Shared, defect, on_roots, parsed};
use crate::files::{self, Condition, Content, FilesError};
use crate::http::error::ApiError;
use crate::limits::{FILES_CHUNK_BYTES, FILES_CHUNKS_MAX, REFUSED_BODY_MAX};

/// Of every file: what it is, is for its reader to know.
const MEDIA_TYPE: &str = "application/octet-stream";

pub(super) async fn read(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = parsed::<ReadQuery>(query)?;
    let content = on_roots(shared, move |roots| files::content(&roots.place(&query.path)?)).await?;
    if !matches(&headers, &content.etag) {
        return Err(FilesRefusal::Changed.into());
    }
    let etag = HeaderValue::from_str(&content.etag).map_err(|_| defect())?;
    if is_known(&headers, &content.etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, etag)]).into_response());
    }
    let size = content.bytes;
    let (status, start, bytes) = match Asked::of(&headers, size, &content.etag) {
        Asked::Whole => (StatusCode::OK, 0, size),
        Asked::Part { start, bytes } => (StatusCode::PARTIAL_CONTENT, start, bytes),
        Asked::Beyond => {
            let refused = ApiError::from(FilesRefusal::NoSuchRange);
            return Ok(([(CONTENT_RANGE, format!("bytes */{size}"))], refused).into_response());
        }
    };
    let body = if method == Method::HEAD { Body::empty() } else { streamed(content, start, bytes) };
    let mut response = (status, [(CONTENT_TYPE, MEDIA_TYPE), (ACCEPT_RANGES, "bytes")], body).into_response();
    response.headers_mut().insert(ETAG, etag);
    response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {start}-{}/{size}", start + bytes - 1);
        response.headers_mut().insert(CONTENT_RANGE, HeaderValue::from_str(&range).map_err(|_| defect())?);
    }
    Ok(response)
}

/// The bytes from `start` on. Where the file has become shorter meanwhile, the body has no end.
fn streamed(content: Content, start: u64, bytes: u64) -> Body {
    let (send, chunks) = mpsc::channel(FILES_CHUNKS_MAX);
    spawn_blocking(move || {
        let (mut at, end) = (start, start + bytes);
        while at < end {
            let chunk = chunk(&content, at, end);
            at += chunk.as_ref().map_or(end, |chunk| chunk.len() as u64);
            if send.blocking_send(chunk).is_err() {
                return;
            }
        }
    });
    Body::from_stream(ReceiverStream::new(chunks))
}

fn chunk(content: &Content, at: u64, end: u64) -> io::Result<Bytes> {
    let mut chunk = vec![0; usize::try_from(end - at).unwrap_or(usize::MAX).min(FILES_CHUNK_BYTES)];
    let read = content.file.read_at(&mut chunk, at)?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    chunk.truncate(read);
    Ok(chunk.into())
}

/// What comes from a request's body.
enum Piece {
    Data(Bytes),
    /// The body's own end: without it nothing is finished.
    End,
}

pub(super) async fn write(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    mut body: Body,
) -> Result<(StatusCode, Json<WriteReply>), ApiError> {
    let written = taken(shared, parsed::<WriteQuery>(query), condition(&headers), &mut body).await;
    if written.is_err() {
        // One who is still sending may not look for an answer before the end.
        let rest = async { while let Some(Ok(_)) = body.frame().await {} };
        timeout(REFUSED_BODY_MAX, rest).await.ok();
    }
    let reply = written?;
    Ok((if reply.created { StatusCode::CREATED } else { StatusCode::OK }, Json(reply)))
}

async fn taken(
    shared: Shared,
    query: Result<WriteQuery, ApiError>,
    condition: Result<Condition, ApiError>,
    body: &mut Body,
) -> Result<WriteReply, ApiError> {
    let (query, condition) = (query?, condition?);
    let (send, mut pieces) = mpsc::channel(FILES_CHUNKS_MAX);
    let (opened, begun) = oneshot::channel();
    let writing = spawn_blocking(move || {
        let roots = (*shared).as_ref().map_err(|error| *error)?;
        let mut writing = files::begin(roots, &query, condition)?;
        opened.send(()).ok();
        while let Some(piece) = pieces.blocking_recv() {
            match piece {
                Piece::Data(bytes) => writing.write(&bytes)?,
                Piece::End => return writing.finish().map(Some),
            }
        }
        Ok::<_, FilesError>(None)
    });
    // One who asks before it sends is not told to go on before it is known that it may.
    if begun.await.is_ok() {
        feed(body, &send).await;
    }
    drop(send);
    let written = writing.await.map_err(|_| defect())??;
    written.ok_or_else(|| ApiError::new(SidecarRefusal::BadRequest, "the body broke off"))
}

/// Hands on all of `body`, or as much as is taken.
async fn feed(body: &mut Body, send: &mpsc::Sender<Piece>) {
    loop {
        let piece = match body.frame().await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => Piece::Data(bytes),
                Err(_) => continue,
            },
            Some(Err(_)) => return,
            None => Piece::End,
        };
        let ended = matches!(piece, Piece::End);
        if send.send(piece).await.is_err() || ended {
            return;
        }
    }
}

/// What must hold of the file that is replaced.
fn condition(headers: &HeaderMap) -> Result<Condition, ApiError> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    match (text(IF_MATCH), text(IF_NONE_MATCH)) {
        (None, None) => Ok(Condition::Always),
        (None, Some("*")) => Ok(Condition::Absent),
        (Some("*"), None) => Ok(Condition::Present),
        (Some(etag), None) if !etag.contains(',') => Ok(Condition::Is(etag.to_owned())),
        _ => {
            let message = "of conditions give one: If-None-Match: *, If-Match: * or If-Match with one ETag";
            Err(ApiError::new(SidecarRefusal::BadRequest, message))
        }
    }
}
