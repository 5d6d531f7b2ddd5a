//! One client's session: what it has open, and each request done and answered, in the order in which they came.

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, Stat, StatVfs};
use rustix::io::{pread, retry_on_intr};
use rustix::process::geteuid;

use super::answers::Answers;
use super::attributes::{self, MODE_BITS, Target, change};
use super::copy::{copy, write_at};
use super::error::{Refusal, SftpError};
use super::handles::Handles;
use super::listing::list;
use super::paths::{path, rename, resolve, tilde};
use super::people::People;
use super::request::{Copy, Packet, Request};
use super::wire::{Fields, Status, kind};

/// Permissions of a new directory, less the process's mask, where a client names none.
const DIRECTORY_MODE_DEFAULT: u32 = 0o777;

/// The flags of a file system that the protocol knows, which have the kernel's values.
const READ_ONLY: u64 = 1;
const NO_SUID: u64 = 2;

/// What is known of a client.
#[derive(Debug, Default)]
pub struct Session {
    greeted: bool,
    handles: Handles,
    home: Option<PathBuf>,
    /// Read when the first name is needed.
    people: Option<People>,
    told_of_full_disk: bool,
}

impl Session {
    /// A session of a user with this home; without one it is looked up.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self { home, ..Self::default() }
    }

    /// Does what `packet` asks and adds the answer to `answers`.
    ///
    /// # Errors
    /// The packet cannot be read, or comes before the client's version.
    pub fn handle(&mut self, packet: &[u8], answers: &mut Answers) -> Result<(), SftpError> {
        match Packet::decode(packet)? {
            Packet::Init => {
                self.greeted = true;
                answers.version();
            }
            Packet::Request(_, _) if !self.greeted => return Err(SftpError::NotGreeted),
            Packet::Request(id, request) => {
                if let Err(refusal) = self.answer(id, request, answers) {
                    self.tell_of_full_disk(&refusal);
                    answers.refused(id, &refusal);
                }
            }
        }
        Ok(())
    }

    /// The protocol has no status for a full disk, and clients print that alone: whoever sits at one reads the reason on
    /// stderr, once.
    fn tell_of_full_disk(&mut self, refusal: &Refusal) {
        if refusal.is_full_disk() && !self.told_of_full_disk {
            self.told_of_full_disk = true;
            // Where nobody reads it, the status has to do.
            drop(writeln!(io::stderr(), "sandbox: {}", refusal.message()));
        }
    }

    fn answer(&mut self, id: u32, request: Request<'_>, answers: &mut Answers) -> Result<(), Refusal> {
        match request {
            Request::Read { handle, offset, bytes } => {
                let file = self.handles.file(handle)?;
                return answers.data(id, bytes, |room| Ok(retry_on_intr(|| pread(file, &mut *room, offset))?));
            }
            Request::Write { handle, offset, data } => write_at(self.handles.file(handle)?, data, offset)?,
            Request::Open { path, flags, change } => {
                return answers.handle(id, self.handles.open_file(path, flags, change.mode)?);
            }
            Request::Opendir { path } => return answers.handle(id, self.handles.open_directory(path)?),
            Request::Readdir { handle } => {
                let people = self.people.get_or_insert_with(People::read);
                return list(self.handles.directory(handle)?, id, people, answers);
            }
            Request::Close { handle } => self.handles.close(handle)?,
            Request::Stat { path } => return tell_stat(id, &rustix::fs::stat(path)?, answers),
            Request::Lstat { path } => return tell_stat(id, &rustix::fs::lstat(path)?, answers),
            Request::Fstat { handle } => {
                return tell_stat(id, &rustix::fs::fstat(self.handles.any(handle)?)?, answers);
            }
            Request::Setstat { path, change: to } => change(Target::Path(path), &to)?,
            Request::Lsetstat { path, change: to } => change(Target::Name(path), &to)?,
            Request::Fsetstat { handle, change: to } => change(Target::Open(self.handles.any(handle)?), &to)?,
            Request::Remove { path } => rustix::fs::unlink(path)?,
            Request::Rmdir { path } => rustix::fs::rmdir(path)?,
            Request::Mkdir { path, change } => mkdir(path, change.mode)?,
            Request::Rename { from, to } => rename(from, to)?,
            Request::PosixRename { from, to } => rustix::fs::rename(from, to)?,
            Request::Symlink { target, link } => rustix::fs::symlink(target, link)?,
            Request::Hardlink { from, to } => rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?,
            Request::Readlink { path } => {
                return answers.name(id, rustix::fs::readlink(path, Vec::new())?.as_bytes());
            }
            Request::Realpath { path: bytes } => return tell_path(id, path(bytes), answers),
            Request::ExpandPath { path } => return tell_path(id, &self.expand(path)?, answers),
            Request::HomeDirectory { user } => return answers.name(id, self.home(user)?.as_os_str().as_bytes()),
            Request::Statvfs { path } => return tell_space(id, &rustix::fs::statvfs(path)?, answers),
            Request::Fstatvfs { handle } => {
                return tell_space(id, &rustix::fs::fstatvfs(self.handles.any(handle)?)?, answers);
            }
            Request::Fsync { handle } => rustix::fs::fsync(self.handles.file(handle)?)?,
            Request::CopyData(asked) => self.copy(&asked)?,
            Request::Limits => return answers.limits(id),
            Request::UsersGroups { users, groups } => return self.tell_names(id, users, groups, answers),
            Request::Unknown => return Err(Refusal::Unsupported),
        }
        answers.done(id);
        Ok(())
    }

    fn copy(&self, asked: &Copy<'_>) -> Result<(), Refusal> {
        let (from, to) = (self.handles.file(asked.from)?, self.handles.file(asked.to)?);
        copy((from, asked.from_offset), (to, asked.to_offset), (asked.bytes > 0).then_some(asked.bytes))
    }

    fn expand(&mut self, bytes: &[u8]) -> Result<PathBuf, Refusal> {
        match tilde(bytes) {
            Some((user, rest)) => Ok(self.home(user)?.join(path(rest))),
            None => Ok(path(bytes).to_owned()),
        }
    }

    /// The home of `user`, or of the one whose session it is.
    fn home(&mut self, user: &[u8]) -> Result<PathBuf, Refusal> {
        if let (b"", Some(home)) = (user, &self.home) {
            return Ok(home.clone());
        }
        let people = self.people.get_or_insert_with(People::read);
        let user = if user.is_empty() { people.user(geteuid().as_raw()) } else { Some(user) };
        user.and_then(|user| people.home(user)).ok_or(Refusal::Said(Status::NoSuchFile, "No such user"))
    }

    fn tell_names(&mut self, id: u32, users: &[u8], groups: &[u8], answers: &mut Answers) -> Result<(), Refusal> {
        let people = self.people.get_or_insert_with(People::read);
        answers.answer((kind::EXTENDED_REPLY, id), |answers| {
            for (mut ids, is_user) in [(Fields(users), true), (Fields(groups), false)] {
                answers.string_of(|answers| {
                    while let Ok(id) = ids.number() {
                        let name = if is_user { people.user(id) } else { people.group(id) };
                        answers.string(name.unwrap_or_default());
                    }
                });
            }
            Ok(())
        })
    }
}

