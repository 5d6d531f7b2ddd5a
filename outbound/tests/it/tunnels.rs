//! CONNECT: bytes both ways, each way until its own end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sandbox_outbound::limits::TUNNEL_BUFFER_BYTES;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::origin::{OK, answering, head, origin};
use sandbox_outbound::egress::{EgressBounds, VisitError};

use crate::harness::{KEY, Setup, node, rest, told, until};

#[tokio::test]
async fn a_way_that_ended_leaves_the_other_open() {
    let address = origin(|mut stream| async move {
        let asked = rest(&mut stream).await;
        stream.write_all(asked.to_uppercase().as_bytes()).await.unwrap();
    })
    .await;
    let node = node(Setup::default());
    let (mut stream, head) = node.tunnel(&format!("origin.test:{}", address.port())).await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{head}");
    stream.write_all(b"until the end").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, "UNTIL THE END");
}

#[tokio::test]
async fn the_far_way_may_end_first() {
    let (heard, mut hears) = tokio::sync::mpsc::channel(1);
    let address = origin(move |mut stream| {
        let heard = heard.clone();
        async move {
            stream.write_all(b"bye").await.unwrap();
            stream.shutdown().await.unwrap();
            heard.send(rest(&mut stream).await).await.unwrap();
        }
    })
    .await;
    let node = node(Setup::default());
    let (mut stream, _) = node.tunnel(&format!("origin.test:{}", address.port())).await;
    assert_eq!(rest(&mut stream).await, "bye");
    stream.write_all(b"still here").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(hears.recv().await.unwrap(), "still here");
}

#[tokio::test]
async fn bytes_sent_along_with_the_question_are_not_lost() {
    let address = origin(|mut stream| async move {
        let (mut reader, mut writer) = stream.split();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    })
    .await;
    let node = node(Setup::default());
    let mut stream = node.connect().await;
    let early = format!("CONNECT origin.test:{} HTTP/1.1\r\n\r\nearly", address.port());
    stream.write_all(early.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nearly"), "{answer}");
}

#[tokio::test]
async fn closing_a_sandbox_ends_its_tunnels_and_its_door() {
    let address = origin(|mut stream| async move { drop(rest(&mut stream).await) }).await;
    let node = node(Setup::default());
    let (mut stream, _) = node.tunnel(&format!("origin.test:{}", address.port())).await;
    let usage = node.egress.close(KEY).unwrap();
    assert_eq!((usage.requests, usage.connections), (1, 1));
    assert_eq!(rest(&mut stream).await, "");
    assert!(!node.socket.exists());
    assert_eq!(node.egress.usage(KEY), None);
    assert_eq!(node.egress.close(KEY), None);
    assert_eq!(node.egress.total().requests, 1);
}

#[tokio::test]
async fn opening_again_changes_nothing_unless_something_changed() {
    use std::os::unix::fs::PermissionsExt as _;
    let address = origin(|mut stream| async move { drop(rest(&mut stream).await) }).await;
    let node = node(Setup { rules: "origin.test:*", ..Setup::default() });
    let authority = format!("origin.test:{}", address.port());
    let open = |rules: &str| node.egress.open(KEY.to_owned(), node.socket.clone(), rules.parse().unwrap()).unwrap();
    let (mut stream, _) = node.tunnel(&authority).await;
    let before = node.egress.usage(KEY).unwrap().bytes_up;
    open("origin.test:*");
    stream.write_all(b"alive").await.unwrap();
    until(async || node.egress.usage(KEY).unwrap().bytes_up == before + 5).await;

    open("elsewhere.test");
    assert_eq!(rest(&mut stream).await, "");
    assert!(node.tunnel(&authority).await.1.starts_with("HTTP/1.1 403 "));
    assert_eq!(node.egress.usage(KEY).unwrap().requests, 2);
    assert_eq!(std::fs::metadata(&node.socket).unwrap().permissions().mode() & 0o777, 0o600);

    // A file that somebody else left there is in nobody's way.
    std::fs::remove_file(&node.socket).unwrap();
    std::fs::write(&node.socket, "stale").unwrap();
    open("elsewhere.test");
    assert!(node.tunnel(&authority).await.1.starts_with("HTTP/1.1 403 "));
}

#[tokio::test]
async fn dropping_the_proxy_ends_everything() {
    let address = origin(|mut stream| async move { drop(rest(&mut stream).await) }).await;
    let node = node(Setup::default());
    let (mut stream, _) = node.tunnel(&format!("origin.test:{}", address.port())).await;
    drop(node);
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test]
async fn one_who_does_not_read_holds_the_sender_up() {
    let sent = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&sent);
    let address = origin(move |mut stream| {
        let sent = Arc::clone(&counter);
        async move {
            let endless = head(&mut stream).await.starts_with("GET");
            if endless {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            }
            while stream.write_all(&[7; 64 * 1024]).await.is_ok() {
                sent.fetch_add(64 * 1024, Ordering::Relaxed);
            }
        }
    })
    .await;
    let node = node(Setup::default());
    let request = format!("GET http://origin.test:{}/ HTTP/1.1\r\nhost: a\r\n\r\n", address.port());
    let mut stream = node.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    stalls(&sent).await;
    let (mut stream, _) = node.tunnel(&format!("origin.test:{}", address.port())).await;
    sent.store(0, Ordering::Relaxed);
    stream.write_all(b"\r\n\r\n").await.unwrap();
    stalls(&sent).await;
}

