//! Settings: options in front of the environment, each read when a command needs it, before anything is sent.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use alloy::signers::local::PrivateKeySigner;
use alloy::transports::http::reqwest::Url;
use sandbox_process::source::{self, ConfigError, Environment, Overrides};
use sandbox_protocol::agent::Secret;
use sandbox_protocol::limits::PTY_TERM_BYTES_MAX;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::{Account, Chain, Deployment, Sealing};

use crate::args::Global;
use crate::failure::Failure;

const DEPLOYMENT: &str = "SANDBOX_DEPLOYMENT";
const RPC_URL: &str = "SANDBOX_RPC_URL";
const KEY: &str = "SANDBOX_KEY";
const KEY_FILE: &str = "SANDBOX_KEY_FILE";
const SERVICE: &str = "SANDBOX_SERVICE";
const CONFIG_DIR: &str = "SANDBOX_CONFIG_DIR";
const CONFIG_HOME: &str = "XDG_CONFIG_HOME";
const HOME: &str = "HOME";
const LOG: &str = "RUST_LOG";
const TERM: &str = "TERM";
const SSH_AGENT: &str = "SSH_AUTH_SOCK";

/// Where commands find chain, key and service.
#[derive(Debug)]
pub(crate) struct Settings {
    source: Overrides<Environment>,
    key_file: Option<PathBuf>,
    sealing: Sealing,
}

impl Settings {
    pub(crate) fn new(global: &Global) -> Self {
        let deployment = global.deployment.as_ref().map(|path| path.display().to_string());
        let url = global.rpc_url.as_ref().map(Url::to_string);
        let given = [(DEPLOYMENT, deployment), (RPC_URL, url)];
        let given: HashMap<_, _> =
            given.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect();
        let sealing = match (global.plain, global.seal_all) {
            (true, _) => Sealing::Plain,
            (false, true) => Sealing::Everything,
            (false, false) => Sealing::Secrets,
        };
        Self { source: Overrides::new(given, Environment), key_file: global.key_file.clone(), sealing }
    }

    /// What is logged; nothing unless asked for.
    pub(crate) fn log_filter(&self) -> String {
        source::Source::get(&self.source, LOG).unwrap_or_else(|| "off".into())
    }

    /// The kind of terminal that this program runs in.
    pub(crate) fn terminal(&self) -> Option<String> {
        source::Source::get(&self.source, TERM).filter(|name| name.len() <= PTY_TERM_BYTES_MAX)
    }

    /// Its user's home.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        source::Source::get(&self.source, HOME).filter(|home| !home.is_empty()).map(PathBuf::from)
    }

    /// Where an SSH agent listens.
    pub(crate) fn ssh_agent(&self) -> Option<PathBuf> {
        source::Source::get(&self.source, SSH_AGENT).filter(|socket| !socket.is_empty()).map(PathBuf::from)
    }

    pub(crate) fn deployment(&self) -> Result<Deployment, Failure> {
        let mut deployment = Deployment::load(&self.deployment_path()?)?;
        if let Some(url) = self.rpc_url()? {
            deployment.rpc_url = url;
        }
        Ok(deployment)
    }

    /// Where the addresses file is, or is to be.
    pub(crate) fn deployment_path(&self) -> Result<PathBuf, Failure> {
        Ok(source::required::<String>(&self.source, DEPLOYMENT)?.into())
    }

    /// The node that was named; the addresses file names another.
    pub(crate) fn rpc_url(&self) -> Result<Option<Url>, Failure> {
        Ok(source::optional(&self.source, RPC_URL)?)
    }

    pub(crate) async fn chain(&self) -> Result<Chain, Failure> {
        Ok(Chain::connect(self.deployment()?).await?)
    }

    pub(crate) async fn account(&self) -> Result<Account, Failure> {
        let key = self.key()?;
        Ok(Account::new(self.chain().await?, key).sealing_only(self.sealing))
    }

    pub(crate) async fn answers(&self) -> Result<Answers, Failure> {
        Ok(Answers::new(self.account().await?)?)
    }

    pub(crate) fn service(&self, given: Option<u64>) -> Result<u64, Failure> {
        match given {
            Some(service) => Ok(service),
            None => Ok(source::required(&self.source, SERVICE)?),
        }
    }

    /// A secret that a variable holds, of which the command line has only the name.
    pub(crate) fn secret(&self, name: &str) -> Result<Secret, Failure> {
        Ok(Secret::new(source::required::<String>(&self.source, name)?))
    }

    /// Whether what is confided to a job stays hidden.
    pub(crate) fn seals(&self) -> bool {
        self.sealing != Sealing::Plain
    }

    /// Where this program keeps what it is told.
    pub(crate) fn config_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(dir) = source::optional::<PathBuf>(&self.source, CONFIG_DIR)? {
            return Ok(dir);
        }
        let base = match source::optional::<PathBuf>(&self.source, CONFIG_HOME)? {
            Some(dir) => dir,
            None => source::required::<PathBuf>(&self.source, HOME)?.join(".config"),
        };
        Ok(base.join("sandbox"))
    }

    /// The key; its text is never repeated, neither in errors nor in logs.
    pub(crate) fn key(&self) -> Result<PrivateKeySigner, Failure> {
        if let Some(path) = &self.key_file {
            return key_in(path);
        }
        if let Some(text) = source::optional::<String>(&self.source, KEY)? {
            return parsed(&text, KEY);
        }
        match source::optional::<String>(&self.source, KEY_FILE)? {
            Some(path) => key_in(Path::new(&path)),
            None => Err(ConfigError::Missing { name: KEY.to_owned() }.into()),
        }
    }
}

fn key_in(path: &Path) -> Result<PrivateKeySigner, Failure> {
    let place = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("cannot read {place}: {error}")))?;
    parsed(&text, &place)
}

fn parsed(text: &str, place: &str) -> Result<PrivateKeySigner, Failure> {
    text.trim().parse().map_err(|_| Failure::usage(format!("{place} holds no private key of 64 hex digits")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_key_is_not_repeated() {
        let failure = parsed("0xdeadbeef-secret", KEY).unwrap_err();
        assert_eq!(failure.to_string(), "SANDBOX_KEY holds no private key of 64 hex digits");
    }
}
