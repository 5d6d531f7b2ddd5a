//! Paths that would lead out, and files that are not the agent's: nothing outside is read, written or made.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::unistd::geteuid;
use sandbox_protocol::files::{FilePath, FilesRefusal, MKDIR, MOVE, MkdirBody, MoveBody, WriteQuery};
use sandbox_sidecar::files::{FilesError, Means, Roots, content};
use sandbox_sidecar::limits::{FILE_NAME_BYTES_MAX, FILES_LINKS_MAX, FILES_PATH_BYTES_MAX};

use super::desk::{Desk, at};

/// A workspace with links of every kind out of it, and a secret beside it.
fn hostile(desk: &Desk) {
    let secret = desk.outside("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("file"), "secret").unwrap();
    // Open to everybody: that it is not reached is not for want of rights.
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(secret.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
    let workspace = desk.workspace();
    fs::create_dir(workspace.join("d")).unwrap();
    fs::write(workspace.join("file"), "own").unwrap();
    for (name, target) in [
        ("up", "../secret"),
        ("far", "d/../../secret"),
        ("absolute", secret.to_str().unwrap()),
        ("own", workspace.to_str().unwrap()),
        ("proc", "/proc/self/root"),
        ("cwd", "/proc/1/cwd"),
        ("fd", "/proc/self/fd/0"),
        ("root", "/"),
        ("twice", "up"),
        ("loop", "loop"),
        ("d/back", "../../secret"),
    ] {
        symlink(target, workspace.join(name)).unwrap();
    }
}

/// The secret is as it was, and alone.
fn unharmed(desk: &Desk) {
    let secret = desk.outside("secret");
    let names: Vec<_> = fs::read_dir(&secret).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!((names, fs::read_to_string(secret.join("file")).unwrap()), (vec!["file".into()], "secret".into()));
}

/// Paths that lead out, and why each is refused.
const OUT: [(&str, FilesRefusal); 22] = [
    ("../secret/file", FilesRefusal::Outside),
    ("d/../../secret/file", FilesRefusal::Outside),
    ("./.././secret/file", FilesRefusal::Outside),
    ("up/file", FilesRefusal::Outside),
    ("far/file", FilesRefusal::Outside),
    ("absolute/file", FilesRefusal::Outside),
    ("own/file", FilesRefusal::Outside),
    ("twice/file", FilesRefusal::Outside),
    ("d/back/file", FilesRefusal::Outside),
    ("proc/etc/passwd", FilesRefusal::Outside),
    ("cwd/etc/passwd", FilesRefusal::Outside),
    ("fd/x", FilesRefusal::Outside),
    ("root/etc/passwd", FilesRefusal::Outside),
    ("/proc/self/root/etc/passwd", FilesRefusal::Outside),
    ("/proc/1/cwd/etc/passwd", FilesRefusal::Outside),
    ("/etc/passwd", FilesRefusal::Outside),
    ("//etc/passwd", FilesRefusal::Outside),
    ("loop/x", FilesRefusal::TooManyLinks),
    ("file/../file", FilesRefusal::NotDirectory),
    ("absent/../file", FilesRefusal::NoSuchFile),
    ("%2e%2e/secret/file", FilesRefusal::NoSuchFile),
    ("..\\secret\\file", FilesRefusal::NoSuchFile),
];

#[tokio::test]
async fn no_request_leads_out_of_the_workspace() {
    let desk = Desk::open();
    hostile(&desk);
    for (path, expected) in OUT {
        let expected = (expected.status(), expected.to_string());
        assert_eq!(desk.get(path.as_bytes(), &[]).await.refusal(), expected, "get {path}");
        assert_eq!(desk.stat(path.as_bytes()).await.refusal(), expected, "stat {path}");
        assert_eq!(desk.remove(path.as_bytes(), true).await.refusal(), expected, "remove {path}");
        for query in [at(path), WriteQuery { append: true, ..at(path) }, WriteQuery { parents: true, ..at(path) }] {
            // What is not there, and leads nowhere out, may be made.
            let may_be_made = query.parents && expected.1 == "no_such_file" || path.contains('\\');
            let answer = desk.put(&query, b"overwritten").await;
            assert!(may_be_made || answer.refusal() == expected, "put {query:?}: {answer:?}");
        }
        let made = desk.post(MKDIR, &MkdirBody { path: path.into(), parents: false, mode: None }).await;
        let into = desk.post(MOVE, &MoveBody { from: "file".into(), to: path.into(), overwrite: true }).await;
        let out_of = desk.post(MOVE, &MoveBody { from: path.into(), to: "taken".into(), overwrite: true }).await;
        assert!(expected.0 != 403 || [made, into, out_of].iter().all(|answer| answer.refusal() == expected), "{path}");
        desk.wrote("file", b"own").await;
        unharmed(&desk);
    }
    for path in ["up", "absolute", "root", "proc", "cwd"] {
        let target = format!("/files/list?path={path}");
        assert_eq!(desk.ask(hyper::Method::GET, &target, &[], b"").await.refusal(), (403, "outside".into()), "{path}");
        let target = format!("/files/watch?path={path}");
        assert_eq!(desk.ask(hyper::Method::GET, &target, &[], b"").await.refusal(), (403, "outside".into()), "{path}");
        assert_eq!(desk.remove(path.as_bytes(), true).await.status, 200, "the link itself");
        unharmed(&desk);
    }
}

#[tokio::test]
async fn paths_that_are_none_are_refused() {
    let desk = Desk::open();
    for path in [&b"a\0b"[..], b"\0", b"/\0"] {
        assert_eq!(desk.get(path, &[]).await.refusal(), (400, "bad_path".into()), "{path:?}");
        let body = MkdirBody { path: FilePath(path.to_vec()), parents: true, mode: None };
        assert_eq!(desk.post(MKDIR, &body).await.refusal(), (400, "bad_path".into()), "{path:?}");
    }
    for path in ["a/", "a//", "a/.", "a/.."] {
        assert_eq!(desk.put(&at(path), b"").await.refusal(), (400, "bad_path".into()), "{path}");
    }
    assert_eq!(desk.put(&at(""), b"").await.refusal(), (409, "is_root".into()));
}

#[tokio::test]
async fn names_and_paths_are_as_long_as_the_file_system_takes_and_no_longer() {
    let desk = Desk::open();
    let too_long = (400, "name_too_long".to_owned());
    let longest = "n".repeat(FILE_NAME_BYTES_MAX);
    desk.wrote(&longest, b"x").await;
    assert_eq!(desk.put(&at(&format!("{longest}n")), b"").await.refusal(), too_long);
    assert_eq!(desk.get(format!("{longest}n").as_bytes(), &[]).await.refusal(), too_long);
    let path = |bytes: usize| format!("{}n", "./".repeat(bytes / 2))[..bytes].to_owned();
    desk.wrote("n", b"y").await;
    let longest = path(FILES_PATH_BYTES_MAX);
    assert_eq!(longest.len(), FILES_PATH_BYTES_MAX);
    assert_eq!(&desk.get(longest.as_bytes(), &[]).await.body[..], b"y");
    assert_eq!(desk.get(format!("./{longest}").as_bytes(), &[]).await.refusal(), too_long);
}

#[tokio::test]
async fn what_is_not_the_agents_is_left_as_it_is() {
    if !geteuid().is_root() {
        eprintln!("what_is_not_the_agents_is_left_as_it_is: left out, needs root");
        return;
    }
    let desk = Desk::open();
    let workspace = desk.workspace();
    // A second name, in the workspace, of a file that is root's.
    let outside = desk.outside("roots");
    fs::write(&outside, "roots").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&outside, workspace.join("hard")).unwrap();
    fs::create_dir(workspace.join("kept")).unwrap();
    fs::write(workspace.join("kept/file"), "kept").unwrap();
    desk.sh("printf x > closed; chmod 000 closed").await;
    let denied = (403, "denied".to_owned());
    assert_eq!(desk.get(b"hard", &[]).await.refusal(), denied);
    assert_eq!(desk.put(&WriteQuery { append: true, ..at("hard") }, b"x").await.refusal(), denied);
    assert_eq!(desk.put(&WriteQuery { offset: Some(0), ..at("hard") }, b"x").await.refusal(), denied);
    assert_eq!(desk.get(b"closed", &[]).await.refusal(), denied);
    assert_eq!(desk.put(&at("kept/new"), b"x").await.refusal(), denied);
    assert_eq!(desk.put(&at("kept/file"), b"x").await.refusal(), denied);
    assert_eq!(desk.remove(b"kept/file", false).await.refusal(), denied);
    assert_eq!(desk.remove(b"kept", true).await.refusal(), denied);
    // A name in the agent's directory is the agent's to give to another file.
    desk.wrote("hard", b"own").await;
    desk.wrote("closed", b"own").await;
    assert_eq!(fs::read_to_string(&outside).unwrap(), "roots");
    assert_eq!(fs::read_to_string(workspace.join("kept/file")).unwrap(), "kept");
}

/// What each means of resolving makes of the hostile paths, by the library itself.
#[tokio::test]
async fn the_walk_in_user_space_refuses_what_the_kernel_refuses() {
    let desk = Desk::open();
    hostile(&desk);
    let workspace = desk.workspace();
    let roots = |means| Roots::open(&workspace, &desk.home()).unwrap().resolved_by(means);
    let mut chain = FILES_LINKS_MAX;
    symlink("file", workspace.join("l0")).unwrap();
    for index in 1..=chain {
        symlink(format!("l{}", index - 1), workspace.join(format!("l{index}"))).unwrap();
    }
    chain -= 1;
    let (longest, longer) = (format!("l{chain}"), format!("l{}", chain + 1));
    let more =
        ["file", "file/", "d/../file", "d/back", "./d/.././file", "d", "d/", "", ".", "up", "loop", &longest, &longer];
    for path in OUT.iter().map(|(path, _)| *path).chain(more) {
        let path = FilePath::from(path);
        let found = |means| {
            let roots = roots(means);
            roots.place(&path).and_then(|place| content(&place)).map(|content| content.bytes)
        };
        assert_eq!(found(Means::Walk), found(Means::Kernel), "{}", path.shown());
    }
    for (path, expected) in OUT {
        let roots = roots(Means::Walk);
        let path = FilePath::from(path);
        let refused = roots.place(&path).and_then(|place| content(&place)).map(|_| ()).unwrap_err();
        assert_eq!(refused, FilesError::Refused(expected), "{}", path.shown());
    }
}

/// Exchanges the directory `d` with a link to the secret, again and again, until told to stop.
fn swapping(workspace: &Path, stop: &Arc<AtomicBool>) -> thread::JoinHandle<u32> {
    let (one, other, stop) = (workspace.join("d"), workspace.join("link"), Arc::clone(stop));
    let ready = Arc::new(Barrier::new(2));
    let swapping = thread::spawn({
        let ready = Arc::clone(&ready);
        move || {
            let mut swaps = 0;
            ready.wait();
            while !stop.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        }
    });
    ready.wait();
    swapping
}

fn swap_ground(desk: &Desk) {
    hostile(desk);
    let workspace = desk.workspace();
    symlink("../secret", workspace.join("link")).unwrap();
    fs::write(workspace.join("d/file"), "own").unwrap();
    if geteuid().is_root() {
        for path in ["d", "d/file"] {
            chown(workspace.join(path), Some(54_321), Some(54_321)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_directory_that_becomes_a_link_meanwhile_leads_nobody_out() {
    let desk = Desk::open();
    swap_ground(&desk);
    let stop = Arc::new(AtomicBool::new(false));
    let swaps = swapping(&desk.workspace(), &stop);
    let (mut own, mut refused) = (0, 0);
    for round in 0..400 {
        let got = desk.get(b"d/file", &[]).await;
        match got.status {
            200 => {
                assert!(got.body != "secret");
                own += 1;
            }
            _ => refused += 1,
        }
        let path = format!("d/new{round}");
        desk.put(&at(&path), b"x").await;
        desk.put(&WriteQuery { append: true, ..at("d/file") }, b"").await;
        desk.put(&WriteQuery { parents: true, ..at(&format!("d/p{round}/q")) }, b"x").await;
        desk.post(MOVE, &MoveBody { from: "d/file".into(), to: "d/moved".into(), overwrite: true }).await;
        desk.post(MOVE, &MoveBody { from: "d/moved".into(), to: "d/file".into(), overwrite: true }).await;
        desk.remove(path.as_bytes(), true).await;
        unharmed(&desk);
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swaps.join().unwrap();
    assert!(swaps > 2_000 && own > 0 && refused > 0, "{swaps} swaps, {own} own, {refused} refused");
    unharmed(&desk);
}

/// The same race at full speed, without HTTP between, for both means.
#[tokio::test]
async fn neither_means_of_resolving_loses_the_race() {
    let desk = Desk::open();
    swap_ground(&desk);
    let path = FilePath::from("d/file");
    for means in [Means::Kernel, Means::Walk] {
        let roots = Roots::open(&desk.workspace(), &desk.home()).unwrap().resolved_by(means);
        let stop = Arc::new(AtomicBool::new(false));
        let swaps = swapping(&desk.workspace(), &stop);
        let (mut own, mut refused) = (0, 0);
        for _ in 0..20_000 {
            match content(&roots.place(&path).unwrap()) {
                Ok(content) => {
                    assert_eq!(std::io::read_to_string(content.file).unwrap(), "own");
                    own += 1;
                }
                Err(_) => refused += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
        let swaps = swaps.join().unwrap();
        assert!(swaps > 2_000 && own > 100 && refused > 100, "{means:?}: {swaps} swaps, {own} own, {refused} refused");
    }
}

#[tokio::test]
async fn a_tree_that_is_removed_while_links_come_into_it_takes_nothing_along() {
    let desk = Desk::open();
    hostile(&desk);
    let workspace = desk.workspace();
    for round in 0..20 {
        desk.sh(&format!("mkdir -p t{round}/a/b; i=0; while [ $i -lt 50 ]; do mkdir t{round}/$i; : > t{round}/$i/x; i=$((i + 1)); done")).await;
        let tree = workspace.join(format!("t{round}"));
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let swapping = thread::spawn(move || {
            // A directory is exchanged with a link out of the workspace, as long as both are there.
            let (one, other) = (tree.join("7"), tree.join("link"));
            symlink("../../secret", &other).ok();
            let swap = || renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE);
            while swap().is_ok() && !told.load(Ordering::Relaxed) {}
        });
        let answer = desk.remove(format!("t{round}").as_bytes(), true).await;
        assert!(matches!(answer.status, 200 | 409), "{answer:?}");
        stop.store(true, Ordering::Relaxed);
        swapping.join().unwrap();
        unharmed(&desk);
    }
}

#[tokio::test]
async fn a_name_that_is_no_text_leads_nowhere_else() {
    let desk = Desk::open();
    fs::write(desk.outside("\u{fffd}"), "secret").unwrap();
    for path in [&b"../\xff"[..], b"\xc0\xae\xc0\xae/secret", b"\xff/../../secret"] {
        assert_ne!(desk.get(path, &[]).await.status, 200, "{}", OsStr::from_bytes(path).display());
    }
}
