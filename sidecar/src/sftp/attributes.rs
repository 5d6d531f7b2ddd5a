//! A file's attributes: as a client asks for a change of them, as they are told, and the change itself.

use std::os::fd::BorrowedFd;

use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{FchmodatFlags, Mode as NixMode, fchmodat};
use nix::unistd::truncate;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Stat, Timespec, Timestamps, Uid};

use super::answers::Answers;
use super::error::Refusal;
use super::wire::{Fields, Malformed, Status};

const SIZE: u32 = 0x01;
const OWNER: u32 = 0x02;
const MODE: u32 = 0x04;
const TIMES: u32 = 0x08;
const EXTENDED: u32 = 0x8000_0000;

/// Permissions, without the file's type.
pub(super) const MODE_BITS: u32 = 0o7777;

/// What is to be changed of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Its size in bytes.
    pub size: Option<u64>,
    /// Ids of its user and group.
    pub owner: Option<(u32, u32)>,
    /// Its permissions.
    pub mode: Option<u32>,
    /// When it was last read and last written, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

impl Change {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let flags = fields.number()?;
        let has = |bit| flags & bit != 0;
        let size = has(SIZE).then(|| fields.long()).transpose()?;
        let owner = has(OWNER).then(|| pair(fields)).transpose()?;
        let mode = has(MODE).then(|| fields.number()).transpose()?;
        let times = has(TIMES).then(|| pair(fields)).transpose()?;
        if has(EXTENDED) {
            for _ in 0..fields.number()? {
                fields.string()?;
                fields.string()?;
            }
        }
        Ok(Self { size, owner, mode, times })
    }
}

fn pair(fields: &mut Fields<'_>) -> Result<(u32, u32), Malformed> {
    Ok((fields.number()?, fields.number()?))
}

/// Whose attributes are changed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    /// What the path leads to.
    Path(&'a [u8]),
    /// What the path's last name stands for, be it a link.
    Name(&'a [u8]),
    /// An open file.
    Open(BorrowedFd<'a>),
}

/// Changes what can be changed. The owner comes before the mode, which may lose bits by a new owner.
pub(super) fn change(target: Target<'_>, change: &Change) -> Result<(), Refusal> {
    let resized = change.size.map_or(Ok(()), |size| resize(target, size));
    let owned = change.owner.map_or(Ok(()), |(user, group)| chown(target, Uid::from_raw(user), Gid::from_raw(group)));
    let permitted = change.mode.map_or(Ok(()), |mode| chmod(target, mode & MODE_BITS));
    let timed = change.times.map_or(Ok(()), |(read, written)| set_times(target, read, written));
    resized.and(owned).and(permitted).and(timed)
}

fn resize(target: Target<'_>, size: u64) -> Result<(), Refusal> {
    match target {
        Target::Path(path) => Ok(truncate(path, i64::try_from(size).map_err(|_| too_large())?)?),
        Target::Open(file) => Ok(rustix::fs::ftruncate(file, size)?),
        Target::Name(_) => Err(Refusal::Said(Status::Failure, "The size of a link cannot be set")),
    }
}

fn too_large() -> Refusal {
    nix::errno::Errno::EFBIG.into()
}

fn chown(target: Target<'_>, user: Uid, group: Gid) -> Result<(), Refusal> {
    let (user, group) = (Some(user), Some(group));
    Ok(match target {
        Target::Path(path) => rustix::fs::chownat(CWD, path, user, group, AtFlags::empty()),
        Target::Name(path) => rustix::fs::chownat(CWD, path, user, group, AtFlags::SYMLINK_NOFOLLOW),
        Target::Open(file) => rustix::fs::fchown(file, user, group),
    }?)
}

fn chmod(target: Target<'_>, mode: u32) -> Result<(), Refusal> {
    match target {
        Target::Path(path) => Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?),
        Target::Open(file) => Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?),
        // Of the C library, which knows a way round kernels that lack the call.
        Target::Name(path) => {
            Ok(fchmodat(AT_FDCWD, path, NixMode::from_bits_truncate(mode), FchmodatFlags::NoFollowSymlink)?)
        }
    }
}

fn set_times(target: Target<'_>, read: u32, written: u32) -> Result<(), Refusal> {
    let at = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
    let times = Timestamps { last_access: at(read), last_modification: at(written) };
    Ok(match target {
        Target::Path(path) => rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()),
        Target::Name(path) => rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW),
        Target::Open(file) => rustix::fs::futimens(file, &times),
    }?)
}

/// Writes what is told of a file.
pub(super) fn encode(stat: &Stat, answers: &mut Answers) {
    answers.number(SIZE | OWNER | MODE | TIMES);
    answers.long(u64::try_from(stat.st_size).unwrap_or_default());
    for number in [stat.st_uid, stat.st_gid, stat.st_mode, seconds(stat.st_atime), seconds(stat.st_mtime)] {
        answers.number(number);
    }
}

/// The nearest time that the protocol has a number for.
fn seconds(time: i64) -> u32 {
    u32::try_from(time.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_the_protocol_cannot_tell_are_told_as_the_nearest() {
        let told = [i64::MIN, -1, 0, 1, u32::MAX.into(), i64::from(u32::MAX) + 1, i64::MAX].map(seconds);
        assert_eq!(told, [0, 0, 0, 1, u32::MAX, u32::MAX, u32::MAX]);
    }

    #[test]
    fn attributes_that_are_not_known_are_passed_over() {
        let bytes = [
            &0x8000_0001_u32.to_be_bytes()[..],
            &9_u64.to_be_bytes(),
            &[0, 0, 0, 1],
            &[0, 0, 0, 1, b'k'],
            &[0; 4],
            b"rest",
        ];
        let bytes = bytes.concat();
        let mut fields = Fields(&bytes);
        assert_eq!(Change::decode(&mut fields), Ok(Change { size: Some(9), ..Change::default() }));
        assert_eq!(fields.0, b"rest");
    }
}
