//! By which key one comes: a file that is named, the agent's, one's own, or one that is made here and kept.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox_protocol::limits::SSH_KEY_LINE_BYTES_MAX;
use sandbox_protocol::ssh::PublicKey;

use crate::failure::Failure;
use crate::settings::Settings;

/// What a key that is made here is called.
const OWN: &str = "id_ed25519";
/// What the public half of the agent's key is called, by which the SSH programs find it there.
const AGENTS: &str = "agent.pub";

/// A key, and the file by which the SSH programs find it.
pub(super) struct Identity {
    pub(super) key: PublicKey,
    pub(super) file: PathBuf,
}

impl Identity {
    /// The key of the file that is `named`, or the first that there is.
    pub(super) fn find(named: Option<&Path>, dir: &Path, settings: &Settings) -> Result<Self, Failure> {
        if let Some(file) = named {
            let file = std::path::absolute(file).map_err(|error| unusable(file, &error))?;
            return Ok(Self { key: public_key(&file)?, file });
        }
        if let Some(key) = agents(settings) {
            let file = dir.join(AGENTS);
            std::fs::write(&file, format!("{key}\n")).map_err(|error| unusable(&file, &error))?;
            return Ok(Self { key, file });
        }
        let customary = settings.home().map(|home| home.join(".ssh").join(OWN));
        match customary.filter(|file| file.exists() && public_half(file).exists()) {
            Some(file) => Ok(Self { key: public_key(&file)?, file }),
            None => Self::own(dir),
        }
    }

    /// The one that is kept in `dir`, made by the program that makes them.
    fn own(dir: &Path) -> Result<Self, Failure> {
        let file = dir.join(OWN);
        if !file.exists() {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-C", "sandbox", "-f"])
                .arg(&file)
                .output()
                .map_err(|error| Failure::local(format!("cannot run ssh-keygen: {error}; it comes with OpenSSH")))?;
            if !made.status.success() {
                let said = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                return Err(Failure::local(format!("no SSH key could be made: {said}")));
            }
        }
        Ok(Self { key: public_key(&file)?, file })
    }
}

/// Makes `dir` where it does not exist, for its owner alone.
pub(super) fn make_dir(dir: &Path) -> Result<(), Failure> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| unusable(dir, &error))
}

/// The public key in a file, or in the one beside it where that holds the private half.
pub(crate) fn public_key(file: &Path) -> Result<PublicKey, Failure> {
    let beside = public_half(file);
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| unusable(path, &error));
    let text = if beside.exists() { read(&beside)? } else { read(file)? };
    let is_short = text.len() <= SSH_KEY_LINE_BYTES_MAX * 2;
    let line = text.lines().find(|line| is_short && !line.trim().is_empty()).unwrap_or_default();
    line.parse().map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

/// Where the public half is, by custom.
fn public_half(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// The first key of the agent that is of a kind that is taken.
fn agents(settings: &Settings) -> Option<PublicKey> {
    settings.ssh_agent()?;
    let listed = Command::new("ssh-add").arg("-L").output().ok()?;
    String::from_utf8_lossy(&listed.stdout).lines().find_map(|line| line.parse().ok())
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot use {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOmARhRNpL9AB6pLjv23vuQ7RK+RkhrTjHLMC0muvW93";

    #[test]
    fn a_key_is_named_by_either_half() {
        let dir = tempfile::tempdir().unwrap();
        let (private, public) = (dir.path().join("k"), dir.path().join("k.pub"));
        std::fs::write(&private, "-----BEGIN OPENSSH PRIVATE KEY-----\n").unwrap();
        assert!(public_key(&private).unwrap_err().to_string().contains("SSH key"), "no public half is there");
        std::fs::write(&public, format!("{LINE} me@here\n")).unwrap();
        for file in [&private, &public] {
            assert_eq!(public_key(file).unwrap().to_string(), LINE);
        }
    }
}
