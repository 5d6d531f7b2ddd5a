//! Requests that stay requests.

use futures::StreamExt as _;
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::*;

/// What a sidecar was asked.
async fn seen(answer: Answer) -> Value {
    assert_eq!(answer.status(), 200);
    serde_json::from_str(&answer.text().await).unwrap()
}

#[tokio::test]
async fn each_route_has_a_scope_and_a_ticket_for_nothing_else() {
    let world = World::new().await;
    for (method, path, scope, ticket) in [
        ("POST", "exec?a=b", Scope::SandboxesExec, "exec"),
        ("DELETE", "exec/e1", Scope::SandboxesExec, "exec"),
        ("GET", "ptys", Scope::SandboxesPty, "pty"),
        ("DELETE", "pty/p1", Scope::SandboxesPty, "pty"),
        ("DELETE", "files?path=a", Scope::SandboxesFiles, "files"),
        ("POST", "files/move", Scope::SandboxesFiles, "files"),
    ] {
        let others: Vec<_> = Scope::ALL.into_iter().filter(|other| *other != scope).collect();
        let (narrow, _) = world.token_of(OWNER, &[scope]).await;
        let (wrong, _) = world.token_of(OWNER, &others).await;
        let path = format!("{BASE}/{path}");
        let request = |token: &str| asked(method, &path, token).header("cookie", "a=b").body(Body::empty()).unwrap();
        assert_eq!(world.send(request(&wrong)).await.refusal().await, (403, "no_scope".into()), "{path}");
        let seen = seen(world.send(request(&narrow)).await).await;
        assert_eq!(seen["method"], method);
        assert_eq!(seen["uri"], path.strip_prefix(BASE).unwrap());
        assert_eq!(seen["scopes"], ticket, "{path}");
        assert!(!seen.to_string().contains(&narrow) && seen["headers"]["cookie"].is_null(), "{seen}");
    }
}

#[tokio::test]
async fn strangers_find_nothing_and_what_is_not_in_the_table_is_not_there() {
    let world = World::new().await;
    let (owner, (stranger, _)) = (world.token().await, world.token_of(STRANGER, &Scope::ALL).await);
    for path in ["exec", "files/content?path=a", "ports/80/", "fsp"] {
        let path = format!("{BASE}/{path}");
        assert_eq!(world.get(&path, &stranger).await.refusal().await, (404, "no_sandbox".into()), "{path}");
        assert_eq!(world.get(&path, "sbt_00").await.refusal().await, (401, "unauthorized".into()), "{path}");
    }
    for path in ["snapshot", "health", "files/none", "ports/0/", "exec/a/b"] {
        assert_eq!(
            world.get(&format!("{BASE}/{path}"), &owner).await.refusal().await,
            (404, "no_route".into()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn bodies_flow_both_ways_with_trailers_and_nothing_waits_for_their_end() {
    let world = World::new().await;
    let (feed, fed) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
    let body = Body::new(http_body_util::StreamBody::new(ReceiverStream::new(fed)));
    let request = asked("PUT", &format!("{BASE}/files/content"), &world.token().await);
    let request = request.header("trailer", "x-sum").header("te", "trailers").body(body).unwrap();
    let mut answer = world.send(request).await;
    assert_eq!((answer.header("x-hop"), answer.header("trailer")), (None, Some("x-sum")));
    for text in ["one", "two"] {
        feed.send(Ok(Frame::data(Bytes::from(text)))).await.unwrap();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), text);
    }
    let sum = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
    feed.send(Ok(Frame::trailers(sum.clone()))).await.unwrap();
    drop(feed);
    let last = within(answer.response.body_mut().frame()).await.unwrap().unwrap();
    assert_eq!(last.into_trailers().ok(), Some(sum));
    assert!(answer.chunk().await.is_none());
}

#[tokio::test]
async fn lengths_and_heads_are_kept_and_an_expectation_is_answered() {
    let world = World::new().await;
    let token = world.token().await;
    let path = format!("{BASE}/files/content");
    let request = |method| asked(method, &path, &token).header("content-length", "4");
    let whole = world.send(request("PUT").body(Body::from("four")).unwrap()).await;
    assert_eq!(whole.header("content-length"), Some("4"));
    assert_eq!(whole.text().await, "four");
    let head = world.send(asked("HEAD", &format!("{BASE}/exec"), &token).body(Body::empty()).unwrap()).await;
    assert!(head.header("content-length").is_some_and(|length| length != "0"));
    assert_eq!(head.text().await, "");

    let mut raw = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nexpect: 100-continue\r\n\
         connection: close\r\ncontent-length: 4\r\n\r\n"
    );
    raw.write_all(head.as_bytes()).await.unwrap();
    let mut line = [0; 12];
    within(raw.read_exact(&mut line)).await.unwrap();
    assert_eq!(&line, b"HTTP/1.1 100");
    raw.write_all(b"four").await.unwrap();
    let mut rest = String::new();
    within(raw.read_to_string(&mut rest)).await.unwrap();
    assert!(rest.contains("HTTP/1.1 200 OK") && rest.ends_with("\r\n\r\nfour"), "{rest}");
}

#[tokio::test]
async fn events_come_when_they_happen_and_end_whole_with_the_operator() {
    let world = World::new().await;
    let mut answer = world.get(&format!("{BASE}/events"), &world.token().await).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "data: 1\n\n");
    world.stop.cancel();
    while let Some(chunk) = answer.chunk().await {
        assert_eq!(chunk.unwrap(), ":\n\n");
    }
}

