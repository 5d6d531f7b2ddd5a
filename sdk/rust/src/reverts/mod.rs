//! What the chain refused: every error of the core and of our blueprint that can reach a user, typed, in one sentence.
//!
//! The core hands on what our blueprint reverts with inside its own `ManagerReverted`; that wrapping is taken off here, so
//! a caller sees one reason however deep it arose. Nodes differ in where they put revert data; see [`Refusal::of`].

mod blueprint;
mod core;

use std::fmt;

use alloy::primitives::Bytes;
use alloy::sol_types::{Panic, Revert, SolError as _, SolInterface};
use alloy::transports::TransportError;

use crate::contracts::IAgentSandboxBlueprint::IAgentSandboxBlueprintErrors as BlueprintRefusal;
use crate::contracts::IERC20::IERC20Errors as TokenRefusal;
use crate::contracts::IManagerBase::IManagerBaseErrors as BaseRefusal;
use crate::contracts::ITangleCore::ITangleCoreErrors as CoreRefusal;

/// Why a contract refused a call. Nothing was changed and nothing was paid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Our blueprint refused it.
    Blueprint(BlueprintRefusal),
    /// The part of our blueprint that binds it to the core did.
    Base(BaseRefusal),
    /// The core refused it by itself.
    Core(CoreRefusal),
    /// The token that is paid in did.
    Token(TokenRefusal),
    /// Some contract refused it in words.
    Words(String),
    /// Some contract failed an assertion of the language's, by its code.
    Panic(u64),
    /// A known error whose arguments are missing or damaged.
    Damaged {
        /// Name of the error.
        name: &'static str,
    },
    /// Revert data of no error known here; empty where none came.
    Unknown(Bytes),
}

impl Refusal {
    /// The refusal in a node's answer; `None` where the answer is about something else (connection, limits, funds).
    ///
    /// Revert data is looked for in the error's data, however nested, and then as `0x…` in its message.
    pub fn of(error: &TransportError) -> Option<Self> {
        let payload = error.as_error_resp()?;
        let data = payload.data.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        let found = data.as_ref().and_then(hex_in_json).or_else(|| hex_in_text(&payload.message));
        match found {
            Some(bytes) => Some(Self::decode(&bytes)),
            None if payload.message.contains("revert") => Some(Self::Unknown(Bytes::new())),
            None => None,
        }
    }

    /// As [`Refusal::of`], for a call through the bindings.
    pub fn of_contract(error: &alloy::contract::Error) -> Option<Self> {
        match error {
            alloy::contract::Error::TransportError(error) => Self::of(error),
            _ => None,
        }
    }

    /// The refusal in a text such as `… data: "0x0a55512f…"`, which is how some clients report it.
    pub fn of_text(text: &str) -> Option<Self> {
        hex_in_text(text).map(|bytes| Self::decode(&bytes))
    }

    /// The refusal that revert data encodes.
    pub fn decode(data: &[u8]) -> Self {
        if let Ok(refusal) = BlueprintRefusal::abi_decode(data) {
            return Self::Blueprint(refusal);
        }
        if let Ok(refusal) = BaseRefusal::abi_decode(data) {
            return Self::Base(refusal);
        }
        if let Ok(refusal) = TokenRefusal::abi_decode(data) {
            return Self::Token(refusal);
        }
        match CoreRefusal::abi_decode(data) {
            Ok(CoreRefusal::ManagerReverted(wrapped)) => Self::decode(&wrapped.reason),
            Ok(refusal) => Self::Core(refusal),
            Err(_) => Self::decode_common(data),
        }
    }

    fn decode_common(data: &[u8]) -> Self {
        if let Ok(revert) = Revert::abi_decode(data) {
            return Self::Words(revert.reason);
        }
        if let Ok(panic) = Panic::abi_decode(data) {
            return Self::Panic(panic.code.saturating_to());
        }
        match data.first_chunk::<4>().and_then(|selector| name_of(*selector)) {
            Some(name) => Self::Damaged { name },
            None => Self::Unknown(Bytes::copy_from_slice(data)),
        }
    }

    /// Whether the same call may be accepted later without anything changed in it.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Blueprint(BlueprintRefusal::NoCapacity(_) | BlueprintRefusal::NotEnoughOperators(_)))
    }
}

/// The name of the error with this selector.
pub fn name_of(selector: [u8; 4]) -> Option<&'static str> {
    BlueprintRefusal::name_by_selector(selector)
        .or_else(|| BaseRefusal::name_by_selector(selector))
        .or_else(|| TokenRefusal::name_by_selector(selector))
        .or_else(|| CoreRefusal::name_by_selector(selector))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blueprint(refusal) => f.write_str(&blueprint::sentence(refusal)),
            Self::Base(refusal) => f.write_str(&blueprint::base_sentence(refusal)),
            Self::Core(refusal) => f.write_str(&core::sentence(refusal)),
            Self::Token(refusal) => f.write_str(&core::token_sentence(refusal)),
            Self::Words(words) => write!(f, "the chain refused: {words}"),
            Self::Panic(code) => write!(f, "a contract failed by itself (panic code {code:#x})"),
            Self::Damaged { name } => write!(f, "the chain refused: {name}"),
            Self::Unknown(data) if data.is_empty() => f.write_str("the chain refused without a reason"),
            Self::Unknown(data) => write!(f, "the chain refused for a reason unknown here: {data}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The first hex string of at least a selector's length in a node's error data.
fn hex_in_json(value: &serde_json::Value) -> Option<Vec<u8>> {
    match value {
        serde_json::Value::String(text) => hex_in_text(text),
        serde_json::Value::Object(fields) => fields.values().find_map(hex_in_json),
        serde_json::Value::Array(items) => items.iter().find_map(hex_in_json),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => None,
    }
}

/// The first `0x…` in a text that can be revert data: a selector and whole words. Hashes and addresses are not.
fn hex_in_text(text: &str) -> Option<Vec<u8>> {
    text.split("0x").skip(1).find_map(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_hexdigit()).map_or(rest, |end| &rest[..end]);
        let bytes = hex::decode(digits).ok()?;
        (bytes.len() >= 4 && bytes.len() % 32 == 4).then_some(bytes)
    })
}

#[cfg(test)]
mod tests;
