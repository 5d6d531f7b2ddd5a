//! Commands for what operators tell who signed in.

use alloy::primitives::Address;
use sandbox_protocol::SandboxId;
use sandbox_protocol::session::Scope;

use super::words::sandbox;

/// Which operators are asked.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WhereArgs {
    /// Service whose operators are asked
    #[arg(long, value_name = "ID")]
    pub(crate) service: Option<u64>,
    /// One operator, instead of those of a service
    #[arg(long, value_name = "ADDRESS", conflicts_with = "service")]
    pub(crate) operator: Option<Address>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    #[command(flatten)]
    pub(crate) place: WhereArgs,
    /// What the token opens: calls:read, sandboxes:read, sandboxes:write, sandboxes:exec, sandboxes:files, sandboxes:pty,
    /// sandboxes:ports, sandboxes:ssh, events:read, workflows:read, workflows:write; default: all
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) scopes: Vec<Scope>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) place: WhereArgs,
    /// Also those that ended lately
    #[arg(long)]
    pub(crate) all: bool,
    /// Only those in this phase
    #[arg(long)]
    pub(crate) phase: Option<String>,
    /// Only those with this label
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) label: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) place: WhereArgs,
    /// Of one sandbox only
    #[arg(value_name = "ID", value_parser = sandbox)]
    pub(crate) sandbox: Option<SandboxId>,
    /// Go on with what happens; without it everything that is kept is printed
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin behind the event of this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) after: Option<u64>,
}
