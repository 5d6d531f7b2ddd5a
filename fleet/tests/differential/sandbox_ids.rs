//! Ids and endpoints: `SandboxIds.sol` and `protocol::SandboxId`.

use std::fmt::Write;

use alloy_primitives::U256;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sandbox_protocol::{CallKey, SandboxId};

use crate::compare;
use crate::evm::Differential::{Parsed, parseCall};
use crate::evm::Harness;

const CASES: usize = 150_000;
const BATCH: usize = 1_000;
/// Beyond the longest request.
const HUGE_BYTES: usize = 100_000;
const HUGE_CASES: usize = 200;
/// Texts that look like an id's digits or separators, or that a careless reader strips or folds.
const LOOKALIKES: [&str; 24] = [
    "٣",
    "３",
    "²",
    "①",
    "߁",
    "\u{1d7d9}",
    "–",
    "－",
    "\u{ad}",
    "\u{200b}",
    "\u{feff}",
    "\u{202e}",
    "\u{301}",
    "ѕbх",
    "ﬀ",
    "ß",
    "İ",
    "\u{10ffff}",
    "\u{80}",
    "∕",
    "⁄",
    "\\",
    "%2f",
    "%00",
];
/// Bytes at the edges of what is a digit, a letter or a separator, and those that end strings elsewhere.
const BYTES: &[u8] = b"0123456789-/:.,+_ sbxSBX\0\t\r\n\x7f\x80\xbf\xc3\xe2\xff?#%@~ea";

type Parts = Option<(u64, u64, u8)>;

/// Bytes, since a string on chain need not be UTF-8.
#[derive(Debug)]
struct Text(Vec<u8>);

impl Text {
    /// As the ABI's decoder hands a string over: what is not UTF-8 is replaced.
    fn decoded(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    fn in_rust(&self) -> Parts {
        let text = self.decoded();
        let id = SandboxId::from_endpoint(&text).ok()?;
        assert!(text == id.to_string() || text.ends_with(&format!("/{id}")), "{text:?} is another name of {id}");
        Some((id.origin.service, id.origin.call, id.slot))
    }
}

fn in_solidity(harness: &mut Harness, texts: &[Text]) -> Vec<Parts> {
    let call = parseCall { texts: texts.iter().map(|text| text.0.clone().into()).collect() };
    harness.ask(&call).into_iter().map(parts).collect()
}

fn parts(parsed: Parsed) -> Parts {
    let Parsed { ok, serviceId, callId, slot } = parsed;
    assert!(ok || (serviceId, callId, slot) == (0, 0, 0), "what is no id has parts");
    ok.then_some((serviceId, callId, slot))
}

// ─── Texts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

fn any_id(rng: &mut StdRng) -> String {
    let (service, call) = (any_u64(rng), any_u64(rng));
    SandboxId { origin: CallKey { service, call }, slot: rng.random() }.to_string()
}

/// Of any number of digits.
fn any_u64(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..8) {
        0 => 0,
        1 => u64::MAX,
        2 => 10_u64.pow(rng.random_range(0..20)) - u64::from(rng.random::<bool>()),
        _ => rng.random::<u64>() >> rng.random_range(0..64),
    }
}

/// Around what 8 and 64 bits hold, far beyond, or with zeros in front; sometimes fine.
fn any_number(rng: &mut StdRng) -> String {
    let around = |rng: &mut StdRng, edge: u128| (edge + 2 - rng.random_range(0..=4)).to_string();
    let zeros = if rng.random_ratio(1, 4) { rng.random_range(1..=30) } else { 0 };
    let number = match rng.random_range(0..8) {
        0 => around(rng, 1 << 8),
        1 => around(rng, 1 << 64),
        // What wraps to a small number in 64, 8 or 256 bits.
        2 => around(rng, 1 << 72),
        3 => (U256::MAX - U256::from(rng.random_range(0..300))).to_string(),
        4 => format!("{}{}", U256::MAX, rng.random_range(0..100)),
        5 => String::new(),
        6 => rng.random_range(0..1_000).to_string(),
        _ => any_u64(rng).to_string(),
    };
    format!("{}{number}", "0".repeat(zeros))
}

