//! Plain requests in absolute form.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::origin::{OK, answering, head, origin};
use crate::harness::{KEY, Setup, node, rest, told};

#[tokio::test]
async fn an_allowed_request_is_answered_by_the_origin() {
    let (address, mut requests) = answering(OK).await;
    let node = node(Setup::default());
    let port = address.port();
    let request = format!(
        "POST http://ORIGIN.test:{port}/a?b=c HTTP/1.1\r\nhost: elsewhere.test\r\nproxy-authorization: Basic eA==\r\n\
         proxy-connection: keep-alive\r\nconnection: close, x-hop\r\nx-hop: 1\r\nx-end: 2\r\ncontent-length: 4\r\n\r\nbody"
    );
    let answer = node.ask(&request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("x-from: origin\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    let mut seen: Vec<String> = requests.recv().await.unwrap().lines().map(str::to_owned).collect();
    seen[1..].sort();
    let host = format!("host: origin.test:{port}");
    assert_eq!(seen, ["POST /a?b=c HTTP/1.1", "", "body", "content-length: 4", &host, "x-end: 2"]);
    let usage = node.egress.usage(KEY).unwrap();
    assert_eq!((usage.requests, usage.refusals), (1, 0));
    assert_eq!((usage.bytes_up, usage.bytes_down), (request.len() as u64, answer.len() as u64));
    assert!(usage.idle_for.is_some());
}

#[tokio::test]
async fn a_body_in_chunks_arrives_in_chunks() {
    let (address, mut requests) = answering(OK).await;
    let node = node(Setup::default());
    let request = format!(
        "PUT http://origin.test:{}/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\nexpect: 100-continue\r\n\
         transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        address.port()
    );
    let answer = node.ask(&request).await;
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{answer}");
    let seen = requests.recv().await.unwrap();
    assert!(seen.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n") && !seen.contains("expect"), "{seen}");
}

#[tokio::test]
async fn a_redirect_is_the_clients_to_follow_and_then_judged_like_any_request() {
    let moved = "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest\r\ncontent-length: 0\r\n\r\n";
    let (address, _requests) = answering(moved).await;
    let node = node(Setup { rules: "*:*,169.254.169.254", ..Setup::default() });
    let answer = node.get(&format!("http://origin.test:{}/", address.port())).await;
    assert!(answer.starts_with("HTTP/1.1 302 Found\r\n"), "{answer}");
    assert!(answer.contains("location: http://169.254.169.254/latest\r\n"), "{answer}");
    assert_eq!(told(&node.get("http://169.254.169.254/latest").await), "403 egress_address");
}

#[tokio::test]
async fn several_requests_go_over_one_connection() {
    let address = origin(|mut stream| async move {
        while !head(&mut stream).await.is_empty() {
            stream.write_all(OK.as_bytes()).await.unwrap();
        }
    })
    .await;
    let node = node(Setup::default());
    let mut stream = node.connect().await;
    for _ in 0..3 {
        let request = format!("GET http://origin.test:{}/ HTTP/1.1\r\nhost: a\r\n\r\n", address.port());
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(head(&mut stream).await.starts_with("HTTP/1.1 200 OK"));
        let mut body = [0; 5];
        stream.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"hello");
    }
    assert_eq!(node.egress.usage(KEY).unwrap().requests, 3);
}

#[tokio::test]
async fn a_websocket_passes_and_other_upgrades_are_declined() {
    let address = origin(|mut stream| async move {
        let asked = head(&mut stream).await;
        if !asked.contains("upgrade: websocket\r\n") {
            assert!(!asked.to_lowercase().contains("upgrade"), "{asked}");
            return stream.write_all(OK.as_bytes()).await.unwrap();
        }
        let change = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                      sec-websocket-accept: x\r\n\r\nfirst";
        stream.write_all(change.as_bytes()).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    })
    .await;
    let node = node(Setup::default());
    let ask = |protocol: &str| {
        format!(
            "GET http://origin.test:{}/ HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: {protocol}\r\n\r\n",
            address.port()
        )
    };
    let mut stream = node.connect().await;
    stream.write_all(ask("websocket").as_bytes()).await.unwrap();
    let answer = head(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains("sec-websocket-accept: x\r\n"), "{answer}");
    stream.write_all(b" second").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, "first second");

    let mut stream = node.connect().await;
    stream.write_all(ask("h2c").as_bytes()).await.unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn an_origin_that_breaks_off_is_told_as_such() {
    let address = origin(|mut stream| async move { drop(head(&mut stream).await) }).await;
    let node = node(Setup::default());
    let answer = node.get(&format!("http://origin.test:{}/", address.port())).await;
    assert_eq!(told(&answer), "502 egress_unreachable");
    assert!(answer.ends_with("\"retryable\":true}"), "{answer}");
}

#[tokio::test]
async fn a_protocol_changed_unasked_is_not_passed_on() {
    let changed = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let (address, _requests) = answering(changed).await;
    let answer = node(Setup::default()).get(&format!("http://origin.test:{}/", address.port())).await;
    assert_eq!(told(&answer), "502 egress_unreachable");
}
