//! What a watch tells.

use std::collections::VecDeque;

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use sandbox_process::link::Driver;
use sandbox_protocol::files::{
    FileChange, FilesQuery as _, WATCH_CHANGE, WATCH_OVERFLOW, WATCH_READY, WatchQuery, WatchReady,
};
use sandbox_protocol::limits::FILES_WATCHED_DIRECTORIES_MAX;
use sandbox_sidecar::limits::FILES_FOUND_MAX;
use tokio::time::timeout;

use super::desk::Desk;
use crate::harness::PATIENCE;

struct Watch {
    body: Incoming,
    text: String,
    events: VecDeque<(u64, String, String)>,
    _driver: Driver,
}

impl Watch {
    async fn open(desk: &Desk, path: &str, recursive: bool, headers: &[(&str, &str)]) -> Self {
        let target = WatchQuery { path: path.into(), recursive }.target();
        let (answer, driver) = desk.stream(Method::GET, &target, headers, String::new()).await;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        Self { body: answer.into_body(), text: String::new(), events: VecDeque::new(), _driver: driver }
    }

    /// Id, name and data of the next event; `None` at the end.
    async fn next(&mut self) -> Option<(u64, String, String)> {
        while self.events.is_empty() {
            let frame = timeout(PATIENCE, self.body.frame()).await.expect("no event")?.unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    line.unwrap_or_default().to_owned()
                };
                if let Ok(id) = field("id").parse() {
                    self.events.push_back((id, field("event"), field("data")));
                }
                self.text = rest.to_owned();
            }
        }
        self.events.pop_front()
    }

    async fn ready(&mut self) -> u64 {
        let (id, name, data) = self.next().await.unwrap();
        assert_eq!((id, &*name), (1, WATCH_READY));
        serde_json::from_str::<WatchReady>(&data).unwrap().directories
    }

    async fn change(&mut self) -> FileChange {
        let (_, name, data) = self.next().await.unwrap();
        assert_eq!(name, WATCH_CHANGE);
        serde_json::from_str(&data).unwrap()
    }

    /// Passes what is told until `wanted` is.
    async fn until(&mut self, wanted: &FileChange) {
        while self.change().await != *wanted {}
    }
}

fn created(path: &str) -> FileChange {
    FileChange::Created { path: path.into() }
}

fn removed(path: &str) -> FileChange {
    FileChange::Removed { path: path.into() }
}

#[tokio::test]
async fn what_happens_in_a_directory_is_told_in_order_with_ids_that_count_up() {
    let desk = Desk::open();
    desk.sh("mkdir d d/sub").await;
    let mut watch = Watch::open(&desk, "d", false, &[]).await;
    assert_eq!(watch.ready().await, 1);
    desk.sh("printf x > d/a; chmod 600 d/a; mv d/a d/b; rm d/b; : > d/sub/unseen; mkdir d/e").await;
    let mut ids = Vec::new();
    let mut changes = Vec::new();
    while changes.last() != Some(&created("e")) {
        let (id, _, data) = watch.next().await.unwrap();
        ids.push(id);
        changes.push(serde_json::from_str(&data).unwrap());
    }
    assert_eq!(ids, (2..2 + ids.len() as u64).collect::<Vec<_>>());
    let expected = [
        created("a"),
        FileChange::Modified { path: "a".into() },
        FileChange::Written { path: "a".into() },
        FileChange::Attributes { path: "a".into() },
        FileChange::Moved { from: "a".into(), to: "b".into() },
        removed("b"),
        created("e"),
    ];
    assert_eq!(changes, expected);
}

#[tokio::test]
async fn a_recursive_watch_sees_into_directories_that_come_move_and_go() {
    let desk = Desk::open();
    desk.sh("mkdir -p d/a/b away; : > away/file").await;
    let mut watch = Watch::open(&desk, "d", true, &[]).await;
    assert_eq!(watch.ready().await, 3);
    desk.sh(": > d/a/b/deep").await;
    watch.until(&created("a/b/deep")).await;
    desk.sh("mkdir -p d/n/m; : > d/n/m/file").await;
    watch.until(&created("n/m/file")).await;
    desk.sh("mv d/a d/moved; : > d/moved/b/after").await;
    watch.until(&FileChange::Moved { from: "a".into(), to: "moved".into() }).await;
    watch.until(&created("moved/b/after")).await;
    desk.sh("mv away d/in; : > d/in/later").await;
    watch.until(&created("in/file")).await;
    watch.until(&created("in/later")).await;
    desk.sh("mv d/moved out; : > out/b/unseen; : > d/end").await;
    watch.until(&removed("moved")).await;
    assert_eq!(watch.change().await, created("end"));
}

