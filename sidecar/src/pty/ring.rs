//! The last bytes that a terminal has shown, by their offset.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use sandbox_protocol::limits::PTY_KEPT_BYTES;

/// Grows to its bound as it is filled.
#[derive(Debug, Default)]
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    end: u64,
}

impl Ring {
    /// Offset of the first byte that is kept.
    pub(super) fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// Offset of the next byte.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Appends `shown`, in place of the oldest where there is no room.
    pub(super) fn push(&mut self, shown: &[u8]) {
        let kept = &shown[shown.len().saturating_sub(PTY_KEPT_BYTES)..];
        let excess = (self.bytes.len() + kept.len()).saturating_sub(PTY_KEPT_BYTES);
        self.bytes.drain(..excess);
        self.bytes.extend(kept);
        self.end += shown.len() as u64;
        assert!(self.bytes.len() <= PTY_KEPT_BYTES, "a ring has outgrown its bound");
    }

    /// At most `bytes_max` bytes from offset `from` on, which must be kept.
    pub(super) fn read(&self, from: u64, bytes_max: usize) -> Bytes {
        assert!((self.start()..=self.end).contains(&from), "bytes are read that are not kept");
        let skipped = usize::try_from(from - self.start()).unwrap_or(usize::MAX);
        let length = (self.bytes.len() - skipped).min(bytes_max);
        let (front, back) = self.bytes.as_slices();
        let mut read = BytesMut::with_capacity(length);
        let of_front = front.get(skipped..).unwrap_or_default();
        read.extend_from_slice(&of_front[..of_front.len().min(length)]);
        let of_back = &back[skipped.saturating_sub(front.len())..];
        read.extend_from_slice(&of_back[..length - read.len()]);
        read.freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_much_as_may_be_kept_is_kept_and_one_byte_more_costs_the_first() {
        let mut ring = Ring::default();
        ring.push(&vec![1; PTY_KEPT_BYTES]);
        assert_eq!((ring.start(), ring.end()), (0, PTY_KEPT_BYTES as u64));
        ring.push(&[2]);
        assert_eq!((ring.start(), ring.end()), (1, PTY_KEPT_BYTES as u64 + 1));
        assert_eq!(ring.read(PTY_KEPT_BYTES as u64, 9), [2].as_slice());
        assert!(ring.read(ring.end(), 9).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read_as_it_was_shown(pushes in proptest::collection::vec(0usize..200_000, 1..12), skip in 0.0..1.0, bytes_max in 1usize..600_000) {
            let (mut ring, mut all) = (Ring::default(), Vec::new());
            for (index, length) in pushes.iter().enumerate() {
                let shown: Vec<u8> = (0..*length).map(|byte| (byte % 251 + index) as u8).collect();
                ring.push(&shown);
                all.extend(shown);
            }
            prop_assert_eq!(ring.end(), all.len() as u64);
            prop_assert_eq!(ring.start() as usize, all.len().saturating_sub(PTY_KEPT_BYTES));
            let from = ring.start() + ((ring.end() - ring.start()) as f64 * skip) as u64;
            let expected = &all[from as usize..];
            prop_assert!(ring.read(from, bytes_max) == expected[..expected.len().min(bytes_max)]);
        }
    }
}
