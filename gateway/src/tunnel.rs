//! Channels that carry bare bytes: to a port or socket inside, to a place outside, or from where the sidecar listens.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::sleep;

use crate::backlog::Intake;
use crate::guest::{Guest, Served};
use crate::limits::{DRAIN_MAX, SENT_BYTES, TUNNEL_READ_BYTES};
use crate::outlet::{Outlet, Stream};

/// Carries bytes both ways until both sides have ended, one is gone, or the guest has to leave.
pub(crate) async fn serve<S>(guest: Arc<Guest>, served: Served, stream: S)
where
    S: AsyncRead + AsyncWrite + Send,
{
    let (mut reader, mut writer) = split(stream);
    let down = async {
        let down = served.closed.run_until_cancelled(down(&guest, &served.outlet, &mut reader));
        down.await.unwrap_or(Ok(()))
    };
    // What came before a client closed its channel was meant to arrive.
    let drained = async {
        served.closed.cancelled().await;
        sleep(DRAIN_MAX).await;
    };
    let end = tokio::select! {
        carried = async { tokio::try_join!(down, up(&served.intake, &mut writer)) } => match carried {
            Ok(_) => "ended".to_owned(),
            Err(error) => error.to_string(),
        },
        () = drained => "closed".to_owned(),
        () = guest.left.cancelled() => "left".to_owned(),
        () = guest.expelled.cancelled() => "expelled".to_owned(),
    };
    guest.done(&served, end).await;
}

async fn down<R: AsyncRead + Unpin>(guest: &Guest, outlet: &Outlet, reader: &mut R) -> std::io::Result<()> {
    let gone = |_| std::io::Error::from(std::io::ErrorKind::ConnectionAborted);
    let mut expected = TUNNEL_READ_BYTES;
    loop {
        let mut bytes = BytesMut::with_capacity(expected);
        let read = reader.read_buf(&mut bytes).await?;
        if read == 0 {
            return outlet.end().await.map_err(gone);
        }
        // As much as came lately: little is held while little comes.
        expected = if read == expected {
            (expected * 4).min(SENT_BYTES)
        } else {
            (read * 2).clamp(TUNNEL_READ_BYTES, SENT_BYTES)
        };
        guest.room.touch();
        outlet.send(Stream::Data, bytes.freeze()).await.map_err(gone)?;
    }
}

async fn up<W: AsyncWrite + Unpin>(intake: &Intake, writer: &mut W) -> std::io::Result<()> {
    while let Some(bytes) = intake.next(SENT_BYTES).await {
        writer.write_all(&bytes).await?;
    }
    writer.shutdown().await
}
