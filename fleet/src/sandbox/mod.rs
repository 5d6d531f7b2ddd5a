//! A sandbox as the operator knows it, and the machine that its life follows.
//!
//! ```text
//! requested ──► provisioning ──► running ◄──────── resuming
//!                    │            │ │  │              ▲ │(failed)
//!                    │            │ │  └─► stopping ─► stopped
//!                    ▼            │ └──────────────┐   │
//!               discarding ◄─(vanished)            ▼   ▼
//!                    │                           deleting
//!                    ▼                              ▼
//!                  failed                          gone
//! ```
//!
//! Each phase carries exactly what exists in it. Expiry, idleness and deletion differ only in their reason; a container that
//! is positively found to be missing is an event like any other. A snapshot is no phase: it is taken of a sandbox that runs, which goes
//! on running. Gone and failed are final.

mod step;

use alloy_primitives::{Address, B256};
use sandbox_protocol::{CallKey, Failure, SandboxId};
use serde::{Deserialize, Serialize};

pub use step::{Step, step};

use crate::children::ChildName;
use crate::keys::SshKeys;
use crate::request::{SandboxSpec, SnapshotUri};

/// What is kept of a sandbox from its request until it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its name.
    pub id: SandboxId,
    /// The customer that created it, and alone may use it.
    pub owner: Address,
    /// What was asked for, with defaults filled in.
    pub spec: SandboxSpec,
    /// Last block in which it lives, as on chain; `None` lives until its service ends.
    pub expires_at_block: Option<u64>,
    /// Whether its owner was told that its time is nearly over.
    #[serde(default)]
    pub warned: bool,
    /// Its name among the children of its call, where the operator made it for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildName>,
    /// Who may come over SSH.
    #[serde(default, skip_serializing_if = "SshKeys::is_empty")]
    pub ssh_keys: SshKeys,
    /// The last call that changed them: resumed in a later life, it changes nothing again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_call: Option<CallKey>,
    /// Where it is in its life.
    pub phase: Phase,
}

impl Sandbox {
    /// Whether it can still be brought to its end.
    pub const fn lives(&self) -> bool {
        match self.phase {
            Phase::Requested
            | Phase::Provisioning
            | Phase::Running(_)
            | Phase::Stopping(_)
            | Phase::Stopped(_)
            | Phase::Resuming(..) => true,
            Phase::Deleting(_) | Phase::Gone(_) | Phase::Discarding(_) | Phase::Failed(_) => false,
        }
    }
}

/// A sidecar's bearer token: what the operator shows it to be let in, known to nobody else. Never printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SidecarToken(B256);

impl SidecarToken {
    /// A token of 32 random bytes.
    pub const fn new(random: B256) -> Self {
        Self(random)
    }

    /// The token of this text, as [`SidecarToken::reveal`] gives it.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// The text that goes behind `Bearer`.
    pub fn reveal(&self) -> String {
        format!("{:x}", self.0)
    }
}

impl std::fmt::Debug for SidecarToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SidecarToken(…)")
    }
}

/// A stage of a sandbox's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Admitted; nothing exists yet.
    Requested,
    /// The container is being made.
    Provisioning,
    /// The container runs and was found to be as hardened as promised.
    Running(Instance),
    /// The container is being stopped; its files stay.
    Stopping(Rest),
    /// The container is stopped: its files are kept, its memory and cores are free.
    Stopped(Rest),
    /// The container is being started again.
    Resuming(Rest, Option<SnapshotUri>),
    /// The container is being removed for good.
    Deleting(EndReason),
    /// Nothing is left of it.
    Gone(EndReason),
    /// What was made of it is being removed because it cannot be had.
    Discarding(Failure),
    /// It could not be had, or was lost; nothing is left of it.
    Failed(Failure),
}

/// A container, as its inspection showed it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Name of the container runtime, `runc` say.
    pub runtime: String,
    /// Digest of the image it was made from.
    pub image_digest: String,
    /// By what the adapters find it, its sidecar and its disk. Records of before it was kept have none, until it is inspected again.
    #[serde(default)]
    pub vessel: String,
    /// Its sidecar's token.
    #[serde(default)]
    pub token: SidecarToken,
}

/// A sandbox at rest, or on its way there or back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// The container that is to be started again.
    pub instance: Instance,
    /// Why it was stopped.
    pub reason: StopReason,
    /// How often it was to be resumed since, in vain.
    pub failed_resumes: u32,
    /// Why the last time.
    pub failure: Option<Failure>,
}

impl Rest {
    fn new(instance: Instance, reason: StopReason) -> Self {
        Self { instance, reason, failed_resumes: 0, failure: None }
    }

    fn after(self, failure: Failure) -> Self {
        Self { failed_resumes: self.failed_resumes.saturating_add(1), failure: Some(failure), ..self }
    }
}

/// Why a sandbox was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Its owner asked for it.
    Asked,
    /// Nothing happened in it for its idle time.
    Idle,
}

/// Why a sandbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Its owner asked for it.
    Deleted,
    /// Its expiry block came.
    Expired,
    /// Its service ended.
    ServiceEnded,
    /// It did not come up in time.
    Abandoned,
    /// The call in whose course it was made has ended.
    ParentEnded,
}

/// What happens to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Begin; said once in each life of the operator, before anything else.
    Start,
    /// The effect [`Effect::Provision`] succeeded.
    Provisioned(Instance),
    /// The effect [`Effect::Provision`] failed.
    ProvisionFailed(Failure),
    /// Somebody found it not to answer.
    Check,
    /// It is to rest.
    Stop(StopReason),
    /// The effect [`Effect::Halt`] succeeded.
    Halted,
    /// It is to go on, with what a snapshot holds where one is named.
    Resume(Option<SnapshotUri>),
    /// The effect [`Effect::Resume`] failed.
    ResumeFailed(Failure),
    /// It is to end.
    End(EndReason),
    /// The effect [`Effect::Remove`] succeeded.
    Removed,
    /// The engine answered that its container does not exist.
    Vanished(Failure),
}

/// What is to be done to the world. At most one effect of a sandbox is under way at a time; looking alone gives way to
/// another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Make the container, or find it as it was made, and check its hardening.
    Provision,
    /// See whether the container still is there, start it if it merely stopped.
    Adopt,
    /// Stop the container and keep what is in it.
    Halt,
    /// Start the container again; then restore what is to be restored.
    Resume,
    /// Remove container, volumes and socket directory; harmless where there are none.
    Remove,
}

impl Phase {
    /// Whether nothing more will happen.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::Failed(_))
    }

    /// The container, where there is one.
    pub const fn instance(&self) -> Option<&Instance> {
        match self {
            Self::Running(instance) => Some(instance),
            Self::Stopping(rest) | Self::Stopped(rest) | Self::Resuming(rest, _) => Some(&rest.instance),
            Self::Requested
            | Self::Provisioning
            | Self::Deleting(_)
            | Self::Gone(_)
            | Self::Discarding(_)
            | Self::Failed(_) => None,
        }
    }

    /// The word that customers see.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Provisioning => "provisioning",
            Self::Running(_) => "running",
            Self::Stopping(_) => "stopping",
            Self::Stopped(_) => "stopped",
            Self::Resuming(..) => "resuming",
            Self::Deleting(_) | Self::Discarding(_) => "deleting",
            Self::Gone(_) => "gone",
            Self::Failed(_) => "failed",
        }
    }
}
