//! How many tokens a text has, and texts made to have fewer.

use std::sync::Arc;

use crate::limits::SHORTENINGS_MAX;
use crate::model::{Message, ToolCall};

/// Tokens that a message has besides its words: its role and its ends, as providers count them.
const FRAME_TOKENS: usize = 4;

/// Counts tokens as a model does.
pub trait Tokenizer: Send + Sync {
    /// Its name, unique among tokenizers: counts are kept with it.
    fn name(&self) -> &'static str;

    /// Tokens of a text.
    fn count(&self, text: &str) -> usize;
}

/// The encoding of `gpt-4o`, `gpt-5` and the `o` models. Loaded at its first use, once for the whole program.
#[derive(Debug, Clone, Copy)]
pub struct O200k;

impl Tokenizer for O200k {
    fn name(&self) -> &'static str {
        "o200k"
    }

    fn count(&self, text: &str) -> usize {
        bpe_openai::o200k_base().count(text)
    }
}

/// The encoding of `gpt-4` and `gpt-3.5`. Loaded like [`O200k`].
#[derive(Debug, Clone, Copy)]
pub struct Cl100k;

impl Tokenizer for Cl100k {
    fn name(&self) -> &'static str {
        "cl100k"
    }

    fn count(&self, text: &str) -> usize {
        bpe_openai::cl100k_base().count(text)
    }
}

/// For models whose encoding nobody tells: three bytes a token, which is rather too many tokens than too few for prose
/// (4 to 5 bytes), code (about 3) and Chinese (3).
#[derive(Debug, Clone, Copy)]
pub struct Estimate;

impl Tokenizer for Estimate {
    fn name(&self) -> &'static str {
        "estimate"
    }

    fn count(&self, text: &str) -> usize {
        text.len().div_ceil(3)
    }
}

