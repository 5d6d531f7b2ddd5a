//! Pages and entries.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use sandbox_protocol::files::{FileKind, FileMode, FilePath, ListQuery};
use sandbox_protocol::limits::{FILES_PAGE_ENTRIES_DEFAULT, FILES_PAGE_ENTRIES_MAX};

use super::desk::Desk;

fn texts(names: &[FilePath]) -> Vec<String> {
    names.iter().map(FilePath::shown).collect()
}

#[tokio::test]
async fn a_directory_is_listed_in_the_order_of_bytes_with_what_is_known() {
    let desk = Desk::open();
    desk.sh("mkdir d; printf abc > file; chmod 750 d; mkfifo fifo; ln -s file link; ln file other; printf 1 > B; printf 1 > é").await;
    let listed = desk.list(&ListQuery::default()).await;
    let names: Vec<_> = listed.entries.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(texts(&names), ["B", "d", "fifo", "file", "link", "other", "é"]);
    assert!(listed.next.is_none());
    let by_name = |name: &str| listed.entries.iter().find(|entry| entry.name == name.into()).unwrap();
    assert_eq!((by_name("d").kind, by_name("d").mode), (FileKind::Directory, FileMode(0o750)));
    assert_eq!((by_name("fifo").kind, by_name("link").kind), (FileKind::Other, FileKind::Symlink));
    assert_eq!((by_name("file").bytes, by_name("file").links), (3, 2));
    assert_eq!(by_name("link").target, Some("file".into()));
    assert_eq!(by_name("file"), &desk.entry("file").await);
    assert_eq!(by_name("file").etag.as_deref(), Some(desk.get(b"file", &[]).await.header("etag")));
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    assert!((age - by_name("file").modified_ms).abs() < 60_000);
}

#[tokio::test]
async fn pages_follow_each_other_and_miss_nothing_that_stays() {
    let desk = Desk::open();
    desk.sh("i=0; while [ $i -lt 250 ]; do : > $(printf f%03d $i); i=$((i + 1)); done").await;
    let mut all = Vec::new();
    let mut query = ListQuery { limit: Some(7), ..ListQuery::default() };
    loop {
        let page = desk.list(&query).await;
        assert!(page.entries.len() <= 7);
        all.extend(page.entries.into_iter().map(|entry| entry.name));
        if all.len() == 14 {
            // What vanishes between two pages, the cursor's own name too, shifts nothing.
            desk.sh("rm f013 f003").await;
        }
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(texts(&all), (0..250).map(|index| format!("f{index:03}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_page_has_its_default_and_its_bound() {
    let desk = Desk::open();
    desk.sh("i=0; while [ $i -le 1000 ]; do : > $i; i=$((i + 1)); done").await;
    let count = async |limit| desk.list(&ListQuery { limit, ..ListQuery::default() }).await.entries.len() as u64;
    assert_eq!(count(None).await, FILES_PAGE_ENTRIES_DEFAULT);
    assert_eq!(count(Some(FILES_PAGE_ENTRIES_MAX)).await, FILES_PAGE_ENTRIES_MAX);
    assert_eq!(count(Some(FILES_PAGE_ENTRIES_MAX + 1)).await, FILES_PAGE_ENTRIES_MAX);
    assert_eq!((count(Some(1)).await, count(Some(0)).await), (1, 1));
}

#[tokio::test]
async fn names_of_any_bytes_come_and_go_unharmed() {
    let desk = Desk::open();
    for name in [&b"\xff\xfe"[..], b"a b", b"+%&=?#", b"new\nline", b"\x01", b"-rf", b"'\"\\"] {
        std::fs::write(desk.workspace().join(OsStr::from_bytes(name)), name).unwrap();
        std::os::unix::fs::chown(desk.workspace().join(OsStr::from_bytes(name)), Some(54_321), None).unwrap();
        let got = desk.get(name, &[]).await;
        assert_eq!((got.status, &got.body[..]), (200, name));
        let listed = desk.list(&ListQuery::default()).await;
        assert_eq!(listed.entries.len(), 1);
        assert_eq!(listed.entries[0].name, FilePath(name.to_vec()));
        assert_eq!(desk.remove(name, false).await.status, 200);
    }
}

#[tokio::test]
async fn a_link_to_a_directory_is_listed_through_and_known_as_itself() {
    let desk = Desk::open();
    desk.sh("mkdir -p d/e; : > d/x").await;
    symlink("d", desk.workspace().join("link")).unwrap();
    assert_eq!(desk.list(&ListQuery { path: "link".into(), ..ListQuery::default() }).await.entries.len(), 2);
    assert_eq!(desk.entry("link").await.kind, FileKind::Symlink);
    assert_eq!(desk.entry("link/e").await.kind, FileKind::Directory);
    assert_eq!(desk.stat(b"d/x/").await.refusal(), (409, "not_directory".into()));
    assert_eq!(desk.entry("d/").await.name, "d".into());
    let root = desk.entry("").await;
    assert_eq!((root.kind, root.name.shown()), (FileKind::Directory, desk.workspace().display().to_string()));
}
