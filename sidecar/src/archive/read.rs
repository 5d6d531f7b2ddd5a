//! Reads tar: one entry after the other, in bounded memory, from whoever may have written it.

use std::io::{self, Read};

use sandbox_protocol::snapshot::ArchiveFault;
use tar::{GnuExtSparseHeader, Header};

use super::error::ArchiveError;
use super::extension::Extensions;
use super::sparse::{Map, Segment};
use super::write::{BLOCK_BYTES, padding};
use crate::limits::{ARCHIVE_BYTES_MAX, ARCHIVE_ENTRIES_MAX, ARCHIVE_HEADER_BYTES_MAX, ARCHIVE_TRAILING_BYTES_MAX};

/// Where a header's sum stands, which counts as spaces while the sum is made.
const SUM: std::ops::Range<usize> = 148..156;

/// How much an archive may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Headers, also those that stand for no file.
    pub(super) headers_max: u64,
    /// Bytes of data.
    pub(super) bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { headers_max: ARCHIVE_ENTRIES_MAX, bytes_max: ARCHIVE_BYTES_MAX }
    }
}

/// An entry, as its headers tell it; nothing of it is checked but that it adds up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    /// Seconds since 1970.
    pub(super) mtime: i64,
}

/// What an entry is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file whose data follows.
    File {
        size: u64,
    },
    /// A file of which only these segments follow.
    Sparse {
        size: u64,
        segments: Vec<Segment>,
    },
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    HardLink {
        target: Vec<u8>,
    },
}

/// An archive on its way in.
pub(super) struct Archive<R> {
    input: R,
    limits: Limits,
    headers: u64,
    bytes: u64,
    skipped: u64,
    /// Data of the entry at hand that was not read yet.
    left: u64,
    /// What fills that data's last block.
    padding: usize,
}

impl<R: Read> Archive<R> {
    pub(super) fn new(input: R, limits: Limits) -> Self {
        Self { input, limits, headers: 0, bytes: 0, skipped: 0, left: 0, padding: 0 }
    }

