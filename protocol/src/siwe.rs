//! Sign-in with Ethereum: the message of EIP-4361, read strictly and written canonically.
//!
//! What a reader accepts is exactly the grammar of the standard, so nobody is shown one text by a wallet and understood by
//! another here. Not here: signatures, clocks, nonces; who reads a message judges those.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::Address;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::limits::{SIWE_MESSAGE_BYTES_MAX, SIWE_NONCE_LETTERS_MIN, SIWE_RESOURCES_MAX};

const PREAMBLE: &str = " wants you to sign in with your Ethereum account:";
const VERSION: &str = "1";
/// What the standard's grammar calls `reserved`.
const RESERVED: &[u8] = b":/?#[]@!$&'()*+,;=";
/// What it calls `unreserved`, besides letters and digits.
const UNRESERVED: &[u8] = b"-._~";

/// A message that asks for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Scheme of the origin, where it is stated.
    pub scheme: Option<String>,
    /// Authority that asks: a host, and its port where it is not the scheme's own.
    pub domain: String,
    /// Who signs.
    pub address: Address,
    /// What the signer reads.
    pub statement: Option<String>,
    /// What the session is for.
    pub uri: String,
    /// Chain that the session is bound to, and where contract wallets live.
    pub chain_id: u64,
    /// Given out by the one that asks; good for one session.
    pub nonce: String,
    /// When it was written.
    pub issued_at: OffsetDateTime,
    /// From when on it is void.
    pub expiration_time: Option<OffsetDateTime>,
    /// Before when it is void.
    pub not_before: Option<OffsetDateTime>,
    /// The asker's own reference.
    pub request_id: Option<String>,
    /// What is asked for.
    pub resources: Vec<String>,
}

/// A text that is no such message; it names the part that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an EIP-4361 message: {0}")]
pub struct NotAMessage(pub &'static str);

impl FromStr for Message {
    type Err = NotAMessage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > SIWE_MESSAGE_BYTES_MAX {
            return Err(NotAMessage("it is too long"));
        }
        let mut lines = Lines(text.split('\n').peekable());
        let origin = lines.next().and_then(|line| line.strip_suffix(PREAMBLE)).ok_or(NotAMessage("its first line"))?;
        let (scheme, domain) = match origin.split_once("://") {
            Some((scheme, domain)) => (Some(of_kind(scheme, is_scheme, "scheme")?), domain),
            None => (None, origin),
        };
        let domain = of_kind(domain, is_authority, "domain")?;
        let address = lines.next().and_then(|line| Address::parse_checksummed(line, None).ok());
        let address = address.ok_or(NotAMessage("address, which carries the checksum of EIP-55"))?;
        lines.blank()?;
        let statement = lines.statement()?;
        let message = Self {
            scheme,
            domain,
            address,
            statement,
            uri: of_kind(lines.field("URI: ")?, is_uri, "URI")?,
            chain_id: {
                lines.version()?;
                lines.field("Chain ID: ").ok().and_then(decimal).ok_or(NotAMessage("chain id"))?
            },
            nonce: of_kind(lines.field("Nonce: ")?, is_nonce, "nonce")?,
            issued_at: instant(lines.field("Issued At: ")?)?,
            expiration_time: lines.optional("Expiration Time: ").map(instant).transpose()?,
            not_before: lines.optional("Not Before: ").map(instant).transpose()?,
            request_id: lines.optional("Request ID: ").map(|id| of_kind(id, is_pchars, "request id")).transpose()?,
            resources: lines.resources()?,
        };
        lines.end()?;
        Ok(message)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = &self.scheme {
            write!(f, "{scheme}://")?;
        }
        writeln!(f, "{}{PREAMBLE}\n{}\n", self.domain, self.address)?;
        if let Some(statement) = &self.statement {
            writeln!(f, "{statement}")?;
        }
        write!(f, "\nURI: {}\nVersion: {VERSION}\nChain ID: {}\nNonce: {}", self.uri, self.chain_id, self.nonce)?;
        write!(f, "\nIssued At: {}", written(self.issued_at)?)?;
        if let Some(instant) = self.expiration_time {
            write!(f, "\nExpiration Time: {}", written(instant)?)?;
        }
        if let Some(instant) = self.not_before {
            write!(f, "\nNot Before: {}", written(instant)?)?;
        }
        if let Some(id) = &self.request_id {
            write!(f, "\nRequest ID: {id}")?;
        }
        if !self.resources.is_empty() {
            write!(f, "\nResources:")?;
        }
        self.resources.iter().try_for_each(|resource| write!(f, "\n- {resource}"))
    }
}

