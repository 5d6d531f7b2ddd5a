//! Somebody who was let in: what a connection and its channels share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use russh::ChannelId;
use russh::server::{Handle, Msg};
use sandbox_protocol::SandboxId;
use sandbox_protocol::channel::TerminalSize;
use sandbox_protocol::fsp::Signal;
use tokio::sync::{OnceCell, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backlog::{Backlog, Intake};
use crate::limits::{CHANNELS_PER_CONNECTION_MAX, UNCONFIRMED_MAX, WORDS_MAX};
use crate::outlet::{Outlet, Window};
use crate::ports::{AuditEntry, AuditEvent, Doors, Room};

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) peer: SocketAddr,
    pub(crate) own: SocketAddr,
}

impl Ends {
    /// As programs are told them that want to know whence somebody came.
    pub(crate) fn env(self) -> [(String, String); 2] {
        let (peer, own) = (self.peer.ip().to_canonical(), self.own.ip().to_canonical());
        let (from, to) = (self.peer.port(), self.own.port());
        [
            ("SSH_CLIENT".to_owned(), format!("{peer} {from} {to}")),
            ("SSH_CONNECTION".to_owned(), format!("{peer} {from} {own} {to}")),
        ]
    }
}

/// Who came, from where, to which sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    /// Of the connection.
    pub(crate) number: u64,
    pub(crate) ends: Ends,
    pub(crate) sandbox: SandboxId,
    /// Fingerprint.
    pub(crate) key: String,
}

impl Name {
    pub(crate) fn entry(&self, event: AuditEvent) -> AuditEntry {
        AuditEntry {
            connection: self.number,
            peer: self.ends.peer.to_string(),
            sandbox: Some(self.sandbox),
            key: Some(self.key.clone()),
            event,
        }
    }
}

/// A connection that has entered a sandbox.
pub(crate) struct Guest {
    pub(crate) name: Name,
    pub(crate) room: Box<dyn Room>,
    pub(crate) handle: Handle,
    pub(crate) backlog: Backlog,
    pub(crate) tasks: TaskTracker,
    /// The connection has ended.
    pub(crate) left: CancellationToken,
    /// The guest's programs are to end with it.
    pub(crate) expelled: CancellationToken,
    /// Channels to the client that it has not confirmed.
    pub(crate) unconfirmed: Semaphore,
    /// Where programs find the client's agent, once one has asked for it.
    pub(crate) agent: OnceCell<String>,
    doors: Arc<dyn Doors>,
    channels: Mutex<HashMap<ChannelId, Inlet>>,
}

/// A channel as seen by what comes from the client.
#[derive(Debug, Clone)]
pub(crate) struct Inlet {
    pub(crate) intake: Intake,
    pub(crate) window: Window,
    pub(crate) words: mpsc::Sender<Word>,
    /// The client has closed it.
    pub(crate) closed: CancellationToken,
}

/// What a client says to a program besides bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Resize(TerminalSize),
    Signal(Signal),
}

/// A channel as seen by whoever serves it.
pub(crate) struct Served {
    pub(crate) id: ChannelId,
    pub(crate) intake: Intake,
    pub(crate) outlet: Outlet,
    pub(crate) words: mpsc::Receiver<Word>,
    pub(crate) closed: CancellationToken,
    window: Window,
}

impl Guest {
    pub(crate) fn new(
        name: Name,
        room: Box<dyn Room>,
        handle: Handle,
        backlog: Backlog,
        doors: Arc<dyn Doors>,
    ) -> Self {
        Self {
            name,
            room,
            handle,
            backlog,
            tasks: TaskTracker::new(),
            left: CancellationToken::new(),
            expelled: CancellationToken::new(),
            unconfirmed: Semaphore::new(UNCONFIRMED_MAX),
            agent: OnceCell::new(),
            doors,
            channels: Mutex::default(),
        }
    }

    fn channels(&self) -> MutexGuard<'_, HashMap<ChannelId, Inlet>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more channel may be opened.
    pub(crate) fn has_room(&self) -> bool {
        self.channels().len() < CHANNELS_PER_CONNECTION_MAX
    }

    /// Takes a channel in; what comes on it from now on is queued.
    pub(crate) fn admit(&self, channel: russh::Channel<Msg>, window: Window) -> Served {
        // What comes is taken from the handler, not from here.
        let (_, half) = channel.split();
        let id = half.id();
        let (words, heard) = mpsc::channel(WORDS_MAX);
        let inlet = self.channels().remove(&id);
        let Inlet { intake, window, closed, .. } = inlet.unwrap_or_else(|| Inlet {
            intake: Intake::new(&self.backlog),
            window,
            words: words.clone(),
            closed: self.left.child_token(),
        });
        let inlet = Inlet { intake: intake.clone(), window: window.clone(), words, closed: closed.clone() };
        self.channels().insert(id, inlet);
        let outlet = Outlet::new(self.handle.clone(), half, window.clone(), (self.backlog.clone(), closed.clone()));
        Served { id, intake, outlet, words: heard, closed, window }
    }

    /// A channel that was opened to the client, which has confirmed it: bytes may come before it is [taken](Self::admit).
    pub(crate) fn confirmed(&self, id: ChannelId, window: u32) {
        let (words, _) = mpsc::channel(1);
        let (intake, closed) = (Intake::new(&self.backlog), self.left.child_token());
        self.channels().insert(id, Inlet { intake, window: Window::known(window), words, closed });
    }

    pub(crate) fn inlet(&self, id: ChannelId) -> Option<Inlet> {
        self.channels().get(&id).cloned()
    }

    /// The client has closed a channel, or nobody serves it any more. What came by then is passed on.
    pub(crate) fn forget(&self, id: ChannelId) {
        if let Some(inlet) = self.channels().remove(&id) {
            inlet.intake.end();
            inlet.closed.cancel();
        }
    }

    pub(crate) fn note(&self, event: AuditEvent) {
        self.doors.note(self.name.entry(event));
    }

    /// Notes a channel that is served from now on.
    pub(crate) fn opened(&self, id: ChannelId, kind: &'static str, detail: String) {
        self.note(AuditEvent::Opened { channel: id.into(), kind, detail });
    }

    /// Closes a channel that was served, and notes it.
    pub(crate) async fn done(&self, served: &Served, end: String) {
        // A guest who is expelled is told so, and would leave before that when it is told that its program has ended; one
        // who has closed the channel was answered.
        let waits = !self.expelled.is_cancelled() && !served.closed.is_cancelled();
        if waits && served.outlet.close().await.is_err() {
            tracing::trace!(connection = self.name.number, "a channel ended with its connection");
        }
        self.forget(served.id);
        served.intake.close();
        let (bytes_in, bytes_out) = (served.intake.total(), served.window.total());
        self.note(AuditEvent::Closed { channel: served.id.into(), bytes_in, bytes_out, end });
    }
}
