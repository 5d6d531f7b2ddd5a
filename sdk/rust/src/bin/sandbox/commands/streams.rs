//! What flows through this program: its stdin, and the signals that it passes on.

use std::io::{self, Read as _};
use std::thread;

use bytes::Bytes;
use sandbox_protocol::fsp::Signal;
use sandbox_sdk::limits::{STDIN_PIECE_BYTES, STDIN_PIECES_MAX};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// This program's stdin. It is read by a thread of its own, which nothing waits for: a terminal may never give another
/// byte.
pub(super) fn stdin() -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(STDIN_PIECES_MAX);
    thread::spawn(move || {
        let mut piece = vec![0; STDIN_PIECE_BYTES];
        loop {
            let read = match io::stdin().read(&mut piece) {
                Ok(0) => return,
                Ok(bytes) => Ok(Bytes::copy_from_slice(&piece[..bytes])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = read.is_err();
            if sender.blocking_send(read).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

/// The signals that are passed on instead of ending this program.
pub(super) struct Signals {
    hang_up: unix::Signal,
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            hang_up: heard(SignalKind::hangup())?,
            interrupt: heard(SignalKind::interrupt())?,
            quit: heard(SignalKind::quit())?,
            terminate: heard(SignalKind::terminate())?,
        })
    }

    /// The next of them.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hang_up.recv() => Signal::Hup,
            _ = self.interrupt.recv() => Signal::Int,
            _ = self.quit.recv() => Signal::Quit,
            _ = self.terminate.recv() => Signal::Term,
        }
    }
}

/// A signal of this kind, heard from now on.
pub(super) fn heard(kind: SignalKind) -> Result<unix::Signal, Failure> {
    unix::signal(kind).map_err(|error| Failure::local(format!("cannot listen for signals: {error}")))
}