/// The lines of a message that are not read yet.
struct Lines<'a>(std::iter::Peekable<std::str::Split<'a, char>>);

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn blank(&mut self) -> Result<(), NotAMessage> {
        if self.next() == Some("") { Ok(()) } else { Err(NotAMessage("a blank line is missing")) }
    }

    /// The statement, with the blank line behind it; that line alone where there is none.
    fn statement(&mut self) -> Result<Option<String>, NotAMessage> {
        match self.next() {
            Some("") => Ok(None),
            Some(line) => {
                let statement = of_kind(line, is_statement, "statement")?;
                self.blank()?;
                Ok(Some(statement))
            }
            None => Err(NotAMessage("it is cut off")),
        }
    }

    fn field(&mut self, name: &str) -> Result<&'a str, NotAMessage> {
        self.next().and_then(|line| line.strip_prefix(name)).ok_or(NotAMessage("a field is missing or out of order"))
    }

    fn optional(&mut self, name: &str) -> Option<&'a str> {
        let value = self.0.peek()?.strip_prefix(name)?;
        self.next();
        Some(value)
    }

    fn version(&mut self) -> Result<(), NotAMessage> {
        if self.field("Version: ")? == VERSION { Ok(()) } else { Err(NotAMessage("version, which is 1")) }
    }

    fn resources(&mut self) -> Result<Vec<String>, NotAMessage> {
        if self.0.next_if_eq(&"Resources:").is_none() {
            return Ok(Vec::new());
        }
        let mut resources = Vec::new();
        while let Some(resource) = self.optional("- ") {
            if resources.len() == SIWE_RESOURCES_MAX {
                return Err(NotAMessage("too many resources"));
            }
            resources.push(of_kind(resource, is_uri, "resource")?);
        }
        Ok(resources)
    }

    fn end(&mut self) -> Result<(), NotAMessage> {
        if self.next().is_none() { Ok(()) } else { Err(NotAMessage("something stands behind its end")) }
    }
}

fn of_kind(text: &str, is_of_kind: fn(&str) -> bool, part: &'static str) -> Result<String, NotAMessage> {
    if is_of_kind(text) { Ok(text.to_owned()) } else { Err(NotAMessage(part)) }
}

fn instant(text: &str) -> Result<OffsetDateTime, NotAMessage> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|_| NotAMessage("a time, which is written as in RFC 3339"))
}

fn written(instant: OffsetDateTime) -> Result<String, fmt::Error> {
    instant.format(&Rfc3339).map_err(|_| fmt::Error)
}

fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn is_nonce(text: &str) -> bool {
    text.len() >= SIWE_NONCE_LETTERS_MIN && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_scheme(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(rest)
}

/// Host and port. Who asks by name and password asks for trouble, so `user@host` is no authority here.
fn is_authority(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

fn is_statement(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == b' ' || is_plain(byte))
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    is_scheme(scheme)
        && !rest.is_empty()
        && escapes_hold(rest)
        && rest.bytes().all(|byte| byte == b'%' || is_plain(byte))
}

fn is_pchars(text: &str) -> bool {
    let outside = b"/?#[]";
    escapes_hold(text) && text.bytes().all(|byte| byte == b'%' || (is_plain(byte) && !outside.contains(&byte)))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || RESERVED.contains(&byte) || UNRESERVED.contains(&byte)
}

/// Whether every `%` has its two digits.
fn escapes_hold(text: &str) -> bool {
    let is_escape = |rest: &[u8]| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit);
    text.bytes().enumerate().all(|(at, byte)| byte != b'%' || is_escape(&text.as_bytes()[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "https://example.com:3388 wants you to sign in with your Ethereum account:
0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2

I accept the ExampleOrg Terms of Service: https://example.com/tos

URI: https://example.com/login
Version: 1
Chain ID: 1
Nonce: 32891756
Issued At: 2021-09-30T16:25:24Z
Expiration Time: 2021-10-01T16:25:24.5Z
Not Before: 2021-09-30T16:25:24Z
Request ID: some%20id
Resources:
- ipfs://bafybeiemxf5abjwjbikoz4mc3a3dla6ual3jsgpdr4cjr3oz3evfyavhwq/
- urn:sandbox:scope:calls:read";

    const LEAST: &str = "example.com wants you to sign in with your Ethereum account:
0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2


URI: https://example.com/login
Version: 1
Chain ID: 1
Nonce: 32891756
Issued At: 2021-09-30T16:25:24Z";

    #[test]
    fn a_message_reads_as_it_was_written() {
        for text in [EXAMPLE, LEAST] {
            let message: Message = text.parse().unwrap();
            assert_eq!(message.to_string(), text);
        }
        let message: Message = EXAMPLE.parse().unwrap();
        assert_eq!((message.scheme.as_deref(), message.domain.as_str()), (Some("https"), "example.com:3388"));
        assert_eq!(message.statement.unwrap(), "I accept the ExampleOrg Terms of Service: https://example.com/tos");
        assert_eq!((message.chain_id, message.resources.len()), (1, 2));
        let least: Message = LEAST.parse().unwrap();
        assert_eq!((least.statement, least.expiration_time, least.resources.len()), (None, None, 0));
    }

    #[test]
    fn anything_else_is_no_message() {
        for (from, to) in [
            ("wants you", "want you"),
            ("example.com:3388", ""),
            ("example.com:3388", "user@example.com"),
            ("https://example.com:3388", "1https://example.com:3388"),
            ("0xC02aaA39", "0xc02aaA39"),
            ("0xC02aaA39", "C02aaA39"),
            ("I accept", "I accept\nmore of"),
            ("I accept", "I\u{a0}accept"),
            ("\n\nI accept", "\nI accept"),
            ("/tos\n\n", "/tos\n"),
            ("URI: https://example.com/login", "URI: login"),
            ("/login", "/lo gin"),
            ("/login", "/%2"),
            ("Version: 1", "Version: 2"),
            ("Version: 1\nChain ID: 1", "Chain ID: 1\nVersion: 1"),
            ("Chain ID: 1", "Chain ID: one"),
            ("Chain ID: 1", "Chain ID: +1"),
            ("Nonce: 32891756", "Nonce: 3289175"),
            ("Nonce: 32891756", "Nonce: 3289-1756"),
            ("2021-09-30T16:25:24Z\nExp", "2021-09-30\nExp"),
            ("Expiration Time", "Expires"),
            ("some%20id", "some/id"),
            ("Resources:\n- ", "Resources: \n- "),
            ("- ipfs", "* ipfs"),
            ("- urn:sandbox", "- urn sandbox"),
            ("calls:read", "calls:read\n"),
            ("calls:read", "calls:read\r"),
        ] {
            let text = EXAMPLE.replacen(from, to, 1);
            assert_ne!(text, EXAMPLE, "{from:?}");
            assert!(text.parse::<Message>().is_err(), "{from:?} -> {to:?}");
        }
        for end in 0..LEAST.len() - "24Z".len() {
            assert!(LEAST[..end].parse::<Message>().is_err(), "{end}");
        }
    }

    #[test]
    fn a_message_is_bounded() {
        let with = |count: usize| format!("{LEAST}\nResources:{}", "\n- urn:x:y".repeat(count));
        assert!(with(SIWE_RESOURCES_MAX).parse::<Message>().is_ok());
        assert_eq!(with(SIWE_RESOURCES_MAX + 1).parse::<Message>(), Err(NotAMessage("too many resources")));
        let long = |bytes: usize| LEAST.replace("/login", &format!("/{}", "x".repeat(bytes - LEAST.len() + 5)));
        assert!(long(SIWE_MESSAGE_BYTES_MAX).parse::<Message>().is_ok());
        assert_eq!(long(SIWE_MESSAGE_BYTES_MAX + 1).parse::<Message>(), Err(NotAMessage("it is too long")));
    }
}
