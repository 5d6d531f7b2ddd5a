//! What happens between fork and exec. With `report`, the sidecar's only unsafe code.
//!
//! A command is started by two forks. The first child becomes its *supervisor*: it keeps the sidecar's user, so that
//! commands cannot touch it, adopts every descendant that loses its parent, and hands on the exit code. The second
//! becomes the *leader*, drops everything that is the sidecar's, and turns into the command. The supervisor tells what
//! became of it (see `report`). When the leader has ended by itself the supervisor follows, and what the command left
//! running goes to the sandbox's first process; or it stays as long as anything is left, for a terminal that is kept, or a
//! place that goes with its execution.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{ForkResult, chdir, fchdir, fork, mkdir, setgroups, setresgid, setresuid, setsid, write};
use rustix::process::setpriority_process;
use sandbox_protocol::limits::OPEN_FILES_MAX;
use tokio::process::Command;

use super::Identity;
use super::report::{Record, spent_by_children};
use crate::limits::NICENESS_MAX;

/// Added to the error number of a directory that cannot be entered: a bare number is all that comes back from there.
const DIRECTORY_ERRNO_BASE: i32 = 1 << 16;
/// The same for a fresh directory that cannot be made or filled.
const FRESH_ERRNO_BASE: i32 = 1 << 17;

/// First descriptor that is not stdin, stdout or stderr.
const FIRST_OTHER_FD: libc::c_uint = 3;

/// How ready commands are to be ended when memory runs out, so that the sidecar, at 0, is not.
const OOM_SCORE: &[u8] = b"500";

/// How far commands stand back for the sidecar, whose answers must not wait for a thousand of them.
const NICENESS: i32 = 5;

/// What a leader becomes.
pub(super) struct Plan {
    directory: CString,
    identity: Option<Identity>,
    /// Made by the leader, with a file in it, before it is entered.
    fresh: Option<Fresh>,
    /// Stdin is a terminal, which is to be its own.
    terminal: bool,
    /// The supervisor stays as long as anything is left.
    stays: bool,
    /// Where the supervisor tells what became of it.
    reports: Option<OwnedFd>,
    /// Added to how nice every command is.
    nice: i32,
    /// Files by which the kernel's control groups take a process in.
    groups: Vec<OwnedFd>,
}

/// A fresh directory's only file, if it has one.
pub(super) struct Fresh {
    /// Path and content.
    pub(super) file: Option<(CString, Vec<u8>)>,
}

/// An error number on its way out of a forked child, with what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The directory cannot be entered.
    Directory(Errno),
    /// The fresh directory cannot be made or filled.
    Fresh(Errno),
}

impl Plan {
    /// A leader in `directory` that runs as `identity`, or as the sidecar's own user.
    pub(super) fn new(directory: &Path, identity: Option<Identity>) -> io::Result<Self> {
        let directory = CString::new(directory.as_os_str().as_bytes())?;
        Ok(Self {
            directory,
            identity,
            fresh: None,
            terminal: false,
            stays: false,
            reports: None,
            nice: 0,
            groups: Vec::new(),
        })
    }

    /// The directory is new, and everything that is left goes with it.
    pub(super) fn fresh(&mut self, fresh: Fresh) {
        self.fresh = Some(fresh);
        self.stays();
    }

    /// The supervisor stays as long as anything is left.
    pub(super) fn stays(&mut self) {
        self.stays = true;
    }

    /// Its stdin is a terminal, which is to be its own.
    pub(super) fn in_terminal(&mut self) {
        self.terminal = true;
    }

    /// The supervisor tells here what became of it.
    pub(super) fn reports(&mut self, writing: OwnedFd) {
        self.reports = Some(writing);
    }

    /// It comes after others that want the processor.
    pub(super) fn nice(&mut self, nice: i32) {
        self.nice = nice;
    }

    /// It belongs to these control groups.
    pub(super) fn groups(&mut self, groups: Vec<OwnedFd>) {
        self.groups = groups;
    }

    /// Makes `command` start in two forks. The child that its spawning returns is the supervisor.
    #[allow(unsafe_code)]
    pub(super) fn apply(self, command: &mut Command) {
        // SAFETY: `split` runs in a forked child of a threaded process. It calls the kernel and touches its own stack;
        // it takes no lock, allocates nothing and cannot unwind.
        unsafe { command.pre_exec(move || self.split()) };
    }

