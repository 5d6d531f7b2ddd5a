//! Sessions with an operator's API: what is asked for when signing in, and what is given.
//!
//! A session is a token, an opaque text that its holder shows as `Authorization: Bearer …`. It is its address's, for a
//! while, and opens what its scopes say.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::{Address, Bytes};
use serde::{Deserialize, Serialize};

/// What resources of a sign-in message begin with that ask for a scope.
pub const SCOPE_URN: &str = "urn:sandbox:scope:";

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Scope {
    /// Read the calls of its address, with their answers.
    #[serde(rename = "calls:read")]
    CallsRead,
    /// See the sandboxes of its address.
    #[serde(rename = "sandboxes:read")]
    SandboxesRead,
    /// Stop, resume, snapshot and delete them.
    #[serde(rename = "sandboxes:write")]
    SandboxesWrite,
    /// Run code in them.
    #[serde(rename = "sandboxes:exec")]
    SandboxesExec,
    /// Read and write files in them.
    #[serde(rename = "sandboxes:files")]
    SandboxesFiles,
    /// Use terminals in them.
    #[serde(rename = "sandboxes:pty")]
    SandboxesPty,
    /// Reach ports of programs in them.
    #[serde(rename = "sandboxes:ports")]
    SandboxesPorts,
    /// Say whose SSH keys open them.
    #[serde(rename = "sandboxes:ssh")]
    SandboxesSsh,
    /// Follow what happens to them.
    #[serde(rename = "events:read")]
    EventsRead,
    /// See the workflows of its address, their runs and logs.
    #[serde(rename = "workflows:read")]
    WorkflowsRead,
    /// Cancel runs; read and replace secrets of webhooks.
    #[serde(rename = "workflows:write")]
    WorkflowsWrite,
}

/// A text that names no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no such scope; there are calls:read, sandboxes:read, sandboxes:write, sandboxes:exec, sandboxes:files, \
     sandboxes:pty, sandboxes:ports, sandboxes:ssh, events:read, workflows:read and workflows:write"
)]
pub struct NotAScope;

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 11] = [
        Self::CallsRead,
        Self::SandboxesRead,
        Self::SandboxesWrite,
        Self::SandboxesExec,
        Self::SandboxesFiles,
        Self::SandboxesPty,
        Self::SandboxesPorts,
        Self::SandboxesSsh,
        Self::EventsRead,
        Self::WorkflowsRead,
        Self::WorkflowsWrite,
    ];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CallsRead => "calls:read",
            Self::SandboxesRead => "sandboxes:read",
            Self::SandboxesWrite => "sandboxes:write",
            Self::SandboxesExec => "sandboxes:exec",
            Self::SandboxesFiles => "sandboxes:files",
            Self::SandboxesPty => "sandboxes:pty",
            Self::SandboxesPorts => "sandboxes:ports",
            Self::SandboxesSsh => "sandboxes:ssh",
            Self::EventsRead => "events:read",
            Self::WorkflowsRead => "workflows:read",
            Self::WorkflowsWrite => "workflows:write",
        }
    }

    /// The resource of a sign-in message that asks for it.
    pub fn urn(self) -> String {
        format!("{SCOPE_URN}{self}")
    }

    /// The scope that such a resource asks for.
    ///
    /// # Errors
    /// [`NotAScope`].
    pub fn of_urn(resource: &str) -> Result<Self, NotAScope> {
        resource.strip_prefix(SCOPE_URN).ok_or(NotAScope)?.parse()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = NotAScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or(NotAScope)
    }
}

/// Answer to `POST /v1/auth/nonce`: what a sign-in message must say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NonceBody {
    /// Goes into one message.
    pub nonce: String,
    /// Second since 1970 after which the nonce is void.
    pub expires_at: u64,
    /// The message's domain.
    pub domain: String,
    /// The message's URI.
    pub uri: String,
    /// The message's chain.
    pub chain_id: u64,
    /// What the message should state.
    pub statement: String,
}

/// Body of `POST /v1/auth/token`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenRequest {
    /// The EIP-4361 message, byte by byte as it was signed; its resources `urn:sandbox:scope:…` name the scopes.
    pub message: String,
    /// An account's 65 bytes over the EIP-191 hash of the message, or whatever its contract takes by EIP-1271, as hex.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub signature: Bytes,
}

/// Answer to `POST /v1/auth/token`. The token is told this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenBody {
    /// What goes behind `Bearer`.
    pub token: String,
    /// By which it is listed and revoked.
    pub id: String,
    /// Whose it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: Address,
    /// What it opens.
    pub scopes: Vec<Scope>,
    /// Second since 1970 after which it is void.
    pub expires_at: u64,
}

impl fmt::Debug for TokenBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBody").field("id", &self.id).field("address", &self.address).finish_non_exhaustive()
    }
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenInfo {
    /// The first half of its secret's hash.
    pub id: String,
    /// What it opens.
    pub scopes: Vec<Scope>,
    /// Second since 1970 in which it was given.
    pub issued_at: u64,
    /// Second since 1970 after which it is void.
    pub expires_at: u64,
}

/// Answer to `GET /v1/auth/tokens`: the caller's tokens that are good now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokensBody {
    /// In no order.
    pub tokens: Vec<TokenInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_written_and_read_alike_everywhere() {
        for scope in Scope::ALL {
            assert!(NotAScope.to_string().contains(scope.name()));
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.name());
            assert_eq!((scope.name().parse(), Scope::of_urn(&scope.urn())), (Ok(scope), Ok(scope)));
        }
        assert_eq!(Scope::of_urn("calls:read"), Err(NotAScope));
        assert_eq!(Scope::of_urn("urn:sandbox:scope:calls:write"), Err(NotAScope));
    }
}