#[tokio::test]
async fn links_are_not_watched_through() {
    let desk = Desk::open();
    std::fs::create_dir(desk.outside("secret")).unwrap();
    desk.sh("mkdir d; ln -s ../../secret d/out; ln -s . d/round").await;
    let mut watch = Watch::open(&desk, "d", true, &[]).await;
    assert_eq!(watch.ready().await, 1);
    desk.sh("ln -s ../../secret d/later").await;
    watch.until(&created("later")).await;
    std::fs::write(desk.outside("secret").join("file"), "").unwrap();
    desk.sh(": > d/end").await;
    assert_eq!(watch.change().await, created("end"));
}

#[tokio::test]
async fn a_watch_ends_with_what_it_watches() {
    let desk = Desk::open();
    desk.sh("mkdir d; : > file").await;
    let mut of_directory = Watch::open(&desk, "d", false, &[]).await;
    let mut of_file = Watch::open(&desk, "file", true, &[]).await;
    assert_eq!((of_directory.ready().await, of_file.ready().await), (1, 1));
    desk.sh("printf x >> file; rmdir d; rm file").await;
    assert_eq!(of_directory.change().await, removed(""));
    assert!(of_directory.next().await.is_none());
    of_file.until(&FileChange::Written { path: "".into() }).await;
    of_file.until(&removed("")).await;
    assert!(of_file.next().await.is_none());
}

#[tokio::test]
async fn one_who_comes_back_is_told_that_something_may_be_lost() {
    let desk = Desk::open();
    let mut watch = Watch::open(&desk, "", false, &[("last-event-id", "7")]).await;
    watch.ready().await;
    let (id, name, _) = watch.next().await.unwrap();
    assert_eq!((id, &*name), (2, WATCH_OVERFLOW));
}

#[tokio::test]
async fn changes_that_a_reader_is_too_slow_for_are_announced_as_lost() {
    let desk = Desk::open();
    let mut watch = Watch::open(&desk, "", false, &[]).await;
    watch.ready().await;
    let queue: u32 = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    // More than kernel, worker, sidecar and sockets hold together, while nobody reads.
    let command = format!(
        "python3 -c 'import os\nfor i in range({}):\n  os.close(os.open(str(i % 100) + \"n\" * 200, os.O_CREAT | os.O_WRONLY)); os.unlink(str(i % 100) + \"n\" * 200)'",
        queue * 2
    );
    let reply = desk.sh(&command).await;
    assert_eq!(reply.exit_code, 0, "{reply:?}");
    desk.sh(": > end").await;
    let mut lost = false;
    loop {
        let (_, name, data) = watch.next().await.unwrap();
        lost |= name == WATCH_OVERFLOW;
        // It goes on: what happens after the loss is told.
        if lost && name == WATCH_OVERFLOW {
            desk.sh(": > after").await;
        }
        if lost && data.contains("\"after\"") {
            break;
        }
    }
}

#[tokio::test]
async fn a_directory_that_comes_with_more_than_is_told_is_announced() {
    let desk = Desk::open();
    for (files, announced) in [(FILES_FOUND_MAX, false), (FILES_FOUND_MAX + 1, true)] {
        desk.sh(&format!("mkdir -p d away && cd away && seq -f %.0f 1 {files} | xargs touch")).await;
        let mut watch = Watch::open(&desk, "d", true, &[]).await;
        watch.ready().await;
        desk.sh("mv away d/in; : > d/end").await;
        let mut lost = false;
        loop {
            let (_, name, data) = watch.next().await.unwrap();
            lost |= name == WATCH_OVERFLOW;
            if data.contains("\"end\"") {
                break;
            }
        }
        assert_eq!(lost, announced, "{files} files");
        desk.sh("rm -r d").await;
    }
}

#[tokio::test]
async fn a_tree_of_more_directories_than_are_watched_is_refused_and_one_that_grows_so_is_announced() {
    let desk = Desk::open();
    // The tree's own top is one of them.
    let below = FILES_WATCHED_DIRECTORIES_MAX - 1;
    desk.sh(&format!("mkdir d; cd d; seq -f %.0f 1 {below} | xargs mkdir")).await;
    let mut watch = Watch::open(&desk, "d", true, &[]).await;
    assert_eq!(watch.ready().await, FILES_WATCHED_DIRECTORIES_MAX);
    desk.sh("mkdir d/more").await;
    assert_eq!(watch.change().await, created("more"));
    assert_eq!(watch.next().await.unwrap().1, WATCH_OVERFLOW);
    let target = WatchQuery { path: "d".into(), recursive: true }.target();
    let refused = desk.ask(Method::GET, &target, &[], b"").await;
    assert_eq!(refused.refusal(), (409, "too_many_directories".into()));
    Watch::open(&desk, "d", false, &[]).await.ready().await;
}
