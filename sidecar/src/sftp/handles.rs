//! What a client has open, by the handles it was given. A handle is not given again before all others were.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use rustix::fs::{Mode, OFlags, open};

use super::attributes::MODE_BITS;
use super::error::Refusal;
use super::wire::{OpenFlags, Status};
use crate::limits::SFTP_HANDLES_MAX;

/// Permissions of a new file, less the process's mask, where a client names none.
const MODE_DEFAULT: u32 = 0o666;
/// A pipe without another end, say, is no reason to wait for ever.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

#[derive(Debug)]
enum Open {
    File(OwnedFd),
    Directory(OwnedFd),
}

/// What is open.
#[derive(Debug, Default)]
pub(super) struct Handles {
    open: BTreeMap<u32, Open>,
    next: u32,
}

impl Handles {
    pub(super) fn open_file(&mut self, path: &[u8], flags: OpenFlags, mode: Option<u32>) -> Result<[u8; 4], Refusal> {
        self.has_room()?;
        let mode = Mode::from_raw_mode(mode.unwrap_or(MODE_DEFAULT) & MODE_BITS);
        let file = open(path, how(flags) | ALWAYS, mode)?;
        Ok(self.keep(Open::File(file)))
    }

    pub(super) fn open_directory(&mut self, path: &[u8]) -> Result<[u8; 4], Refusal> {
        self.has_room()?;
        let directory = open(path, OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS, Mode::empty())?;
        Ok(self.keep(Open::Directory(directory)))
    }

    pub(super) fn close(&mut self, handle: &[u8]) -> Result<(), Refusal> {
        let number = number(handle)?;
        self.open.remove(&number).map(drop).ok_or_else(unknown)
    }

    /// The open file, which is no directory that is listed.
    pub(super) fn file(&self, handle: &[u8]) -> Result<BorrowedFd<'_>, Refusal> {
        match self.get(handle)? {
            Open::File(file) => Ok(file.as_fd()),
            Open::Directory(_) => Err(unknown()),
        }
    }

    /// The directory that is listed.
    pub(super) fn directory(&self, handle: &[u8]) -> Result<BorrowedFd<'_>, Refusal> {
        match self.get(handle)? {
            Open::Directory(directory) => Ok(directory.as_fd()),
            Open::File(_) => Err(unknown()),
        }
    }

    /// Either.
    pub(super) fn any(&self, handle: &[u8]) -> Result<BorrowedFd<'_>, Refusal> {
        match self.get(handle)? {
            Open::File(open) | Open::Directory(open) => Ok(open.as_fd()),
        }
    }

    fn get(&self, handle: &[u8]) -> Result<&Open, Refusal> {
        self.open.get(&number(handle)?).ok_or_else(unknown)
    }

    fn has_room(&self) -> Result<(), Refusal> {
        if self.open.len() < SFTP_HANDLES_MAX { Ok(()) } else { Err(Errno::EMFILE.into()) }
    }

    fn keep(&mut self, open: Open) -> [u8; 4] {
        while self.open.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.open.insert(number, open);
        number.to_be_bytes()
    }
}

fn number(handle: &[u8]) -> Result<u32, Refusal> {
    handle.try_into().map(u32::from_be_bytes).map_err(|_| unknown())
}

fn unknown() -> Refusal {
    Refusal::Said(Status::Failure, "No such handle")
}

fn how(flags: OpenFlags) -> OFlags {
    let mut how = match (flags.has(OpenFlags::READ), flags.has(OpenFlags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    };
    for (bit, flag) in [
        (OpenFlags::APPEND, OFlags::APPEND),
        (OpenFlags::CREATE, OFlags::CREATE),
        (OpenFlags::TRUNCATE, OFlags::TRUNC),
        (OpenFlags::EXCLUSIVE, OFlags::EXCL),
    ] {
        how.set(flag, flags.has(bit));
    }
    how
}
