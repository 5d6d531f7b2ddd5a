//! Frames as they come from an operator. Between two of them nothing is held but the next one's head.

use std::io;

use bytes::BytesMut;
use sandbox_protocol::channel::{FRAME_HEAD_BYTES, FrameError, ToProgram};
use sandbox_protocol::limits::CHANNEL_FRAME_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Why no frame follows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The connection has ended.
    #[error("the connection ended")]
    Ended(#[source] io::Error),
    /// What came is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// Waits for the next frame.
///
/// # Errors
/// None follows.
pub(crate) async fn next(reader: &mut (impl AsyncRead + Unpin)) -> Result<ToProgram, Broken> {
    let mut head = [0; FRAME_HEAD_BYTES];
    reader.read_exact(&mut head).await.map_err(Broken::Ended)?;
    let [_, length @ ..] = head;
    let length = u32::from_be_bytes(length) as usize;
    let mut frame = BytesMut::with_capacity(FRAME_HEAD_BYTES + length.min(CHANNEL_FRAME_BYTES_MAX));
    frame.extend_from_slice(&head);
    loop {
        // A frame that is too long is found before any of it is read.
        if let Some(whole) = ToProgram::decode(&mut frame)? {
            return Ok(whole);
        }
        fill(reader, &mut frame, FRAME_HEAD_BYTES + length).await.map_err(Broken::Ended)?;
    }
}

/// Reads until `frame` has `bytes` bytes.
async fn fill(reader: &mut (impl AsyncRead + Unpin), frame: &mut BytesMut, bytes: usize) -> io::Result<()> {
    while frame.len() < bytes {
        let mut rest = reader.take((bytes - frame.len()) as u64);
        if rest.read_buf(frame).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
