//! Files, by the sidecar's routes for them.

use async_trait::async_trait;
use bytes::Bytes;
use hyper::header::{ETAG, IF_MATCH, RANGE};
use hyper::{Method, StatusCode};
use sandbox_agent::tools::ports::{Content, Entry, Files, FilesError, Listing};
use sandbox_protocol::files::{FilePath, FilesQuery, FilesRefusal, ListQuery, ListReply, ReadQuery, WriteQuery};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::limits::FILES_PAGE_ENTRIES_MAX;
use serde::de::DeserializeOwned;

use super::Sidecar;
use super::sidecar::{Answered, Asked};
use crate::limits::FILES_REPLY_BYTES_MAX;

#[async_trait]
impl Files for Sidecar {
    async fn read(&self, path: &str, bytes_max: usize) -> Result<Content, FilesError> {
        let query = ReadQuery { path: named(path) };
        // One byte more than is wanted, since an empty range cannot be asked for.
        let range = format!("bytes=0-{bytes_max}");
        let asked = Asked::new(Method::GET, query.target()).with(RANGE, range);
        let answer = self.files(asked, bytes_max + 1).await?;
        // Of an empty file there is no range.
        if answer.status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(Content { bytes: Vec::new(), length: 0, etag: etag(&answer) });
        }
        let answer = good(answer)?;
        let length = length(&answer);
        let etag = etag(&answer);
        let mut bytes = answer.body.to_vec();
        bytes.truncate(bytes_max);
        Ok(Content { bytes, length, etag })
    }

    async fn write(&self, path: &str, content: &[u8], etag: Option<&str>) -> Result<(), FilesError> {
        let query = WriteQuery { path: named(path), parents: true, ..WriteQuery::default() };
        let mut asked = Asked::new(Method::PUT, query.target()).of(Bytes::copy_from_slice(content));
        if let Some(etag) = etag {
            asked = asked.with(IF_MATCH, etag.to_owned());
        }
        good(self.files(asked, FILES_REPLY_BYTES_MAX).await?).map(drop)
    }

    async fn list(&self, path: &str, entries_max: usize) -> Result<Listing, FilesError> {
        let (mut entries, mut cursor) = (Vec::new(), None);
        loop {
            let left = entries_max.saturating_sub(entries.len()) as u64;
            let limit = Some(left.clamp(1, FILES_PAGE_ENTRIES_MAX));
            let asked = Asked::new(Method::GET, ListQuery { path: named(path), limit, cursor }.target());
            let page: ListReply = json(&good(self.files(asked, FILES_REPLY_BYTES_MAX).await?)?)?;
            entries.extend(page.entries.into_iter().map(|entry| Entry {
                name: String::from_utf8_lossy(&entry.name.0).into_owned(),
                kind: entry.kind,
                bytes: entry.bytes,
            }));
            if page.next.is_none() || entries.len() >= entries_max {
                return Ok(Listing { more: page.next.is_some(), entries });
            }
            cursor = page.next;
        }
    }
}

impl Sidecar {
    async fn files(&self, asked: Asked, bytes_max: usize) -> Result<Answered, FilesError> {
        self.ask(asked, bytes_max).await.map_err(|error| FilesError::Unavailable(error.into()))
    }
}

fn named(path: &str) -> FilePath {
    FilePath(path.as_bytes().to_vec())
}

/// An answer that is no refusal.
fn good(answer: Answered) -> Result<Answered, FilesError> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let body: ErrorBody = json(&answer)?;
    match FilesRefusal::from_code(&body.code) {
        Some(refusal) => Err(FilesError::Refused { refusal, message: body.message }),
        None => Err(FilesError::Unavailable(body.into())),
    }
}

fn json<T: DeserializeOwned>(answer: &Answered) -> Result<T, FilesError> {
    serde_json::from_slice(&answer.body).map_err(|error| FilesError::Unavailable(error.into()))
}

fn etag(answer: &Answered) -> String {
    header(answer, ETAG.as_str()).unwrap_or_default().to_owned()
}

/// Of the whole file: behind the slash of `Content-Range`.
fn length(answer: &Answered) -> u64 {
    let range = header(answer, "content-range").and_then(|range| range.rsplit('/').next()?.parse().ok());
    range.unwrap_or(answer.body.len() as u64)
}

fn header<'a>(answer: &'a Answered, name: &str) -> Option<&'a str> {
    answer.headers.get(name)?.to_str().ok()
}
