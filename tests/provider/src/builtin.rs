//! Replies that are made from the request: the lines of a negotiation, and vectors of texts.

use serde_json::json;

use crate::limits::DIMENSIONS;
use crate::reply::Reply;
use crate::request::Request;

const OPENINGS: [&str; 4] = ["I do not buy this yet.", "Agreed in part.", "Let me be blunt.", "Here is where I stand."];
const POINTS: [&str; 6] = [
    "The payback of this move is longer than the plan admits.",
    "The team can ship the first part within one quarter.",
    "Customers will ask what happens to the contracts they have.",
    "The downside is bounded if we start with one region.",
    "Margins suffer before volume makes up for it.",
    "It fits the direction that the board has agreed to.",
];
const CLOSINGS: [&str; 3] =
    ["Show me the numbers.", "I would go ahead with a smaller scope.", "That risk needs an owner before we move."];

/// What a prompt says that wants scores.
const WANTS_SCORES: &str = "Respond ONLY with valid JSON";

/// The same line for the same request.
pub(crate) fn negotiation(request: &Request) -> Reply {
    let mut seed = hash(request.system.as_bytes());
    for said in &request.messages {
        seed = mixed(seed, said.content.as_bytes());
    }
    let wants_scores = request.system.contains(WANTS_SCORES) || request.last().contains(WANTS_SCORES);
    Reply::text(if wants_scores { scores(seed) } else { line(seed) })
}

fn line(seed: u64) -> String {
    let of = |list: &[&'static str], shift: u32| {
        let length = u64::try_from(list.len()).unwrap_or(1);
        list[usize::try_from((seed >> shift) % length).unwrap_or(0)]
    };
    let (opening, point, other, closing) = (of(&OPENINGS, 0), of(&POINTS, 8), of(&POINTS, 16), of(&CLOSINGS, 24));
    format!("{opening} {point} {other} {closing} (line {seed:016x})")
}

fn scores(seed: u64) -> String {
    let score = |shift: u32| (seed >> shift) % 10 + 1;
    json!({
        "impact": score(0), "feasibility": score(8), "risk_adjusted_return": score(16),
        "strategic_alignment": score(24), "reasoning": format!("By what was said (line {seed:016x})."),
    })
    .to_string()
}

/// A vector of length one; texts that share words lie near each other.
pub(crate) fn embedding(text: &str) -> Vec<f32> {
    let mut vector = vec![0.0_f32; DIMENSIONS];
    let dimensions = u64::try_from(DIMENSIONS).unwrap_or(1);
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let hash = hash(word.to_lowercase().as_bytes());
        let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
        vector[usize::try_from(hash % dimensions).unwrap_or(0)] += sign;
    }
    let length = vector.iter().map(|part| part * part).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|part| *part /= length);
    }
    vector
}

/// FNV-1a: the same on every machine and in every version.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    mixed(0xcbf2_9ce4_8422_2325, bytes)
}

fn mixed(seed: u64, bytes: &[u8]) -> u64 {
    let mixed = bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    // Low bits of the hash depend on few letters.
    mixed ^ (mixed >> 29)
}
