//! What is between two neighbours on the road and goes no further (RFC 9110, section 7.6.1).

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use super::refusal::Refusal;

/// Also those that only a proxy is meant to read. `Expect` is answered by our own server as soon as the body is wanted.
const BETWEEN_NEIGHBOURS: [HeaderName; 6] = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, EXPECT];

/// Takes out what goes no further, also what `Connection` names, and everything that begins with `proxy-`.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION).filter_map(|name| name.parse().ok()).collect();
    let ours = headers.keys().filter(|name| name.as_str().starts_with("proxy-") || *name == "keep-alive");
    let ours: Vec<HeaderName> = ours.cloned().collect();
    for name in BETWEEN_NEIGHBOURS.iter().chain(&named).chain(&ours) {
        headers.remove(name);
    }
}

/// Bodies come in length or in chunks; any other coding would lose its name on the way.
pub(super) fn check_framing(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = tokens(headers, &TRANSFER_ENCODING);
    let known = codings.next().is_none_or(|coding| coding.eq_ignore_ascii_case("chunked")) && codings.next().is_none();
    if !known || (headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)) {
        return Err(Refusal::Malformed("a body in length or in chunks is served"));
    }
    Ok(())
}

/// Whether the sender wants to go on in the WebSocket protocol. Other upgrades are stripped, which is to decline them.
pub(super) fn wants_websocket(headers: &HeaderMap) -> bool {
    let named = tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let mut protocols = tokens(headers, &UPGRADE);
    named && protocols.next().is_some_and(|one| one.eq_ignore_ascii_case("websocket")) && protocols.next().is_none()
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn what_is_between_neighbours_goes_no_further() {
        let mut map = headers(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("proxy-authorization", "Basic eA=="),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("accept", "*/*"),
        ]);
        strip(&mut map);
        assert_eq!(map, headers(&[("accept", "*/*")]));
    }

    #[test]
    fn a_body_is_framed_in_one_way() {
        assert!(check_framing(&headers(&[])).is_ok());
        assert!(check_framing(&headers(&[("transfer-encoding", "Chunked")])).is_ok());
        assert!(check_framing(&headers(&[("content-length", "5")])).is_ok());
        assert!(check_framing(&headers(&[("transfer-encoding", "gzip, chunked")])).is_err());
        assert!(check_framing(&headers(&[("transfer-encoding", "chunked"), ("content-length", "5")])).is_err());
    }

    #[test]
    fn only_a_websocket_is_an_upgrade() {
        assert!(wants_websocket(&headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")])));
        assert!(!wants_websocket(&headers(&[("connection", "upgrade"), ("upgrade", "h2c")])));
        assert!(!wants_websocket(&headers(&[("connection", "upgrade"), ("upgrade", "websocket, h2c")])));
        assert!(!wants_websocket(&headers(&[("upgrade", "websocket")])));
    }
}
