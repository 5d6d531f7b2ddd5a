//! Bytes in and out.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use futures::future::join_all;
use http_body_util::StreamBody;
use hyper::Method;
use hyper::body::{Bytes, Frame};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sandbox_protocol::files::{FileMode, FilesQuery as _, WriteQuery, WriteReply};
use sandbox_protocol::snapshot::Sha256;
use sandbox_sidecar::files::UNFINISHED;
use sha2::Digest as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::desk::{Desk, at};
use crate::harness::{body, until};

fn sum(bytes: &[u8]) -> Sha256 {
    Sha256(sha2::Sha256::digest(bytes).into())
}

#[tokio::test]
async fn what_was_put_is_got_byte_for_byte_and_belongs_to_the_agent() {
    let desk = Desk::open();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let reply = desk.wrote("a", &bytes).await;
    assert_eq!((reply.bytes, reply.written, reply.sha256, reply.created), (300_000, 300_000, sum(&bytes), true));
    let got = desk.get(b"a", &[]).await;
    assert!(got.status == 200 && got.body == bytes);
    assert_eq!((got.header("content-length"), got.header("accept-ranges")), ("300000", "bytes"));
    assert_eq!((got.header("etag"), got.header("content-type")), (&*reply.etag, "application/octet-stream"));
    let found = std::fs::metadata(desk.workspace().join("a")).unwrap();
    let workspace = std::fs::metadata(desk.workspace()).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (workspace.uid(), workspace.gid(), 0o644));
}

#[tokio::test]
async fn an_empty_file_is_a_file() {
    let desk = Desk::open();
    assert_eq!(desk.wrote("empty", b"").await.sha256, sum(b""));
    let got = desk.get(b"empty", &[]).await;
    assert_eq!((got.status, got.header("content-length"), &got.body[..]), (200, "0", &b""[..]));
    assert_eq!(desk.get(b"empty", &[("range", "bytes=0-")]).await.refusal(), (416, "no_such_range".into()));
}

#[tokio::test]
async fn a_range_is_a_part_and_one_beyond_the_end_tells_the_size() {
    let desk = Desk::open();
    desk.wrote("ten", b"0123456789").await;
    for (range, part, expected) in [
        ("bytes=0-0", "bytes 0-0/10", "0"),
        ("bytes=3-5", "bytes 3-5/10", "345"),
        ("bytes=7-", "bytes 7-9/10", "789"),
        ("bytes=-2", "bytes 8-9/10", "89"),
        ("bytes=8-99", "bytes 8-9/10", "89"),
    ] {
        let got = desk.get(b"ten", &[("range", range)]).await;
        assert_eq!((got.status, got.header("content-range"), &got.body[..]), (206, part, expected.as_bytes()));
        assert_eq!(got.header("content-length"), expected.len().to_string());
    }
    let beyond = desk.get(b"ten", &[("range", "bytes=10-")]).await;
    assert_eq!((beyond.refusal(), beyond.header("content-range")), ((416, "no_such_range".into()), "bytes */10"));
    let several = desk.get(b"ten", &[("range", "bytes=0-1,3-4")]).await;
    assert_eq!((several.status, &several.body[..]), (200, &b"0123456789"[..]));
}

#[tokio::test]
async fn conditions_are_kept() {
    let desk = Desk::open();
    let etag = desk.wrote("a", b"one").await.etag;
    let known = desk.get(b"a", &[("if-none-match", &etag)]).await;
    assert_eq!((known.status, known.header("etag"), known.body.len()), (304, &*etag, 0));
    assert_eq!(desk.get(b"a", &[("if-match", "\"x\"")]).await.refusal(), (412, "changed".into()));
    let put = async |header: &str, value: &str, body: &str| {
        desk.ask(Method::PUT, &at("a").target(), &[(header, value)], body.as_bytes()).await
    };
    assert_eq!(put("if-none-match", "*", "no").await.refusal(), (412, "changed".into()));
    let two = put("if-match", &etag, "two").await;
    assert_eq!((two.status, two.json::<WriteReply>().created), (200, false));
    assert_eq!(put("if-match", &etag, "late").await.refusal(), (412, "changed".into()));
    assert_eq!(put("if-match", "\"a\", \"b\"", "no").await.refusal(), (400, "bad_request".into()));
    assert_eq!(&desk.get(b"a", &[("range", "bytes=0-0"), ("if-range", &etag)]).await.body[..], b"two");
    let absent = desk.ask(Method::PUT, &at("b").target(), &[("if-match", "*")], b"no").await;
    assert_eq!(absent.refusal(), (412, "changed".into()));
    assert_eq!(desk.get(b"b", &[]).await.refusal(), (404, "no_such_file".into()));
}

