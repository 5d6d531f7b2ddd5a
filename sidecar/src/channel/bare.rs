//! Bytes passed on unread between two streams. What is silent holds no buffer.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, split};
use tokio_util::io::poll_read_buf;

use crate::limits::SOCKET_READ_BYTES;

/// Passes on bytes both ways until both sides have ended theirs, or one has broken off.
pub(crate) async fn carry(
    one: impl AsyncRead + AsyncWrite + Send,
    other: impl AsyncRead + AsyncWrite + Send,
) -> io::Result<()> {
    let ((mut one_reads, mut one_writes), (mut other_reads, mut other_writes)) = (split(one), split(other));
    tokio::try_join!(pass_on(&mut one_reads, &mut other_writes), pass_on(&mut other_reads, &mut one_writes),)?;
    Ok(())
}

async fn pass_on(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    loop {
        let bytes = some(from).await?;
        if bytes.is_empty() {
            return to.shutdown().await;
        }
        to.write_all(&bytes).await?;
    }
}

/// The next bytes, none at the end. Room for them is taken when there are some to be read.
async fn some(from: &mut (impl AsyncRead + Unpin)) -> io::Result<BytesMut> {
    poll_fn(|context| {
        let mut bytes = BytesMut::with_capacity(SOCKET_READ_BYTES);
        ready!(poll_read_buf(Pin::new(&mut *from), context, &mut bytes))?;
        Poll::Ready(Ok(bytes))
    })
    .await
}
