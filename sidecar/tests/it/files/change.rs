//! Directories made, files moved and removed.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use sandbox_protocol::files::{FileMode, MKDIR, MOVE, MkdirBody, MoveBody, RemoveReply};
use sandbox_sidecar::limits::{FILES_BODY_BYTES_MAX, FILES_PARENTS_MAX};

use super::desk::{Answer, Desk};

async fn mkdir(desk: &Desk, path: &str, parents: bool) -> Answer {
    desk.post(MKDIR, &MkdirBody { path: path.into(), parents, mode: None }).await
}

async fn rename(desk: &Desk, from: &str, to: &str, overwrite: bool) -> Answer {
    desk.post(MOVE, &MoveBody { from: from.into(), to: to.into(), overwrite }).await
}

#[tokio::test]
async fn a_directory_is_made_once_or_with_all_on_the_way() {
    let desk = Desk::open();
    assert_eq!(mkdir(&desk, "d/", false).await.status, 204);
    assert_eq!(mkdir(&desk, "d", false).await.refusal(), (409, "exists".into()));
    assert_eq!(mkdir(&desk, "a/b/c", false).await.refusal(), (404, "no_such_file".into()));
    for _ in 0..2 {
        assert_eq!(mkdir(&desk, "a/b/c", true).await.status, 204);
    }
    assert_eq!(mkdir(&desk, "", true).await.status, 204);
    assert_eq!(mkdir(&desk, "", false).await.refusal(), (409, "exists".into()));
    desk.wrote("file", b"").await;
    assert_eq!(mkdir(&desk, "file", true).await.refusal(), (409, "exists".into()));
    assert_eq!(mkdir(&desk, "file/d", true).await.refusal(), (409, "not_directory".into()));
    let closed = MkdirBody { path: "closed".into(), parents: false, mode: Some(FileMode(0o700)) };
    assert_eq!(desk.post(MKDIR, &closed).await.status, 204);
    let mode = |name| std::fs::metadata(desk.workspace().join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("closed"), mode("d")), (0o700, 0o755));
    let sticky = MkdirBody { path: "sticky".into(), parents: false, mode: Some(FileMode(0o1777)) };
    assert_eq!(desk.post(MKDIR, &sticky).await.refusal(), (400, "bad_path".into()));
}

#[tokio::test]
async fn as_many_directories_are_made_on_the_way_as_may() {
    let desk = Desk::open();
    let deep = |parents: usize, top: &str| format!("{top}{}", "/d".repeat(parents));
    assert_eq!(mkdir(&desk, &deep(FILES_PARENTS_MAX, "a"), true).await.status, 204);
    assert_eq!(mkdir(&desk, &deep(FILES_PARENTS_MAX + 1, "b"), true).await.refusal(), (400, "name_too_long".into()));
    assert!(!desk.workspace().join("b").exists());
}

#[tokio::test]
async fn a_move_replaces_nothing_unless_told_to() {
    let desk = Desk::open();
    desk.wrote("a", b"a").await;
    desk.wrote("b", b"b").await;
    assert_eq!(rename(&desk, "a", "b", false).await.refusal(), (409, "exists".into()));
    assert_eq!(rename(&desk, "a", "b", true).await.status, 204);
    assert_eq!(&desk.get(b"b", &[]).await.body[..], b"a");
    assert_eq!(rename(&desk, "a", "c", false).await.refusal(), (404, "no_such_file".into()));
    assert_eq!(rename(&desk, "b", "d/c", false).await.refusal(), (404, "no_such_file".into()));
    assert_eq!(rename(&desk, "b", "c/", false).await.refusal(), (409, "not_directory".into()));
    let home = format!("{}/moved", desk.home().display());
    assert_eq!(rename(&desk, "b", &home, false).await.status, 204);
    assert_eq!(&desk.get(home.as_bytes(), &[]).await.body[..], b"a");
}

#[tokio::test]
async fn a_directory_moves_with_all_that_is_in_it_but_not_into_itself() {
    let desk = Desk::open();
    desk.sh("mkdir -p d/e full/x empty; : > d/e/f").await;
    assert_eq!(rename(&desk, "d", "d/e/d", false).await.refusal(), (409, "cannot_move".into()));
    assert_eq!(rename(&desk, "d", "full", true).await.refusal(), (409, "not_empty".into()));
    assert_eq!(rename(&desk, "d", "empty", true).await.status, 204);
    assert!(desk.workspace().join("empty/e/f").exists());
    assert_eq!(rename(&desk, "empty/e/f", "full", true).await.refusal(), (409, "is_directory".into()));
}

