//! Where the data of a file lies: found on disk, written into headers, read from them.

use std::io::Write;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::libc::off_t;
use nix::unistd::{Whence, lseek};
use sandbox_protocol::snapshot::ArchiveFault;
use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

use super::error::ArchiveError;
use crate::limits::{SPARSE_FILE_BYTES_MAX, SPARSE_SEGMENTS_MAX};

/// A stretch of data in a file; around it are holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The data of a sparse file of `size` bytes; `None` for one without holes, also where the file system knows of none.
///
/// Of a file with more segments than may be, the last one has its holes as zeros.
pub(super) fn find(file: impl AsFd, size: u64) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let offset = match seek(file.as_fd(), at, Whence::SeekData) {
            Ok(offset) => offset.min(size),
            Err(Errno::ENXIO) => break,
            Err(_) => return None,
        };
        let last = segments.len() + 2 == SPARSE_SEGMENTS_MAX;
        let end = if last { size } else { seek(file.as_fd(), offset, Whence::SeekHole).ok()?.min(size) };
        if offset < end {
            segments.push(Segment { offset, length: end - offset });
        }
        at = end.max(at + 1);
    }
    if segments == [Segment { offset: 0, length: size }] {
        return None;
    }
    // By its end such a map says how long the file is, for those who do not look at its header.
    segments.push(Segment { offset: size, length: 0 });
    Some(segments)
}

fn seek(file: impl AsFd, from: u64, whence: Whence) -> Result<u64, Errno> {
    let from = off_t::try_from(from).map_err(|_| Errno::EOVERFLOW)?;
    lseek(file, from, whence).map(i64::unsigned_abs)
}

/// The bytes of data in `segments`.
pub(super) fn stored(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| segment.length).sum()
}

/// Puts as many segments as fit into `header`; the rest is for [`write_rest`].
pub(super) fn put(segments: &[Segment], size: u64, header: &mut Header) {
    let Some(header) = header.as_gnu_mut() else { return };
    header.set_real_size(size);
    fill(&mut header.sparse, segments);
    header.set_is_extended(segments.len() > header.sparse.len());
}

/// Writes the blocks that follow a sparse file's header, and gives their number.
pub(super) fn write_rest(segments: &[Segment], out: &mut impl Write) -> std::io::Result<()> {
    let mut block = GnuExtSparseHeader::new();
    let mut rest = segments.get(Header::new_gnu().as_gnu().map_or(0, |header| header.sparse.len())..).unwrap_or(&[]);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(block.sparse.len()));
        block = GnuExtSparseHeader::new();
        fill(&mut block.sparse, now);
        block.set_is_extended(!later.is_empty());
        out.write_all(block.as_bytes())?;
        rest = later;
    }
    Ok(())
}

fn fill(places: &mut [GnuSparseHeader], segments: &[Segment]) {
    for (place, segment) in places.iter_mut().zip(segments) {
        place.set_offset(segment.offset);
        place.set_length(segment.length);
    }
}

/// The map of a sparse file, as its headers tell it; checked as it grows.
#[derive(Debug, Default)]
pub(super) struct Map {
    pub(super) segments: Vec<Segment>,
    end: u64,
    stored: u64,
}

impl Map {
    /// Takes the segments of one header.
    pub(super) fn take(&mut self, places: &[GnuSparseHeader]) -> Result<(), ArchiveError> {
        for place in places.iter().filter(|place| !place.is_empty()) {
            let (Ok(offset), Ok(length)) = (place.offset(), place.length()) else {
                return Err(ArchiveFault::SparseMap.into());
            };
            let end = offset.checked_add(length).filter(|_| offset >= self.end);
            self.end = end.ok_or(ArchiveFault::SparseMap)?;
            self.stored += length;
            if self.segments.len() == SPARSE_SEGMENTS_MAX {
                return Err(ArchiveFault::SparseMap.into());
            }
            self.segments.push(Segment { offset, length });
        }
        Ok(())
    }

    /// The segments of a file of `size` bytes with `stored` bytes of data.
    pub(super) fn finish(self, size: u64, stored: u64) -> Result<Vec<Segment>, ArchiveError> {
        let adds_up = self.end <= size && self.stored == stored && size <= SPARSE_FILE_BYTES_MAX;
        if adds_up { Ok(self.segments) } else { Err(ArchiveFault::SparseMap.into()) }
    }
}