/// Up to five numbers, with separators that may be missing or doubled.
fn any_numbers(rng: &mut StdRng) -> String {
    let mut text = if rng.random_ratio(7, 8) { "sbx" } else { "sb" }.to_string();
    let count = if rng.random_ratio(3, 4) { 3 } else { rng.random_range(0..=5) };
    for _ in 0..count {
        let dash = if rng.random_ratio(15, 16) { "-" } else { "--" };
        write!(text, "{dash}{}", any_number(rng)).unwrap();
    }
    text
}

/// What may stand before the last path segment, or be part of it.
fn any_prefix(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..7) {
        0 => b"/".to_vec(),
        1 => b"//".to_vec(),
        2 => b"https://operator.example:8443/sandboxes/".to_vec(),
        3 => format!("{}/", any_id(rng)).into_bytes(),
        4 => format!("https://{}/", LOOKALIKES.choose(rng).unwrap()).into_bytes(),
        5 => [any_bytes(rng, 60), b"/".to_vec()].concat(),
        _ => any_bytes(rng, 60),
    }
}

fn any_bytes(rng: &mut StdRng, most: usize) -> Vec<u8> {
    let length = rng.random_range(0..=most);
    let alphabet = if rng.random() { BYTES } else { b"sbx-0123456789/" };
    let mut byte = || if rng.random_ratio(1, 32) { rng.random() } else { *alphabet.choose(rng).unwrap() };
    std::iter::repeat_with(&mut byte).take(length).collect()
}

/// A change of one place: replaced, added, left out, doubled, exchanged, or cut off there.
fn mutate(rng: &mut StdRng, text: &mut Vec<u8>) {
    let at = rng.random_range(0..=text.len());
    let last = text.len().saturating_sub(1);
    let byte = *BYTES.choose(rng).unwrap();
    match rng.random_range(0..7) {
        0 => text.insert(at, byte),
        1 => text.truncate(at),
        2 => drop(text.splice(at..at, LOOKALIKES.choose(rng).unwrap().bytes())),
        _ if text.is_empty() => (),
        3 => drop(text.remove(at.min(last))),
        4 => text.insert(at, text[at.min(last)]),
        5 => text.swap(at.min(last), rng.random_range(0..=last)),
        _ => text[at.min(last)] = byte,
    }
}

fn any_text(rng: &mut StdRng) -> Text {
    let mut text = match rng.random_range(0..8) {
        0..=3 => any_id(rng).into_bytes(),
        4..=6 => any_numbers(rng).into_bytes(),
        _ => return Text(any_bytes(rng, 120)),
    };
    if rng.random_ratio(1, 3) {
        text = [any_prefix(rng), text].concat();
    }
    if rng.random() {
        for _ in 0..rng.random_range(1..=3) {
            mutate(rng, &mut text);
        }
    }
    Text(text)
}

/// An id, whole or not, behind far more than an id; its segment is often too long by one byte, or just not.
fn any_huge_text(rng: &mut StdRng) -> Text {
    let mut text = vec![*BYTES.choose(rng).unwrap(); rng.random_range(1_000..=HUGE_BYTES)];
    if rng.random_ratio(3, 4) {
        text.push(b'/');
    }
    text.extend(vec![b'0'; rng.random_range(0..=2)]);
    text.extend(any_id(rng).into_bytes());
    Text(text)
}

// ─── Promises ───────────────────────────────────────────────────────────────────────────────────────────────────────

#[track_caller]
fn check(any: fn(&mut StdRng) -> Text, count: usize, batch: usize) {
    let mut harness = Harness::start();
    let mut rng = StdRng::seed_from_u64(4);
    let cases: Vec<Text> = std::iter::repeat_with(|| any(&mut rng)).take(count).collect();
    compare(&cases, batch, Text::in_rust, |texts| in_solidity(&mut harness, texts));
    // Cases of one kind alone would prove nothing.
    let ids = cases.iter().filter(|text| text.in_rust().is_some()).count();
    assert!((cases.len() / 8..cases.len() * 7 / 8).contains(&ids), "{ids} of {} are ids", cases.len());
}

#[test]
fn both_sides_read_the_same_of_hostile_texts() {
    check(any_text, CASES, BATCH);
}

#[test]
fn both_sides_read_the_same_of_huge_texts() {
    check(any_huge_text, HUGE_CASES, HUGE_CASES / 10);
}
