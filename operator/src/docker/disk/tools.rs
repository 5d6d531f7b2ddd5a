//! The system's own programs for file systems, each within its time.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Stdio;

use nix::mount::{MntFlags, umount2};
use tokio::process::Command;

use crate::limits::DISK_TOOL_TIMEOUT;

/// Space that was deleted goes back to the host; inode tables are not written before they are used.
const MOUNT_OPTIONS: &str = "loop,nosuid,nodev,noatime,discard,noinit_itable,errors=remount-ro";
/// Tables and journal are written as they are used: a new disk takes a quarter of a megabyte.
const LAZY: &str = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";

/// Where these programs are, whatever the node was started with.
const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Mounts the file system in `image`. The loop device goes with the mount.
pub(super) async fn mount(image: &Path, point: &Path) -> io::Result<()> {
    let args: [&OsStr; 6] =
        ["-t".as_ref(), "ext4".as_ref(), "-o".as_ref(), MOUNT_OPTIONS.as_ref(), image.as_ref(), point.as_ref()];
    run("mount", &args).await
}

/// Unmounts what is mounted at `point`; `detach` hides it at once, whoever still uses it.
pub(super) async fn unmount(point: &Path, detach: bool) -> io::Result<()> {
    let flags = if detach { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    let point = point.to_owned();
    // Writes what is not written yet: it may take its time.
    let unmounted = tokio::task::spawn_blocking(move || umount2(&point, flags));
    Ok(unmounted.await??)
}

/// Makes a file system in `image`, with what is in `skeleton`.
pub(super) async fn format(image: &Path, skeleton: &Path) -> io::Result<()> {
    let mut args: Vec<&OsStr> = ["-q", "-F", "-m", "0", "-J", "size=8", "-O", "^resize_inode", "-E", LAZY, "-d"]
        .map(AsRef::<OsStr>::as_ref)
        .to_vec();
    args.extend([skeleton.as_os_str(), image.as_os_str()]);
    run("mkfs.ext4", &args).await
}

/// Copies a directory with owners, modes and links.
pub(super) async fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    run("cp", &["-a".as_ref(), from.as_os_str(), to.as_os_str()]).await
}

async fn run(program: &str, args: &[&OsStr]) -> io::Result<()> {
    let mut command = Command::new(program);
    command.args(args).env("PATH", SYSTEM_PATH).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DISK_TOOL_TIMEOUT, command.output()).await??;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let kind = if said.contains("No space left") { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, format!("{program}: {}: {}", output.status, said.trim())))
}
