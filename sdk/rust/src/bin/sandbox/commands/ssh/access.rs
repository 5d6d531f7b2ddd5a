//! What must be so before a sandbox is entered: the key admitted, the host known.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sandbox_protocol::SandboxId;
use sandbox_protocol::abi::SshProvisionResponse;
use sandbox_protocol::holdings::{SshBody, SshKeyRequest};
use sandbox_protocol::session::Scope;
use sandbox_protocol::ssh::PublicKey;
use sandbox_sdk::api::Session;
use sandbox_sdk::requests;
use sandbox_sdk::ssh::{KnownHost, Place, SshOption};

use super::identity::{Identity, make_dir};
use crate::args::IdentityArgs;
use crate::commands::holdings::holder;
use crate::commands::sandboxes::proven_answer;
use crate::commands::sessions::{Operator, session};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

/// What the SSH programs must be told to enter `id`, which is open to the key and known by then.
pub(super) async fn options(
    id: SandboxId,
    args: &IdentityArgs,
    (settings, output): (&Settings, &Output),
) -> Result<Vec<SshOption>, Failure> {
    let dir = std::path::absolute(settings.config_dir()?.join("ssh"))
        .map_err(|error| Failure::local(format!("no directory for SSH keys: {error}")))?;
    make_dir(&dir)?;
    let identity = Identity::find(args.identity.as_deref(), &dir, settings)?;
    let account = settings.account().await?;
    let operator = holder(id, &account).await?;
    let known = dir.join(format!("known_hosts-{:#x}", operator.0));
    let announced = if args.job {
        let ttl_blocks = args.ttl_blocks.unwrap_or_default();
        let request = requests::ssh_provision(id, &identity.key, ttl_blocks)?;
        let admitted: SshProvisionResponse = proven_answer((id, request), (settings, output)).await?;
        let host = KnownHost::proven(operator.0, &admitted.host_key)?;
        let host_keys = host.keys().to_vec();
        keep(&known, &host)?;
        SshBody { host: admitted.ssh_host, port: admitted.ssh_port, host_keys }
    } else {
        let session = session(&operator, Scope::SandboxesSsh, (settings, &account)).await?;
        let announced = session.ssh().await?;
        let host = KnownHost::read(operator.0, &read(&known)?).follow(&announced.host_keys)?;
        admit(id, &identity.key, args.ttl_blocks, (&session, output)).await?;
        keep(&known, &host)?;
        announced
    };
    place(id, &operator, &announced, args.resume)?.options(&known, &identity.file).map_err(Failure::from)
}

fn place(id: SandboxId, operator: &Operator, announced: &SshBody, resume: bool) -> Result<Place, Failure> {
    Ok(Place::new(id, operator.0, announced, resume)?)
}

/// Has the key let in, unless it is, up to the end that was asked for.
async fn admit(
    id: SandboxId,
    key: &PublicKey,
    ttl_blocks: Option<u64>,
    (session, output): (&Session, &Output),
) -> Result<(), Failure> {
    let on_record = session.ssh_keys(id).await?;
    let is_in = on_record.keys.iter().any(|entry| entry.key == *key && !entry.expired);
    if is_in && ttl_blocks.is_none() {
        return Ok(());
    }
    output.progress(&format!("admitting {} to {id}", key.fingerprint()));
    let asked = SshKeyRequest { key: key.to_string(), ttl_blocks: ttl_blocks.unwrap_or_default() };
    session.admit_ssh_key(id, &asked).await?;
    Ok(())
}

fn read(path: &Path) -> Result<String, Failure> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|error| Failure::local(format!("cannot read {}: {error}", path.display()))),
    }
}

/// Replaces the file whole: an SSH program may be reading it.
fn keep(path: &Path, host: &KnownHost) -> Result<(), Failure> {
    let new: PathBuf = path.with_extension(format!("{}.new", std::process::id()));
    let written = std::fs::write(&new, host.to_string()).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| Failure::local(format!("cannot write {}: {error}", path.display())))
}
