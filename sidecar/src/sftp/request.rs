//! What a client may ask: the closed set of requests, each with what it needs, borrowed from the packet.

use super::attributes::Change;
use super::wire::{Fields, Malformed, OpenFlags, extension, kind};

/// A packet of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    /// The client's version, which begins the session. Its extensions mean nothing here.
    Init,
    /// Something to be answered under its id.
    Request(u32, Request<'a>),
}

/// What is asked. Paths and handles are the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the protocol's own words
pub enum Request<'a> {
    Open { path: &'a [u8], flags: OpenFlags, change: Change },
    Close { handle: &'a [u8] },
    Read { handle: &'a [u8], offset: u64, bytes: u32 },
    Write { handle: &'a [u8], offset: u64, data: &'a [u8] },
    Lstat { path: &'a [u8] },
    Fstat { handle: &'a [u8] },
    Setstat { path: &'a [u8], change: Change },
    Fsetstat { handle: &'a [u8], change: Change },
    Opendir { path: &'a [u8] },
    Readdir { handle: &'a [u8] },
    Remove { path: &'a [u8] },
    Mkdir { path: &'a [u8], change: Change },
    Rmdir { path: &'a [u8] },
    Realpath { path: &'a [u8] },
    Stat { path: &'a [u8] },
    Rename { from: &'a [u8], to: &'a [u8] },
    Readlink { path: &'a [u8] },
    Symlink { target: &'a [u8], link: &'a [u8] },
    PosixRename { from: &'a [u8], to: &'a [u8] },
    Statvfs { path: &'a [u8] },
    Fstatvfs { handle: &'a [u8] },
    Hardlink { from: &'a [u8], to: &'a [u8] },
    Fsync { handle: &'a [u8] },
    Lsetstat { path: &'a [u8], change: Change },
    Limits,
    ExpandPath { path: &'a [u8] },
    CopyData(Copy<'a>),
    HomeDirectory { user: &'a [u8] },
    UsersGroups { users: &'a [u8], groups: &'a [u8] },
    Unknown,
}

/// A copy from one open file into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy<'a> {
    /// From where.
    pub from: &'a [u8],
    /// From which byte on.
    pub from_offset: u64,
    /// How much; 0 is all that there is.
    pub bytes: u64,
    /// To where.
    pub to: &'a [u8],
    /// To which byte on.
    pub to_offset: u64,
}

impl<'a> Packet<'a> {
    /// Reads a packet, less its length. What follows the last field is passed over.
    ///
    /// # Errors
    /// Fields lack.
    pub fn decode(packet: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(packet);
        let kind = fields.byte()?;
        let number = fields.number()?;
        if kind == kind::INIT {
            return Ok(Self::Init);
        }
        Ok(Self::Request(number, Request::decode(kind, &mut fields)?))
    }
}

impl<'a> Request<'a> {
    fn decode(kind: u8, fields: &mut Fields<'a>) -> Result<Self, Malformed> {
        Ok(match kind {
            kind::OPEN => Self::Open {
                path: fields.string()?,
                flags: OpenFlags(fields.number()?),
                change: Change::decode(fields)?,
            },
            kind::CLOSE => Self::Close { handle: fields.string()? },
            kind::READ => Self::Read { handle: fields.string()?, offset: fields.long()?, bytes: fields.number()? },
            kind::WRITE => Self::Write { handle: fields.string()?, offset: fields.long()?, data: fields.string()? },
            kind::LSTAT => Self::Lstat { path: fields.string()? },
            kind::FSTAT => Self::Fstat { handle: fields.string()? },
            kind::SETSTAT => Self::Setstat { path: fields.string()?, change: Change::decode(fields)? },
            kind::FSETSTAT => Self::Fsetstat { handle: fields.string()?, change: Change::decode(fields)? },
            kind::OPENDIR => Self::Opendir { path: fields.string()? },
            kind::READDIR => Self::Readdir { handle: fields.string()? },
            kind::REMOVE => Self::Remove { path: fields.string()? },
            kind::MKDIR => Self::Mkdir { path: fields.string()?, change: Change::decode(fields)? },
            kind::RMDIR => Self::Rmdir { path: fields.string()? },
            kind::REALPATH => Self::Realpath { path: fields.string()? },
            kind::STAT => Self::Stat { path: fields.string()? },
            kind::RENAME => Self::Rename { from: fields.string()?, to: fields.string()? },
            kind::READLINK => Self::Readlink { path: fields.string()? },
            // The draft has them the other way round; OpenSSH and so its clients do not.
            kind::SYMLINK => Self::Symlink { target: fields.string()?, link: fields.string()? },
            kind::EXTENDED => Self::extended(fields)?,
            _ => Self::Unknown,
        })
    }

    fn extended(fields: &mut Fields<'a>) -> Result<Self, Malformed> {
        Ok(match fields.string()? {
            extension::POSIX_RENAME => Self::PosixRename { from: fields.string()?, to: fields.string()? },
            extension::STATVFS => Self::Statvfs { path: fields.string()? },
            extension::FSTATVFS => Self::Fstatvfs { handle: fields.string()? },
            extension::HARDLINK => Self::Hardlink { from: fields.string()?, to: fields.string()? },
            extension::FSYNC => Self::Fsync { handle: fields.string()? },
            extension::LSETSTAT => Self::Lsetstat { path: fields.string()?, change: Change::decode(fields)? },
            extension::LIMITS => Self::Limits,
            extension::EXPAND_PATH => Self::ExpandPath { path: fields.string()? },
            extension::COPY_DATA => Self::CopyData(Copy {
                from: fields.string()?,
                from_offset: fields.long()?,
                bytes: fields.long()?,
                to: fields.string()?,
                to_offset: fields.long()?,
            }),
            extension::HOME_DIRECTORY => Self::HomeDirectory { user: fields.string()? },
            extension::USERS_GROUPS => Self::UsersGroups { users: fields.string()?, groups: fields.string()? },
            _ => Self::Unknown,
        })
    }
}
