//! Peers that do not speak SSH, or not well, before keys are exchanged.

use std::net::Ipv4Addr;
use std::time::Duration;

use sandbox_gateway::Bounds;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::harness::{PATIENCE, Stage};

const VERSION: &[u8] = b"SSH-2.0-test\r\n";
const SERVICE_REQUEST: u8 = 5;
const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;
const KEX_ECDH_INIT: u8 = 30;
/// What is agreed on, in the order of RFC 4253 section 7.1.
pub(super) const AGREED: [&str; 10] = [
    "curve25519-sha256",
    "ssh-ed25519",
    "aes256-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-256-etm@openssh.com",
    "none",
    "none",
    "",
    "",
];

/// A connection from one of this machine's many addresses: those who fail often have to wait, each address for itself.
pub(super) async fn connected(stage: &Stage, number: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let from = Ipv4Addr::new(127, 9, u8::try_from(number / 250).unwrap(), u8::try_from(number % 250 + 1).unwrap());
    socket.bind((from, 0).into()).unwrap();
    timeout(PATIENCE, socket.connect(stage.address)).await.expect("nobody accepts").unwrap()
}

/// A packet that is not encrypted.
pub(super) fn packet(payload: &[u8]) -> Vec<u8> {
    let padding = 8 - (payload.len() + 5) % 8 + 8;
    let mut packet = u32::try_from(1 + payload.len() + padding).unwrap().to_be_bytes().to_vec();
    packet.push(u8::try_from(padding).unwrap());
    packet.extend_from_slice(payload);
    packet.resize(packet.len() + padding, 0);
    packet
}

