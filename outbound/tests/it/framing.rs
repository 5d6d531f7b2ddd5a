//! Requests that are made to be read in two ways: each is refused, or one message arrives that says one thing.

use crate::harness::origin::{OK, answering};
use crate::harness::{Setup, node, told};

/// What is told for a request of these bytes; `PORT` stands for the origin's.
async fn check(request: &str, expected: &str) {
    let (address, _requests) = answering(OK).await;
    let answer = node(Setup::default()).ask(&request.replace("PORT", &address.port().to_string())).await;
    assert_eq!(told(&answer), expected, "{request:?}");
}

#[tokio::test]
async fn a_request_that_says_two_things_is_refused() {
    for (request, expected) in [
        ("GET http://origin.test:PORT/ HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", "400 -"),
        ("GET http://origin.test:PORT/ HTTP/1.1\r\ncontent-length: 1, 2\r\n\r\nab", "400 -"),
        ("GET http://origin.test:PORT/ HTTP/1.1\r\ncontent-length: +1\r\n\r\na", "400 -"),
        ("GET http://origin.test:PORT/ HTTP/1.1\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", "400 -"),
        ("GET http://origin.test:PORT/ HTTP/1.1\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", "400 -"),
        ("GET http://origin.test:PORT/ HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "400 -"),
        ("GET http://origin.test:PORT/ HTTP/1.1\r\na : b\r\n\r\n", "400 -"),
        ("GET http://origin.test:PORT/ HTTP/1.1\r\na: b\r\n c: d\r\n\r\n", "400 -"),
        ("GET http://origin.test:PORT/ HTTP/1.1\r\na: b\0\r\n\r\n", "400 -"),
        ("GET http://origin.test:PORT/ HTTP/1.1\r\n: b\r\n\r\n", "400 -"),
        ("GET http://origin.test:PORT/ x HTTP/1.1\r\n\r\n", "400 -"),
    ] {
        check(request, expected).await;
    }
    let coded = "transfer-encoding: gzip, chunked\r\nconnection: close\r\n\r\n0\r\n\r\n";
    check(&format!("GET http://origin.test:PORT/ HTTP/1.1\r\n{coded}"), "400 egress_malformed").await;
}

#[tokio::test]
async fn a_request_that_is_none_of_a_proxys_is_refused() {
    for line in [
        "GET / HTTP/1.1",
        "GET https://origin.test/ HTTP/1.1",
        "GET ftp://origin.test/ HTTP/1.1",
        "GET http://allowed.test@origin.test:PORT/ HTTP/1.1",
        "GET http://user:pass@origin.test:PORT/ HTTP/1.1",
        "GET http://origin.test:0/ HTTP/1.1",
        "GET http://origin.test:99999/ HTTP/1.1",
        "GET http://origin.test:80a/ HTTP/1.1",
        "GET http://exa%6dple.test:PORT/ HTTP/1.1",
        "GET http://[::1/ HTTP/1.1",
        "GET http:/// HTTP/1.1",
        "CONNECT origin.test HTTP/1.1",
        "CONNECT http://origin.test:PORT/ HTTP/1.1",
        "CONNECT /origin.test HTTP/1.1",
        "CONNECT user@origin.test:PORT HTTP/1.1",
        "CONNECT origin.test:PORT/x HTTP/1.1",
        "OPTIONS * HTTP/1.1",
    ] {
        let (address, _requests) = answering(OK).await;
        let request = format!("{line}\r\nhost: origin.test\r\nconnection: close\r\n\r\n");
        let answer = node(Setup::default()).ask(&request.replace("PORT", &address.port().to_string())).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{line}: {answer}");
    }
}

#[tokio::test]
async fn length_and_chunks_together_arrive_as_chunks_alone() {
    for order in
        [["content-length: 4", "transfer-encoding: chunked"], ["transfer-encoding: chunked", "content-length: 4"]]
    {
        let (address, mut requests) = answering(OK).await;
        let request = format!(
            "POST http://origin.test:{}/ HTTP/1.1\r\n{}\r\nconnection: close\r\n\r\n\
             5\r\nfirst\r\n0\r\n\r\nGET http://origin.test/second HTTP/1.1\r\n\r\n",
            address.port(),
            order.join("\r\n")
        );
        assert_eq!(told(&node(Setup::default()).ask(&request).await), "200 -");
        let seen = requests.recv().await.unwrap();
        assert!(seen.contains("transfer-encoding: chunked\r\n") && !seen.contains("content-length"), "{seen}");
        assert!(seen.ends_with("\r\n\r\n5\r\nfirst\r\n0\r\n\r\n"), "{seen}");
    }
}

#[tokio::test]
async fn naming_the_frame_as_a_neighbours_affair_does_not_take_it_off() {
    let (address, mut requests) = answering(OK).await;
    let request = format!(
        "POST http://origin.test:{}/ HTTP/1.1\r\nconnection: close, content-length, host\r\nhost: a\r\n\
         content-length: 5\r\n\r\nfirst",
        address.port()
    );
    assert_eq!(told(&node(Setup::default()).ask(&request).await), "200 -");
    let seen = requests.recv().await.unwrap();
    assert!(seen.contains("content-length: 5\r\n") && seen.ends_with("\r\n\r\nfirst"), "{seen}");
    assert!(seen.contains(&format!("host: origin.test:{}\r\n", address.port())), "{seen}");
}