#[tokio::test]
async fn a_head_tells_what_a_get_would() {
    let desk = Desk::open();
    desk.wrote("a", b"0123456789").await;
    let head = desk.ask(Method::HEAD, "/files/content?path=a", &[("range", "bytes=2-4")], b"").await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (206, "3", 0));
}

#[tokio::test]
async fn a_file_is_replaced_all_at_once_and_keeps_its_mode_unless_told() {
    let desk = Desk::open();
    desk.put(&WriteQuery { mode: Some(FileMode(0o755)), ..at("run") }, b"old").await;
    let run = desk.workspace().join("run");
    let open = std::fs::File::open(&run).unwrap();
    desk.wrote("run", b"new").await;
    assert_eq!(std::io::read_to_string(open).unwrap(), "old");
    let mode = || std::fs::metadata(&run).unwrap().permissions().mode() & 0o7777;
    assert_eq!((std::fs::read(&run).unwrap(), mode()), (b"new".to_vec(), 0o755));
    desk.put(&WriteQuery { mode: Some(FileMode(0o600)), sync: true, ..at("run") }, b"newer").await;
    assert_eq!(mode(), 0o600);
    let lent = desk.put(&WriteQuery { mode: Some(FileMode(0o4755)), ..at("run") }, b"").await;
    assert_eq!(lent.refusal(), (400, "bad_path".into()));
}

#[tokio::test]
async fn a_body_that_breaks_off_changes_nothing_and_leaves_nothing() {
    let desk = Desk::open();
    desk.wrote("a", b"whole").await;
    let (send, frames) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
    let asked = desk.stream(Method::PUT, "/files/content?path=a", &[], StreamBody::new(ReceiverStream::new(frames)));
    let unfinished = || {
        let names = std::fs::read_dir(desk.workspace()).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_str().unwrap().starts_with(UNFINISHED)).count()
    };
    let breaking = async {
        send.send(Ok(Frame::data(Bytes::from_static(b"half")))).await.unwrap();
        until(|| unfinished() == 1).await;
    };
    tokio::select! {
        _ = asked => panic!("answered before the end"),
        () = breaking => {}
    }
    until(|| unfinished() == 0).await;
    assert_eq!(std::fs::read(desk.workspace().join("a")).unwrap(), b"whole");
}

#[tokio::test]
async fn an_upload_is_resumed_where_it_ended_and_no_further() {
    let desk = Desk::open();
    let from = |offset| WriteQuery { offset: Some(offset), ..at("a") };
    let first = desk.put(&from(0), b"0123").await;
    assert_eq!((first.status, first.json::<WriteReply>().bytes), (201, 4));
    let second: WriteReply = desk.put(&from(4), b"4567").await.json();
    assert_eq!((second.bytes, second.written, second.created, second.sha256), (8, 4, false, sum(b"4567")));
    assert_eq!(desk.put(&from(9), b"x").await.refusal(), (409, "beyond_end".into()));
    desk.put(&from(2), b"xx").await;
    assert_eq!(&desk.get(b"a", &[]).await.body[..], b"01xx4567");
    assert_eq!(desk.put(&WriteQuery { offset: Some(1), ..at("b") }, b"x").await.refusal(), (409, "beyond_end".into()));
    let both = WriteQuery { append: true, ..from(0) };
    assert_eq!(desk.put(&both, b"x").await.refusal(), (400, "bad_path".into()));
}

