//! Ports and sockets over SSH, in both directions, and the client's agent.

use std::process::Stdio;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::process::Child;
use tokio::time::{interval, timeout};

use crate::harness::{PATIENCE, Stage, run, text, until};

/// Answers each connection with what came, in capitals, once the client's direction has ended; speaks first.
async fn shouting(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            stream.write_all(b"hello ").await.unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await.unwrap();
            stream.write_all(&said.to_ascii_uppercase()).await.unwrap();
        });
    }
}

async fn shouting_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(shouting(listener));
    port
}

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// Says something to a shouting port behind `stream`.
async fn shout<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(mut stream: S) -> String {
    stream.write_all(b"world").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut said = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut said)).await.expect("no answer").unwrap();
    said
}

/// A client with these forwards, once it is connected.
async fn forwarding(stage: &Stage, options: &[&str]) -> Child {
    let mut options = options.to_vec();
    options.extend(["-o", "ExitOnForwardFailure=yes"]);
    std::fs::remove_file(stage.workspace().join("up")).ok();
    let mut command = stage.ssh(&options, &["touch up; cat"]);
    let child = command.stdin(Stdio::piped()).spawn().unwrap();
    until(|| stage.workspace().join("up").exists()).await;
    child
}

async fn connected(port: u16) -> TcpStream {
    let mut look = interval(std::time::Duration::from_millis(10));
    let connecting = async {
        loop {
            look.tick().await;
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)).await {
                return stream;
            }
        }
    };
    timeout(PATIENCE, connecting).await.expect("nobody listens")
}

#[tokio::test]
async fn a_port_inside_is_reached_and_either_side_may_end_first() {
    let stage = Stage::start().await;
    let (inside, here) = (shouting_port().await, free_port().await);
    let _client = forwarding(&stage, &["-L", &format!("{here}:localhost:{inside}")]).await;
    for _ in 0..3 {
        assert_eq!(shout(connected(here).await).await, "hello WORLD");
    }
}

#[tokio::test]
async fn places_outside_are_reached_as_far_as_the_rules_allow() {
    let stage = Stage::start().await;
    stage.house.allow("allowed.example", shouting_port().await);
    let (allowed, forbidden) = (free_port().await, free_port().await);
    let options = [format!("{allowed}:allowed.example:80"), format!("{forbidden}:forbidden.example:80")];
    let _client = forwarding(&stage, &["-L", &options[0], "-L", &options[1]]).await;
    assert_eq!(shout(connected(allowed).await).await, "hello WORLD");
    let mut refused = connected(forbidden).await;
    assert_eq!(refused.read(&mut [0; 8]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_client_is_jumped_through_to_what_listens_inside() {
    let stage = Stage::start().await;
    let inside = shouting_port().await;
    let output = run(stage.ssh(&["-W", &format!("127.0.0.1:{inside}")], &[]), b"through").await;
    assert_eq!(text(&output.stdout), "hello THROUGH");
}

#[tokio::test]
async fn a_port_of_the_clients_is_reached_from_inside_and_only_there() {
    let stage = Stage::start().await;
    let (at_client, inside) = (shouting_port().await, free_port().await);
    let mut client = forwarding(&stage, &["-R", &format!("{inside}:127.0.0.1:{at_client}")]).await;
    for _ in 0..3 {
        assert_eq!(shout(connected(inside).await).await, "hello WORLD");
    }
    let listening = text(&std::fs::read("/proc/net/tcp").unwrap());
    let everywhere = format!("00000000:{inside:04X} ");
    assert!(!listening.contains(&everywhere));
    client.kill().await.unwrap();
    timeout(PATIENCE, async { while TcpStream::connect(("127.0.0.1", inside)).await.is_ok() {} }).await.unwrap();
}

#[tokio::test]
async fn listening_elsewhere_than_at_loopback_is_refused() {
    let stage = Stage::start().await;
    let options = ["-o", "ExitOnForwardFailure=yes", "-R", "10.1.2.3:0:127.0.0.1:1"];
    let output = run(stage.ssh(&options, &["true"]), b"").await;
    assert!(!output.status.success() && text(&output.stderr).contains("forwarding failed"), "{output:?}");
}

#[tokio::test]
async fn unix_sockets_are_reached_both_ways() {
    let stage = Stage::start().await;
    let outside = stage.outside();
    let (here, theirs) = (outside.join("here"), outside.join("theirs"));
    // As the agent, who is to be able to open it.
    let inside = stage.workspace().join("inside");
    let listener = UnixListener::bind(&inside).unwrap();
    std::os::unix::fs::chown(&inside, Some(1000), Some(1000)).unwrap();
    let answering = |listener: UnixListener| async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await.unwrap();
            stream.write_all(&said.to_ascii_uppercase()).await.unwrap();
        }
    };
    tokio::spawn(answering(listener));
    tokio::spawn(answering(UnixListener::bind(&theirs).unwrap()));
    let remote = stage.workspace().join("remote");
    let (l, r) =
        (format!("{}:{}", here.display(), inside.display()), format!("{}:{}", remote.display(), theirs.display()));
    let mut client = forwarding(&stage, &["-L", &l, "-R", &r]).await;
    for path in [&here, &remote] {
        until(|| path.exists()).await;
        assert_eq!(shout(UnixStream::connect(path).await.unwrap()).await, "WORLD", "{}", path.display());
    }
    client.kill().await.unwrap();
    until(|| !remote.exists()).await;
}

#[tokio::test]
async fn twenty_programs_use_the_clients_agent_at_once() {
    let stage = Stage::start().await;
    let agent = stage.outside().join("agent");
    let mut agent_process = tokio::process::Command::new("ssh-agent");
    let mut agent_process =
        agent_process.arg("-D").arg("-a").arg(&agent).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    until(|| agent.exists()).await;
    let mut add = tokio::process::Command::new("ssh-add");
    add.arg(&stage.key.file).env("SSH_AUTH_SOCK", &agent).stderr(Stdio::null());
    assert!(add.status().await.unwrap().success());
    let script = "for i in $(seq 20); do ssh-add -l > out-$i 2>&1 & done; wait; cat out-*";
    let mut command = stage.ssh(&["-A"], &[script]);
    command.env("SSH_AUTH_SOCK", &agent);
    let output = run(command, b"").await;
    let said = text(&output.stdout);
    assert_eq!(said.matches(&stage.key.public.fingerprint()).count(), 20, "{said} {output:?}");
    agent_process.kill().await.unwrap();
}
