//! Each bound, from both sides.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandbox_outbound::egress::{EgressBounds, OpenError, Rules};
use sandbox_outbound::limits::{HEADER_BYTES_MAX, HEADERS_MAX, SOCKET_PATH_BYTES_MAX};
use tokio::io::AsyncWriteExt as _;

use crate::harness::origin::{OK, answering, head, origin};
use crate::harness::{KEY, Setup, node, rest, told, until};

#[tokio::test]
async fn a_sandbox_has_so_many_connections_and_the_next_is_told() {
    let address = origin(|mut stream| async move { drop(rest(&mut stream).await) }).await;
    let bounds = EgressBounds { connections_per_sandbox_max: 2, ..EgressBounds::default() };
    let node = node(Setup { bounds, ..Setup::default() });
    let authority = format!("origin.test:{}", address.port());
    let first = node.tunnel(&authority).await;
    let second = node.tunnel(&authority).await;
    assert!(first.1.starts_with("HTTP/1.1 200") && second.1.starts_with("HTTP/1.1 200"));
    let (_, third) = node.tunnel(&authority).await;
    assert!(third.starts_with("HTTP/1.1 503 too many connections at a time\r\n"), "{third}");
    assert_eq!(node.egress.usage(KEY).unwrap().connections, 2);
    drop(first);
    until(async || node.tunnel(&authority).await.1.starts_with("HTTP/1.1 200")).await;
}

#[tokio::test]
async fn all_sandboxes_together_have_so_many_connections() {
    let bounds = EgressBounds { connections_max: 1, ..EgressBounds::default() };
    let node = node(Setup { bounds, ..Setup::default() });
    let other = node.socket.with_file_name("other.sock");
    node.egress.open("other".to_owned(), other.clone(), Rules::default()).unwrap();
    let held = node.connect().await;
    until(async || node.egress.usage(KEY).unwrap().connections == 1).await;
    let mut refused = tokio::net::UnixStream::connect(&other).await.unwrap();
    assert_eq!(told(&rest(&mut refused).await), "503 egress_busy");
    drop(held);
    until(async || node.egress.usage(KEY).unwrap().connections == 0).await;
    let mut served = tokio::net::UnixStream::connect(&other).await.unwrap();
    served.write_all(b"GET http://a.test/ HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
    assert_eq!(told(&rest(&mut served).await), "403 egress_denied");
}

#[tokio::test]
async fn a_requests_head_has_a_length_and_a_count() {
    let (address, _requests) = answering(OK).await;
    let node = node(Setup::default());
    let begin = format!("GET http://origin.test:{}/ HTTP/1.1\r\nconnection: close\r\n", address.port());
    let long = |bytes: usize| format!("{begin}a: {}\r\n\r\n", "x".repeat(bytes - begin.len() - 7));
    assert_eq!(told(&node.ask(&long(HEADER_BYTES_MAX)).await), "200 -");
    assert_eq!(told(&node.ask(&long(2 * HEADER_BYTES_MAX)).await), "431 -");
    let many = |count: usize| format!("{begin}{}\r\n", "a: b\r\n".repeat(count - 1));
    assert_eq!(told(&node.ask(&many(HEADERS_MAX)).await), "200 -");
    assert_eq!(told(&node.ask(&many(HEADERS_MAX + 1)).await), "431 -");
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_request_is_cut() {
    let bounds = EgressBounds { header_read_max: Duration::from_millis(200), ..EgressBounds::default() };
    let node = node(Setup { bounds, ..Setup::default() });
    let (mut stream, begun) = (node.connect().await, Instant::now());
    stream.write_all(b"GET http://origin.test/ HT").await.unwrap();
    rest(&mut stream).await;
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_connection_without_a_byte_is_cut_as_a_tunnel_and_as_a_request() {
    let address = origin(|mut stream| async move { drop(rest(&mut stream).await) }).await;
    let bounds = EgressBounds { idle_max: Duration::from_millis(300), ..EgressBounds::default() };
    let node = node(Setup { bounds, ..Setup::default() });
    let begun = Instant::now();
    let (mut stream, _) = node.tunnel(&format!("origin.test:{}", address.port())).await;
    assert_eq!(rest(&mut stream).await, "");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_eq!(node.get(&format!("http://origin.test:{}/", address.port())).await, "", "the origin never answers");
}

#[tokio::test]
async fn a_sandbox_moves_bytes_at_its_rate() {
    let address = origin(|mut stream| async move {
        stream.write_all(&[7; 100_000]).await.unwrap();
    })
    .await;
    let taken = async |bytes_per_second_max: Option<NonZeroU32>| {
        let bounds = EgressBounds { bytes_per_second_max, ..EgressBounds::default() };
        let node = node(Setup { bounds, ..Setup::default() });
        let begun = Instant::now();
        let (mut stream, _) = node.tunnel(&format!("origin.test:{}", address.port())).await;
        assert_eq!(rest(&mut stream).await.chars().count(), 100_000);
        begun.elapsed()
    };
    // The last write's wait is nobody's: at least what came before it has been paid for.
    assert!(taken(NonZeroU32::new(100_000)).await >= Duration::from_millis(300));
    assert!(taken(None).await < Duration::from_millis(300));
}

#[tokio::test]
async fn a_sockets_path_fits_into_its_address() {
    let node = node(Setup::default());
    let dir = node.socket.parent().unwrap();
    let path = |bytes: usize| -> PathBuf { dir.join("s".repeat(bytes - dir.as_os_str().len() - 6) + ".sock") };
    let open = |bytes: usize| node.egress.open("long".to_owned(), path(bytes), Rules::default());
    open(SOCKET_PATH_BYTES_MAX).unwrap();
    tokio::net::UnixStream::connect(path(SOCKET_PATH_BYTES_MAX)).await.unwrap();
    assert!(
        matches!(open(SOCKET_PATH_BYTES_MAX + 1), Err(OpenError::PathLength { bytes }) if bytes == SOCKET_PATH_BYTES_MAX + 1)
    );
    let missing = node.egress.open("none".to_owned(), dir.join("no/such.sock"), Rules::default());
    assert!(matches!(missing, Err(OpenError::Listen { .. })));
}

#[tokio::test]
async fn so_many_sandboxes_have_egress_and_a_closed_one_makes_room() {
    let bounds = EgressBounds { sandboxes_max: 2, ..EgressBounds::default() };
    let node = node(Setup { bounds, ..Setup::default() });
    let open = |key: &str| {
        node.egress.open(key.to_owned(), node.socket.with_file_name(format!("{key}.sock")), Rules::default())
    };
    open("second").unwrap();
    open("second").unwrap();
    assert!(matches!(open("third"), Err(OpenError::Count { count: 2 })));
    node.egress.close("second").unwrap();
    open("third").unwrap();
}

#[tokio::test]
async fn an_answers_head_has_a_count() {
    for (count, expected) in [(HEADERS_MAX, "200 -"), (HEADERS_MAX + 1, "502 egress_unreachable")] {
        let address = origin(move |mut stream| async move {
            head(&mut stream).await;
            let headers = "a: b\r\n".repeat(count - 1);
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{headers}\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let answer = node(Setup::default()).get(&format!("http://origin.test:{}/", address.port())).await;
        assert_eq!(told(&answer), expected, "{count} headers");
    }
}
