//! A pair of the kernel's pseudo-terminals: ours is read and written here, the other is a shell's.
//!
//! None of this gives a program inside a way to the sidecar, which has no terminal of its own: what a program can push
//! into its terminal's input, by `TIOCSTI` say, reaches the programs of the same terminal only.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use rustix::io::ioctl_fionbio;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcgetpgrp, tcgetsid, tcsetattr, tcsetwinsize};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Our side of a terminal. The kernel lets it be read and written as a pipe is.
#[derive(Debug)]
pub(crate) struct Tty {
    shown: Receiver,
    typed: Sender,
}

/// Opens a terminal; the second is the shell's side. Neither becomes the sidecar's own terminal.
pub(crate) fn open_pair(size: impl Into<Winsize>) -> io::Result<(Tty, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let path = ptsname(&ours, Vec::new())?;
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let theirs = open(Path::new(OsStr::from_bytes(path.to_bytes())), flags, Mode::empty())?;
    let mut modes = tcgetattr(&theirs)?;
    // So that a line that is edited loses whole characters.
    modes.input_modes |= InputModes::IUTF8;
    tcsetattr(&theirs, OptionalActions::Now, &modes)?;
    ioctl_fionbio(&ours, true)?;
    let typed = Sender::from_owned_fd_unchecked(ours.try_clone()?)?;
    let tty = Tty { shown: Receiver::from_owned_fd_unchecked(ours)?, typed };
    tty.resize(size)?;
    Ok((tty, theirs))
}

impl Tty {
    /// Where it is read.
    pub(crate) fn shown(&self) -> &Receiver {
        &self.shown
    }

    /// Where it is typed to.
    pub(crate) fn typed(&self) -> &Sender {
        &self.typed
    }

    /// Waits for what the terminal shows.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.shown.readable().await?;
            match self.shown.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// What the terminal has shown already.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.shown, buffer)?)
    }

    /// Types, as fast as the terminal takes it.
    pub(super) async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.typed.writable().await?;
            match self.typed.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives the terminal a size; the kernel tells its foreground.
    pub(crate) fn resize(&self, size: impl Into<Winsize>) -> io::Result<()> {
        Ok(tcsetwinsize(&self.shown, size.into())?)
    }

    /// Signals the process group in the foreground, where there is one.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Ok(group) = tcgetpgrp(&self.shown) {
            send(group, signal);
        }
    }

    /// Tells shell and foreground that their terminal goes away.
    pub(crate) fn hang_up(&self) {
        for signal in [Signal::SIGHUP, Signal::SIGCONT] {
            self.signal(signal);
            if let Ok(shell) = tcgetsid(&self.shown) {
                send(shell, signal);
            }
        }
    }
}

/// The groups of a session are its own, so this reaches nothing else.
fn send(group: rustix::process::Pid, signal: Signal) {
    if let Err(errno) = killpg(Pid::from_raw(group.as_raw_nonzero().get()), signal) {
        tracing::debug!(?group, %signal, %errno, "a terminal's process group was not signalled");
    }
}
