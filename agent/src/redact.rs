//! Takes out of a text what looks like a secret, before a model or a log sees it.
//!
//! It knows shapes, not meanings: the keys of well-known services, what follows `Bearer` or `password=`, passwords in
//! addresses, private keys. What has no shape it cannot find.

use crate::limits::{CREDENTIAL_BYTES_MIN, SEARCHED_BYTES_MAX};

/// What stands in a secret's place.
pub(crate) const REDACTED: &str = "[redacted]";

/// How keys of well-known services begin, and how long they are at the least.
const KEY_SHAPES: [(&str, usize); 26] = [
    ("sk-", 20),
    ("sk_live_", 20),
    ("sk_test_", 20),
    ("rk_live_", 20),
    ("whsec_", 20),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 20),
    ("xoxa-", 15),
    ("xoxb-", 15),
    ("xoxp-", 15),
    ("xoxs-", 15),
    ("xapp-", 15),
    ("AKIA", 20),
    ("ASIA", 20),
    ("AIza", 30),
    ("ya29.", 20),
    ("hf_", 20),
    ("npm_", 20),
    ("pypi-", 20),
    ("gsk_", 20),
    ("sbt1.", 8),
];

/// How the names of secrets end.
const SECRET_NAMES: [&str; 12] = [
    "api_key",
    "apikey",
    "access_key",
    "secret_key",
    "private_key",
    "secret",
    "password",
    "passwd",
    "token",
    "authorization",
    "cookie",
    "credentials",
];

/// What the next word is by what came before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Anything,
    /// A credential, if it looks like one: `Bearer` came before.
    Credential,
    /// A secret, once it is assigned: a secret's name came before.
    Named {
        assigned: bool,
    },
}

/// The text without what looks like a secret, and without what lies behind [`SEARCHED_BYTES_MAX`].
pub fn redact(text: &str) -> String {
    let mut rest = &text[..text.floor_char_boundary(SEARCHED_BYTES_MAX)];
    let mut clean = String::with_capacity(rest.len());
    let mut next = Next::Anything;
    while !rest.is_empty() {
        if let Some(behind) = behind_private_key(rest).or_else(|| behind_user_info(rest)) {
            clean.push_str(if rest.starts_with("://") { "://[redacted]@" } else { REDACTED });
            (rest, next) = (behind, Next::Anything);
            continue;
        }
        let word = leading(rest, is_of_word);
        if word.is_empty() {
            let Some(mark) = rest.chars().next() else { break };
            clean.push(mark);
            (rest, next) = (&rest[mark.len_utf8()..], after_mark(next, mark));
        } else if is_secret(word, next) {
            let value = leading(rest, is_of_value);
            clean.push_str(REDACTED);
            (rest, next) = (&rest[value.len()..], Next::Anything);
        } else {
            clean.push_str(word);
            (rest, next) = (&rest[word.len()..], after_word(word));
        }
    }
    clean
}

/// The text without secrets, cut to a length that is then told.
pub(crate) fn cleaned(text: &str, bytes_max: usize) -> String {
    let unsearched = text.len() - text.floor_char_boundary(SEARCHED_BYTES_MAX);
    let mut clean = redact(text);
    let kept = clean.floor_char_boundary(bytes_max);
    let dropped = clean.len() - kept + unsearched;
    if dropped > 0 {
        clean.truncate(kept);
        clean.push_str(&format!("... ({dropped} more bytes)"));
    }
    clean
}

/// Whether what has this name is a secret.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET_NAMES.iter().any(|end| name.ends_with(end))
}

fn is_secret(word: &str, next: Next) -> bool {
    match next {
        Next::Named { assigned: true } if !is_scheme(word) && !matches!(word, "null" | "nil" | "None") => true,
        Next::Credential if looks_random(word) => true,
        Next::Anything | Next::Credential | Next::Named { .. } => has_key_shape(word),
    }
}

fn has_key_shape(word: &str) -> bool {
    let word = word.trim_start_matches(['.', '-', '_']);
    let is_jwt = || word.starts_with("eyJ") && word.split('.').count() >= 3;
    KEY_SHAPES.iter().any(|(start, bytes_min)| word.starts_with(start) && word.len() >= *bytes_min) || is_jwt()
}

/// Whether no sentence would have this word.
fn looks_random(word: &str) -> bool {
    word.len() >= CREDENTIAL_BYTES_MIN
        && (word.len() >= 3 * CREDENTIAL_BYTES_MIN || word.bytes().any(|byte| byte.is_ascii_digit()))
}

fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

fn after_word(word: &str) -> Next {
    if is_scheme(word) {
        Next::Credential
    } else if names_a_secret(word) {
        Next::Named { assigned: false }
    } else {
        Next::Anything
    }
}