    /// Returns in the leader only.
    #[allow(unsafe_code)]
    fn split(&self) -> io::Result<()> {
        match prctl::set_child_subreaper(true) {
            // A kernel in user space that does not know it: there, what loses its parent goes to the sandbox's first
            // process at once, and outlives the end of its command.
            Err(Errno::EINVAL) | Ok(()) => {}
            Err(errno) => return Err(errno.into()),
        }
        // SAFETY: this process has one thread, being a forked child itself.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => self.supervise(child.as_raw()),
            ForkResult::Child => self.become_leader(),
        }
    }

    fn become_leader(&self) -> io::Result<()> {
        default_signals()?;
        for group in &self.groups {
            // Nought is whoever writes it.
            write(group, b"0")?;
        }
        setsid()?;
        if self.terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        umask(Mode::from_bits_truncate(0o022));
        prefer_for_oom()?;
        setpriority_process(None, NICENESS.saturating_add(self.nice).min(NICENESS_MAX))?;
        limit_resources()?;
        each_fd(FIRST_OTHER_FD, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC, close_on_exec);
        if let Some(identity) = self.identity {
            give_pipes(identity)?;
            setgroups(&[])?;
            setresgid(identity.gid, identity.gid, identity.gid)?;
            setresuid(identity.uid, identity.uid, identity.uid)?;
        }
        prctl::set_no_new_privs()?;
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if let Some(fresh) = &self.fresh {
            self.make(fresh).map_err(|errno| io::Error::from_raw_os_error(FRESH_ERRNO_BASE + errno as i32))?;
        }
        self.enter_directory().map_err(|errno| io::Error::from_raw_os_error(DIRECTORY_ERRNO_BASE + errno as i32))
    }

    /// As the user who is to own it.
    fn make(&self, fresh: &Fresh) -> Result<(), Errno> {
        mkdir(self.directory.as_c_str(), Mode::S_IRWXU)?;
        let Some((path, content)) = &fresh.file else { return Ok(()) };
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let file = open(path.as_c_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let mut rest = content.as_slice();
        while !rest.is_empty() {
            let written = write(&file, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Follows links, but not those of `/proc` that lead through an open descriptor of the sidecar's.
    fn enter_directory(&self) -> Result<(), Errno> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        match openat2(AT_FDCWD, self.directory.as_c_str(), how) {
            Ok(directory) => fchdir(directory),
            // A kernel, or a filter, that does not know the call.
            Err(Errno::ENOSYS | Errno::EPERM) => chdir(self.directory.as_c_str()),
            Err(errno) => Err(errno),
        }
    }
}

impl Plan {
    /// Waits for every child until the leader is among the dead, and where it stays until nothing is
    /// left; then ends with the leader's exit code.
    #[allow(unsafe_code)]
    fn supervise(&self, leader: libc::pid_t) -> ! {
        // No signal but SIGKILL and SIGSTOP, which the sidecar alone can send, comes between.
        let masked = SigSet::all().thread_set_mask().and(prctl::set_name(c"supervisor"));
        let reports = self.reports.as_ref().map(|fd| fd.as_raw_fd());
        close_all_but(reports);
        tell(reports, Record::Begun { leader });
        let mut code = libc::EXIT_FAILURE;
        let mut status = 0;
        loop {
            // SAFETY: `status` lives as long as the call.
            match unsafe { libc::waitpid(-1, &raw mut status, 0) } {
                pid if pid == leader => {
                    code = exit_code(status);
                    let alone = !reap();
                    tell(reports, Record::Ended { status, alone, spent: spent_by_children().unwrap_or_default() });
                    if alone || !self.stays {
                        break;
                    }
                }
                -1 if Errno::last() != Errno::EINTR => break,
                _ => {}
            }
        }
        tell(reports, Record::Over { spent: spent_by_children().unwrap_or_default() });
        // SAFETY: ends this process at once, without running what the sidecar registered for its own end.
        unsafe { libc::_exit(if masked.is_ok() { code } else { libc::EXIT_FAILURE }) }
    }
}

/// What the leader could not do, where that is what `error` tells.
pub(super) fn trouble(error: &io::Error) -> Option<Trouble> {
    let raw = error.raw_os_error()?;
    if let Some(errno) = raw.checked_sub(FRESH_ERRNO_BASE).filter(|errno| *errno > 0) {
        return Some(Trouble::Fresh(Errno::from_raw(errno)));
    }
    let errno = raw.checked_sub(DIRECTORY_ERRNO_BASE).filter(|errno| *errno > 0)?;
    Some(Trouble::Directory(Errno::from_raw(errno)))
}

/// Waits for all that are dead; whether any are left alive.
#[allow(unsafe_code)]
fn reap() -> bool {
    loop {
        let mut status = 0;
        // SAFETY: `status` lives as long as the call.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            0 => return true,
            -1 if Errno::last() != Errno::EINTR => return false,
            _ => {}
        }
    }
}

/// The pipe has room for all there is to tell; a reader that is gone needs no telling.
#[allow(unsafe_code)]
fn tell(reports: Option<RawFd>, record: Record) {
    let Some(reports) = reports else { return };
    // SAFETY: the supervisor keeps this one descriptor open to its end.
    let reports = unsafe { BorrowedFd::borrow_raw(reports) };
    write(reports, &record.encode()).map(drop).unwrap_or_default();
}

/// A supervisor has no use for any descriptor but the one it tells by.
fn close_all_but(kept: Option<RawFd>) {
    let Some(kept) = kept.and_then(|fd| libc::c_uint::try_from(fd).ok()) else {
        return each_fd(0, libc::c_uint::MAX, 0, close);
    };
    if kept > 0 {
        each_fd(0, kept - 1, 0, close);
    }
    each_fd(kept + 1, libc::c_uint::MAX, 0, close);
}

fn exit_code(status: libc::c_int) -> libc::c_int {
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// What the sidecar, or its own parent, blocks or ignores must not be so for commands.
#[allow(unsafe_code)]
fn default_signals() -> Result<(), Errno> {
    for signal in Signal::iterator() {
        // SAFETY: the default disposition runs no code of this process. It is fixed, and refused, for some signals.
        unsafe { libc::signal(signal as libc::c_int, libc::SIG_DFL) };
    }
    SigSet::empty().thread_set_mask()
}

/// Lets the command open its own pipes, or its own terminal, anew, as `> /dev/stderr` does. Anything else stays as it
/// is: `/dev/null` is everybody's, and whoever owned it could close it to the sidecar.
#[allow(unsafe_code)]
fn give_pipes(identity: Identity) -> Result<(), Errno> {
    for fd in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the three are open, and `stat` is read only where it was written.
        let is_own = unsafe {
            let known = libc::fstat(fd, stat.as_mut_ptr()) == 0;
            known && stat.assume_init().st_mode & libc::S_IFMT == libc::S_IFIFO || libc::isatty(fd) == 1
        };
        if !is_own {
            continue;
        }
        // SAFETY: a pipe, or a terminal, that was made for this command.
        match Errno::result(unsafe { libc::fchown(fd, identity.uid.as_raw(), identity.gid.as_raw()) }) {
            // A kernel in user space whose pipes have no owner that could be changed.
            Ok(_) | Err(Errno::EPERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn prefer_for_oom() -> Result<(), Errno> {
    let file = open(c"/proc/self/oom_score_adj", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    write(&file, OOM_SCORE).map(|_| ())
}

/// No core dumps into the workspace; as many open files as a sandbox's process may have.
fn limit_resources() -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let files = hard.min(OPEN_FILES_MAX.unsigned_abs());
    setrlimit(Resource::RLIMIT_NOFILE, files, files)
}

/// Applies `flags` to all descriptors from `first` to `last`, or `one` to each where the kernel does not know how.
#[allow(unsafe_code)]
fn each_fd(first: libc::c_uint, last: libc::c_uint, flags: libc::c_uint, one: fn(libc::c_int)) {
    // SAFETY: the numbers are descriptors of this process, none of which is used again where they are closed.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if done != 0 {
        let (open_max, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((OPEN_FILES_MAX.unsigned_abs(), 0));
        let end = u64::from(last).saturating_add(1).min(open_max);
        for fd in first as libc::c_int..libc::c_int::try_from(end).unwrap_or(libc::c_int::MAX) {
            one(fd);
        }
    }
}

#[allow(unsafe_code)]
fn close_on_exec(fd: libc::c_int) {
    // SAFETY: sets a flag of a descriptor, or fails on one that is not open.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

#[allow(unsafe_code)]
fn close(fd: libc::c_int) {
    // SAFETY: only the supervisor calls this, which uses no descriptor.
    unsafe { libc::close(fd) };
}
