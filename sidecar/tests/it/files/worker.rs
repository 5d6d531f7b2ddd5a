//! The worker: who it is, when it is there, and what its end costs.

use std::time::Duration;

use hyper::Method;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use sandbox_protocol::files::{FilesQuery as _, FilesRefusal};
use sandbox_protocol::limits::FILES_RUNNING_MAX;

use super::desk::{Desk, at};
use crate::harness::{PATIENCE, lives, until};

fn end(worker: u32) {
    kill(Pid::from_raw(worker.cast_signed()), Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn it_is_the_agent_without_rights_and_knows_no_secret() {
    if !geteuid().is_root() {
        eprintln!("it_is_the_agent_without_rights_and_knows_no_secret: left out, needs root");
        return;
    }
    let desk = Desk::open();
    desk.wrote("a", b"").await;
    let worker = desk.worker().await;
    let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    for line in ["Uid:\t54321\t54321\t54321\t54321", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.lines().any(|other| other == line), "{line}: {status}");
    }
    assert!(std::fs::read(format!("/proc/{worker}/environ")).unwrap().is_empty());
    // Nothing but the three standard streams is inherited; the roots, a poll and the like are its own.
    let open = std::fs::read_dir(format!("/proc/{worker}/fd")).unwrap().flatten();
    let names: Vec<_> = open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
    let own = |name: &std::path::PathBuf| {
        let text = name.to_string_lossy();
        ["socket:", "pipe:", "anon_inode:"].iter().any(|kind| text.starts_with(kind))
            || *name == desk.workspace()
            || *name == desk.home()
    };
    assert!(names.iter().all(own), "{names:?}");
}

#[tokio::test]
async fn it_starts_when_it_is_needed_and_ends_when_it_is_not() {
    let desk = Desk::with_patience(Duration::from_millis(200), PATIENCE);
    assert!(desk.workers().is_empty());
    desk.wrote("a", b"1").await;
    let first = desk.worker().await;
    until(|| desk.workers().is_empty() && !lives(&first.to_string())).await;
    assert_eq!(&desk.get(b"a", &[]).await.body[..], b"1");
    assert_ne!(desk.worker().await, first);
}

#[tokio::test]
async fn one_worker_serves_many_and_is_not_idle_while_it_does() {
    let desk = Desk::with_patience(Duration::from_millis(50), PATIENCE);
    let target = "/files/watch?path=";
    let (watching, _driver) = desk.stream(Method::GET, target, &[], String::new()).await;
    let worker = desk.worker().await;
    for _ in 0..20 {
        desk.wrote("a", b"1").await;
        tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await.unwrap_err();
    }
    assert_eq!(desk.worker().await, worker);
    drop(watching);
}

#[tokio::test]
async fn a_killed_worker_costs_the_request_in_hand_and_nothing_else() {
    let desk = Desk::open();
    desk.wrote("a", b"kept").await;
    let (send, frames) = tokio::sync::mpsc::channel::<Result<_, std::io::Error>>(1);
    let body = http_body_util::StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(frames));
    let target = at("b").target();
    let upload = desk.stream(Method::PUT, &target, &[], body);
    let killing = async {
        send.send(Ok(hyper::body::Frame::data(hyper::body::Bytes::from_static(b"half")))).await.unwrap();
        let worker = desk.worker().await;
        let unfinished = || std::fs::read_dir(desk.workspace()).unwrap().count() == 2;
        until(unfinished).await;
        end(worker);
    };
    let ((answer, _driver), ()) = tokio::join!(upload, killing);
    assert_eq!(answer.status(), FilesRefusal::WorkerLost.status());
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    let error: sandbox_protocol::http::ErrorBody = serde_json::from_slice(&body).unwrap();
    assert_eq!((error.code.as_str(), error.retryable), ("worker_lost", true));
    assert_eq!(&desk.get(b"a", &[]).await.body[..], b"kept");
    assert_eq!(desk.get(b"b", &[]).await.status, 404);
}

#[tokio::test]
async fn an_answer_whose_worker_was_killed_has_no_end() {
    let desk = Desk::open();
    std::fs::File::create(desk.workspace().join("big")).unwrap().set_len(64 << 20).unwrap();
    let (answer, _driver) = desk.stream(Method::GET, "/files/content?path=big", &[], String::new()).await;
    assert_eq!(answer.status(), 200);
    end(desk.worker().await);
    http_body_util::BodyExt::collect(answer.into_body()).await.unwrap_err();
}

#[tokio::test]
async fn the_agent_may_kill_it_and_the_next_request_has_another() {
    let desk = Desk::open();
    for _ in 0..5 {
        assert_eq!(desk.wrote("a", b"1").await.bytes, 1);
        let worker = desk.worker().await;
        assert_eq!(desk.sh(&format!("kill -KILL {worker}")).await.exit_code, 0);
        until(|| !lives(&worker.to_string())).await;
    }
}

#[tokio::test]
async fn one_that_is_held_still_is_replaced_before_and_within_an_answer() {
    let desk = Desk::with_patience(PATIENCE, Duration::from_secs(2));
    std::fs::File::create(desk.workspace().join("big")).unwrap().set_len(64 << 20).unwrap();
    desk.wrote("a", b"kept").await;
    let hold = |worker: u32| kill(Pid::from_raw(worker.cast_signed()), Signal::SIGSTOP).unwrap();
    let first = desk.worker().await;
    hold(first);
    assert_eq!(desk.get(b"a", &[]).await.refusal(), (503, "worker_lost".into()));
    until(|| !lives(&first.to_string())).await;
    assert_eq!(&desk.get(b"a", &[]).await.body[..], b"kept");
    let (answer, _driver) = desk.stream(Method::GET, "/files/content?path=big", &[], String::new()).await;
    let second = desk.worker().await;
    hold(second);
    http_body_util::BodyExt::collect(answer.into_body()).await.unwrap_err();
    until(|| !lives(&second.to_string())).await;
    assert_eq!(&desk.get(b"a", &[]).await.body[..], b"kept");
}

#[tokio::test]
async fn as_many_requests_are_served_as_may_and_the_next_is_told_to_come_back() {
    let desk = Desk::open();
    let mut watching = Vec::new();
    for _ in 0..FILES_RUNNING_MAX {
        let (answer, driver) = desk.stream(Method::GET, "/files/watch?path=", &[], String::new()).await;
        assert_eq!(answer.status(), 200);
        watching.push((answer, driver));
    }
    assert_eq!(desk.get(b"a", &[]).await.refusal(), (429, "busy".into()));
    watching.pop();
    let mut look = tokio::time::interval(Duration::from_millis(5));
    let again = async {
        while desk.get(b"a", &[]).await.status != 404 {
            look.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
}

#[tokio::test]
async fn it_ends_with_the_sidecar() {
    let desk = Desk::open();
    desk.wrote("a", b"1").await;
    let worker = desk.worker().await;
    desk.stop.cancel();
    desk.files.stopped().await;
    until(|| !lives(&worker.to_string())).await;
    assert!(desk.files.connect().await.is_err());
}
