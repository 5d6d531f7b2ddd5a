//! Files of a sandbox. Contents flow; nothing holds a whole file.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Body, Method, Response};
use sandbox_protocol::files::{
    FileEntry, FilePath, FilesQuery as _, ListQuery, ListReply, ReadQuery, RemoveQuery, RemoveReply, StatQuery,
    WriteQuery, WriteReply,
};
use sandbox_protocol::limits::FILES_PAGE_ENTRIES_MAX;
use tokio::time::timeout;

use super::Inside;
use crate::api::{ApiError, body_of, unreachable};
use crate::limits::{API_PAGES_MAX, FILE_PIECE_WITHIN};

/// The content of a file, piece by piece.
#[derive(Debug)]
pub struct Download {
    url: String,
    response: Response,
}

impl Download {
    /// How long the file is, where that is told.
    pub fn bytes(&self) -> Option<u64> {
        self.response.content_length()
    }

    /// The next piece; `None` behind the last.
    ///
    /// # Errors
    /// The operator fell silent, or the connection broke before the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        match timeout(FILE_PIECE_WITHIN, self.response.chunk()).await {
            Ok(piece) => piece.map_err(|source| unreachable(&self.url, source)),
            Err(late) => Err(ApiError::Broken { url: self.url.clone(), source: late.into() }),
        }
    }
}

impl Inside {
    /// What is in a directory, by name.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn list_files(&self, path: &str) -> Result<Vec<FileEntry>, ApiError> {
        let mut query = ListQuery { path: path.into(), limit: Some(FILES_PAGE_ENTRIES_MAX), cursor: None };
        let mut all = Vec::new();
        for _ in 0..API_PAGES_MAX {
            let page: ListReply = self.session.answer(self.request(Method::GET, &query.target())).await?;
            all.extend(page.entries);
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(all),
            }
        }
        Err(self.session.garbled("pages without end"))
    }

    /// What is known of a file.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn stat_file(&self, path: &str) -> Result<FileEntry, ApiError> {
        let query = StatQuery { path: path.into() };
        self.session.answer(self.request(Method::GET, &query.target())).await
    }

    /// The content of a file.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn read_file(&self, path: &str) -> Result<Download, ApiError> {
        let query = ReadQuery { path: path.into() };
        // No bound on the whole: each piece has its own.
        let request = self.request(Method::GET, &query.target()).timeout(Duration::MAX);
        let (url, response) = (self.session.url.clone(), self.session.send(request).await?);
        if response.status().is_success() {
            return Ok(Download { url, response });
        }
        Err(body_of(&url, response).await.err().unwrap_or_else(|| self.session.garbled("no content")))
    }

    /// Puts `content` in the place of a file, all at once or not at all.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn write_file(&self, query: &WriteQuery, content: impl Into<Body>) -> Result<WriteReply, ApiError> {
        let request = self.request(Method::PUT, &query.target()).timeout(Duration::MAX);
        self.session.answer(request.body(content)).await
    }

    /// Removes a file, or a directory with all that is in it; answers with how many there were.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn remove_file(&self, path: &str, recursive: bool) -> Result<u64, ApiError> {
        let query = RemoveQuery { path: FilePath::from(path), recursive };
        let reply: RemoveReply = self.session.answer(self.request(Method::DELETE, &query.target())).await?;
        Ok(reply.removed)
    }
}
