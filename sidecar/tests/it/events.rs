//! What happens, as a stream of server-sent events.

use std::path::Path;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, StatusCode};
use sandbox_process::link::{Driver, link};
use sandbox_protocol::events::{Event, Happening};
use sandbox_protocol::limits::{EVENT_HEARTBEAT_S, EVENT_READERS_MAX, EVENTS_KEPT_MAX};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use crate::harness::{PATIENCE, Sidecar, TOKEN};

/// A reader of the stream.
struct Stream {
    body: Incoming,
    text: String,
    _driver: Driver,
}

/// Name, id and data of an event.
type Told = (String, Option<u64>, String);

impl Stream {
    async fn open(socket: &Path, query: &str, last: Option<&str>) -> Result<Self, StatusCode> {
        let (mut sender, driver) = link(UnixStream::connect(socket).await.unwrap()).await.unwrap();
        let mut request = Request::get(format!("/events{query}")).header("host", "sidecar");
        request = request.header("authorization", format!("Bearer {TOKEN}"));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        match response.status() {
            StatusCode::OK => Ok(Self { body: response.into_body(), text: String::new(), _driver: driver }),
            status => Err(status),
        }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                let (name, data) = (field("event").map(str::to_owned), field("data").unwrap_or_default().to_owned());
                let id = field("id").map(|id| id.parse().unwrap());
                self.text = rest.to_owned();
                match name {
                    Some(name) => return Some((name, id, data)),
                    None => continue,
                }
            }
            let frame = timeout(PATIENCE, self.body.frame()).await.expect("nothing came")?.unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }
}

fn publish(sidecar: &Sidecar, count: usize) {
    for index in 0..count {
        sidecar.streams.events.publish(Happening::ExecStarted { id: index.to_string() });
    }
}

#[tokio::test]
async fn terminals_are_told_of_from_their_beginning_to_their_end() {
    let sidecar = Sidecar::start();
    let mut stream = Stream::open(&sidecar.socket, "", None).await.unwrap();
    let mut view = crate::pty::View::command(&sidecar.socket, "exit 6").await;
    view.end().await;
    let (opened, first, data) = stream.next().await.unwrap();
    let event: Event = serde_json::from_str(&data).unwrap();
    assert_eq!((opened.as_str(), first), ("pty.opened", Some(event.seq)));
    assert_eq!(event.happening, Happening::PtyOpened { id: view.id.clone(), cols: 80, rows: 24 });
    let (closed, second, data) = stream.next().await.unwrap();
    assert_eq!((closed.as_str(), second), ("pty.closed", first.map(|first| first + 1)));
    assert!(data.contains(r#""cause":"exited","exit_code":6"#) && data.contains(&view.id), "{data}");
}

#[tokio::test]
async fn a_reader_that_comes_back_misses_nothing_or_is_told_what() {
    let sidecar = Sidecar::start();
    publish(&sidecar, 3);
    let mut stream = Stream::open(&sidecar.socket, "?after=0", None).await.unwrap();
    let first = stream.next().await.unwrap().1.unwrap();
    drop(stream);
    let mut back = Stream::open(&sidecar.socket, "?after=0", Some(&first.to_string())).await.unwrap();
    assert_eq!(back.next().await.unwrap().1, Some(first + 1));
    publish(&sidecar, EVENTS_KEPT_MAX);
    let mut late = Stream::open(&sidecar.socket, "", Some(&first.to_string())).await.unwrap();
    let gap = format!(r#"{{"after":{first},"until":{}}}"#, first + 2);
    assert_eq!(late.next().await.unwrap(), ("gap".to_owned(), None, gap));
    assert_eq!(late.next().await.unwrap().1, Some(first + 3));
    for wrong in ["", "x", "-1"] {
        let refused = Stream::open(&sidecar.socket, "", Some(wrong)).await.err();
        assert_eq!(refused, Some(StatusCode::BAD_REQUEST), "{wrong:?}");
    }
}

#[tokio::test]
async fn as_many_read_as_may_and_who_leaves_makes_room() {
    let sidecar = Sidecar::start();
    let mut streams = Vec::new();
    for _ in 0..EVENT_READERS_MAX {
        streams.push(Stream::open(&sidecar.socket, "", None).await.unwrap());
    }
    assert_eq!(Stream::open(&sidecar.socket, "", None).await.err(), Some(StatusCode::TOO_MANY_REQUESTS));
    streams.pop();
    let again = async { while Stream::open(&sidecar.socket, "", None).await.is_err() {} };
    timeout(PATIENCE, again).await.unwrap();
    publish(&sidecar, 1);
    for stream in &mut streams {
        assert_eq!(stream.next().await.unwrap().0, "exec.started");
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_sidecar_and_says_so() {
    let sidecar = Sidecar::start();
    let mut stream = Stream::open(&sidecar.socket, "", None).await.unwrap();
    publish(&sidecar, 1);
    sidecar.stop.cancel();
    timeout(PATIENCE, sidecar.streams.stop()).await.unwrap();
    assert_eq!(stream.next().await.unwrap().0, "exec.started");
    let (name, _, data) = stream.next().await.unwrap();
    assert_eq!((name.as_str(), data.as_str()), ("dropped", r#"{"reason":"stopping"}"#));
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_stream_without_events_gives_a_sign_of_life_every_fifteen_seconds() {
    let sidecar = Sidecar::start();
    let mut stream = Stream::open(&sidecar.socket, "", None).await.unwrap();
    tokio::time::pause();
    let begun = Instant::now();
    for beat in 1..=2 {
        let frame = timeout(PATIENCE, stream.body.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), ":\n\n");
        assert_eq!(begun.elapsed().as_secs(), beat * EVENT_HEARTBEAT_S);
    }
}
