//! Where a request comes from: the peer of its connection, or whom a trusted proxy names.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::{Extensions, HeaderMap};
use ipnet::IpNet;
use sandbox_process::serve::Peer;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Who asks, by address; `None` where the connection has none that is known.
pub(super) fn asker(headers: &HeaderMap, extensions: &Extensions, trusted: &[IpNet]) -> Option<IpAddr> {
    let Peer(peer) = extensions.get::<Peer<SocketAddr>>()?;
    let peer = peer.ip().to_canonical();
    if !is_trusted(peer, trusted) {
        return Some(peer);
    }
    // Each proxy appends whom it was asked by, so the last one that is no proxy of ours is the first that can be believed.
    let lines: Vec<&str> = headers.get_all(FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok()).collect();
    let mut named = lines.iter().rev().flat_map(|line| line.rsplit(',')).map(|name| address(name.trim()));
    loop {
        match named.next() {
            Some(Some(address)) if is_trusted(address, trusted) => {}
            Some(Some(address)) => return Some(address),
            Some(None) | None => return Some(peer),
        }
    }
}

/// Whether a peer speaks for others.
pub(super) fn is_trusted(peer: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|net| net.contains(&peer.to_canonical()))
}

/// What counts as one place: an address, or the network that one subscriber of IPv6 is given. `None` is this host.
pub(super) fn place(ip: IpAddr) -> Option<IpAddr> {
    match ip.to_canonical() {
        ip if ip.is_loopback() => None,
        IpAddr::V6(ip) => Some(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into()),
        ip @ IpAddr::V4(_) => Some(ip),
    }
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let found = bare.parse().ok().or_else(|| text.parse().ok().map(|with_port: SocketAddr| with_port.ip()));
    found.map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Who asks when `peer` is connected and says that it speaks for others.
    fn check(peer: &str, forwarded: &[&str], expected: &str) {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
        let mut extensions = Extensions::new();
        extensions.insert(Peer(Arc::new(SocketAddr::new(peer.parse().unwrap(), 1))));
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        let found = asker(&headers, &extensions, &trusted);
        assert_eq!(found, Some(expected.parse().unwrap()), "{peer} {forwarded:?}");
    }

    #[test]
    fn only_a_trusted_proxy_speaks_for_others() {
        check("192.0.2.1", &["198.51.100.7"], "192.0.2.1");
        check("127.0.0.1", &["198.51.100.7"], "127.0.0.1");
        check("10.1.2.3", &["198.51.100.7"], "198.51.100.7");
        check("::ffff:10.1.2.3", &["198.51.100.7"], "198.51.100.7");
        check("10.1.2.3", &[], "10.1.2.3");
    }

    #[test]
    fn what_stands_before_the_proxies_own_words_is_not_believed() {
        check("10.1.2.3", &["203.0.113.9, 198.51.100.7, 10.9.9.9"], "198.51.100.7");
        check("::1", &["203.0.113.9", "[2001:db8::1]:443"], "2001:db8::1");
        check("10.1.2.3", &["203.0.113.9, nonsense"], "10.1.2.3");
        check("10.1.2.3", &["10.0.0.1, 10.0.0.2"], "10.1.2.3");
    }
}