fn text(value: &[u8]) -> Vec<u8> {
    [&u32::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
}

pub(super) fn kexinit(lists: &[&str], guesses: bool) -> Vec<u8> {
    let mut payload = vec![KEXINIT];
    payload.extend_from_slice(&[7; 16]);
    for list in lists {
        payload.extend_from_slice(&text(list.as_bytes()));
    }
    payload.extend_from_slice(&[u8::from(guesses), 0, 0, 0, 0]);
    payload
}

fn said(parts: &[&[u8]]) -> Vec<u8> {
    [VERSION, &parts.concat()].concat()
}

fn random(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Sends all of `bytes` and waits until the gateway has ended the connection.
async fn is_ended(stage: &Stage, number: usize, bytes: &[u8]) {
    let (mut reader, mut writer) = connected(stage, number).await.into_split();
    // It may have heard enough before everything is sent; and it is not told that there is no more.
    let sending = async {
        let sent = writer.write_all(bytes).await;
        (sent, std::future::pending::<()>().await)
    };
    let ended = async { while reader.read(&mut [0; 4_096]).await.is_ok_and(|count| count > 0) {} };
    tokio::select! {
        _ = sending => {}
        ended = timeout(PATIENCE, ended) => ended.unwrap_or_else(|_| panic!("peer {number} is still there")),
    }
}

fn framing() -> Vec<Vec<u8>> {
    let length = |length: u32, rest: usize| said(&[&length.to_be_bytes(), &vec![6; rest]]);
    let mut padded = packet(&kexinit(&AGREED, false));
    padded[4] = 255;
    vec![
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"SSH-1.5-old\r\n".to_vec(),
        b"\r\n\r\n\r\n".to_vec(),
        vec![0; 64 * 1024],
        random(64 * 1024),
        [b"SSH-2.0-".as_slice(), &[b'a'; 300], b"\r\n"].concat(),
        [b"SSH-2.0-".as_slice(), &[b'a'; 1 << 20]].concat(),
        b"never a version\r\n".repeat(10_000),
        said(&[&random(64 * 1024)]),
        length(0, 0),
        length(0, 1_000),
        length(1, 1_000),
        length(5, 1_000),
        length(256 * 1024 + 100_000, 1 << 20),
        length(1 << 31, 1 << 20),
        length(u32::MAX, 1 << 20),
        length(u32::MAX - 4, 1 << 20),
        // Well begun, and never finished.
        length(35_000, 30_000),
        said(&[&padded]),
    ]
}

fn exchanges() -> Vec<Vec<u8>> {
    let good = packet(&kexinit(&AGREED, false));
    let guessed = |list: &str| {
        let mut lists = AGREED;
        lists[0] = list;
        packet(&kexinit(&lists, true))
    };
    let mut endless = kexinit(&[], false);
    endless.truncate(17);
    endless.extend_from_slice(&u32::MAX.to_be_bytes());
    let with_text = |kind: u8, value: &[u8]| packet(&[vec![kind], text(value)].concat());
    let init = |point: &[u8]| with_text(KEX_ECDH_INIT, point);
    let service = with_text(SERVICE_REQUEST, b"ssh-userauth");
    let nothing_common = ["none"; 10];
    vec![
        said(&[&packet(&[])]),
        said(&[&packet(&[KEXINIT])]),
        said(&[&packet(&kexinit(&AGREED, false)[..100])]),
        said(&[&packet(&endless)]),
        said(&[&packet(&kexinit(&nothing_common, false))]),
        said(&[&packet(&kexinit(&["curve25519-sha256,".repeat(10_000).as_str(); 10], false))]),
        said(&[&good.repeat(1_000)]),
        said(&[&good, &packet(&[NEWKEYS])]),
        said(&[&packet(&[NEWKEYS])]),
        // A service before there are keys.
        said(&[&service]),
        said(&[&good, &service]),
        // Points that are none, or lie where every secret is the same.
        said(&[&good, &init(&[0; 32])]),
        said(&[&good, &init(&[1; 31])]),
        said(&[&good, &init(&[])]),
        said(&[&good, &init(&random(30_000))]),
        // Guesses that are wrong, and nothing better after them.
        said(&[&guessed("sntrup761x25519-sha512@openssh.com,curve25519-sha256"), &init(&random(32))]),
        said(&[&guessed("nothing,curve25519-sha256"), &packet(&[NEWKEYS])]),
        said(&[&guessed("nothing,curve25519-sha256"), &init(&random(32)), &good]),
        // Keys that were agreed on, and then not used.
        said(&[&good, &init(&random(32)), &packet(&[NEWKEYS]), &random(10_000)]),
        said(&[&good, &init(&random(32)), &packet(&[NEWKEYS]), &packet(&[NEWKEYS]).repeat(100)]),
        said(&[&packet(&[2, 0, 0, 0, 0]).repeat(100_000)]),
    ]
}

#[tokio::test]
async fn whatever_is_no_ssh_is_ended_and_others_get_in() {
    let stage = Stage::with(Bounds { login_max: Duration::from_secs(2), ..Bounds::default() }).await;
    for (number, bytes) in framing().into_iter().chain(exchanges()).enumerate() {
        is_ended(&stage, number, &bytes).await;
    }
    assert!(stage.house.audit().is_empty());
    let patient = Stage::start().await;
    assert_eq!(patient.sh("echo in").await, "in\n");
}

#[tokio::test]
async fn what_is_no_ssh_is_ended_at_once_where_nothing_can_come_of_it() {
    let stage = Stage::start().await;
    // As long as somebody has who may still turn out well.
    let begun = std::time::Instant::now();
    for (number, bytes) in [b"SSH-1.5-old\r\n".to_vec(), said(&[&u32::MAX.to_be_bytes()])].into_iter().enumerate() {
        is_ended(&stage, number, &bytes).await;
    }
    assert!(begun.elapsed() < sandbox_gateway::limits::LOGIN_MAX);
    assert_eq!(stage.sh("echo in").await, "in\n");
}

#[tokio::test]
async fn who_comes_byte_by_byte_has_no_more_time_than_others() {
    let stage = Stage::with(Bounds { login_max: Duration::from_secs(1), ..Bounds::default() }).await;
    let mut peer = connected(&stage, 0).await;
    let mut drips = tokio::time::interval(Duration::from_millis(20));
    let slowly = async {
        for byte in said(&[&packet(&kexinit(&AGREED, false)).repeat(1_000)]) {
            drips.tick().await;
            if peer.write_all(&[byte]).await.is_err() {
                return;
            }
        }
    };
    timeout(PATIENCE, slowly).await.expect("it may go on for ever");
}
