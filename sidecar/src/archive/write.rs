//! Writes tar: headers with names of any length and any bytes, data to the length that its header tells.

use std::io::Write;

use tar::Header;

use super::error::ArchiveError;
use super::sparse::{self, Segment};
use crate::limits::ARCHIVE_ENTRIES_MAX;

/// Unit of a tar archive.
pub(super) const BLOCK_BYTES: usize = 512;

/// What a header tells besides names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub(super) kind: u8,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mtime: u64,
}

/// A tar archive on its way out.
pub(super) struct Writer<W> {
    out: W,
    headers: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, headers: 0 }
    }

    /// A file of `size` bytes of data, which must follow; or a directory, which has none.
    pub(super) fn entry(&mut self, path: &[u8], attributes: Attributes, size: u64) -> Result<(), ArchiveError> {
        self.names(path, b"")?;
        let mut header = header(path, b"", attributes);
        header.set_size(size);
        self.header(header)
    }

    /// A symbolic or a hard link.
    pub(super) fn link(&mut self, path: &[u8], target: &[u8], attributes: Attributes) -> Result<(), ArchiveError> {
        self.names(path, target)?;
        self.header(header(path, target, attributes))
    }

    /// A file of `size` bytes with holes; the data of its segments must follow.
    pub(super) fn sparse(
        &mut self,
        path: &[u8],
        attributes: Attributes,
        size: u64,
        segments: &[Segment],
    ) -> Result<(), ArchiveError> {
        self.names(path, b"")?;
        let mut header = header(path, b"", attributes);
        header.set_size(sparse::stored(segments));
        sparse::put(segments, size, &mut header);
        self.header(header)?;
        sparse::write_rest(segments, &mut self.out).map_err(ArchiveError::Write)
    }

    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.out.write_all(bytes).map_err(ArchiveError::Write)
    }

    /// Fills the last block of an entry of `size` bytes.
    pub(super) fn pad(&mut self, size: u64) -> Result<(), ArchiveError> {
        self.data(&[0; BLOCK_BYTES][..padding(size)])
    }

    /// The archive's end.
    pub(super) fn finish(mut self) -> Result<W, ArchiveError> {
        self.data(&[0; 2 * BLOCK_BYTES])?;
        Ok(self.out)
    }

    /// Records of the names that do not fit a header.
    fn names(&mut self, path: &[u8], target: &[u8]) -> Result<(), ArchiveError> {
        for (kind, name) in [(b'K', target), (b'L', path)] {
            if name.len() > Header::new_gnu().as_old().name.len() {
                let attributes = Attributes { kind, mode: 0o644, uid: 0, gid: 0, mtime: 0 };
                let size = name.len() as u64 + 1;
                let mut header = header(b"././@LongLink", b"", attributes);
                header.set_size(size);
                self.header(header)?;
                self.data(name)?;
                self.data(&[0])?;
                self.pad(size)?;
            }
        }
        Ok(())
    }

    fn header(&mut self, mut header: Header) -> Result<(), ArchiveError> {
        self.headers += 1;
        if self.headers > ARCHIVE_ENTRIES_MAX {
            return Err(ArchiveError::TooManyEntries);
        }
        header.set_cksum();
        self.data(header.as_bytes())
    }
}

/// Bytes from the end of `size` bytes of data to the next block.
pub(super) fn padding(size: u64) -> usize {
    let over = (size % BLOCK_BYTES as u64) as usize;
    if over == 0 { 0 } else { BLOCK_BYTES - over }
}

fn header(path: &[u8], target: &[u8], attributes: Attributes) -> Header {
    let mut header = Header::new_gnu();
    let old = header.as_old_mut();
    old.linkflag = [attributes.kind];
    copy(&mut old.name, path);
    copy(&mut old.linkname, target);
    header.set_mode(attributes.mode);
    header.set_uid(attributes.uid);
    header.set_gid(attributes.gid);
    header.set_mtime(attributes.mtime);
    header.set_size(0);
    header
}

/// As much of `bytes` as fits.
fn copy(place: &mut [u8], bytes: &[u8]) {
    let length = bytes.len().min(place.len());
    place[..length].copy_from_slice(&bytes[..length]);
}
