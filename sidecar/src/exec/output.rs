//! Reads what a command writes: the first bytes are kept, the rest is read and dropped, so that writers never block.

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use sandbox_protocol::limits::EXEC_OUTPUT_BYTES_MAX;

use crate::limits::READ_BYTES;

/// What was kept of one stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// The first bytes, as written.
    pub(super) bytes: Vec<u8>,
    /// There were more.
    pub(super) truncated: bool,
}

impl Kept {
    fn take(&mut self, read: &[u8]) {
        let room = EXEC_OUTPUT_BYTES_MAX - self.bytes.len();
        let fits = read.len().min(room);
        self.bytes.extend_from_slice(&read[..fits]);
        self.truncated |= fits < read.len();
    }
}

/// Keeps the first bytes of `pipe` and hands them over when it ends or `enough` is called; then goes on reading into
/// nothing, for those who still write. A pipe that fails has ended.
pub(super) async fn gather(mut pipe: impl AsyncRead + Unpin, enough: CancellationToken, kept: oneshot::Sender<Kept>) {
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let mut first = Kept::default();
    let mut open = true;
    while open && !enough.is_cancelled() {
        tokio::select! {
            read = read(&mut pipe, &mut buffer) => {
                open = read;
                first.take(&buffer);
            }
            () = enough.cancelled() => {}
        }
    }
    if kept.send(first).is_err() {
        tracing::debug!("nobody waits for an output");
    }
    while open {
        open = read(&mut pipe, &mut buffer).await;
    }
}

/// Whether there may be more. Loses nothing when it is dropped.
async fn read(pipe: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> bool {
    buffer.clear();
    matches!(pipe.read_buf(buffer).await, Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn gathered(written: &[u8]) -> Kept {
        let (sender, receiver) = oneshot::channel();
        gather(written, CancellationToken::new(), sender).await;
        receiver.await.unwrap()
    }

    #[tokio::test]
    async fn as_much_as_may_be_kept_is_kept_whole() {
        let written: Vec<u8> = (0..EXEC_OUTPUT_BYTES_MAX).map(|index| index as u8).collect();
        assert_eq!(gathered(&written).await, Kept { bytes: written, truncated: false });
    }

    #[tokio::test]
    async fn one_byte_more_is_dropped_and_marked() {
        let written = vec![7; EXEC_OUTPUT_BYTES_MAX + 1];
        assert_eq!(gathered(&written).await, Kept { bytes: vec![7; EXEC_OUTPUT_BYTES_MAX], truncated: true });
    }

    #[tokio::test]
    async fn enough_hands_over_what_is_there_and_goes_on_reading() {
        use tokio::io::AsyncWriteExt as _;
        let (mut writer, reader) = tokio::io::duplex(8);
        let (sender, receiver) = oneshot::channel();
        let enough = CancellationToken::new();
        let task = tokio::spawn(gather(reader, enough.clone(), sender));
        writer.write_all(b"first").await.unwrap();
        tokio::task::yield_now().await;
        enough.cancel();
        assert_eq!(receiver.await.unwrap().bytes, b"first");
        writer.write_all(&[0; 64]).await.unwrap();
        drop(writer);
        task.await.unwrap();
    }
}