/// The tokenizer of a model, by its name; one before a slash is the provider's and does not count.
pub fn tokenizer_of(model: &str) -> Arc<dyn Tokenizer> {
    const O200K: [&str; 8] = ["gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "chatgpt-4o", "o1", "o3", "o4"];
    const CL100K: [&str; 3] = ["gpt-4", "gpt-3.5", "gpt-35"];
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let is_one_of = |families: &[&str]| families.iter().any(|family| is_of(&name, family));
    if is_one_of(&O200K) {
        Arc::new(O200k)
    } else if is_one_of(&CL100K) {
        Arc::new(Cl100k)
    } else {
        Arc::new(Estimate)
    }
}

/// Whether a model is of a family: `gpt-4-turbo` is of `gpt-4`, and `o1x` is not of `o1`.
fn is_of(name: &str, family: &str) -> bool {
    name.strip_prefix(family).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
}

/// Tokens of a message: its frame, its words, and each part of its calls.
pub fn message_tokens(tokenizer: &dyn Tokenizer, message: &Message) -> usize {
    let calls: usize = message.tool_calls.iter().map(|call| call_tokens(tokenizer, call)).sum();
    let answered = message.tool_call_id.as_deref().map_or(0, |id| tokenizer.count(id));
    FRAME_TOKENS + tokenizer.count(&message.content) + calls + answered
}

fn call_tokens(tokenizer: &dyn Tokenizer, call: &ToolCall) -> usize {
    tokenizer.count(&call.id) + tokenizer.count(&call.name) + tokenizer.count(&call.arguments.to_string())
}

/// A text of at most so many tokens: itself, or its beginning and its end with a mark between them; nothing at all where not
/// even the mark has room.
pub(super) fn shortened(tokenizer: &dyn Tokenizer, text: &str, tokens_max: usize) -> String {
    shortened_from(tokenizer, text, tokenizer.count(text), tokens_max)
}

/// The same of a text whose tokens are known.
pub(super) fn shortened_from(tokenizer: &dyn Tokenizer, text: &str, tokens: usize, tokens_max: usize) -> String {
    if tokens <= tokens_max {
        return text.to_string();
    }
    let mut kept = text.len() * tokens_max / tokens;
    for _ in 0..SHORTENINGS_MAX {
        let candidate = without_middle(text, kept);
        let counted = tokenizer.count(&candidate);
        if counted <= tokens_max {
            return candidate;
        }
        kept = (kept * tokens_max / counted).min(kept * 19 / 20);
    }
    let mark = without_middle(text, 0);
    if tokenizer.count(&mark) <= tokens_max { mark } else { String::new() }
}

/// About so many bytes of the text: half of them from its beginning, half from its end.
fn without_middle(text: &str, kept_bytes: usize) -> String {
    let head = text.floor_char_boundary(kept_bytes / 2);
    let tail = text.ceil_char_boundary(text.len() - kept_bytes / 2);
    let (head, left_out, tail) = (&text[..head], tail.saturating_sub(head), &text[tail..]);
    format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
}

/// The text in pieces of at most so many tokens, in order and without loss.
pub(super) fn pieces<'a>(tokenizer: &dyn Tokenizer, mut text: &'a str, tokens_max: usize) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let mut end = text.floor_char_boundary(tokens_max.saturating_mul(4));
        while end > 4 && tokenizer.count(&text[..end]) > tokens_max {
            end = text.floor_char_boundary(end * 3 / 4);
        }
        // A character is not split, whatever it costs.
        let end = end.max(text.ceil_char_boundary(1));
        let (piece, rest) = text.split_at(end);
        pieces.push(piece);
        text = rest;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(model: &str, tokenizer: &str) {
        assert_eq!(tokenizer_of(model).name(), tokenizer, "{model}");
    }

    #[test]
    fn a_models_name_tells_its_encoding() {
        check("gpt-4o-mini", "o200k");
        check("openai/gpt-5", "o200k");
        check("o3", "o200k");
        check("gpt-4-turbo", "cl100k");
        check("gpt-3.5-turbo", "cl100k");
        check("claude-sonnet-4", "estimate");
        check("o1x", "estimate");
        check("gpt-40", "estimate");
        check("", "estimate");
    }

    #[test]
    fn encodings_count_as_their_models_do() {
        let text = "The quick brown fox jumps over the lazy dog.";
        assert_eq!((O200k.count(text), Cl100k.count(text), Estimate.count(text)), (10, 10, 15));
        let text = "東京は日本の首都です。";
        assert!(O200k.count(text) < Cl100k.count(text));
        assert_eq!(Estimate.count("abcd"), 2);
    }

    #[test]
    fn a_shortened_text_keeps_both_ends_and_says_what_is_missing() {
        let text = format!("begin {} end", "word ".repeat(1_000));
        let short = shortened(&Estimate, &text, 40);
        assert!(short.starts_with("begin ") && short.ends_with(" end") && short.contains("bytes left out"), "{short}");
        assert_eq!(shortened(&Estimate, &text, 3), "");
        assert_eq!(shortened(&Estimate, "short", 2), "short");
    }

    proptest! {
        #[test]
        fn a_shortened_text_has_no_more_tokens_than_asked(text in "\\PC{0,600}", most in 0_usize..80) {
            for tokenizer in [&O200k as &dyn Tokenizer, &Cl100k, &Estimate] {
                prop_assert!(tokenizer.count(&shortened(tokenizer, &text, most)) <= most);
            }
        }

        #[test]
        fn pieces_are_the_whole_text(text in "\\PC{0,400}", most in 4_usize..40) {
            for tokenizer in [&O200k as &dyn Tokenizer, &Cl100k, &Estimate] {
                let pieces = pieces(tokenizer, &text, most);
                prop_assert_eq!(pieces.concat(), text.clone());
                prop_assert!(pieces.iter().all(|piece| tokenizer.count(piece) <= most.max(12)));
            }
        }
    }
}
