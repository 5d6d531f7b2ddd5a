//! The words of the protocol, and how a packet's fields are read: numbers are big-endian, strings are bytes behind their
//! length. What is read borrows from the packet.

/// The version spoken.
pub(super) const VERSION: u32 = 3;

/// A packet's fields are not what its type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its fields are cut short, or lack")]
pub struct Malformed;

/// The types of packets.
pub(super) mod kind {
    pub(crate) const INIT: u8 = 1;
    pub(crate) const VERSION: u8 = 2;
    pub(crate) const OPEN: u8 = 3;
    pub(crate) const CLOSE: u8 = 4;
    pub(crate) const READ: u8 = 5;
    pub(crate) const WRITE: u8 = 6;
    pub(crate) const LSTAT: u8 = 7;
    pub(crate) const FSTAT: u8 = 8;
    pub(crate) const SETSTAT: u8 = 9;
    pub(crate) const FSETSTAT: u8 = 10;
    pub(crate) const OPENDIR: u8 = 11;
    pub(crate) const READDIR: u8 = 12;
    pub(crate) const REMOVE: u8 = 13;
    pub(crate) const MKDIR: u8 = 14;
    pub(crate) const RMDIR: u8 = 15;
    pub(crate) const REALPATH: u8 = 16;
    pub(crate) const STAT: u8 = 17;
    pub(crate) const RENAME: u8 = 18;
    pub(crate) const READLINK: u8 = 19;
    pub(crate) const SYMLINK: u8 = 20;
    pub(crate) const STATUS: u8 = 101;
    pub(crate) const HANDLE: u8 = 102;
    pub(crate) const DATA: u8 = 103;
    pub(crate) const NAME: u8 = 104;
    pub(crate) const ATTRS: u8 = 105;
    pub(crate) const EXTENDED: u8 = 200;
    pub(crate) const EXTENDED_REPLY: u8 = 201;
}

/// The extensions, by the names that OpenSSH gave them, and their versions.
pub(super) mod extension {
    pub(crate) const POSIX_RENAME: &[u8] = b"posix-rename@openssh.com";
    pub(crate) const STATVFS: &[u8] = b"statvfs@openssh.com";
    pub(crate) const FSTATVFS: &[u8] = b"fstatvfs@openssh.com";
    pub(crate) const HARDLINK: &[u8] = b"hardlink@openssh.com";
    pub(crate) const FSYNC: &[u8] = b"fsync@openssh.com";
    pub(crate) const LSETSTAT: &[u8] = b"lsetstat@openssh.com";
    pub(crate) const LIMITS: &[u8] = b"limits@openssh.com";
    pub(crate) const EXPAND_PATH: &[u8] = b"expand-path@openssh.com";
    pub(crate) const COPY_DATA: &[u8] = b"copy-data";
    pub(crate) const HOME_DIRECTORY: &[u8] = b"home-directory";
    pub(crate) const USERS_GROUPS: &[u8] = b"users-groups-by-id@openssh.com";

    /// All of them.
    pub(crate) const ALL: [(&[u8], &[u8]); 11] = [
        (POSIX_RENAME, b"1"),
        (STATVFS, b"2"),
        (FSTATVFS, b"2"),
        (HARDLINK, b"1"),
        (FSYNC, b"1"),
        (LSETSTAT, b"1"),
        (LIMITS, b"1"),
        (EXPAND_PATH, b"1"),
        (COPY_DATA, b"1"),
        (HOME_DIRECTORY, b"1"),
        (USERS_GROUPS, b"1"),
    ];
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// There is no more to read.
    EndOfFile = 1,
    /// The path leads nowhere.
    NoSuchFile = 2,
    /// The agent may not.
    PermissionDenied = 3,
    /// It failed for a reason that its message tells.
    Failure = 4,
    /// This server does not know the request.
    Unsupported = 8,
}

impl Status {
    /// As a packet has it.
    pub fn code(self) -> u32 {
        self as u32
    }
}

/// How a file is to be opened: the bits of a request, of which unknown ones mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// To be read.
    pub const READ: u32 = 0x01;
    /// To be written.
    pub const WRITE: u32 = 0x02;
    /// Written at its end, wherever a write says.
    pub const APPEND: u32 = 0x04;
    /// Made, where it is not there.
    pub const CREATE: u32 = 0x08;
    /// Emptied.
    pub const TRUNCATE: u32 = 0x10;
    /// Refused, where it is there.
    pub const EXCLUSIVE: u32 = 0x20;

    pub(super) fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

/// What is left to read of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn number(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let bytes = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        let (string, rest) = self.0.split_at_checked(bytes).ok_or(Malformed)?;
        self.0 = rest;
        Ok(string)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }
}
