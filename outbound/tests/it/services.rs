//! Host services: asked by name, answered by the operator's upstream, the key never inside.

use std::collections::HashMap;
use std::sync::Arc;

use sandbox_outbound::egress::HostService;
use tokio::io::AsyncWriteExt as _;

use crate::harness::origin::{OK, answering, head, origin};
use crate::harness::programs::Authority;
use crate::harness::{KEY, Setup, node, rest, told};

fn service(upstream: &str) -> HostService {
    let service = HostService::parse(&format!("model.internal={upstream}")).unwrap();
    service.with_header("authorization", "Bearer operators").unwrap()
}

/// No rule allows anything, no exception either: services need neither.
fn setup(upstream: &str) -> Setup {
    Setup { rules: "", policy: "", exceptions: String::new(), services: vec![service(upstream)], ..Setup::default() }
}

#[tokio::test]
async fn a_service_is_asked_with_the_operators_key_and_without_the_customers() {
    let (address, mut requests) = answering(OK).await;
    let node = node(setup(&format!("http://{address}/v1/")));
    let request = "POST http://Model.Internal/chat?x=1 HTTP/1.1\r\nhost: a\r\nAuthorization: Bearer customers\r\n\
                   proxy-authorization: x\r\naccept: b\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody";
    let answer = node.ask(request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert!(!answer.contains("operators"), "{answer}");
    let seen = requests.recv().await.unwrap();
    let mut lines: Vec<&str> = seen.lines().collect();
    lines[1..].sort_unstable();
    let host = format!("host: {address}");
    assert_eq!(
        lines,
        [
            "POST /v1/chat?x=1 HTTP/1.1",
            "",
            "accept: b",
            "authorization: Bearer operators",
            "body",
            "content-length: 4",
            &host
        ]
    );
    let usage = node.egress.usage(KEY).unwrap();
    assert!(usage.idle_for.is_some() && usage.refusals == 0, "{usage:?}");
}

#[tokio::test]
async fn a_redirect_of_the_upstream_is_not_followed_with_the_key() {
    let (address, mut requests) =
        answering("HTTP/1.1 307 Temporary Redirect\r\nlocation: http://evil.test/\r\ncontent-length: 0\r\n\r\n").await;
    let node = node(setup(&format!("http://{address}")));
    assert!(node.get("http://model.internal/").await.starts_with("HTTP/1.1 307 "));
    requests.recv().await.unwrap();
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn a_service_is_not_left_by_path_port_or_tunnel() {
    let (address, _requests) = answering(OK).await;
    let node = node(setup(&format!("http://{address}/v1")));
    assert_eq!(told(&node.get("http://model.internal/../admin").await), "400 egress_malformed");
    assert_eq!(told(&node.get("http://model.internal/%2e%2e/admin").await), "400 egress_malformed");
    let expected = "HTTP/1.1 403 model.internal is a service of this host: ask for it as http://model.internal/\r\n";
    assert!(node.get("http://model.internal:8080/").await.starts_with(expected));
    assert!(node.tunnel("model.internal:443").await.1.starts_with(expected));
    assert_eq!(told(&node.get(&format!("http://{address}/v1")).await), "403 egress_denied", "the upstream itself");
}

#[tokio::test]
async fn an_answer_comes_as_it_is_made() {
    let (release, released) = tokio::sync::watch::channel(false);
    let address = origin(move |mut stream| {
        let mut released = released.clone();
        async move {
            head(&mut stream).await;
            let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(format!("{begin}5\r\nfirst\r\n").as_bytes()).await.unwrap();
            released.wait_for(|released| *released).await.unwrap();
            stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let node = node(setup(&format!("http://{address}")));
    let mut stream = node.connect().await;
    stream.write_all(b"GET http://model.internal/ HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
    head(&mut stream).await;
    assert_eq!(head_of_chunk(&mut stream).await, "5\r\nfirst\r\n");
    release.send(true).unwrap();
    assert_eq!(rest(&mut stream).await, "6\r\nsecond\r\n0\r\n\r\n");
}

async fn head_of_chunk(stream: &mut tokio::net::UnixStream) -> String {
    use tokio::io::AsyncReadExt as _;
    let mut bytes = [0; 10];
    stream.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn an_upstream_speaks_tls_to_us_and_plain_inside() {
    let authority = Authority::new();
    let files = Arc::new(HashMap::from([("/v1/models".to_owned(), b"[]".to_vec())]));
    let address = authority.serve("localhost", files).await;
    let upstream = format!("https://localhost:{}/v1", address.port());
    let trusting = node(Setup { roots: vec![authority.root()], ..setup(&upstream) });
    let answer = trusting.get("http://model.internal/models").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n[]"), "{answer}");
    let doubting = node(setup(&upstream));
    let answer = doubting.get("http://model.internal/models").await;
    assert_eq!(told(&answer), "502 egress_unreachable");
    assert!(!answer.contains("localhost"), "the upstream's name is the operator's: {answer}");
}