/// Waits until nothing more is sent for a while, which must be after what the kernel's and our buffers hold.
async fn stalls(sent: &AtomicU64) {
    let mut last = u64::MAX;
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(300));
    ticks.tick().await;
    until(async || {
        ticks.tick().await;
        let before = std::mem::replace(&mut last, sent.load(Ordering::Relaxed));
        last == before && last > 0
    })
    .await;
    assert!(last < 16 * 1024 * 1024, "{last} bytes on the way");
}

#[tokio::test]
async fn a_gibibyte_passes_through_a_few_buffers() {
    const BYTES: u64 = 1 << 30;
    let address = origin(|mut stream| async move {
        head(&mut stream).await;
        let block = vec![7; 256 * 1024];
        for _ in 0..BYTES / block.len() as u64 {
            stream.write_all(&block).await.unwrap();
        }
    })
    .await;
    let node = node(Setup::default());
    let (mut stream, _) = node.tunnel(&format!("origin.test:{}", address.port())).await;
    let before = resident_bytes();
    stream.write_all(b"\r\n\r\n").await.unwrap();
    let (mut block, mut got, mut most) = (vec![0; 256 * 1024], 0, 0);
    loop {
        match stream.read(&mut block).await.unwrap() {
            0 => break,
            bytes => got += bytes as u64,
        }
        if got % (64 << 20) < block.len() as u64 {
            most = most.max(resident_bytes());
        }
    }
    assert_eq!(got, BYTES);
    let grown = most.saturating_sub(before);
    // Other tests of this process run meanwhile, so the figure is theirs too.
    assert!(grown < 64 << 20, "{grown} bytes more, of which a tunnel has {}", 2 * TUNNEL_BUFFER_BYTES);
    assert!(node.egress.usage(KEY).unwrap().bytes_down >= BYTES);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_tunnel_to_where_nobody_listens_is_refused_before_it_begins() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let node = node(Setup::default());
    let (_, head) = node.tunnel(&format!("origin.test:{}", closed.port())).await;
    assert_eq!(told(&head), "502 -");
    let (address, _requests) = answering(OK).await;
    assert_eq!(told(&node.get(&format!("http://origin.test:{}/", address.port())).await), "200 -");
}

#[tokio::test]
async fn who_acts_in_a_sandboxs_name_goes_out_by_its_rules_and_is_counted_as_it() {
    let address = origin(|mut stream| async move {
        let asked = rest(&mut stream).await;
        stream.write_all(asked.to_uppercase().as_bytes()).await.unwrap();
    })
    .await;
    let node = node(Setup { rules: "origin.test:*", ..Setup::default() });
    let mut stream = node.egress.visit(KEY, "origin.test", address.port()).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, "HELLO");
    drop(stream);
    until(async || node.egress.usage(KEY).unwrap().connections == 0).await;
    let usage = node.egress.usage(KEY).unwrap();
    assert_eq!((usage.requests, usage.refusals, usage.bytes_up >= 5), (1, 0, true), "{usage:?}");

    let refused = |error: VisitError| matches!(error, VisitError::Refused(_));
    for host in ["elsewhere.test", "127.0.0.1", "::1", "a b", "", "origin.test@x"] {
        assert!(refused(node.egress.visit(KEY, host, address.port()).await.unwrap_err()), "{host}");
    }
    assert!(refused(node.egress.visit(KEY, "origin.test", 0).await.unwrap_err()));
    assert!(matches!(node.egress.visit("sbx-9-9-9", "origin.test", 1).await, Err(VisitError::Closed)));
}

#[tokio::test]
async fn a_place_where_nobody_answers_is_told_apart_from_one_that_is_forbidden() {
    let address = origin(|mut stream| async move { drop(rest(&mut stream).await) }).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap().port();
    drop(listener);
    let bounds = EgressBounds { connections_per_sandbox_max: 1, ..EgressBounds::default() };
    let node = node(Setup { bounds, ..Setup::default() });
    let unreachable = node.egress.visit(KEY, "origin.test", closed).await.unwrap_err();
    assert!(matches!(unreachable, VisitError::Unreachable(_)), "{unreachable:?}");
    let mut only = None;
    until(async || {
        only = node.egress.visit(KEY, "origin.test", address.port()).await.ok();
        only.is_some()
    })
    .await;
    assert!(matches!(node.egress.visit(KEY, "origin.test", address.port()).await, Err(VisitError::Busy)));
    node.egress.close(KEY).unwrap();
    assert_eq!(rest(&mut only.unwrap()).await, "", "it ends with the sandbox's way out");
}
