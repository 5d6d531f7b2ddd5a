//! Ids that say where a sandbox comes from: `sbx-<service>-<call>-<slot>`.
//!
//! The same grammar is parsed in Solidity (`contracts/src/SandboxIds.sol`); both accept exactly what [`SandboxId`]
//! prints, so no sandbox has two names.

use std::fmt;
use std::str::FromStr;

/// A job call. The core numbers calls per service, so neither number alone names one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct CallKey {
    /// Service id.
    pub service: u64,
    /// Call id within the service.
    pub call: u64,
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.call)
    }
}

/// A sandbox: the call that created it and its slot in that call (0 for a single create).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId {
    /// The creating call.
    pub origin: CallKey,
    /// Slot in the creating call.
    pub slot: u8,
}

/// A text that names no sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a sandbox id: {0:?} (sbx-<service>-<call>-<slot>)")]
pub struct NotASandboxId(pub String);

impl SandboxId {
    /// The id in a bare id or in the last path segment of an endpoint such as `https://operator/sandboxes/<id>`.
    ///
    /// # Errors
    /// [`NotASandboxId`] where that segment is not an id as printed.
    pub fn from_endpoint(text: &str) -> Result<Self, NotASandboxId> {
        text.rsplit('/').next().unwrap_or_default().parse()
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sbx-{}-{}-{}", self.origin.service, self.origin.call, self.slot)
    }
}

impl FromStr for SandboxId {
    type Err = NotASandboxId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| NotASandboxId(text.chars().take(80).collect()))
    }
}

fn parse(text: &str) -> Option<SandboxId> {
    let mut numbers = text.strip_prefix("sbx-")?.split('-');
    let service = decimal(numbers.next()?)?;
    let call = decimal(numbers.next()?)?;
    let slot = u8::try_from(decimal(numbers.next()?)?).ok()?;
    numbers.next().is_none().then_some(SandboxId { origin: CallKey { service, call }, slot })
}

/// A number as `Display` prints it: digits only, no leading zero, no overflow.
fn decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok()).flatten()
}

impl serde::Serialize for SandboxId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for SandboxId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(u64, u64, u8)>) {
        let found = SandboxId::from_endpoint(text).ok().map(|id| (id.origin.service, id.origin.call, id.slot));
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn an_id_is_read_from_the_last_segment() {
        check("sbx-1-2-0", Some((1, 2, 0)));
        check("https://op.example/sandboxes/sbx-18446744073709551615-0-255", Some((u64::MAX, 0, 255)));
        check("/sbx-7-8-9", Some((7, 8, 9)));
    }

    #[test]
    fn anything_but_the_printed_form_is_refused() {
        for text in [
            "",
            "sbx",
            "sbx-",
            "sbx-1-2",
            "sbx-1-2-",
            "sbx-1-2-3-4",
            "sbx-01-2-3",
            "sbx-1-2-256",
            "sbx--1-2-3",
            "SBX-1-2-3",
            "sbx-+1-2-3",
            "sbx-1-2-3 ",
            "sbx-1-2-3/",
            "sbx-1-2-3?x",
            "sbx-18446744073709551616-0-0",
            "sbx-1-2-٣",
            "sbx-1-2-0\0",
        ] {
            check(text, None);
        }
    }
}
