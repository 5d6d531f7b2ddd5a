//! The near end of a get: a reader that ends well only over what was expected.

use std::fmt;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, ReadBuf};

use super::error::{BlobError, Difference};
use super::manifest::Expected;

/// What a store reads.
pub(super) type Chunks = BoxStream<'static, Result<Bytes, BlobError>>;

/// A snapshot as it arrives.
///
/// One chunk is held back until the next has come or, at the end, size and hash have been compared. So whoever reads
/// all bytes, or until a decoder finds the end of what it decodes, has either read what was expected or an error.
pub struct Verified {
    chunks: Chunks,
    expected: Expected,
    hasher: Sha256,
    size_bytes: u64,
    held: Bytes,
    ready: Bytes,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Flowing,
    Ended,
    Failed,
}

impl Verified {
    pub(super) fn new(chunks: Chunks, expected: Expected) -> Self {
        Self {
            chunks,
            expected,
            hasher: Sha256::new(),
            size_bytes: 0,
            held: Bytes::new(),
            ready: Bytes::new(),
            phase: Phase::Flowing,
        }
    }

    /// Moves on by one chunk, or to the end.
    fn advance(&mut self, next: Option<Result<Bytes, BlobError>>) -> Result<(), BlobError> {
        match next.transpose()? {
            Some(chunk) => {
                self.hasher.update(&chunk);
                self.size_bytes += chunk.len() as u64;
                if self.expected.size_bytes.is_some_and(|expected| self.size_bytes > expected) {
                    return Err(BlobError::Differs(Difference::Size));
                }
                if !chunk.is_empty() {
                    self.ready = mem::replace(&mut self.held, chunk);
                }
            }
            None => {
                self.compare()?;
                self.phase = Phase::Ended;
                self.ready = mem::take(&mut self.held);
            }
        }
        Ok(())
    }

    fn compare(&mut self) -> Result<(), BlobError> {
        if self.expected.size_bytes.is_some_and(|expected| self.size_bytes != expected) {
            return Err(BlobError::Differs(Difference::Size));
        }
        let sha256: [u8; 32] = self.hasher.finalize_reset().into();
        if sha256 == self.expected.sha256 { Ok(()) } else { Err(BlobError::Differs(Difference::Sha256)) }
    }
}

impl AsyncRead for Verified {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while out.remaining() > 0 {
            if !this.ready.is_empty() {
                let length = this.ready.len().min(out.remaining());
                out.put_slice(&this.ready[..length]);
                this.ready.advance(length);
                break;
            }
            match this.phase {
                Phase::Ended => break,
                // Whoever reads on after an error must not find an end.
                Phase::Failed => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                Phase::Flowing => {
                    let next = ready!(this.chunks.poll_next_unpin(context));
                    if let Err(error) = this.advance(next) {
                        this.phase = Phase::Failed;
                        return Poll::Ready(Err(error.into()));
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for Verified {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Verified").field("expected", &self.expected).finish_non_exhaustive()
    }
}

/// `chunks`, failing with `error` where none comes for `limit`.
pub(super) fn unless_stalled<S, E>(chunks: S, limit: std::time::Duration, too_slow: E) -> Chunks
where
    S: Stream<Item = Result<Bytes, BlobError>> + Send + 'static,
    E: Fn() -> BlobError + Send + 'static,
{
    let timed = tokio_stream::StreamExt::timeout(chunks, limit);
    timed.map(move |next| next.unwrap_or_else(|_| Err(too_slow()))).boxed()
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn reader(chunks: Vec<Vec<u8>>, expected: &[u8], size_bytes: Option<u64>) -> Verified {
        let chunks = stream::iter(chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk)))).boxed();
        Verified::new(chunks, Expected { sha256: Sha256::digest(expected).into(), size_bytes })
    }

    async fn read(mut reader: Verified) -> Result<Vec<u8>, (Vec<u8>, io::Error)> {
        let mut all = Vec::new();
        match reader.read_to_end(&mut all).await {
            Ok(_) => Ok(all),
            Err(error) => Err((all, error)),
        }
    }

    #[tokio::test]
    async fn a_reader_of_exactly_as_many_bytes_meets_the_error_too() {
        for (chunks, size_bytes) in [(vec![vec![1; 10]], None), (vec![vec![1; 4], vec![1; 6]], Some(10))] {
            let mut reader = reader(chunks, &[2; 10], size_bytes);
            let error = reader.read_exact(&mut [0; 10]).await.unwrap_err();
            assert!(matches!(BlobError::within(&error), Some(BlobError::Differs(Difference::Sha256))), "{error}");
        }
    }

    #[tokio::test]
    async fn reading_on_after_an_error_never_finds_an_end() {
        let mut reader = reader(vec![vec![1; 10]], &[2; 10], None);
        for _ in 0..3 {
            assert!(reader.read(&mut [0; 16]).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_stream_longer_than_expected_ends_before_all_of_it_is_read() {
        let endless = stream::repeat_with(|| Ok(Bytes::from_static(&[0; 1024]))).boxed();
        let expected = Expected { sha256: [0; 32], size_bytes: Some(10_000) };
        let error = read(Verified::new(endless, expected)).await.unwrap_err().1;
        assert!(matches!(BlobError::within(&error), Some(BlobError::Differs(Difference::Size))), "{error}");
    }

    proptest! {
        #[test]
        fn only_the_expected_bytes_end_well(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..8),
            spoilt in proptest::option::of((any::<prop::sample::Index>(), 0..3)),
            told in any::<bool>(),
        ) {
            let whole = chunks.concat();
            let mut expected = whole.clone();
            match spoilt {
                Some((_, 0)) => expected.push(0),
                Some((at, 1)) if !whole.is_empty() => expected[at.index(whole.len())] ^= 1,
                Some((_, 2)) if !whole.is_empty() => { expected.pop(); }
                _ => {}
            }
            let size_bytes = told.then_some(expected.len() as u64);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let outcome = runtime.block_on(read(reader(chunks, &expected, size_bytes)));
            match outcome {
                Ok(all) => prop_assert!(all == expected && all == whole),
                Err((all, error)) => {
                    prop_assert!(whole != expected && BlobError::within(&error).is_some());
                    // The last bytes never arrive.
                    prop_assert!(whole.is_empty() || all.len() < whole.len());
                }
            }
        }
    }
}
