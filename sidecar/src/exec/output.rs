//! Reads what a program writes and tells it, whole characters at a time, up to its limit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use sandbox_protocol::fsp::Stream;
use sandbox_protocol::limits::FSP_CHUNK_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::order::OutputLimit;
use crate::limits::{DRAIN_MAX, UNFINISHED_CHARACTER_BYTES_MAX};

/// How much a program may still write.
#[derive(Debug)]
pub(super) struct Meter {
    limit: OutputLimit,
    /// Of stdout, or of both together.
    first: AtomicU64,
    /// Of stderr alone.
    second: AtomicU64,
    cut: AtomicBool,
    /// Cancelled when the limit that ends a program is passed.
    pub(super) exceeded: CancellationToken,
}

impl Meter {
    pub(super) fn new(limit: OutputLimit) -> Self {
        let (OutputLimit::End(bytes) | OutputLimit::Cut(bytes)) = limit;
        let (first, second) = (AtomicU64::new(bytes), AtomicU64::new(bytes));
        Self { limit, first, second, cut: AtomicBool::new(false), exceeded: CancellationToken::new() }
    }

    /// Something was dropped.
    pub(super) fn has_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// As much of `bytes` as may be told.
    fn pass(&self, stream: Stream, mut bytes: Bytes) -> Bytes {
        let left = match (self.limit, stream) {
            (OutputLimit::Cut(_), Stream::Stderr) => &self.second,
            (OutputLimit::Cut(_), Stream::Stdout) | (OutputLimit::End(_), _) => &self.first,
        };
        // All pipes of an execution are read by tasks of one thread at a time, or nearly: a race costs a few bytes less.
        let room = left.load(Ordering::Relaxed);
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        left.fetch_sub((fits as u64).min(room), Ordering::Relaxed);
        if fits < bytes.len() {
            match self.limit {
                OutputLimit::End(_) => self.exceeded.cancel(),
                OutputLimit::Cut(_) => self.cut.store(true, Ordering::Relaxed),
            }
            bytes.truncate(fits);
        }
        bytes
    }
}

/// Where a program's output goes.
#[derive(Debug)]
pub(super) struct Outlet<'a> {
    pub(super) stream: Stream,
    pub(super) feed: &'a Feed,
    pub(super) meter: &'a Meter,
}

/// Tells what comes through `pipe` to its end; or, once `ended` is cancelled, as long as something comes. Then hands over
/// `done` and goes on reading into nothing, for those who still write. A pipe that fails has ended.
pub(super) async fn pump(
    mut pipe: impl AsyncRead + Unpin,
    outlet: Outlet<'_>,
    ended: &CancellationToken,
    done: oneshot::Sender<()>,
) {
    let mut buffer = BytesMut::new();
    let mut open = true;
    while open {
        let Some(more) = read(&mut pipe, &mut buffer, ended).await else { break };
        open = more;
        let whole = if open { whole_characters(&buffer) } else { buffer.len() };
        let bytes = outlet.meter.pass(outlet.stream, buffer.split_to(whole).freeze());
        if !bytes.is_empty() {
            outlet.feed.write(outlet.stream, bytes).await;
        }
    }
    let rest = outlet.meter.pass(outlet.stream, buffer.split().freeze());
    if !rest.is_empty() {
        outlet.feed.write(outlet.stream, rest).await;
    }
    if done.send(()).is_err() {
        tracing::debug!("nobody waits for an output");
    }
    while open {
        buffer.clear();
        buffer.reserve(FSP_CHUNK_BYTES_MAX);
        open = matches!(pipe.read_buf(&mut buffer).await, Ok(1..));
    }
}

/// Whether there may be more, or `None` where nothing comes any more.
async fn read(pipe: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut, ended: &CancellationToken) -> Option<bool> {
    if buffer.capacity() - buffer.len() < FSP_CHUNK_BYTES_MAX / 4 {
        buffer.reserve(FSP_CHUNK_BYTES_MAX - buffer.len());
    }
    let room = FSP_CHUNK_BYTES_MAX - buffer.len();
    let mut limited = pipe.take(room as u64);
    if !ended.is_cancelled() {
        tokio::select! {
            biased;
            read = limited.read_buf(buffer) => return Some(matches!(read, Ok(1..))),
            () = ended.cancelled() => {}
        }
    }
    match timeout(DRAIN_MAX, limited.read_buf(buffer)).await {
        Ok(read) => Some(matches!(read, Ok(1..))),
        Err(_) => None,
    }
}

