//! An SFTP server on stdin and stdout: version 3 (draft-ietf-secsh-filexfer-02) with OpenSSH's extensions.
//!
//! It runs in a process of its own that is the agent and may do what the agent may do anywhere in the sandbox; relative
//! paths begin at the workspace. [`Request`] is the closed set of what may be asked, [`Session`] does it, [`Answers`]
//! gathers what is answered, [`serve`] moves packets between the streams. One thread reads, does and writes by turns, so
//! a client that does not read its answers holds up itself only. Not here: SSH, and any right that the agent lacks.

mod answers;
mod attributes;
mod connection;
mod copy;
mod error;
mod handles;
mod listing;
mod packets;
mod paths;
mod people;
mod request;
mod session;
mod wire;

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

pub use self::answers::Answers;
pub use self::attributes::Change;
pub use self::connection::serve;
pub use self::error::SftpError;
pub use self::request::{Copy, Packet, Request};
pub use self::session::Session;
pub use self::wire::{Malformed, OpenFlags, Status};

/// What this process is told.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Served {
    /// Where relative paths begin.
    #[arg(long)]
    pub workspace: PathBuf,
}

/// Serves one client on stdin and stdout until it closes stdin. `home` is what `~` stands for.
///
/// # Errors
/// The workspace is not there, a stream fails, or what comes is no SFTP.
pub fn run(served: &Served, home: Option<PathBuf>) -> Result<(), SftpError> {
    std::env::set_current_dir(&served.workspace).map_err(SftpError::Workspace)?;
    let input = own(&io::stdin()).map_err(SftpError::Read)?;
    let output = own(&io::stdout()).map_err(SftpError::Write)?;
    serve(input, output, Session::new(home))
}

/// A standard stream without the standard library's buffer.
fn own(stream: &impl AsFd) -> io::Result<std::fs::File> {
    stream.as_fd().try_clone_to_owned().map(std::fs::File::from)
}
