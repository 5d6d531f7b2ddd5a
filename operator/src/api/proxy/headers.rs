//! Headers on their way through: what is of one connection stays there, what is a secret of the caller's or the operator's
//! stays with it, and what a program says to its whole origin, which is the operator's, is kept to its own paths.

use std::net::IpAddr;

use axum::http::header::{
    ALT_SVC, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, COOKIE, EXPECT, FORWARDED, HOST,
    LOCATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_EXTENSIONS, SET_COOKIE, STRICT_TRANSPORT_SECURITY,
    TE, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use sandbox_process::websocket::names;
use sandbox_protocol::exec::BEARER;

use crate::api::session::TOKEN_HEADER;

/// Wakes a stopped sandbox where it says `true`.
pub(super) const RESUME_HEADER: &str = "x-sandbox-resume";
/// Headers that are the operator's alone begin so.
const OURS: &str = "x-sandbox-";
const FORWARDED_AS: &str = "x-forwarded-";
const REAL_IP: &str = "x-real-ip";

/// What is said to the other end of one connection.
const OF_ONE_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What is said to a browser about everything at an origin, and is not for one program to say.
const OF_THE_ORIGIN: [HeaderName; 7] = [
    ALT_SVC,
    STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    HeaderName::from_static("service-worker-allowed"),
];

/// A page of a program gets an origin of its own: beside other customers' programs it is a stranger.
const CONFINED: HeaderValue =
    HeaderValue::from_static("sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads");

/// What a program is told about the way to it.
pub(super) struct Way {
    /// Who asks.
    pub(super) asker: Option<IpAddr>,
    /// Scheme by which customers reach the operator.
    pub(super) scheme: String,
    /// The path below which the program's own are, as customers see it.
    pub(super) prefix: String,
    pub(super) port: u16,
}

/// The protocol that a request asks its connection to become, if it is one of these.
pub(super) fn upgrade(method: &Method, headers: &HeaderMap, protocols: &[&'static str]) -> Option<&'static str> {
    let asks = method == Method::GET && names(headers, &CONNECTION, "upgrade");
    protocols.iter().copied().find(|protocol| asks && names(headers, &UPGRADE, protocol))
}

/// Says that a connection is to become, or becomes, something else.
pub(super) fn set_upgrade(headers: &mut HeaderMap, protocol: &'static str) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(protocol));
}

/// Takes out what would keep a WebSocket's messages from being read.
pub(super) fn legible(headers: &mut HeaderMap) {
    headers.remove(SEC_WEBSOCKET_EXTENSIONS);
}

/// What a sidecar is sent of a request's headers, with the key to it.
pub(super) fn to_sidecar(headers: &HeaderMap, key: HeaderValue) -> HeaderMap {
    let mut sent = inward(headers);
    sent.remove(COOKIE);
    sent.insert(HOST, HeaderValue::from_static("sidecar"));
    sent.insert(AUTHORIZATION, key);
    sent
}

/// What shows a ticket.
pub(super) fn bearer(ticket: &str) -> Result<HeaderValue, axum::http::header::InvalidHeaderValue> {
    let mut key = HeaderValue::from_str(&format!("{BEARER} {ticket}"))?;
    key.set_sensitive(true);
    Ok(key)
}

/// What a program is sent of a request's headers. It is asked as by a neighbour, which servers of developers insist on.
pub(super) fn to_program(headers: &HeaderMap, way: &Way) -> HeaderMap {
    let mut sent = inward(headers);
    // With a token that stands alone, the other one is the program's.
    if !headers.contains_key(TOKEN_HEADER) {
        sent.remove(AUTHORIZATION);
    }
    let told = [
        (HOST, Some(format!("localhost:{}", way.port))),
        (HeaderName::from_static("x-forwarded-for"), way.asker.map(|asker| asker.to_string())),
        (HeaderName::from_static("x-forwarded-proto"), Some(way.scheme.clone())),
        (HeaderName::from_static("x-forwarded-prefix"), Some(way.prefix.clone())),
    ];
    for (name, value) in told {
        if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
            sent.insert(name, value);
        }
    }
    if let Some(host) = headers.get(HOST) {
        sent.insert(HeaderName::from_static("x-forwarded-host"), host.clone());
    }
    sent
}

/// What a caller is sent of an answer's headers.
pub(super) fn outward(headers: &HeaderMap) -> HeaderMap {
    let mut sent = end_to_end(headers);
    remove(&mut sent, |name| name.starts_with(OURS));
    sent
}

/// What a caller is sent of a program's headers.
pub(super) fn from_program(headers: &HeaderMap, way: &Way) -> HeaderMap {
    let mut sent = outward(headers);
    for name in &OF_THE_ORIGIN {
        sent.remove(name);
    }
    let home = |value: &HeaderValue| HeaderValue::try_from(at_home(value.to_str().ok()?, way)).ok();
    if let Some(location) = sent.get(LOCATION).and_then(home) {
        sent.insert(LOCATION, location);
    }
    let kept = |value: &HeaderValue| HeaderValue::try_from(kept_home(value.to_str().ok()?, &way.prefix)).ok();
    let cookies: Vec<_> = sent.get_all(SET_COOKIE).iter().filter_map(kept).collect();
    sent.remove(SET_COOKIE);
    for cookie in cookies {
        sent.append(SET_COOKIE, cookie);
    }
    sent.append(CONTENT_SECURITY_POLICY, CONFINED);
    sent
}

fn inward(headers: &HeaderMap) -> HeaderMap {
    let mut sent = end_to_end(headers);
    if names(headers, &TE, "trailers") {
        sent.insert(TE, HeaderValue::from_static("trailers"));
    }
    for name in [HOST, EXPECT, FORWARDED, HeaderName::from_static(REAL_IP)] {
        sent.remove(name);
    }
    remove(&mut sent, |name| name.starts_with(OURS) || name.starts_with(FORWARDED_AS));
    sent
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    for name in listed.flat_map(|list| list.split(',')) {
        kept.remove(name.trim());
    }
    for name in &OF_ONE_CONNECTION {
        kept.remove(name);
    }
    // What says its length twice is framed anew, so that nobody reads another end into it.
    if headers.contains_key(TRANSFER_ENCODING) {
        kept.remove(CONTENT_LENGTH);
    }
    kept
}

fn remove(headers: &mut HeaderMap, which: impl Fn(&str) -> bool) {
    let names: Vec<_> = headers.keys().filter(|name| which(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// A program's own path below the one that leads to it, unless it knows that one itself.
fn below(path: &str, prefix: &str) -> String {
    let knows = path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
    if knows { path.to_owned() } else { format!("{prefix}{path}") }
}

/// Where a program's redirection leads.
fn at_home(location: &str, way: &Way) -> String {
    let own = location.strip_prefix(&format!("http://localhost:{}", way.port));
    match own.unwrap_or(location) {
        "" => format!("{}/", way.prefix),
        path if path.starts_with('/') && !path.starts_with("//") => below(path, &way.prefix),
        _ => location.to_owned(),
    }
}

/// A program's cookie, for its own paths only.
fn kept_home(cookie: &str, prefix: &str) -> String {
    let mut parts = cookie.split(';');
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (name.trim(), value.trim());
        if name.eq_ignore_ascii_case("domain") {
            continue;
        }
        let path = name.eq_ignore_ascii_case("path") && value.starts_with('/');
        kept += &if path { format!("; Path={}", below(value, prefix)) } else { format!(";{part}") };
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/sandboxes/sbx-7-1-0/ports/80";

    fn way() -> Way {
        Way { asker: "192.0.2.1".parse().ok(), scheme: "https".into(), prefix: PREFIX.into(), port: 80 }
    }

    fn map(lines: &[&str]) -> HeaderMap {
        let pair = |line: &&str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in lines.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        let mut lines: Vec<String> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    const ASKED: &[&str] = &[
        "host: op.example",
        "authorization: Bearer sbt_secret",
        "cookie: a=b",
        "accept: text/plain",
        "connection: keep-alive, X-Hop, authorization",
        "x-hop: 1",
        "keep-alive: 5",
        "te: gzip, trailers",
        "transfer-encoding: chunked",
        "content-length: 3",
        "upgrade: h2c",
        "expect: 100-continue",
        "x-forwarded-for: 10.0.0.1",
        "x-forwarded-server: x",
        "forwarded: for=10.0.0.1",
        "x-real-ip: 10.0.0.1",
        "x-sandbox-resume: true",
        "proxy-authorization: Basic x",
    ];

    #[test]
    fn a_sidecar_sees_a_ticket_and_nothing_of_the_callers_secrets() {
        let sent = to_sidecar(&map(ASKED), bearer("sbt1.exec.9.00").unwrap());
        assert_eq!(
            lines(&sent),
            ["accept: text/plain", "authorization: Bearer sbt1.exec.9.00", "host: sidecar", "te: trailers"]
        );
        assert!(sent[AUTHORIZATION].is_sensitive());
    }

    #[test]
    fn a_program_is_asked_as_by_a_neighbour_and_told_the_way() {
        let mut told = [
            "accept: text/plain",
            "cookie: a=b",
            "host: localhost:80",
            "te: trailers",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-host: op.example",
            "x-forwarded-prefix: /sandboxes/sbx-7-1-0/ports/80",
            "x-forwarded-proto: https",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(lines(&to_program(&map(ASKED), &way())), told);
        let own = map(&["host: op.example", "authorization: Basic own", "x-sandbox-token: sbt_secret"]);
        told.retain(|line| line.starts_with("host") || line.starts_with("x-forwarded"));
        told.insert(0, "authorization: Basic own".into());
        assert_eq!(lines(&to_program(&own, &way())), told);
    }

    #[test]
    fn what_a_program_says_to_its_origin_stays_with_it() {
        let said = map(&[
            "content-type: text/html",
            "connection: close, x-hop",
            "x-hop: 1",
            "alt-svc: h3=\":443\"",
            "strict-transport-security: max-age=1",
            "clear-site-data: \"*\"",
            "service-worker-allowed: /",
            "x-sandbox-anything: 1",
            "content-security-policy: default-src 'self'",
            "set-cookie: a=b; Path=/; Domain=op.example; HttpOnly",
            "set-cookie: c=d",
            "location: /login?next=/",
        ]);
        assert_eq!(
            lines(&from_program(&said, &way())),
            [
                "content-security-policy: default-src 'self'",
                "content-security-policy: sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads",
                "content-type: text/html",
                "location: /sandboxes/sbx-7-1-0/ports/80/login?next=/",
                "set-cookie: a=b; Path=/sandboxes/sbx-7-1-0/ports/80/; HttpOnly",
                "set-cookie: c=d",
            ]
        );
    }

    #[test]
    fn a_redirection_leads_to_the_program_it_is_of() {
        for (location, expected) in [
            ("/", "/sandboxes/sbx-7-1-0/ports/80/"),
            ("http://localhost:80", "/sandboxes/sbx-7-1-0/ports/80/"),
            ("http://localhost:80/a", "/sandboxes/sbx-7-1-0/ports/80/a"),
            ("http://localhost:8080/a", "http://localhost:8080/a"),
            ("/sandboxes/sbx-7-1-0/ports/80/a", "/sandboxes/sbx-7-1-0/ports/80/a"),
            ("/sandboxes/sbx-7-1-0/ports/8000", "/sandboxes/sbx-7-1-0/ports/80/sandboxes/sbx-7-1-0/ports/8000"),
            ("a/b", "a/b"),
            ("//other.example/", "//other.example/"),
            ("https://other.example/", "https://other.example/"),
        ] {
            assert_eq!(at_home(location, &way()), expected);
        }
    }

    #[test]
    fn a_connection_becomes_only_what_the_route_allows() {
        let asks = map(&["connection: keep-alive, Upgrade", "upgrade: WebSocket"]);
        assert_eq!(upgrade(&Method::GET, &asks, &["tcp", "websocket"]), Some("websocket"));
        assert_eq!(upgrade(&Method::GET, &asks, &["tcp"]), None);
        assert_eq!(upgrade(&Method::POST, &asks, &["websocket"]), None);
        assert_eq!(upgrade(&Method::GET, &map(&["upgrade: websocket"]), &["websocket"]), None);
    }
}