#[tokio::test]
async fn what_is_appended_comes_after_what_is_there() {
    let desk = Desk::open();
    let append = WriteQuery { append: true, ..at("log") };
    assert_eq!(desk.put(&append, b"one\n").await.status, 201);
    let all = (0..20).map(|_| desk.put(&append, b"more\n"));
    for answer in join_all(all).await {
        assert_eq!(answer.status, 200);
    }
    let text = desk.get(b"log", &[]).await.body;
    assert_eq!(text, format!("one\n{}", "more\n".repeat(20)));
}

#[tokio::test]
async fn directories_on_the_way_are_made_when_asked_for() {
    let desk = Desk::open();
    assert_eq!(desk.put(&at("d/e/f"), b"x").await.refusal(), (404, "no_such_file".into()));
    desk.put(&WriteQuery { parents: true, ..at("d/e/f") }, b"x").await;
    assert_eq!(&desk.get(b"d/./e//f", &[]).await.body[..], b"x");
    let through = WriteQuery { parents: true, ..at("d/e/f/g") };
    assert_eq!(desk.put(&through, b"x").await.refusal(), (409, "not_directory".into()));
}

#[tokio::test]
async fn the_home_is_reached_by_its_path_and_nothing_else_is() {
    let desk = Desk::open();
    let (home, workspace) = (desk.home(), desk.workspace());
    desk.wrote(&format!("{}/dot", home.display()), b"home").await;
    desk.wrote(&format!("/{}//./in", workspace.display()), b"in").await;
    assert_eq!(std::fs::read(home.join("dot")).unwrap(), b"home");
    assert_eq!(&desk.get(b"in", &[]).await.body[..], b"in");
    for path in ["/etc/passwd", "/", &format!("{}x/dot", home.display())] {
        assert_eq!(desk.get(path.as_bytes(), &[]).await.refusal(), (403, "outside".into()), "{path}");
    }
}

#[tokio::test]
async fn what_has_no_content_is_refused_by_its_kind_and_never_opened() {
    let desk = Desk::open();
    desk.sh("mkdir d; mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")' 2> error || true").await;
    let fifo = desk.workspace().join("own");
    mkfifo(&fifo, Mode::from_bits_truncate(0o666)).unwrap();
    // A reader waits at the fifo: whoever opened it to write would let it go on.
    let waiting = tokio::spawn({
        let engine = desk.engine.clone();
        async move { engine.execute(body("read line < fifo; echo released")).await }
    });
    desk.until_running(1).await;
    for (path, code) in [("d", "is_directory"), ("", "is_directory"), ("fifo", "not_regular"), ("own", "not_regular")] {
        assert_eq!(desk.get(path.as_bytes(), &[]).await.refusal(), (409, code.into()), "{path}");
    }
    for query in [at("fifo"), WriteQuery { append: true, ..at("fifo") }, WriteQuery { offset: Some(0), ..at("fifo") }] {
        assert_eq!(desk.put(&query, b"x").await.refusal(), (409, "not_regular".into()), "{query:?}");
    }
    assert_eq!(desk.put(&at("d"), b"x").await.refusal(), (409, "is_directory".into()));
    assert!(!waiting.is_finished());
    desk.sh("echo > fifo").await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_link_within_is_followed_to_read_and_to_append_and_replaced_by_a_put() {
    let desk = Desk::open();
    desk.wrote("file", b"text").await;
    symlink("./file", desk.workspace().join("link")).unwrap();
    assert_eq!(&desk.get(b"link", &[]).await.body[..], b"text");
    desk.put(&WriteQuery { append: true, ..at("link") }, b"+").await;
    assert_eq!(&desk.get(b"file", &[]).await.body[..], b"text+");
    desk.wrote("link", b"own").await;
    assert_eq!(&desk.get(b"file", &[]).await.body[..], b"text+");
    assert!(!std::fs::symlink_metadata(desk.workspace().join("link")).unwrap().is_symlink());
    symlink("nowhere", desk.workspace().join("dangling")).unwrap();
    let append = WriteQuery { append: true, ..at("dangling") };
    assert_eq!(desk.put(&append, b"x").await.refusal(), (404, "no_such_file".into()));
}
