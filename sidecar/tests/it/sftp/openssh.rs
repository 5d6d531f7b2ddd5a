//! OpenSSH's own `sftp`, which starts the server by itself and speaks to it without SSH.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sandbox_sidecar::limits::SFTP_DATA_BYTES_MAX;
use tempfile::TempDir;

use crate::program::PROGRAM;

/// Where the client works and where the server does.
struct Ground {
    directory: TempDir,
}

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["here", "there"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    fn here(&self, name: &str) -> PathBuf {
        self.directory.path().join("here").join(name)
    }

    fn there(&self, name: &str) -> PathBuf {
        self.directory.path().join("there").join(name)
    }

    /// Runs a batch; whether all of it was done, what it said and what it complained of.
    fn run(&self, batch: &str) -> (bool, String, String) {
        let server = format!("{PROGRAM} serve-sftp --workspace {}", self.there("").display());
        let path = self.directory.path().join("batch");
        fs::write(&path, batch).unwrap();
        let mut sftp = Command::new("sftp");
        sftp.arg("-D").arg(server).arg("-b").arg(path).current_dir(self.here("")).stdin(Stdio::null());
        let ended = sftp.output().expect("OpenSSH's sftp is part of these tests");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (ended.status.success(), text(&ended.stdout), text(&ended.stderr))
    }

    /// What a batch said, all of which was done.
    fn batch(&self, batch: &str) -> String {
        let (done, said, complaint) = self.run(batch);
        assert!(done, "{said}{complaint}");
        said
    }

    /// What a batch complained of.
    fn refused(&self, batch: &str) -> String {
        let (done, said, complaint) = self.run(batch);
        assert!(!done, "{said}");
        complaint
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

fn same(one: &Path, other: &Path) {
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{} and {}", one.display(), other.display());
}

#[test]
fn a_full_disk_is_told_in_words() {
    let ground = Ground::new();
    fs::write(ground.here("file"), bytes(1 << 20)).unwrap();
    let complaint = ground.refused("put file /dev/full\n");
    assert_eq!(complaint.matches("sandbox: No space left on device").count(), 1, "{complaint}");
}

#[test]
fn files_are_put_and_got() {
    let ground = Ground::new();
    for length in [0, 1, SFTP_DATA_BYTES_MAX, SFTP_DATA_BYTES_MAX + 1, 20 << 20] {
        fs::write(ground.here("file"), bytes(length)).unwrap();
        ground.batch("put file\nget file back\n");
        same(&ground.here("file"), &ground.there("file"));
        same(&ground.here("file"), &ground.here("back"));
    }
}

#[test]
fn small_requests_and_many_at_once_carry_the_same() {
    let ground = Ground::new();
    fs::write(ground.here("file"), bytes(3 << 20)).unwrap();
    let server = format!("{PROGRAM} serve-sftp --workspace {}", ground.there("").display());
    let path = ground.directory.path().join("batch");
    fs::write(&path, "put file\nget file back\n").unwrap();
    let mut sftp = Command::new("sftp");
    sftp.args(["-B", "1000", "-R", "256", "-D", &server, "-b"]).arg(path).current_dir(ground.here(""));
    assert!(sftp.output().unwrap().status.success());
    same(&ground.here("file"), &ground.here("back"));
}

#[test]
fn broken_transfers_go_on_where_they_ended() {
    let ground = Ground::new();
    let whole = bytes(3 << 20);
    fs::write(ground.here("up"), &whole).unwrap();
    fs::write(ground.there("up"), &whole[..1 << 20]).unwrap();
    fs::write(ground.there("down"), &whole).unwrap();
    fs::write(ground.here("down"), &whole[..100]).unwrap();
    ground.batch("reput up\nreget down\n");
    same(&ground.here("up"), &ground.there("up"));
    same(&ground.here("down"), &ground.there("down"));
}

#[test]
fn trees_are_moved_with_their_times_and_modes() {
    let ground = Ground::new();
    fs::create_dir_all(ground.here("tree/a/b")).unwrap();
    for index in 0..300 {
        fs::write(ground.here(&format!("tree/a/{index}")), bytes(index)).unwrap();
    }
    fs::set_permissions(ground.here("tree/a/7"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::File::open(ground.here("tree/a/7"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234))
        .unwrap();
    ground.batch("put -pr tree\nget -pr tree back\n");
    for place in [ground.there("tree"), ground.here("back")] {
        for index in 0..300 {
            same(&ground.here(&format!("tree/a/{index}")), &place.join(format!("a/{index}")));
        }
        let found = fs::metadata(place.join("a/7")).unwrap();
        assert_eq!((found.mode() & 0o777, found.mtime()), (0o751, 1_234));
        assert!(place.join("a/b").is_dir());
    }
}

#[test]
fn directories_are_listed() {
    let ground = Ground::new();
    fs::create_dir(ground.there("d")).unwrap();
    fs::write(ground.there("d/file"), "12345").unwrap();
    fs::write(ground.there("d/.hidden"), "").unwrap();
    symlink("file", ground.there("d/link")).unwrap();
    assert_eq!(ground.batch("ls -1 d\n"), "sftp> ls -1 d\nd/file\nd/link\n");
    let long = ground.batch("ls -la d\nls -ln d\n");
    let line = |name: &str| long.lines().find(|line| line.ends_with(name)).unwrap().to_owned();
    assert!(line("file").starts_with("-rw") && line("file").contains(" 5 "), "{long}");
    assert!(line("link").starts_with('l') && line(".hidden").starts_with('-') && line("..").starts_with('d'), "{long}");
    let own = ground.there("d").canonicalize().unwrap();
    assert_eq!(
        ground.batch("cd d\npwd\n").lines().last(),
        Some(&*format!("Remote working directory: {}", own.display()))
    );
}

#[test]
fn names_are_made_moved_linked_and_removed() {
    let ground = Ground::new();
    fs::write(ground.there("file"), "x").unwrap();
    ground.batch("mkdir d\nrename file d/moved\nln d/moved hard\nln -s d/moved soft\nmkdir e\nrmdir e\n");
    assert_eq!(fs::metadata(ground.there("hard")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(ground.there("soft")).unwrap(), Path::new("d/moved"));
    assert!(!ground.there("e").exists());
    fs::write(ground.there("other"), "other").unwrap();
    assert!(ground.refused("rename -l other hard\n").contains("Failure"));
    ground.batch("rename other hard\nrm d/moved soft\n");
    assert_eq!(fs::read(ground.there("hard")).unwrap(), b"other");
    assert!(ground.refused("rm d/moved\n").contains("o such file"));
    assert!(ground.refused("mkdir d\n").contains("Failure"));
}

#[test]
fn modes_and_owners_are_changed() {
    let ground = Ground::new();
    fs::write(ground.there("file"), "x").unwrap();
    let own = fs::metadata(ground.there("file")).unwrap();
    ground.batch(&format!("chmod 640 file\nchown {} file\nchgrp {} file\nchmod 750 .\n", own.uid(), own.gid()));
    assert_eq!(fs::metadata(ground.there("file")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(ground.there("")).unwrap().mode() & 0o7777, 0o750);
    assert!(ground.refused("chmod 640 absent\n").contains("o such file"));
}

#[test]
fn room_is_told_and_files_are_copied_there() {
    let ground = Ground::new();
    assert!(ground.batch("df -h\ndf -i\n").contains("%Capacity") || ground.batch("df\n").contains('%'));
    fs::write(ground.there("file"), bytes(3 << 20)).unwrap();
    ground.batch("cp file copy\n");
    same(&ground.there("file"), &ground.there("copy"));
}

#[test]
fn files_of_odd_names_are_moved() {
    let ground = Ground::new();
    for name in [&b"two words"[..], b"-dash", b"\xff\xfe", b"new\nline", "\u{1f600}".as_bytes()] {
        fs::write(ground.here("").join(OsStr::from_bytes(name)), name).unwrap();
    }
    ground.batch("put *\n");
    fs::create_dir(ground.here("back")).unwrap();
    ground.batch("lcd back\nget *\n");
    for name in [&b"two words"[..], b"-dash", b"\xff\xfe", b"new\nline", "\u{1f600}".as_bytes()] {
        for place in [ground.there(""), ground.here("back")] {
            assert_eq!(fs::read(place.join(OsStr::from_bytes(name))).unwrap(), name);
        }
    }
}
