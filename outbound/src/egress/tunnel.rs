//! What a connection becomes after CONNECT or a change to WebSocket: bytes, both ways, each way until its own end.

use std::io;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;

use crate::limits::TUNNEL_BUFFER_BYTES;

/// Two ends that are to be joined once both sides have changed over.
pub(super) struct Tunnel {
    /// The sandbox's.
    pub near: OnUpgrade,
    pub far: FarEnd,
}

/// The outside's end.
pub(super) enum FarEnd {
    Stream(TcpStream),
    Upgrade(OnUpgrade),
}

impl Tunnel {
    /// Until both ways have ended, or one broke.
    pub(super) async fn run(self) -> io::Result<()> {
        let mut near = TokioIo::new(self.near.await.map_err(io::Error::other)?);
        match self.far {
            FarEnd::Stream(mut far) => {
                copy_bidirectional_with_sizes(&mut near, &mut far, TUNNEL_BUFFER_BYTES, TUNNEL_BUFFER_BYTES).await
            }
            FarEnd::Upgrade(far) => {
                let mut far = TokioIo::new(far.await.map_err(io::Error::other)?);
                copy_bidirectional_with_sizes(&mut near, &mut far, TUNNEL_BUFFER_BYTES, TUNNEL_BUFFER_BYTES).await
            }
        }
        .map(|_| ())
    }
}
