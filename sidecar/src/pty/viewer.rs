//! One view of a terminal: what a viewer may do to it, and what it is told.

use std::sync::Arc;

use sandbox_protocol::pty::{AttachQuery, PtyCause, ServerMessage, ViewerMessage, ViewerRefusal};
use tokio::sync::watch;

use super::error::PtyError;
use super::screen::{Size, Told, ViewerId};
use super::terminal::Terminal;

/// One view of a terminal, until it is dropped.
#[derive(Debug)]
pub struct Viewer {
    terminal: Arc<Terminal>,
    id: ViewerId,
    hello: ServerMessage,
}

/// What a viewer is told, one thing after the other.
#[derive(Debug)]
pub(crate) struct Voice<'a> {
    viewer: &'a Viewer,
    changed: watch::Receiver<()>,
}

impl Voice<'_> {
    /// Waits for what the viewer is told next. Loses nothing when it is dropped.
    pub(crate) async fn next(&mut self) -> Told {
        let terminal = &self.viewer.terminal;
        loop {
            let told = terminal.screen().next(self.viewer.id);
            if let Some(told) = told {
                // There may be room now for those who show more.
                terminal.changed.send_replace(());
                return told;
            }
            // The sender lives as long as the terminal.
            if self.changed.changed().await.is_err() {
                return Told::End(PtyCause::Stopped);
            }
        }
    }
}

impl Viewer {
    pub(super) fn attach(terminal: Arc<Terminal>, wish: AttachQuery) -> Result<Self, PtyError> {
        let (id, hello) = {
            let mut screen = terminal.screen();
            let (id, offset) = screen.attach(wish)?;
            terminal.viewers.send_replace(screen.viewers());
            let (Size { cols, rows }, writer) = (screen.size(), screen.is_writer(id));
            (id, ServerMessage::Hello { id: terminal.id.clone(), cols, rows, offset, writer })
        };
        terminal.changed.send_replace(());
        Ok(Self { terminal, id, hello })
    }

    /// Waits until the terminal has ended, with all its processes.
    pub(crate) async fn over(&self) {
        self.terminal.over.cancelled().await;
    }

    /// What the viewer is told first.
    pub(crate) fn hello(&self) -> ServerMessage {
        self.hello.clone()
    }

    /// What the viewer is told after that.
    pub(crate) fn voice(&self) -> Voice<'_> {
        Voice { viewer: self, changed: self.terminal.changed.subscribe() }
    }

    /// Types, where the viewer may.
    pub(crate) async fn type_in(&self, bytes: &[u8]) {
        if !self.terminal.screen().may_type(self.id) {
            self.terminal.changed.send_replace(());
            return;
        }
        self.terminal.change(|screen| screen.typing(self.id, true));
        let typed = tokio::select! {
            typed = self.terminal.tty.write(bytes) => typed,
            () = self.terminal.over.cancelled() => Ok(()),
        };
        self.terminal.change(|screen| screen.typing(self.id, false));
        if let Err(error) = typed {
            tracing::debug!(id = self.terminal.id, %error, "a terminal did not take all of its input");
        }
    }

    /// Does what the viewer says, where it may.
    pub(crate) fn heard(&self, message: ViewerMessage) {
        let terminal = &self.terminal;
        terminal.change(|screen| match message {
            ViewerMessage::TakeWriter => screen.take_writer(self.id),
            ViewerMessage::Ack { offset } => screen.ack(self.id, offset),
            ViewerMessage::Resize { cols, rows } if screen.may_type(self.id) => match Size::new(cols, rows) {
                Some(size) => terminal.resize(screen, size),
                None => screen.refuse(self.id, ViewerRefusal::OutOfBounds),
            },
            ViewerMessage::Signal { signal } if screen.may_type(self.id) => {
                if let Ok(signal) = format!("SIG{signal}").parse() {
                    terminal.tty.signal(signal);
                }
            }
            ViewerMessage::Resize { .. } | ViewerMessage::Signal { .. } => {}
        });
    }

    /// Has the viewer told that what it sent means nothing.
    pub(crate) fn not_understood(&self) {
        self.terminal.change(|screen| screen.refuse(self.id, ViewerRefusal::BadMessage));
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.terminal.change(|screen| screen.leave(self.id));
        let viewers = self.terminal.screen().viewers();
        self.terminal.viewers.send_replace(viewers);
    }
}
