//! `ssh`, `cp`, `ssh-config`, `ssh-key`: into a sandbox with the SSH programs of this machine.

mod access;
mod identity;

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use sandbox_protocol::SandboxId;
use sandbox_protocol::abi::{SandboxStatusResponse, SshProvisionResponse};
use sandbox_protocol::holdings::{SshKeyBody, SshKeyRequest, SshKeysBody};
use sandbox_protocol::session::Scope;
use sandbox_protocol::ssh::PublicKey;
use sandbox_sdk::api::Session;
use sandbox_sdk::requests::{self, shell_quoted};
use sandbox_sdk::ssh::{SshOption, config_block};
use serde::Serialize;

use super::holdings::holder;
use super::sandboxes::proven;
use super::sessions::session;
use crate::args::{CpArgs, SshArgs, SshConfigArgs, SshKeyCommand};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

pub(super) use identity::public_key;

/// What `ssh-config --json` prints.
#[derive(Serialize)]
struct Configured {
    sandbox: SandboxId,
    options: Vec<SshOption>,
    config: String,
}

/// Becomes `ssh`.
pub(crate) async fn ssh(args: SshArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let options = access::options(args.id, &args.identity, (settings, output)).await?;
    let mut command = program("ssh", &options);
    for option in &args.options {
        command.arg("-o").arg(option);
    }
    command.arg("--").arg(args.id.to_string());
    // What is not one script is a program and its arguments.
    match args.command.as_slice() {
        [script] => command.arg(script),
        words => command.args((!words.is_empty()).then(|| joined(words))),
    };
    Err(become_program(command))
}

/// Becomes `scp`.
pub(crate) async fn cp(args: CpArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let id = match (inside(&args.from), inside(&args.to)) {
        (Some(id), None) | (None, Some(id)) => id,
        (Some(_), Some(_)) | (None, None) => {
            return Err(Failure::usage("one of the two is a path here, the other ID:PATH".into()));
        }
    };
    let options = access::options(id, &args.identity, (settings, output)).await?;
    let mut command = program("scp", &options);
    if args.recursive {
        command.arg("-r");
    }
    command.arg("--").arg(operand(&args.from)).arg(operand(&args.to));
    Err(become_program(command))
}

pub(crate) async fn config(args: SshConfigArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let options = access::options(args.id, &args.identity, (settings, output)).await?;
    let config = config_block(args.id, &options);
    output.result(config.trim_end(), &Configured { sandbox: args.id, options, config: config.clone() })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn key(command: SshKeyCommand, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        SshKeyCommand::Add { id, file, ttl_blocks, job } => {
            let key = public_key(&file)?;
            if job {
                let request = requests::ssh_provision(id, &key, ttl_blocks)?;
                return proven((id, request), (settings, output), |admitted: SshProvisionResponse| {
                    let SshProvisionResponse { ssh_host, ssh_port, ssh_user, host_key, .. } = admitted;
                    format!("{ssh_user}@{ssh_host} port {ssh_port}\n{host_key}")
                })
                .await;
            }
            let asked = SshKeyRequest { key: key.to_string(), ttl_blocks };
            print(&keys_of(id, settings).await?.admit_ssh_key(id, &asked).await?, output)
        }
        SshKeyCommand::Rm { id, key, job: true } => {
            let request = requests::ssh_revoke(id, &public_key(Path::new(&key))?)?;
            proven((id, request), (settings, output), |status: SandboxStatusResponse| status.sandbox_id).await
        }
        SshKeyCommand::Rm { id, key, job: false } => {
            let fingerprint = match key.strip_prefix("SHA256:") {
                Some(_) => key,
                None => public_key(Path::new(&key))?.fingerprint(),
            };
            print(&keys_of(id, settings).await?.revoke_ssh_key(id, &fingerprint).await?, output)
        }
        SshKeyCommand::Ls { id } => print(&keys_of(id, settings).await?.ssh_keys(id).await?, output),
    }
}

/// A session with the operator of a sandbox, for its keys.
async fn keys_of(id: SandboxId, settings: &Settings) -> Result<Session, Failure> {
    let account = settings.account().await?;
    let operator = holder(id, &account).await?;
    session(&operator, Scope::SandboxesSsh, (settings, &account)).await
}

fn print(keys: &SshKeysBody, output: &Output) -> Result<ExitCode, Failure> {
    let lines: Vec<_> = keys.keys.iter().map(line).collect();
    output.result(&lines.join("\n"), keys)?;
    Ok(ExitCode::SUCCESS)
}

fn line(entry: &SshKeyBody) -> String {
    let SshKeyBody { key, fingerprint, expires_at_block, expired } = entry;
    let end = match expires_at_block {
        None => "as long as the sandbox".to_owned(),
        Some(block) if *expired => format!("expired at block {block}"),
        Some(block) => format!("until block {block}"),
    };
    format!("{fingerprint}  {}  {end}", PublicKey::kind(key))
}

/// An SSH program that is told to come to the sandbox and nowhere else, whatever its own configuration says.
fn program(name: &str, options: &[SshOption]) -> Command {
    let mut command = Command::new(name);
    for (name, value) in options {
        command.arg("-o").arg(format!("{name}={value}"));
    }
    command
}

/// Returns only if there is no such program.
fn become_program(mut command: Command) -> Failure {
    let name = command.get_program().to_string_lossy().into_owned();
    let error = command.exec();
    Failure::local(format!("cannot run {name}: {error}; it comes with OpenSSH"))
}

/// Words that reach the program as they are.
fn joined(words: &[String]) -> String {
    words.iter().map(|word| shell_quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The sandbox that an operand names a path in.
fn inside(operand: &str) -> Option<SandboxId> {
    operand.split_once(':').and_then(|(id, _)| id.parse().ok())
}

/// As `scp` reads it: what is here is not taken for something elsewhere, whatever is in its name.
fn operand(text: &str) -> String {
    if inside(text).is_some() || text.starts_with('/') { text.to_owned() } else { format!("./{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_here_is_never_taken_for_one_elsewhere() {
        assert_eq!(operand("sbx-1-2-0:a b"), "sbx-1-2-0:a b");
        assert_eq!(operand("host:file"), "./host:file");
        assert_eq!(operand("/abs:olute"), "/abs:olute");
        assert_eq!(operand("-rf"), "./-rf");
        assert_eq!(inside("sbx-1-2:x"), None);
    }
}
