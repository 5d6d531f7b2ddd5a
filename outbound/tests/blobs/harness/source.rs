//! Sources that end otherwise than well.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf, repeat};

/// So many bytes, and then an error.
pub(crate) fn failing_after(bytes: u64) -> impl AsyncRead + Send + Unpin {
    repeat(7).take(bytes).chain(Then(|| Poll::Ready(Err(io::Error::other("the disk is gone")))))
}

/// So many bytes, and then nothing, for ever.
pub(crate) fn stuck_after(bytes: u64) -> impl AsyncRead + Send + Unpin {
    repeat(7).take(bytes).chain(Then(|| Poll::Pending))
}

struct Then<F>(F);

impl<F: Fn() -> Poll<io::Result<()>> + Unpin> AsyncRead for Then<F> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        (self.0)()
    }
}
