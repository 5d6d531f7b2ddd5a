//! What a ticket opens, route by route.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::{Method, StatusCode};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::ticket::{SidecarScope, SidecarScopes, mint};
use sandbox_sidecar::http::{DEMANDS, Demand};

use crate::harness::{Sidecar, TOKEN, send};

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

async fn asked(sidecar: &Sidecar, path: &str, token: &str) -> (StatusCode, String) {
    let header = format!("Bearer {token}");
    let (status, body) = send(&sidecar.socket, Method::OPTIONS, path, &[("authorization", &header)], Vec::new()).await;
    (status, serde_json::from_slice::<ErrorBody>(&body).map_or_else(|_| String::new(), |error| error.code))
}

#[tokio::test]
async fn every_route_opens_to_tickets_of_its_scope_and_to_no_other() {
    let sidecar = Sidecar::start();
    let admin = ["/snapshot", "/channel", "/unix", "/listen", "/accepted/1", "/else"];
    let admin = admin.map(|path| (path, Demand::Scope(SidecarScope::Admin)));
    for (path, demand) in DEMANDS.into_iter().chain(admin) {
        for scope in SidecarScope::ALL {
            let opens = match demand {
                Demand::Any => true,
                Demand::Scope(demanded) => scope == demanded || scope == SidecarScope::Admin,
            };
            let ticket = mint(TOKEN.as_bytes(), scope.into(), now_s() + 60);
            let (status, code) = asked(&sidecar, path, &ticket).await;
            assert_eq!(status == StatusCode::FORBIDDEN, !opens, "{scope} {path}: {status}");
            assert_eq!(code == "forbidden", !opens, "{scope} {path}: {code}");
            assert_ne!(status, StatusCode::UNAUTHORIZED, "{scope} {path}");
        }
        assert_ne!(asked(&sidecar, path, TOKEN).await.0, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn a_ticket_of_several_scopes_opens_each_of_them() {
    let sidecar = Sidecar::start();
    let scopes = SidecarScopes::from_iter([SidecarScope::Files, SidecarScope::Pty]);
    let ticket = mint(TOKEN.as_bytes(), scopes, now_s() + 60);
    for (path, opens) in [("/files/list", true), ("/ptys", true), ("/exec", false), ("/snapshot", false)] {
        assert_eq!(asked(&sidecar, path, &ticket).await.0 != StatusCode::FORBIDDEN, opens, "{path}");
    }
}

#[tokio::test]
async fn an_expired_or_forged_ticket_opens_nothing() {
    let sidecar = Sidecar::start();
    let scope = SidecarScope::Admin.into();
    let good = mint(TOKEN.as_bytes(), scope, now_s() + 60);
    let changed = good.replace("admin", "files");
    for ticket in [mint(TOKEN.as_bytes(), scope, now_s()), mint(b"other", scope, now_s() + 60), changed] {
        for path in ["/exec", "/files/list", "/events", "/snapshot"] {
            let (status, code) = asked(&sidecar, path, &ticket).await;
            assert_eq!((status, &*code), (StatusCode::UNAUTHORIZED, "unauthorized"), "{ticket} {path}");
        }
    }
    assert_ne!(asked(&sidecar, "/exec", &good).await.0, StatusCode::UNAUTHORIZED);
}
