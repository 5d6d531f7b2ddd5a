//! Connections with numbers, from a port or a Unix socket.

use std::io;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::{TcpListener, UnixListener};

/// Number of a connection, from 1 on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection(pub(crate) u64);

/// A listener that numbers what it accepts.
pub(crate) struct Numbered<L> {
    inner: L,
    accepted: u64,
}

impl<L> Numbered<L> {
    pub(crate) fn new(inner: L) -> Self {
        Self { inner, accepted: 0 }
    }

    fn next(&mut self) -> Connection {
        self.accepted += 1;
        Connection(self.accepted)
    }
}

impl Listener for Numbered<TcpListener> {
    type Io = <TcpListener as Listener>::Io;
    type Addr = Connection;

    async fn accept(&mut self) -> (Self::Io, Connection) {
        let (stream, _) = Listener::accept(&mut self.inner).await;
        // Without it each piece would wait for the acknowledgement of the one before; what cannot be set is slower.
        stream.set_nodelay(true).ok();
        (stream, self.next())
    }

    fn local_addr(&self) -> io::Result<Connection> {
        Ok(Connection(self.accepted))
    }
}

impl Listener for Numbered<UnixListener> {
    type Io = <UnixListener as Listener>::Io;
    type Addr = Connection;

    async fn accept(&mut self) -> (Self::Io, Connection) {
        let (stream, _) = Listener::accept(&mut self.inner).await;
        (stream, self.next())
    }

    fn local_addr(&self) -> io::Result<Connection> {
        Ok(Connection(self.accepted))
    }
}

impl Connected<IncomingStream<'_, Numbered<TcpListener>>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Numbered<TcpListener>>) -> Self {
        *stream.remote_addr()
    }
}

impl Connected<IncomingStream<'_, Numbered<UnixListener>>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Numbered<UnixListener>>) -> Self {
        *stream.remote_addr()
    }
}
