//! What an operator's API tells an address of its sandboxes and calls, and of what happens to them.

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::http::CallStatus;
use crate::limits::PAGE_ENTRIES_DEFAULT;
use crate::receipt::Outcome;
use crate::sandbox_id::SandboxId;
use crate::ssh::PublicKey;

/// A sandbox as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxBody {
    /// `sbx-<service>-<call>-<slot>`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "sbx-1-2-0"))]
    pub id: SandboxId,
    /// Who created it, and alone may use it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub owner: Address,
    /// `requested`, `provisioning`, `running`, `stopping`, `stopped`, `resuming`, `deleting`, `gone` or `failed`.
    pub phase: String,
    /// Why it is in that phase, where there is a reason: `idle`, `expired`, a failure's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What its owner calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What its owner finds it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Name of its image.
    pub image: String,
    /// Whole cores.
    pub cpu_cores: u64,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in GiB.
    pub disk_gb: u64,
    /// Last block in which it lives; without one it lives until its service ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_block: Option<u64>,
    /// Name of the container runtime, once it has a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Digest of its image, once it has a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
}

/// Answer to `GET /v1/ssh`: where customers come over SSH, whose user name is the sandbox's id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SshBody {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The host's keys as lines of `known_hosts` have them, without its name: the one that signs, then, while a rotation is
    /// under way, the one that is to follow it.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub host_keys: Vec<PublicKey>,
}

/// The SSH keys that a sandbox has on record, in the order of their admission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SshKeysBody {
    /// The keys.
    pub keys: Vec<SshKeyBody>,
}

/// An SSH key on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SshKeyBody {
    /// The key, as a line of `authorized_keys` has it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: PublicKey,
    /// `SHA256:` and 43 characters.
    pub fingerprint: String,
    /// Last block in which it opens the sandbox; without one, as long as there is a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_block: Option<u64>,
    /// Whether that block is over.
    pub expired: bool,
}

/// Body of `PUT /v1/sandboxes/{id}/ssh-keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SshKeyRequest {
    /// A line of `authorized_keys`.
    pub key: String,
    /// Blocks in which it opens the sandbox; 0 for as long as there is one.
    #[serde(default)]
    pub ttl_blocks: u64,
}

/// Query of `DELETE /v1/sandboxes/{id}/ssh-keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct SshKeyQuery {
    /// The key's, `SHA256:` and 43 characters.
    pub fingerprint: String,
}

/// Query of `GET /v1/sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct SandboxesQuery {
    /// The last answer's `next`; the first page without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub cursor: Option<SandboxId>,
    /// Entries of a page, at most 100.
    #[serde(default = "page")]
    pub limit: u64,
    /// Only those in this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Only those with this label, as `name` or `name=value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Default for SandboxesQuery {
    fn default() -> Self {
        Self { cursor: None, limit: PAGE_ENTRIES_DEFAULT, phase: None, label: None }
    }
}

/// Answer to `GET /v1/sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxesBody {
    /// By id.
    pub sandboxes: Vec<SandboxBody>,
    /// The cursor of the next page; absent in the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub next: Option<SandboxId>,
}

/// Body of `POST /v1/sandboxes/{id}/resume`; may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResumeBody {
    /// A snapshot whose files replace the sandbox's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_uri: Option<String>,
}

/// Body of `POST /v1/sandboxes/{id}/snapshot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SnapshotRequest {
    /// Where it goes: `s3://`, `ipfs://`, `https://` or `file://`.
    pub destination: String,
    /// With the files of `/workspace`.
    #[serde(default = "yes")]
    pub include_workspace: bool,
    /// With the files of `/home/agent`.
    #[serde(default)]
    pub include_state: bool,
}

/// Answer to `POST /v1/sandboxes/{id}/snapshot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SnapshotBody {
    /// Where it is, with its hash: what `resume` and `SANDBOX_SNAPSHOT` take.
    pub snapshot_uri: String,
    /// Its length, compressed.
    pub size_bytes: u64,
}

/// Data of an event of kind `sandbox`: something happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxEvent {
    /// The event's id. Later events have larger ones, also over restarts; they are the operator's, so one owner sees gaps.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Which sandbox.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub sandbox: SandboxId,
    /// The phase it is in now, as in [`SandboxBody::phase`].
    pub phase: String,
    /// Why, where there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Data of an event of kind `gap`: what happened between these two ids is not known any more; look at the sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GapEvent {
    /// The last id that the reader has.
    pub after: u64,
    /// The last id that is missing.
    pub until: u64,
}

/// Query of `GET /v1/events`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct EventsQuery {
    /// The last id that the reader has; 0 for everything that is kept. Without it, and without a `Last-Event-ID`, only what
    /// happens from now on. The header wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Whether the stream goes on with what happens; otherwise it ends with what is kept.
    #[serde(default = "yes")]
    pub follow: bool,
}

/// Query of `GET /v1/calls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct CallsQuery {
    /// The last answer's `next`; the first page without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Entries of a page, at most 100.
    #[serde(default = "page")]
    pub limit: u64,
}

impl Default for CallsQuery {
    fn default() -> Self {
        Self { cursor: None, limit: PAGE_ENTRIES_DEFAULT }
    }
}

/// Answer to `GET /v1/calls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallsBody {
    /// The newest first.
    pub calls: Vec<CallEntry>,
    /// The cursor of the next page; absent in the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A call in a list. Its answer is to be had one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallEntry {
    /// Service id.
    pub service: u64,
    /// Call id within the service.
    pub call: u64,
    /// Job id.
    pub job: u8,
    /// Block of the call.
    pub block: u64,
    /// Where it is on its road.
    pub status: CallStatus,
    /// As on chain, unless pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

const fn page() -> u64 {
    PAGE_ENTRIES_DEFAULT
}

const fn yes() -> bool {
    true
}
