//! What a terminal has shown, who views it and who types: decides, does nothing.
//!
//! A viewer has no queue, only the offset of its next byte and what it was last told; what it is to be told next is
//! read off the difference. So a viewer that does not read costs nothing, and the terminal's programs wait for it only
//! as [`Screen::held`] says.

use std::collections::BTreeMap;

use bytes::Bytes;
use rustix::termios::Winsize;
use sandbox_protocol::limits::{PTY_CHUNK_BYTES_MAX, PTY_COLS_MAX, PTY_ROWS_MAX, PTY_VIEWERS_MAX, PTY_WINDOW_BYTES};
use sandbox_protocol::pty::{AttachQuery, PtyCause, PtyEnd, ServerMessage, ViewerRefusal, WriterWish};

use super::error::PtyError;
use super::ring::Ring;

/// Columns and rows of a terminal: 1 to as many as may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Columns.
    pub(crate) cols: u16,
    /// Rows.
    pub(crate) rows: u16,
}

impl Size {
    /// A size, where a terminal can have it.
    pub(crate) fn new(cols: u16, rows: u16) -> Option<Self> {
        let fits = (1..=PTY_COLS_MAX).contains(&cols) && (1..=PTY_ROWS_MAX).contains(&rows);
        fits.then_some(Self { cols, rows })
    }
}

impl From<Size> for Winsize {
    fn from(Size { cols, rows }: Size) -> Self {
        Self { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// Names a viewer of one terminal.
pub(super) type ViewerId = u64;

/// What a viewer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// A message.
    Message(ServerMessage),
    /// The next bytes.
    Bytes(Bytes),
    /// Nothing comes any more: the terminal ended so.
    End(PtyCause),
}

/// For whom a terminal's programs wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// Nobody.
    No,
    /// Viewers that are behind, while others are not and suffer for it.
    BySome,
    /// Viewers that are behind, as all are.
    ByAll,
}

#[derive(Debug)]
struct Viewer {
    /// Offset of the next byte.
    next: u64,
    /// Everything before this offset has been dealt with, where the viewer says so.
    acked: Option<u64>,
    /// The last told.
    size: Size,
    /// The last told.
    writer: bool,
    /// To be told.
    refused: Option<ViewerRefusal>,
    /// Nobody waits for it, until it has caught up.
    let_go: bool,
    /// It waits for the terminal to take its input, and may not be able to say what it has read.
    typing: bool,
    /// It was told how the terminal ended.
    told_exit: bool,
}

/// A terminal as its viewers know it.
#[derive(Debug)]
pub(super) struct Screen {
    shown: Ring,
    size: Size,
    viewers: BTreeMap<ViewerId, Viewer>,
    writer: Option<ViewerId>,
    last_viewer: ViewerId,
    ending: bool,
    ended: Option<PtyEnd>,
}

impl Viewer {
    fn behind(&self, end: u64) -> u64 {
        end - self.acked.unwrap_or(self.next)
    }

    fn holds(&self, end: u64) -> bool {
        !self.let_go && !self.typing && self.behind(end) > PTY_WINDOW_BYTES
    }

    /// Bytes that it may be sent beyond those it was sent.
    fn window(&self) -> usize {
        let open = self.acked.map_or(PTY_WINDOW_BYTES, |acked| (acked + PTY_WINDOW_BYTES).saturating_sub(self.next));
        usize::try_from(open).unwrap_or(usize::MAX).min(PTY_CHUNK_BYTES_MAX)
    }

    fn caught_up(&mut self, end: u64) {
        if self.behind(end) == 0 {
            self.let_go = false;
        }
    }
}

impl Screen {
    /// A terminal that has shown nothing.
    pub(super) fn new(size: Size) -> Self {
        Self {
            shown: Ring::default(),
            size,
            viewers: BTreeMap::new(),
            writer: None,
            last_viewer: 0,
            ending: false,
            ended: None,
        }
    }