/// Length of what does not end within a character. Bytes that are no text end anywhere.
fn whole_characters(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(UNFINISHED_CHARACTER_BYTES_MAX);
    for (index, byte) in bytes.iter().enumerate().skip(tail).rev() {
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if bytes.len() - index < length { index } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::super::feed::{Budget, Event, Keep, Told};
    use super::*;

    /// What is told of `written`, and whether the limit was passed.
    async fn told(written: &[u8], limit: OutputLimit) -> (Vec<Bytes>, Meter) {
        let feed = Feed::new(Keep::Yes, Budget::default());
        let meter = Meter::new(limit);
        let mut reader = feed.reader(0);
        let outlet = Outlet { stream: Stream::Stdout, feed: &feed, meter: &meter };
        let reading = async {
            let mut chunks = Vec::new();
            while let Some(Told::Event { event: Event::Output(_, bytes), .. }) = reader.next().await {
                chunks.push(bytes);
            }
            chunks
        };
        let writing = async {
            let (mut writer, pipe) = tokio::io::duplex(7);
            let (done, _done) = oneshot::channel();
            let ended = CancellationToken::new();
            tokio::join!(pump(pipe, outlet, &ended, done), async move {
                writer.write_all(written).await.unwrap();
                drop(writer);
            });
            feed.tell(Event::Failed(super::super::ExecError::Lost));
        };
        let (chunks, ()) = tokio::join!(reading, writing);
        (chunks, meter)
    }

    #[test]
    fn what_ends_within_a_character_waits_for_its_rest() {
        for (bytes, whole) in [
            (&b""[..], 0),
            (b"abc", 3),
            ("aé".as_bytes(), 3),
            (&"aé".as_bytes()[..2], 1),
            (&"€".as_bytes()[..2], 0),
            (&"a😀".as_bytes()[..4], 1),
            ("a😀".as_bytes(), 5),
            (b"\xff\xff\xff", 3),
            (b"\x80\x80\x80\x80", 4),
        ] {
            assert_eq!(whole_characters(bytes), whole, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn as_much_as_may_be_written_is_told_and_one_byte_more_passes_the_limit() {
        for (limit, passed) in [(OutputLimit::End(5), false), (OutputLimit::End(4), true)] {
            let (chunks, meter) = told(b"12345", limit).await;
            assert_eq!((chunks.concat().len(), meter.exceeded.is_cancelled()), (5 - usize::from(passed), passed));
        }
        for (limit, cut) in [(OutputLimit::Cut(5), false), (OutputLimit::Cut(4), true)] {
            let (chunks, meter) = told(b"12345", limit).await;
            assert_eq!((chunks.concat().len(), meter.has_cut()), (5 - usize::from(cut), cut));
            assert!(!meter.exceeded.is_cancelled());
        }
    }

    #[tokio::test]
    async fn what_is_still_written_after_the_end_is_told_as_long_as_it_comes() {
        let feed = Feed::new(Keep::Yes, Budget::default());
        let meter = Meter::new(OutputLimit::End(100));
        let (mut writer, pipe) = tokio::io::duplex(64);
        let (done, finished) = oneshot::channel();
        let ended = CancellationToken::new();
        ended.cancel();
        writer.write_all(b"late").await.unwrap();
        let outlet = Outlet { stream: Stream::Stdout, feed: &feed, meter: &meter };
        tokio::join!(pump(pipe, outlet, &ended, done), async move {
            finished.await.unwrap();
            writer.write_all(&[0; 256]).await.unwrap();
        });
        let Some(Told::Event { event: Event::Output(_, bytes), .. }) = feed.reader(0).next().await else {
            panic!("nothing was told")
        };
        assert_eq!(&bytes[..], b"late");
        assert_eq!(feed.last(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_chunk_of_text_is_text(text in "\\PC{0,60}") {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (chunks, _) = runtime.block_on(told(text.as_bytes(), OutputLimit::End(1_000)));
            prop_assert_eq!(chunks.concat(), text.as_bytes());
            for chunk in chunks {
                prop_assert!(std::str::from_utf8(&chunk).is_ok());
            }
        }
    }
}
