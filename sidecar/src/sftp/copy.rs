//! Bytes from one open file into another, without the client: by the kernel where it can, else through a buffer.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, copy_file_range, fstat};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use super::error::Refusal;
use super::wire::Status;
use crate::limits::SFTP_COPY_BYTES;

/// Copies `bytes` of `from` to `to`, or all that there is, beginning where the offsets say.
pub(super) fn copy(from: (BorrowedFd<'_>, u64), to: (BorrowedFd<'_>, u64), bytes: Option<u64>) -> Result<(), Refusal> {
    let (source, target) = (fstat(from.0)?, fstat(to.0)?);
    // A device has no end; a file that is copied behind itself has none either.
    if !FileType::from_raw_mode(source.st_mode).is_file() {
        return Err(Refusal::Said(Status::Failure, "Not a regular file"));
    }
    if (source.st_dev, source.st_ino) == (target.st_dev, target.st_ino) {
        return Err(Refusal::Said(Status::Failure, "A file cannot be copied into itself"));
    }
    let wanted = bytes.unwrap_or(u64::MAX);
    let copied = by_kernel(from, to, wanted)?;
    let (from, to) = ((from.0, from.1.saturating_add(copied)), (to.0, to.1.saturating_add(copied)));
    by_hand(from, to, wanted - copied)
}

/// As much as the kernel copies; what is left is for [`by_hand`], which also knows whether that is the end.
fn by_kernel(
    (from, mut from_offset): (BorrowedFd<'_>, u64),
    (to, mut to_offset): (BorrowedFd<'_>, u64),
    wanted: u64,
) -> Result<u64, Refusal> {
    let mut copied = 0;
    while copied < wanted {
        let next = usize::try_from(wanted - copied).unwrap_or(usize::MAX).min(SFTP_COPY_BYTES);
        match copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), next) {
            Ok(0) | Err(Errno::XDEV | Errno::BADF | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                break;
            }
            Ok(bytes) => copied += bytes as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(copied)
}

fn by_hand(
    (from, mut from_offset): (BorrowedFd<'_>, u64),
    (to, mut to_offset): (BorrowedFd<'_>, u64),
    mut wanted: u64,
) -> Result<(), Refusal> {
    let mut buffer = vec![0; SFTP_COPY_BYTES];
    while wanted > 0 {
        let next = usize::try_from(wanted).unwrap_or(usize::MAX).min(buffer.len());
        let found = retry_on_intr(|| pread(from, &mut buffer[..next], from_offset))?;
        if found == 0 {
            break;
        }
        write_at(to, &buffer[..found], to_offset)?;
        (from_offset, to_offset) = (from_offset.saturating_add(found as u64), to_offset.saturating_add(found as u64));
        wanted -= found as u64;
    }
    Ok(())
}

/// Writes all of `data`.
pub(super) fn write_at(to: BorrowedFd<'_>, mut data: &[u8], mut offset: u64) -> Result<(), Refusal> {
    while !data.is_empty() {
        let written = retry_on_intr(|| pwrite(to, data, offset))?;
        if written == 0 {
            return Err(Errno::IO.into());
        }
        data = &data[written..];
        offset = offset.saturating_add(written as u64);
    }
    Ok(())
}
