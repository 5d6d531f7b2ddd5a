//! Which addresses are not public, after IANA's registries of special-purpose addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Why an address is not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Range {
    /// 0.0.0.0/8, ::.
    Unspecified,
    /// 127.0.0.0/8, ::1.
    Loopback,
    /// 10/8, 172.16/12, 192.168/16, fc00::/7, fec0::/10.
    Private,
    /// 100.64.0.0/10: behind a carrier's translation, also some clouds' services.
    Shared,
    /// 169.254.0.0/16, fe80::/10: most clouds' metadata.
    LinkLocal,
    /// A cloud's own service at an address that looks public.
    Cloud,
    /// 224.0.0.0/4, ff00::/8.
    Multicast,
    /// 255.255.255.255.
    Broadcast,
    /// Set aside for documents.
    Documentation,
    /// Set aside for measuring networks.
    Benchmarking,
    /// Assigned to protocols, or to nobody.
    Reserved,
    /// Carries another address that a router somewhere would take out: 6to4, Teredo, NAT64, IPv4-compatible.
    Translated,
    /// An address of this very host, public or not.
    Own,
}

/// What `address` is set aside for; nothing if it is public.
#[must_use]
pub fn range(address: IpAddr) -> Option<Range> {
    match address.to_canonical() {
        IpAddr::V4(address) => range_v4(address),
        IpAddr::V6(address) => range_v6(address),
    }
}

/// Whether the route to `address` ends on this host. Asks the kernel by connecting a datagram socket, which sends
/// nothing; services of the host that a firewall keeps from the outside would be open from here.
pub(super) fn own(address: IpAddr) -> Option<Range> {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    // The port is never used; 0 would be refused.
    socket.connect((address, 9)).ok()?;
    (socket.local_addr().ok()?.ip() == address).then_some(Range::Own)
}

fn range_v4(address: Ipv4Addr) -> Option<Range> {
    let [a, b, c, _] = address.octets();
    Some(match (a, b, c) {
        (0, ..) => Range::Unspecified,
        (127, ..) => Range::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Range::Private,
        (100, 64..=127, _) => Range::Shared,
        (169, 254, _) => Range::LinkLocal,
        (168, 63, 129) if address.octets()[3] == 16 => Range::Cloud,
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => Range::Documentation,
        (192, 0, 0) | (192, 88, 99) => Range::Reserved,
        (198, 18..=19, _) => Range::Benchmarking,
        (224..=239, ..) => Range::Multicast,
        (255, 255, 255) if address.is_broadcast() => Range::Broadcast,
        (240..=255, ..) => Range::Reserved,
        _ => return None,
    })
}

/// Only 2000::/3 is given out; of the rest, what has a name gets it.
fn range_v6(address: Ipv6Addr) -> Option<Range> {
    let segments = address.segments();
    Some(match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => Range::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Range::Loopback,
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => Range::Translated,
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return translated(high, low),
        [0x64, 0xff9b, ..] | [0x2002, ..] | [0x2001, 0, ..] => Range::Translated,
        [0x2001, 0x0002, 0, ..] => Range::Benchmarking,
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Range::Documentation,
        [0x2001, 0..=0x01ff, ..] => Range::Reserved,
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Range::Private,
        [0xfe80..=0xfebf, ..] => Range::LinkLocal,
        [0xff00..=0xffff, ..] => Range::Multicast,
        [0x2000..=0x3fff, ..] => return None,
        _ => Range::Reserved,
    })
}

/// The well-known prefix of NAT64, by which hosts without IPv4 reach it: as public as the address within.
fn translated(high: u16, low: u16) -> Option<Range> {
    range_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))).map(|_| Range::Translated)
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::Shared => "shared",
            Self::LinkLocal => "link-local",
            Self::Cloud => "cloud service",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Documentation => "documentation",
            Self::Benchmarking => "benchmarking",
            Self::Reserved => "reserved",
            Self::Translated => "translated",
            Self::Own => "this host's own",
        })
    }
}