    /// The next entry; `None` at the archive's end, after which the input has ended too. The data of the one before
    /// must have been read.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        let mut extensions = Extensions::default();
        while let Some(header) = self.header()? {
            match header.as_old().linkflag[0] {
                b'L' => extensions.long_path(self.text(&header)?)?,
                b'K' => extensions.long_target(self.text(&header)?)?,
                b'x' => extensions.pax(&self.text(&header)?)?,
                b'g' => self.global(&header)?,
                b'V' => self.skipped += 1,
                kind => return self.entry(kind, &header, extensions).map(Some),
            }
        }
        if extensions == Extensions::default() { Ok(None) } else { Err(ArchiveFault::Malformed.into()) }
    }

    /// Reads data of the entry at hand; 0 bytes mean that there is no more.
    pub(super) fn data(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let wanted = &mut buffer[..most];
        self.fill(wanted)?;
        self.left -= most as u64;
        Ok(most)
    }

    /// How many records stood for nothing on disk.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Where the archive came from.
    pub(super) fn into_input(self) -> R {
        self.input
    }

    fn entry(&mut self, kind: u8, header: &Header, extensions: Extensions) -> Result<Entry, ArchiveError> {
        let path = extensions.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let at = |error: ArchiveError| error.at(&path);
        let target = || extensions.target.or_else(|| header.link_name_bytes().map(|name| name.into_owned()));
        let stored = extensions.size.map_or_else(|| number(header.entry_size()), Ok).map_err(at)?;
        let kind = match kind {
            b'0' | b'7' | 0 if path.ends_with(b"/") && stored == 0 => Kind::Directory,
            b'0' | b'7' | 0 => Kind::File { size: stored },
            b'S' => self.sparse(header, stored).map_err(at)?,
            b'5' => Kind::Directory,
            b'2' => Kind::Symlink { target: target().unwrap_or_default() },
            b'1' => Kind::HardLink { target: target().unwrap_or_default() },
            b'3' | b'4' => return Err(at(ArchiveFault::Device.into())),
            b'6' => return Err(at(ArchiveFault::Fifo.into())),
            _ => return Err(at(ArchiveFault::UnknownType.into())),
        };
        let has_data = matches!(kind, Kind::File { .. } | Kind::Sparse { .. });
        if !has_data && stored != 0 {
            return Err(at(ArchiveFault::Malformed.into()));
        }
        self.expect(stored).map_err(at)?;
        let told = || number(header.mtime()).map(|mtime| i64::try_from(mtime).unwrap_or(0));
        let mtime = extensions.mtime.map_or_else(told, Ok).map_err(at)?;
        let mode = header.mode().map_err(|_| at(ArchiveFault::Malformed.into()))?;
        Ok(Entry { kind, mode, mtime, path })
    }

    fn sparse(&mut self, header: &Header, stored: u64) -> Result<Kind, ArchiveError> {
        let header = header.as_gnu().ok_or(ArchiveFault::Malformed)?;
        let size = number(header.real_size())?;
        let mut map = Map::default();
        map.take(&header.sparse)?;
        let mut goes_on = header.is_extended();
        while goes_on {
            let mut block = GnuExtSparseHeader::new();
            self.fill(block.as_mut_bytes())?;
            map.take(&block.sparse)?;
            goes_on = block.is_extended();
        }
        Ok(Kind::Sparse { size, segments: map.finish(size, stored)? })
    }

    /// A header for all entries that follow may not tell where they go.
    fn global(&mut self, header: &Header) -> Result<(), ArchiveError> {
        let mut told = Extensions::default();
        told.pax(&self.text(header)?)?;
        self.skipped += 1;
        if told == Extensions::default() { Ok(()) } else { Err(ArchiveFault::Malformed.into()) }
    }

    /// The data of a record that is not an entry.
    fn text(&mut self, header: &Header) -> Result<Vec<u8>, ArchiveError> {
        let size = number(header.entry_size())?;
        if size > ARCHIVE_HEADER_BYTES_MAX as u64 {
            return Err(ArchiveFault::HeaderTooLong.into());
        }
        let mut text = vec![0; usize::try_from(size).unwrap_or(ARCHIVE_HEADER_BYTES_MAX)];
        self.expect(size)?;
        self.data(&mut text)?;
        Ok(text)
    }

    /// Prepares for `size` bytes of data.
    fn expect(&mut self, size: u64) -> Result<(), ArchiveError> {
        let bytes = self.bytes.checked_add(size).filter(|bytes| *bytes <= self.limits.bytes_max);
        self.bytes = bytes.ok_or(ArchiveFault::TooManyBytes)?;
        (self.left, self.padding) = (size, padding(size));
        Ok(())
    }

    /// The next header that is not the archive's end.
    fn header(&mut self) -> Result<Option<Header>, ArchiveError> {
        debug_assert_eq!(self.left, 0, "the data of the entry before was read");
        let mut rest = [0; BLOCK_BYTES];
        self.fill(&mut rest[..self.padding])?;
        self.padding = 0;
        let mut header = Header::new_old();
        self.fill(header.as_mut_bytes())?;
        if header.as_bytes() == &[0; BLOCK_BYTES] {
            return self.end().map(|()| None);
        }
        self.headers += 1;
        if self.headers > self.limits.headers_max {
            return Err(ArchiveFault::TooManyEntries.into());
        }
        if !adds_up(&header) {
            return Err(ArchiveFault::Malformed.into());
        }
        Ok(Some(header))
    }

    /// Reads what follows the first of the two blocks at the archive's end, up to the input's end.
    fn end(&mut self) -> Result<(), ArchiveError> {
        let mut block = [0; BLOCK_BYTES];
        self.fill(&mut block)?;
        let mut trailing = 0;
        let mut bytes = BLOCK_BYTES;
        while bytes > 0 && trailing <= ARCHIVE_TRAILING_BYTES_MAX && block[..bytes].iter().all(|byte| *byte == 0) {
            trailing += bytes;
            bytes = self.input.read(&mut block).map_err(ArchiveError::of_stream)?;
        }
        if bytes == 0 { Ok(()) } else { Err(ArchiveFault::TrailingData.into()) }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), ArchiveError> {
        self.input.read_exact(buffer).map_err(ArchiveError::of_stream)
    }
}

fn number(read: io::Result<u64>) -> Result<u64, ArchiveError> {
    read.map_err(|_| ArchiveFault::Malformed.into())
}

fn adds_up(header: &Header) -> bool {
    let bytes = header.as_bytes().iter().enumerate();
    let sum: u32 = bytes.map(|(at, byte)| u32::from(if SUM.contains(&at) { b' ' } else { *byte })).sum();
    header.cksum().is_ok_and(|told| told == sum)
}
