//! The near end of a put: reads the source, counts and hashes what flows.

use bytes::{BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::error::BlobError;
use crate::limits::CHUNK_BYTES;

/// A source being read.
pub(super) struct Intake<R> {
    source: R,
    hasher: Sha256,
    size_bytes: u64,
    announced_bytes: Option<u64>,
    ended: bool,
}

/// What has flowed, to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flowed {
    pub sha256: [u8; 32],
    pub size_bytes: u64,
}

impl<R: AsyncRead + Send + Unpin> Intake<R> {
    pub(super) fn new(source: R, announced_bytes: Option<u64>) -> Self {
        Self { source, hasher: Sha256::new(), size_bytes: 0, announced_bytes, ended: false }
    }

    pub(super) const fn announced_bytes(&self) -> Option<u64> {
        self.announced_bytes
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads until `buffer` holds `full` bytes or the source ends. May be dropped and called again without loss.
    pub(super) async fn fill(&mut self, buffer: &mut BytesMut, full: usize) -> Result<(), BlobError> {
        while buffer.len() < full && !self.ended {
            let before = buffer.len();
            let read = self.source.read_buf(&mut buffer.limit(full - before)).await.map_err(BlobError::Source)?;
            self.ended = read == 0;
            self.hasher.update(&buffer[before..]);
            self.size_bytes += read as u64;
            self.hold_to_announced()?;
        }
        Ok(())
    }

    /// The next chunk, none at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, BlobError> {
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        self.fill(&mut buffer, CHUNK_BYTES).await?;
        Ok(Some(buffer.freeze()).filter(|chunk| !chunk.is_empty()))
    }

    /// The sums, after the end.
    pub(super) fn flowed(&self) -> Flowed {
        debug_assert!(self.ended, "sums are taken at the end");
        Flowed { sha256: self.hasher.clone().finalize().into(), size_bytes: self.size_bytes }
    }

    fn hold_to_announced(&self) -> Result<(), BlobError> {
        match self.announced_bytes {
            Some(announced_bytes)
                if self.size_bytes > announced_bytes || (self.ended && self.size_bytes < announced_bytes) =>
            {
                Err(BlobError::NotAsAnnounced { announced_bytes, read_bytes: self.size_bytes })
            }
            _ => Ok(()),
        }
    }
}