fn mkdir(path: &[u8], mode: Option<u32>) -> Result<(), Refusal> {
    let mode = mode.unwrap_or(DIRECTORY_MODE_DEFAULT) & MODE_BITS;
    Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(mode))?)
}

fn tell_stat(id: u32, stat: &Stat, answers: &mut Answers) -> Result<(), Refusal> {
    answers.answer((kind::ATTRS, id), |answers| {
        attributes::encode(stat, answers);
        Ok(())
    })
}

fn tell_path(id: u32, path: &Path, answers: &mut Answers) -> Result<(), Refusal> {
    answers.name(id, resolve(path)?.as_os_str().as_bytes())
}

/// Room in a file system, in the order of `statvfs`.
fn tell_space(id: u32, space: &StatVfs, answers: &mut Answers) -> Result<(), Refusal> {
    answers.answer((kind::EXTENDED_REPLY, id), |answers| {
        for number in [
            space.f_bsize,
            space.f_frsize,
            space.f_blocks,
            space.f_bfree,
            space.f_bavail,
            space.f_files,
            space.f_ffree,
            space.f_favail,
            space.f_fsid,
            space.f_flag.bits() & (READ_ONLY | NO_SUID),
            space.f_namemax,
        ] {
            answers.long(number);
        }
        Ok(())
    })
}