    /// Offsets of the first byte that is kept, and of the next one.
    pub(super) fn offsets(&self) -> (u64, u64) {
        (self.shown.start(), self.shown.end())
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    pub(super) fn viewers(&self) -> usize {
        self.viewers.len()
    }

    pub(super) fn has_writer(&self) -> bool {
        self.writer.is_some()
    }

    pub(super) fn ended(&self) -> Option<PtyEnd> {
        self.ended
    }

    /// One more viewer, and the offset of its first byte.
    pub(super) fn attach(&mut self, wish: AttachQuery) -> Result<(ViewerId, u64), PtyError> {
        let (_, end) = self.offsets();
        let next = wish.since.unwrap_or(end);
        if next > end {
            return Err(PtyError::Since { since: next, offset: end });
        }
        if self.viewers.len() >= PTY_VIEWERS_MAX {
            return Err(PtyError::ManyViewers);
        }
        self.last_viewer += 1;
        let id = self.last_viewer;
        match wish.writer {
            WriterWish::Take => self.writer = Some(id),
            WriterWish::Free => self.writer = self.writer.or(Some(id)),
            WriterWish::No => {}
        }
        let viewer = Viewer {
            next,
            acked: None,
            size: self.size,
            writer: self.writer == Some(id),
            refused: None,
            let_go: false,
            typing: false,
            told_exit: false,
        };
        self.viewers.insert(id, viewer);
        Ok((id, next))
    }

    /// One viewer less.
    pub(super) fn leave(&mut self, id: ViewerId) {
        self.viewers.remove(&id);
        if self.writer == Some(id) {
            self.writer = None;
        }
    }

    /// Whether this viewer is the one who types.
    pub(super) fn is_writer(&self, id: ViewerId) -> bool {
        self.writer == Some(id)
    }

    /// The same; one who is not will be told.
    pub(super) fn may_type(&mut self, id: ViewerId) -> bool {
        let may = self.is_writer(id);
        if !may {
            self.refuse(id, ViewerRefusal::NotWriter);
        }
        may
    }

    /// The viewer begins or stops waiting for its input to be taken.
    pub(super) fn typing(&mut self, id: ViewerId, typing: bool) {
        if let Some(viewer) = self.viewers.get_mut(&id) {
            viewer.typing = typing;
        }
    }

    pub(super) fn take_writer(&mut self, id: ViewerId) {
        self.writer = Some(id);
    }

    /// Has the viewer told that something it sent had no effect.
    pub(super) fn refuse(&mut self, id: ViewerId, why: ViewerRefusal) {
        if let Some(viewer) = self.viewers.get_mut(&id) {
            viewer.refused = Some(why);
        }
    }

    /// The terminal has this size now.
    pub(super) fn resized(&mut self, size: Size) {
        self.size = size;
    }

    /// The viewer is done with what lies before `offset`.
    pub(super) fn ack(&mut self, id: ViewerId, offset: u64) {
        let end = self.shown.end();
        let Some(viewer) = self.viewers.get_mut(&id) else { return };
        if offset > viewer.next {
            viewer.refused = Some(ViewerRefusal::OutOfBounds);
            return;
        }
        viewer.acked = Some(viewer.acked.unwrap_or(0).max(offset));
        viewer.caught_up(end);
    }

    /// The terminal shows these bytes.
    pub(super) fn show(&mut self, bytes: &[u8]) {
        self.shown.push(bytes);
    }

    /// Whether the terminal's programs should wait before they show more.
    pub(super) fn held(&self) -> Held {
        let end = self.shown.end();
        let mut viewers = self.viewers.values();
        if self.ending || !viewers.clone().any(|viewer| viewer.holds(end)) {
            return Held::No;
        }
        if viewers.any(|viewer| viewer.behind(end) <= PTY_WINDOW_BYTES) { Held::BySome } else { Held::ByAll }
    }

    /// Waits no longer for those that are behind now.
    pub(super) fn let_go(&mut self) {
        let end = self.shown.end();
        for viewer in self.viewers.values_mut().filter(|viewer| viewer.holds(end)) {
            viewer.let_go = true;
        }
    }

    /// From now on nobody is waited for.
    pub(super) fn ending(&mut self) {
        self.ending = true;
    }

    /// Nothing will be shown any more.
    pub(super) fn end(&mut self, end: PtyEnd) {
        self.ending = true;
        self.ended = Some(end);
    }

    /// What the viewer is to be told next, if anything. It counts as told.
    pub(super) fn next(&mut self, id: ViewerId) -> Option<Told> {
        let (start, end) = self.offsets();
        let viewer = self.viewers.get_mut(&id)?;
        let writer = self.writer == Some(id);
        if viewer.size != self.size {
            viewer.size = self.size;
            return Some(Told::Message(ServerMessage::Resized { cols: self.size.cols, rows: self.size.rows }));
        }
        if viewer.writer != writer {
            viewer.writer = writer;
            return Some(Told::Message(ServerMessage::Writer { yours: writer }));
        }
        if let Some(code) = viewer.refused.take() {
            return Some(Told::Message(ServerMessage::Refused { code }));
        }
        let window = viewer.window();
        if window > 0 && viewer.next < start {
            let from = std::mem::replace(&mut viewer.next, start);
            // What it never gets it need not acknowledge.
            viewer.acked = viewer.acked.map(|_| start);
            return Some(Told::Message(ServerMessage::Gap { from, to: start }));
        }
        if window > 0 && viewer.next < end {
            let bytes = self.shown.read(viewer.next, window);
            viewer.next += bytes.len() as u64;
            viewer.caught_up(end);
            return Some(Told::Bytes(bytes));
        }
        let ended = self.ended.filter(|_| viewer.next == end)?;
        if std::mem::replace(&mut viewer.told_exit, true) {
            return Some(Told::End(ended.cause));
        }
        Some(Told::Message(ServerMessage::Exit { exit_code: ended.exit_code, signal: ended.signal }))
    }
}

#[cfg(test)]
mod tests;