fn after_mark(next: Next, mark: char) -> Next {
    match (next, mark) {
        (Next::Credential, ' ' | '\t') => Next::Credential,
        (Next::Named { .. }, ':' | '=' | '>') => Next::Named { assigned: true },
        (Next::Named { assigned }, ' ' | '\t' | '"' | '\'' | '\\') => Next::Named { assigned },
        _ => Next::Anything,
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

fn is_of_value(letter: char) -> bool {
    !letter.is_whitespace() && !matches!(letter, '"' | '\'' | ',' | ';' | '&' | '}' | ')' | ']' | '\\' | '<')
}

fn leading(text: &str, is_of: impl Fn(char) -> bool) -> &str {
    &text[..text.find(|letter| !is_of(letter)).unwrap_or(text.len())]
}

/// Behind a private key in PEM, or its beginning.
fn behind_private_key(text: &str) -> Option<&str> {
    let (title, rest) = text.strip_prefix("-----BEGIN ")?.split_once("-----")?;
    title.ends_with("PRIVATE KEY").then(|| {
        let behind = rest.split_once("-----END ").and_then(|(_, end)| end.split_once("-----"));
        behind.map_or("", |(_, behind)| behind)
    })
}

/// Behind the user and password of an address.
fn behind_user_info(text: &str) -> Option<&str> {
    let authority = leading(text.strip_prefix("://")?, |letter| !letter.is_whitespace() && letter != '/');
    let (user, _) = authority.rsplit_once('@')?;
    user.contains(':').then(|| &text["://".len() + user.len() + 1..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, clean: &str) {
        assert_eq!(redact(text), clean);
        assert_eq!(redact(clean), clean, "once is enough");
    }

    #[test]
    fn credentials_are_taken_out_of_headers() {
        check("Authorization: Bearer abcdef123456/+=", "Authorization: Bearer [redacted]");
        check("authorization=Basic dXNlcjpwYXNz1", "authorization=Basic [redacted]");
        check("-H 'X-Api-Key: k' -d x", "-H 'X-Api-Key: [redacted]' -d x");
        check("Cookie: sid=1; Path=/", "Cookie: [redacted]; Path=/");
    }

    #[test]
    fn credentials_are_taken_out_of_bodies_and_commands() {
        check(r#"{"api_key": "abc", "n": 1}"#, r#"{"api_key": "[redacted]", "n": 1}"#);
        check(r#"{\"access_token\":\"abc/def\"}"#, r#"{\"access_token\":\"[redacted]\"}"#);
        check("DB_PASSWORD=hunter2 run", "DB_PASSWORD=[redacted] run");
        check("https://me:secret@host.test/path", "https://[redacted]@host.test/path");
        check("?client_secret=a%20b&x=1", "?client_secret=[redacted]&x=1");
    }

    #[test]
    fn keys_are_known_by_their_shapes() {
        for key in [
            "sk-proj-abcdefghijklmnop1234",
            "sk-ant-api03-abcdefghijklmnop",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "AKIAIOSFODNN7EXAMPLE",
            "xoxb-123456789012-abc",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def_ghi",
            "sbt1.exec+files.1767225600.0123456789abcdef",
        ] {
            let clean = redact(&format!("invalid key {key}, try another"));
            assert!(clean.starts_with("invalid key [redacted]") && clean.ends_with(", try another"), "{clean}");
        }
        let pem = "-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----";
        check(&format!("a {pem} b"), "a [redacted] b");
        check("a -----BEGIN PRIVATE KEY-----\nMHc", "a [redacted]");
    }

    #[test]
    fn sentences_are_left_alone() {
        for text in [
            "the password was wrong",
            "token expired; log in again",
            "Basic authentication is required",
            "max_tokens: 4096",
            "see https://host.test/a@b:c and mailto:me@host.test",
            "-----BEGIN CERTIFICATE-----",
            "token: null",
            "task-force sk-1 AKIA",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn a_secret_at_the_cut_is_found_before_it_is_cut() {
        let text = format!("{} sk-abcdefghijklmnopqrstuv", "x".repeat(90));
        let cut = cleaned(&text, 100);
        assert!(!cut.contains("sk-"), "{cut}");
        assert_eq!(cleaned("short", 5), "short");
        assert_eq!(cleaned("longer", 5), "longe... (1 more bytes)");
        let long = "a ".repeat(SEARCHED_BYTES_MAX);
        assert_eq!(cleaned(&long, 1), format!("a... ({} more bytes)", 2 * SEARCHED_BYTES_MAX - 1));
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "(.|(Bearer|token=|://a:b@|sk-|-----BEGIN PRIVATE KEY-----)){0,40}", bytes_max in 0..100_usize) {
            let cut = cleaned(&text, bytes_max);
            prop_assert!(cut.len() <= bytes_max + 40);
        }

        #[test]
        fn a_key_is_found_wherever_it_stands(before in "[ .,:;\"'(){}\n]{0,3}", key in "sk-[A-Za-z0-9]{20,60}", after in "[ .,:;\"'(){}\n]{0,3}") {
            let clean = redact(&format!("{before}{key}{after}"));
            prop_assert!(!clean.contains(&key), "{}", clean);
        }
    }
}
