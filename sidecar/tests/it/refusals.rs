//! What is refused, with which status and code word.

use hyper::{Method, StatusCode};
use sandbox_protocol::exec::ExecBody;
use sandbox_protocol::http::ErrorBody;

use crate::harness::{Sidecar, TOKEN, body, named, post, send};

async fn check(sidecar: &Sidecar, (method, path): (Method, &str), header: Option<&str>, expected: (u16, &str)) {
    let headers: Vec<_> = header.map(|value| ("authorization", value)).into_iter().collect();
    let what = format!("{method} {path} {header:?}");
    let (status, bytes) = send(&sidecar.socket, method, path, &headers, b"{}".to_vec()).await;
    let error: ErrorBody = serde_json::from_slice(&bytes).expect(&what);
    assert_eq!((status.as_u16(), error.code.as_str()), expected, "{what}");
}

#[tokio::test]
async fn every_route_but_health_demands_the_token() {
    let sidecar = Sidecar::start();
    for header in [None, Some("Bearer wrong"), Some("Bearer secre"), Some("Basic secret"), Some("secret")] {
        check(&sidecar, (Method::POST, "/exec"), header, (401, "unauthorized")).await;
        check(&sidecar, (Method::GET, "/exec"), header, (401, "unauthorized")).await;
        check(&sidecar, (Method::GET, "/else"), header, (401, "unauthorized")).await;
    }
    assert_eq!(sidecar.health().await.status, "ok");
}

#[tokio::test]
async fn unknown_routes_and_methods_are_told_apart() {
    let sidecar = Sidecar::start();
    let token = Some("Bearer secret");
    check(&sidecar, (Method::GET, "/else"), token, (404, "not_found")).await;
    check(&sidecar, (Method::PUT, "/exec"), token, (405, "method_not_allowed")).await;
    check(&sidecar, (Method::POST, "/health"), None, (405, "method_not_allowed")).await;
}

#[tokio::test]
async fn a_body_that_is_not_a_request_is_bad() {
    let sidecar = Sidecar::start();
    for bytes in
        ["", "[]", "{}", "{\"command\":\"true\",\"unknown\":1}", "{\"command\":\"true\",\"stdin\":\"*\"}", "\u{fe}"]
    {
        let (status, _) = post(&sidecar.socket, TOKEN, bytes.as_bytes().to_vec()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bytes}");
    }
    assert_eq!(sidecar.refusal(&body("")).await, (400, "bad_request".to_owned()));
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_the_callers_matter() {
    let sidecar = Sidecar::start();
    sidecar.sh("touch file; mkdir closed; chmod 0 closed").await;
    for cwd in ["absent", "file", "/absent"] {
        let request = ExecBody { cwd: cwd.to_owned(), ..named("retry", "echo ran") };
        assert_eq!(sidecar.refusal(&request).await, (400, "bad_request".to_owned()), "{cwd}");
    }
    let closed = ExecBody { cwd: "closed".to_owned(), ..body("true") };
    assert_eq!(sidecar.refusal(&closed).await, (400, "bad_request".to_owned()));
    // Nothing ran, so the id is free.
    sidecar.exec(&named("retry", "echo ran")).await.unwrap();
}

#[tokio::test]
async fn attaching_to_an_unknown_execution_starts_nothing() {
    let sidecar = Sidecar::start();
    let request = ExecBody { attach_only: true, ..named("unknown", "touch ran") };
    assert_eq!(sidecar.refusal(&request).await, (404, "unknown_execution".to_owned()));
    assert!(!sidecar.workspace().join("ran").exists());
}

#[tokio::test]
async fn another_request_under_a_known_id_is_a_conflict() {
    let sidecar = Sidecar::start();
    sidecar.exec(&named("same", "echo one")).await.unwrap();
    assert_eq!(sidecar.refusal(&named("same", "echo two")).await, (409, "conflict".to_owned()));
}
