//! Which hosts lead to connections, and which do not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use proptest::prelude::*;
use sandbox_outbound::address::{
    AddressError, Exceptions, ExceptionsError, Guard, Host, Range, Resolve, SystemResolver, range,
};
use sandbox_outbound::limits::{
    ADDRESSES_MAX, CONNECT_ADDRESS_MAX, CONNECT_MAX, EXCEPTIONS_MAX, HOST_BYTES_MAX, LOOKUP_MAX,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::harness::Names;

fn guard(exceptions: &str, names: Names) -> Guard {
    Guard::with_resolver(Exceptions::parse(exceptions).unwrap(), Arc::new(names))
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

#[test]
fn a_host_has_one_form() {
    let check = |text: &str, form: &str| assert_eq!(host(text).to_string(), form);
    check("Example.COM.", "example.com");
    check("BÜCHER.example", "xn--bcher-kva.example");
    check("_dmarc.example.com", "_dmarc.example.com");
    check("1.2.3.4", "1.2.3.4");
    check("[::1]", "[::1]");
    check("::FFFF:7f00:1", "127.0.0.1");
    check("2001:DB8:0:0::1", "[2001:db8::1]");
    check("ⓔxample.com", "example.com");
}

#[test]
fn spellings_that_two_programs_may_read_differently_are_no_hosts() {
    let spelled =
        "0x7f.1 0x7f000001 2130706433 0177.0.0.1 127.1 127.0.1 0 0x7f.0.0.1 127.0.0.01 017700000001 127.0.0.1..";
    let widened = "１２７.0.0.1 127。0。0。1 %31.2.3.4 exa%6dple.com 1.2.3.4.5 256.1.1.1 1.2.3.0x [1.2.3.4]";
    let broken = "fe80::1%eth0 [::1 ::1] a..b .a a.. . .. a/b a@b a#b a?b a\\b xn--a";
    let cut = ["", "a b", "a\0b", "a\nb", " a", "a "];
    for text in [spelled, widened, broken].into_iter().flat_map(str::split_whitespace).chain(cut) {
        assert!(Host::parse(text).is_err(), "{text:?}: {:?}", Host::parse(text));
    }
}

#[test]
fn a_name_is_as_long_as_dns_has_it() {
    let name = |bytes: usize| format!("{}.b", format!("{}.", "a".repeat(9)).repeat(25) + &"a".repeat(bytes - 252));
    assert_eq!(name(HOST_BYTES_MAX).len(), HOST_BYTES_MAX);
    assert!(Host::parse(&name(HOST_BYTES_MAX)).is_ok());
    assert!(Host::parse(&format!("{}.", name(HOST_BYTES_MAX))).is_ok());
    assert!(Host::parse(&name(HOST_BYTES_MAX + 1)).is_err());
    assert!(Host::parse(&"a".repeat(63)).is_ok());
    assert!(Host::parse(&"a".repeat(64)).is_err());
}

/// Ranges and addresses at their edges.
const RANGES: &str = "
    Unspecified   0.0.0.0 0.1.2.3 0.255.255.255 ::
    Loopback      127.0.0.1 127.0.0.0 127.255.255.255 ::1 ::ffff:127.0.0.1
    Private       10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255
    Private       fc00::1 fd00:ec2::254 fdff::1 fec0::1 ::ffff:10.0.0.1
    Shared        100.64.0.0 100.100.100.200 100.127.255.255
    LinkLocal     169.254.0.0 169.254.169.254 169.254.255.255 fe80::1 febf::1 ::ffff:169.254.169.254
    Cloud         168.63.129.16
    Reserved      192.0.0.0 192.0.0.192 192.88.99.1 240.0.0.0 255.255.255.254
    Reserved      100::1 2001:10::1 2001:1ff::1 4000::1 5f00::1
    Documentation 192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1 3fff:fff::1
    Benchmarking  198.18.0.0 198.19.255.255 2001:2::1
    Multicast     224.0.0.0 239.255.255.255 ff02::1
    Broadcast     255.255.255.255
    Translated    ::7f00:1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b:1::1 2002:7f00:1:: 2001::1";

const PUBLIC: &str = "
    1.0.0.0 1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.17
    169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255
    198.20.0.0 223.255.255.255 ::ffff:1.1.1.1
    2000::1 2001:200::1 2001:4860:4860::8888 2003::1 2606:4700::1111 3ffe::1 3fff:1000::1 64:ff9b::1.1.1.1";

#[test]
fn what_is_not_public_has_a_range() {
    for line in RANGES.lines().skip(1) {
        let (expected, addresses) = line.trim().split_once(' ').unwrap();
        for address in addresses.split_whitespace() {
            let found = range(address.parse().unwrap()).map(|range| format!("{range:?}"));
            assert_eq!(found.as_deref(), Some(expected), "{address}");
        }
    }
    for address in PUBLIC.split_whitespace() {
        assert_eq!(range(address.parse().unwrap()), None, "{address}");
    }
}

proptest! {
    /// However an address is wrapped, it does not become more public than it is.
    #[test]
    fn no_wrapping_makes_an_address_public(bits: u32) {
        let inner = std::net::Ipv4Addr::from_bits(bits);
        let [a, b, c, d] = inner.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        for followed in [[0, 0, 0, 0, 0, 0xffff, high, low], [0x64, 0xff9b, 0, 0, 0, 0, high, low]] {
            let wrapped = std::net::Ipv6Addr::from(followed);
            prop_assert_eq!(range(wrapped.into()).is_some(), range(inner.into()).is_some());
        }
        for refused in [[0, 0, 0, 0, 0, 0, high, low], [0x2002, high, low, 0, 0, 0, 0, 1]] {
            prop_assert!(range(std::net::Ipv6Addr::from(refused).into()).is_some());
        }
    }

    /// Whatever is read as a host reads the same from its one form.
    #[test]
    fn a_hosts_one_form_stays_what_it_is(text in "\\PC{0,40}") {
        if let Ok(host) = Host::parse(&text) {
            prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
        }
    }
}

#[tokio::test]
async fn one_private_address_among_public_ones_refuses_them_all() {
    let names = Names::default().lead("mixed.test", &[&["8.8.8.8", "10.0.0.1"]]).lead("public.test", &[&["8.8.8.8"]]);
    let guard = guard("", names);
    let refused = guard.resolve(&host("mixed.test"), 443).await.unwrap_err();
    assert!(matches!(refused, AddressError::NotPublic { range: Range::Private, .. }), "{refused}");
    assert!(refused.is_refusal());
    let resolved = guard.resolve(&host("public.test"), 443).await.unwrap();
    assert_eq!(resolved, ["8.8.8.8:443".parse::<SocketAddr>().unwrap()]);
}

#[tokio::test]
async fn a_mapped_address_of_a_name_is_judged_as_what_it_carries() {
    let names = Names::default().lead("a.test", &[&["::ffff:127.0.0.1"]]).lead("b.test", &[&["::ffff:8.8.8.8"]]);
    let guard = guard("", names);
    assert!(guard.resolve(&host("a.test"), 80).await.unwrap_err().is_refusal());
    assert_eq!(guard.resolve(&host("b.test"), 80).await.unwrap(), ["8.8.8.8:80".parse::<SocketAddr>().unwrap()]);
}

#[tokio::test]
async fn a_name_that_turns_private_is_refused_from_then_on() {
    let guard = guard("", Names::default().lead("turns.test", &[&["8.8.8.8"], &["169.254.169.254"]]));
    assert!(guard.resolve(&host("turns.test"), 80).await.is_ok());
    assert!(guard.resolve(&host("turns.test"), 80).await.unwrap_err().is_refusal());
}

#[tokio::test]
async fn exceptions_are_meant_as_written() {
    let names = Names::default().lead("minio.lan", &[&["10.0.0.9"]]).lead("other.lan", &[&["10.0.0.9"]]);
    let guard = guard("minio.lan:9000, 10.2.0.0/16, 127.0.0.1:5001, [fd00::1]:80", names);
    let check = async |name: &str, port: u16, allowed: bool| {
        assert_eq!(guard.resolve(&host(name), port).await.is_ok(), allowed, "{name}:{port}");
    };
    check("minio.lan", 9000, true).await;
    check("minio.lan", 9001, false).await;
    check("other.lan", 9000, false).await;
    check("10.0.0.9", 9000, false).await;
    check("10.2.3.4", 1, true).await;
    check("10.3.0.1", 1, false).await;
    check("127.0.0.1", 5001, true).await;
    check("::ffff:127.0.0.1", 5001, true).await;
    check("127.0.0.1", 5002, false).await;
    check("fd00::1", 80, true).await;
}

#[test]
fn a_bad_exception_is_named() {
    let refused = |text: &str| Exceptions::parse(text).unwrap_err().to_string();
    assert_eq!(refused("10.0.0.0/8,minio.lan"), "`minio.lan` is neither a network nor host:port");
    assert_eq!(refused("minio.lan:0"), "`minio.lan:0` is neither a network nor host:port");
    assert_eq!(refused("0x7f.1:80"), "`0x7f.1:80`: an IPv4 address is written as four decimal numbers");
    let list = |count: usize| vec!["10.0.0.0/8"; count].join(",");
    assert!(Exceptions::parse(&list(EXCEPTIONS_MAX)).is_ok());
    assert_eq!(Exceptions::parse(&list(EXCEPTIONS_MAX + 1)), Err(ExceptionsError::Count { count: EXCEPTIONS_MAX + 1 }));
}

#[tokio::test]
async fn a_name_has_addresses_but_not_too_many() {
    let many = |count: usize| vec!["8.8.8.8"; count];
    let names = Names::default()
        .lead("none.test", &[&[]])
        .lead("most.test", &[&many(ADDRESSES_MAX)])
        .lead("more.test", &[&many(ADDRESSES_MAX + 1)]);
    let guard = guard("", names);
    assert_eq!(guard.resolve(&host("most.test"), 80).await.unwrap().len(), ADDRESSES_MAX);
    for (name, expected) in [("none.test", 0), ("more.test", ADDRESSES_MAX + 1)] {
        let refused = guard.resolve(&host(name), 80).await.unwrap_err();
        assert!(matches!(refused, AddressError::Addresses { count, .. } if count == expected), "{refused}");
    }
}

#[tokio::test]
async fn an_unknown_name_is_not_refused_but_not_found() {
    let error = guard("", Names::default()).connect(&host("nowhere.test"), 80).await.unwrap_err();
    assert!(matches!(error, AddressError::Lookup { .. }) && !error.is_refusal(), "{error}");
}

struct Silent;

#[async_trait]
impl Resolve for Silent {
    async fn lookup(&self, _: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_does_not_answer_is_waited_for_in_vain_only_so_long() {
    let (guard, begun) = (Guard::with_resolver(Exceptions::default(), Arc::new(Silent)), Instant::now());
    let error = guard.connect(&host("slow.test"), 80).await.unwrap_err();
    assert!(matches!(error, AddressError::TooSlow { .. }), "{error}");
    assert!(begun.elapsed() - LOOKUP_MAX < Duration::from_millis(10));
}

/// A listener that accepts nobody more.
async fn full(address: &str, port: u16) -> (u16, impl Sized) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address.parse::<std::net::Ipv4Addr>().unwrap(), port).into()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
    }
    (address.port(), (listener, waiting))
}

#[tokio::test]
async fn an_address_that_does_not_accept_is_given_up_for_the_next() {
    let (port, _slow) = full("127.0.0.2", 0).await;
    let listener = TcpListener::bind(("127.0.0.3", port)).await.unwrap();
    let guard = guard("127.0.0.0/8", Names::default().lead("two.test", &[&["127.0.0.2", "127.0.0.3"]]));
    tokio::time::pause();
    let begun = Instant::now();
    let stream = guard.connect(&host("two.test"), port).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    assert!(begun.elapsed() - CONNECT_ADDRESS_MAX < Duration::from_millis(10));
}

#[tokio::test]
async fn addresses_that_do_not_accept_are_given_up_together() {
    let addresses = ["127.0.1.2", "127.0.1.3", "127.0.1.4", "127.0.1.5"];
    let (port, first) = full(addresses[0], 0).await;
    let mut held = vec![first];
    for address in &addresses[1..] {
        held.push(full(address, port).await.1);
    }
    let guard = guard("127.0.0.0/8", Names::default().lead("four.test", &[&addresses]));
    tokio::time::pause();
    let begun = Instant::now();
    let error = guard.connect(&host("four.test"), port).await.unwrap_err();
    assert!(matches!(error, AddressError::TooSlow { .. }) && !error.is_refusal(), "{error}");
    assert!(begun.elapsed() - CONNECT_MAX < Duration::from_millis(10));
}

#[tokio::test]
async fn an_address_of_this_very_host_is_refused_though_it_looks_public() {
    // The kernel answers for the whole of 127/8 and for whatever its interfaces hold; the latter is what counts here.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let routed = socket.connect("8.8.8.8:9").and_then(|()| socket.local_addr());
    let own = routed.expect("the host has a route, so an address").ip();
    let guard = guard("", Names::default());
    let refused = guard.resolve(&Host::Ip(own), 80).await.unwrap_err();
    assert!(matches!(refused, AddressError::NotPublic { .. }), "{refused}");
}

#[tokio::test]
async fn the_systems_resolver_knows_the_hosts_own_names() {
    let guard = Guard::new(Exceptions::default()).unwrap();
    let refused = guard.resolve(&host("localhost"), 80).await.unwrap_err();
    assert!(matches!(refused, AddressError::NotPublic { range: Range::Loopback, .. }), "{refused}");
}

/// A name server: `answers` one after the other to questions for IPv4 addresses, good for no time at all.
async fn name_server(answers: &'static [[u8; 4]]) -> SocketAddr {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut answers, mut question) = (answers.iter(), [0; 512]);
        while let Ok((bytes, asker)) = socket.recv_from(&mut question).await {
            let name = question[12..bytes].iter().position(|byte| *byte == 0).unwrap() + 13;
            let is_v4 = question[name..name + 2] == [0, 1];
            let answer = is_v4.then(|| answers.next().unwrap());
            // Id; a recursive answer; one question, no or one answer.
            let mut reply = [&question[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]].concat();
            reply.extend(&question[12..name + 4]);
            if let Some(answer) = answer {
                // The question's name; an IPv4 address of the internet; for no time; four bytes.
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                reply.extend(answer);
            }
            socket.send_to(&reply, asker).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn a_name_server_that_changes_its_mind_is_seen_through_each_time() {
    let server = name_server(&[[8, 8, 8, 8], [127, 0, 0, 1], [8, 8, 4, 4]]).await;
    let resolver = SystemResolver::asking(&[server]).unwrap();
    let guard = Guard::with_resolver(Exceptions::default(), Arc::new(resolver));
    let resolve = async || guard.resolve(&host("turns.example"), 443).await;
    assert_eq!(resolve().await.unwrap(), ["8.8.8.8:443".parse::<SocketAddr>().unwrap()]);
    assert!(resolve().await.unwrap_err().is_refusal());
    assert_eq!(resolve().await.unwrap(), ["8.8.4.4:443".parse::<SocketAddr>().unwrap()]);
}

#[tokio::test]
async fn a_client_of_reqwest_goes_by_the_guard_and_follows_nobody() {
    let (address, _requests) = crate::harness::origin::answering(
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let names = Names::default().lead("store.test", &[&["127.0.0.1"]]).lead("inner.test", &[&["127.0.0.1"]]);
    let guard = guard(&format!("store.test:{}", address.port()), names);
    let url = |name: &str| format!("http://{name}:{}/x", address.port()).parse::<url::Url>().unwrap();
    let client = guard.client(&url("store.test")).unwrap().build().unwrap();
    assert_eq!(client.get(url("store.test")).send().await.unwrap().status(), 302);
    let inner = guard.client(&url("inner.test")).unwrap().build().unwrap();
    assert!(inner.get(url("inner.test")).send().await.unwrap_err().is_connect());
    for refused in ["http://127.0.0.1/", "http://[::1]/", "http://2130706433/", "ftp://store.test/", "data:x"] {
        assert!(guard.client(&refused.parse().unwrap()).is_err(), "{refused}");
    }
}