#[tokio::test]
async fn a_link_is_moved_and_removed_itself() {
    let desk = Desk::open();
    desk.wrote("file", b"kept").await;
    symlink("file", desk.workspace().join("link")).unwrap();
    assert_eq!(rename(&desk, "link", "other", false).await.status, 204);
    assert!(std::fs::symlink_metadata(desk.workspace().join("other")).unwrap().is_symlink());
    assert_eq!(desk.remove(b"other/", false).await.refusal(), (409, "not_directory".into()));
    assert_eq!(desk.remove(b"other", true).await.status, 200);
    assert_eq!(&desk.get(b"file", &[]).await.body[..], b"kept");
}

#[tokio::test]
async fn a_directory_that_is_not_empty_is_removed_only_whole() {
    let desk = Desk::open();
    desk.sh("mkdir -p d/e/f kept; : > d/e/f/g; ln -s ../../kept d/e/link; : > kept/file; chmod 0 d/e/f; mkdir empty; : > file").await;
    assert_eq!(desk.remove(b"d", false).await.refusal(), (409, "not_empty".into()));
    let removed: RemoveReply = desk.remove(b"d", true).await.json();
    assert_eq!(removed.removed, 5);
    assert!(desk.workspace().join("kept/file").exists() && !desk.workspace().join("d").exists());
    assert_eq!(desk.remove(b"empty", false).await.json::<RemoveReply>().removed, 1);
    assert_eq!(desk.remove(b"file", false).await.json::<RemoveReply>().removed, 1);
    assert_eq!(desk.remove(b"file", true).await.refusal(), (404, "no_such_file".into()));
}

#[tokio::test]
async fn the_roots_themselves_stay() {
    let desk = Desk::open();
    let home = desk.home().display().to_string();
    desk.sh("mkdir d").await;
    for path in ["", ".", "./", "/", &home, &format!("{home}//./")] {
        let expected = if path == "/" { (403, "outside".into()) } else { (409, "is_root".to_owned()) };
        assert_eq!(desk.remove(path.as_bytes(), true).await.refusal(), expected, "{path:?}");
        assert_eq!(rename(&desk, path, "d/x", true).await.refusal(), expected, "{path:?}");
        assert_eq!(rename(&desk, "d", path, true).await.refusal(), expected, "{path:?}");
    }
    for path in ["d/.", "d/..", ".."] {
        assert_eq!(desk.remove(path.as_bytes(), true).await.refusal(), (400, "bad_path".into()), "{path:?}");
    }
    assert!(desk.home().exists() && desk.workspace().join("d").exists());
}

#[tokio::test]
async fn a_body_is_read_up_to_its_bound() {
    let desk = Desk::open();
    let sized = |bytes: usize| format!("{:<bytes$}", "{\"path\":\"d\"}").into_bytes();
    let longest = desk.ask(hyper::Method::POST, MKDIR, &[], &sized(FILES_BODY_BYTES_MAX)).await;
    assert_eq!(longest.status, 204);
    let longer = desk.ask(hyper::Method::POST, MKDIR, &[], &sized(FILES_BODY_BYTES_MAX + 1)).await;
    assert_eq!(longer.refusal(), (413, "too_large".into()));
}

#[tokio::test]
async fn requests_that_are_none_are_refused() {
    let desk = Desk::open();
    for (route, body) in [(MOVE, "{}"), (MOVE, "[]"), (MKDIR, "{\"path\":1}"), (MKDIR, "{\"path\":\"a\",\"x\":1}")] {
        let answer = desk.ask(hyper::Method::POST, route, &[], body.as_bytes()).await;
        assert_eq!(answer.refusal(), (400, "bad_request".into()), "{route} {body}");
    }
    for target in ["/files/stat", "/files/stat?path=a&x=1", "/files/content?path=a&path=b", "/files/list?limit=x"] {
        let answer = desk.ask(hyper::Method::GET, target, &[], b"").await;
        assert_eq!(answer.refusal(), (400, "bad_request".into()), "{target}");
    }
    assert_eq!(desk.ask(hyper::Method::GET, "/files/else", &[], b"").await.refusal(), (404, "not_found".into()));
    let method = desk.ask(hyper::Method::POST, "/files/list", &[], b"").await;
    assert_eq!(method.refusal(), (405, "method_not_allowed".into()));
}
