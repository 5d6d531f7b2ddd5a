//! Lines of a stream of bytes.

use bytes::{Buf as _, BytesMut};

use super::limits::LINE_BYTES_MAX;

/// Cuts what comes in pieces into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    rest: BytesMut,
    /// Up to where `rest` has no line's end.
    searched: usize,
    /// The line that is coming is too long, and its beginning is dropped.
    is_cut: bool,
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Without its end; bytes that are no UTF-8 are replaced.
    Whole(String),
    /// It was longer than [`LINE_BYTES_MAX`].
    TooLong,
}

impl Lines {
    /// More has come.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// The next line that is whole.
    pub(super) fn next(&mut self) -> Option<Line> {
        let Some(end) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.rest.len();
            if self.rest.len() > LINE_BYTES_MAX {
                self.rest.clear();
                (self.searched, self.is_cut) = (0, true);
            }
            return None;
        };
        let line = self.rest.split_to(self.searched + end);
        self.rest.advance(1);
        self.searched = 0;
        let too_long = std::mem::take(&mut self.is_cut) || line.len() > LINE_BYTES_MAX;
        Some(if too_long { Line::TooLong } else { Line::Whole(String::from_utf8_lossy(&line).into_owned()) })
    }

    /// What was said without a line's end; empty if nothing was.
    pub(super) fn last(&self) -> String {
        if self.is_cut { String::new() } else { String::from_utf8_lossy(&self.rest).into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<Line> {
        std::iter::from_fn(|| lines.next()).collect()
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        let mut lines = Lines::default();
        for piece in ["a", "b\n", "\nc\nd"] {
            lines.add(piece.as_bytes());
        }
        assert_eq!(all(&mut lines), ["ab", "", "c"].map(|line| Line::Whole(line.to_owned())));
        assert_eq!(lines.last(), "d");
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_and_the_next_is_not() {
        for (bytes, expected) in
            [(LINE_BYTES_MAX, Line::Whole("x".repeat(LINE_BYTES_MAX))), (LINE_BYTES_MAX + 1, Line::TooLong)]
        {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in "x".repeat(bytes).as_bytes().chunks(64 * 1024) {
                lines.add(piece);
                found.extend(all(&mut lines));
            }
            lines.add(b"\nnext\n");
            found.extend(all(&mut lines));
            assert!(found == [expected, Line::Whole("next".to_owned())]);
        }
    }
}