#[tokio::test]
async fn who_hangs_up_is_missed_inside_before_the_answer_and_amid_it() {
    let mut world = World::new().await;
    let token = world.token().await;
    for path in ["files/list", "events"] {
        let stream = TcpStream::connect(world.address).await.unwrap();
        let (mut sender, driver) = link(stream).await.unwrap();
        let asking = sender.send_request(asked("GET", &format!("{BASE}/{path}"), &token).body(Body::empty()).unwrap());
        let (held, answer) = tokio::join!(within(world.inner.held.recv()), timeout(Duration::from_millis(200), asking));
        let held = held.unwrap();
        assert!(!held.is_cancelled(), "{path}");
        drop((answer, driver));
        within(held.cancelled()).await;
    }
}

#[tokio::test]
async fn what_breaks_off_inside_is_an_error_before_the_answer_and_a_cut_amid_it() {
    let world = World::new().await;
    let token = world.token().await;
    let mut answer = world.get(&format!("{BASE}/files/stat"), &token).await;
    assert_eq!(answer.status(), 200);
    let mut last = answer.chunk().await;
    if let Some(Ok(chunk)) = &last {
        assert_eq!(chunk, "half");
        last = answer.chunk().await;
    }
    assert!(last.unwrap().is_err(), "it was not ended as if it were whole");
    let dead = world.get(&format!("{BASE}/ports/80/dead"), &token).await;
    assert_eq!(dead.refusal().await, (502, "sandbox_unreachable".into()));
    world.inner.die();
    let gone = world.get(&format!("{BASE}/exec"), &token).await;
    assert_eq!(gone.refusal().await, (502, "sandbox_unreachable".into()));
}

#[tokio::test]
async fn what_is_being_answered_ends_with_its_token_and_its_sandbox() {
    let mut world = World::new().await;
    let (token, hash) = world.token_of(OWNER, &Scope::ALL).await;
    let mut events = world.get(&format!("{BASE}/events"), &token).await;
    events.chunk().await.unwrap().unwrap();
    world.inner.held.recv().await.unwrap();
    world.revoke(hash).await;
    while events.chunk().await.is_some() {}

    let (path, token) = (format!("{BASE}/files/list"), world.token().await);
    let waiting = world.get(&path, &token);
    let stopping = world.fleet.stop(sandbox(1).id, OWNER);
    let (answer, stopped) = tokio::join!(waiting, async {
        within(world.records_held()).await;
        stopping.await
    });
    stopped.unwrap();
    assert_eq!(answer.refusal().await, (502, "sandbox_unreachable".into()));
}

impl World {
    /// Returns when a request is held.
    async fn records_held(&self) {
        while self.inner.held.is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_stopped_sandbox_is_woken_where_that_is_asked_for_and_allowed() {
    let world = World::new().await;
    let token = world.token().await;
    let (narrow, _) = world.token_of(OWNER, &[Scope::SandboxesExec, Scope::SandboxesPorts]).await;
    let stop = async || world.fleet.stop(sandbox(1).id, OWNER).await.unwrap();
    let path = format!("{BASE}/exec");
    stop().await;
    assert_eq!(world.get(&path, &token).await.refusal().await, (422, "sandbox_stopped".into()));
    let no = asked("GET", &path, &token).header(RESUME_HEADER, "no").body(Body::empty()).unwrap();
    assert_eq!(world.send(no).await.refusal().await, (422, "sandbox_stopped".into()));
    let wakes = format!("{path}?resume=true&a=b");
    assert_eq!(world.get(&wakes, &narrow).await.refusal().await, (403, "no_scope".into()));
    assert_eq!(seen(world.get(&wakes, &token).await).await["uri"], "/exec?a=b");
    assert_eq!(seen(world.get(&wakes, &narrow).await).await["uri"], "/exec?a=b", "it runs, and nothing is woken");
    stop().await;
    let port = asked("GET", &format!("{BASE}/ports/80/"), &token).header(RESUME_HEADER, "true");
    assert_eq!(world.send(port.body(Body::empty()).unwrap()).await.status(), 200);
    assert!(matches!(world.phase().await, Phase::Running(_)));
}

#[tokio::test]
async fn a_slow_reader_holds_up_who_writes() {
    let world = World::new().await;
    const CHUNK: usize = 64 * 1024;
    let (feed, fed) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let body = Body::from_stream(ReceiverStream::new(fed));
    let answer =
        world.send(asked("PUT", &format!("{BASE}/files/content"), &world.token().await).body(body).unwrap()).await;
    let mut sent = 0;
    while timeout(Duration::from_secs(1), feed.send(Ok(Bytes::from(vec![7; CHUNK])))).await.is_ok() {
        sent += CHUNK;
        assert!(sent < 64 << 20, "all of it was taken though nothing was read");
    }
    drop(feed);
    let mut read = 0;
    let mut body = answer.response.into_body().into_data_stream();
    while let Some(chunk) = within(body.next()).await {
        read += chunk.unwrap().len();
    }
    assert!(read >= sent);
}
