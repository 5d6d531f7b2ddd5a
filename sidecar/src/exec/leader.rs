//! What happens between fork and exec: the only file of the sidecar with unsafe code.
//!
//! A command is started by two forks. The first child becomes its *supervisor*: it keeps the sidecar's user, so that
//! commands cannot touch it, adopts every descendant that loses its parent, and hands on the exit code. The second
//! becomes the *leader*, drops everything that is the sidecar's, and turns into `/bin/sh`. When the leader has ended by
//! itself the supervisor follows, and what the command left running goes to the sandbox's first process.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{ForkResult, chdir, fchdir, fork, setgroups, setresgid, setresuid, setsid, write};
use rustix::process::setpriority_process;
use sandbox_protocol::limits::OPEN_FILES_MAX;
use tokio::process::Command;

use super::Identity;

/// Added to the error number of a directory that cannot be entered: a bare number is all that comes back from there.
const DIRECTORY_ERRNO_BASE: i32 = 1 << 16;

/// First descriptor that is not stdin, stdout or stderr.
const FIRST_OTHER_FD: libc::c_uint = 3;

/// How ready commands are to be ended when memory runs out, so that the sidecar, at 0, is not.
const OOM_SCORE: &[u8] = b"500";

/// How far commands stand back for the sidecar, whose answers must not wait for a thousand of them.
const NICENESS: i32 = 10;

/// What a leader becomes.
pub(super) struct Plan {
    directory: CString,
    identity: Option<Identity>,
}

impl Plan {
    /// A leader in `directory` that runs as `identity`, or as the sidecar's own user.
    pub(super) fn new(directory: &Path, identity: Option<Identity>) -> io::Result<Self> {
        Ok(Self { directory: CString::new(directory.as_os_str().as_bytes())?, identity })
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
            ForkResult::Parent { child } => supervise(child.as_raw()),
            ForkResult::Child => self.become_leader(),
        }
    }

    fn become_leader(&self) -> io::Result<()> {
        default_signals()?;
        setsid()?;
        umask(Mode::from_bits_truncate(0o022));
        prefer_for_oom()?;
        setpriority_process(None, NICENESS)?;
        limit_resources()?;
        each_fd_from(FIRST_OTHER_FD, libc::CLOSE_RANGE_CLOEXEC, close_on_exec);
        if let Some(identity) = self.identity {
            give_pipes(identity)?;
            setgroups(&[])?;
            setresgid(identity.gid, identity.gid, identity.gid)?;
            setresuid(identity.uid, identity.uid, identity.uid)?;
        }
        prctl::set_no_new_privs()?;
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        self.enter_directory().map_err(|errno| io::Error::from_raw_os_error(DIRECTORY_ERRNO_BASE + errno as i32))
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

/// The error number of a directory that the leader could not enter, where that is what `error` tells.
pub(super) fn directory_errno(error: &io::Error) -> Option<Errno> {
    let raw = error.raw_os_error()?.checked_sub(DIRECTORY_ERRNO_BASE)?;
    (raw > 0).then(|| Errno::from_raw(raw))
}

/// Waits for every child until the leader is among the dead, then ends with its exit code.
#[allow(unsafe_code)]
fn supervise(leader: libc::pid_t) -> ! {
    // No signal but SIGKILL and SIGSTOP, which the sidecar alone can send, comes between.
    let masked = SigSet::all().thread_set_mask().and(prctl::set_name(c"supervisor"));
    each_fd_from(0, 0, close);
    let mut status = 0;
    let code = loop {
        // SAFETY: `status` lives as long as the call.
        match unsafe { libc::waitpid(-1, &raw mut status, 0) } {
            pid if pid == leader => break exit_code(status),
            -1 if Errno::last() != Errno::EINTR => break libc::EXIT_FAILURE,
            _ => {}
        }
    };
    // SAFETY: ends this process at once, without running what the sidecar registered for its own end.
    unsafe { libc::_exit(if masked.is_ok() { code } else { libc::EXIT_FAILURE }) }
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

/// Applies `flags` to all descriptors from `first` on, or `one` to each where the kernel does not know how.
#[allow(unsafe_code)]
fn each_fd_from(first: libc::c_uint, flags: libc::c_uint, one: fn(libc::c_int)) {
    // SAFETY: the numbers are descriptors of this process, none of which is used again where they are closed.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) };
    if done != 0 {
        let (open_max, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((OPEN_FILES_MAX.unsigned_abs(), 0));
        for fd in first as libc::c_int..libc::c_int::try_from(open_max).unwrap_or(libc::c_int::MAX) {
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
