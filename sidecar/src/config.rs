//! What the sidecar is told at its start, typed.
//!
//! Settings of agents and models are read by the process that does their work; like every other setting they never reach a
//! command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid};
use sandbox_process::source::{ConfigError, Source, optional, or_default};
use sandbox_protocol::users::{AGENT_UID, RUNNER_UID};

use crate::agents;
use crate::egress;
use crate::exec::Identity;
use crate::http::Token;

/// Port where no socket is given.
pub const PORT_DEFAULT: u16 = 8080;
/// Directory of a command that names none.
pub const WORKSPACE_DEFAULT: &str = "/workspace";
/// Home of the user that commands run as.
pub const HOME_DEFAULT: &str = "/home/agent";
/// User and group of commands.
pub const AGENT_ID_DEFAULT: u32 = AGENT_UID;

/// Where the sidecar listens: a socket, a port, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doors {
    /// `SIDECAR_SOCKET`: path of a Unix socket that only the sidecar's own user may open.
    pub socket: Option<PathBuf>,
    /// `SIDECAR_PORT`: TCP port on all addresses; [`PORT_DEFAULT`] where no socket is given.
    pub port: Option<u16>,
}

/// Everything that the sidecar is told.
#[derive(Debug)]
pub struct Config {
    /// Where it listens.
    pub doors: Doors,
    /// `AGENT_WORKSPACE_ROOT`.
    pub workspace: PathBuf,
    /// `AGENT_HOME`: `HOME` of commands, and what a snapshot calls the state.
    pub home: PathBuf,
    /// `SIDECAR_EGRESS_SOCKET`: the operator's proxy; without it there is no door out.
    pub egress: Option<PathBuf>,
    /// `SIDECAR_CGROUP`: a control group that was handed over, for executions to have groups of their own beneath it.
    pub cgroup: Option<PathBuf>,
    /// `STORAGE_PATH`: what agents remember, in a directory that only the sidecar's own user may enter.
    pub storage: Option<PathBuf>,
    /// Settings of agents and models, passed on as they are.
    pub agents: BTreeMap<String, String>,
    /// `SIDECAR_AUTH_TOKEN`; without one the sidecar makes its own.
    pub token: Option<Token>,
    /// `AGENT_UID` and `AGENT_GID`: who commands run as, where the sidecar may choose.
    pub agent: Identity,
}

impl Doors {
    /// Reads where to listen.
    ///
    /// # Errors
    /// The setting that is no value of its kind.
    pub fn read(source: &impl Source) -> Result<Self, ConfigError> {
        let socket = optional::<PathBuf>(source, "SIDECAR_SOCKET")?;
        if let Some(path) = &socket {
            absolute("SIDECAR_SOCKET", path)?;
        }
        let port = optional::<u16>(source, "SIDECAR_PORT")?;
        if port == Some(0) {
            return Err(ConfigError::invalid("SIDECAR_PORT", "0", "give a port that callers can know"));
        }
        let port = port.or_else(|| socket.is_none().then_some(PORT_DEFAULT));
        Ok(Self { socket, port })
    }
}

impl Config {
    /// Reads all settings.
    ///
    /// # Errors
    /// The first setting that is no value of its kind.
    pub fn read(source: &impl Source) -> Result<Self, ConfigError> {
        let workspace = or_default(source, "AGENT_WORKSPACE_ROOT", PathBuf::from(WORKSPACE_DEFAULT))?;
        absolute("AGENT_WORKSPACE_ROOT", &workspace)?;
        let home = or_default(source, "AGENT_HOME", PathBuf::from(HOME_DEFAULT))?;
        absolute("AGENT_HOME", &home)?;
        let egress = optional::<PathBuf>(source, "SIDECAR_EGRESS_SOCKET")?;
        if let Some(path) = &egress {
            absolute("SIDECAR_EGRESS_SOCKET", path)?;
        }
        let cgroup = optional::<PathBuf>(source, "SIDECAR_CGROUP")?;
        if let Some(path) = &cgroup {
            absolute("SIDECAR_CGROUP", path)?;
        }
        let storage = optional::<PathBuf>(source, "STORAGE_PATH")?;
        if let Some(path) = &storage {
            absolute("STORAGE_PATH", path)?;
        }
        Ok(Self {
            doors: Doors::read(source)?,
            storage,
            agents: agents::passed(source),
            cgroup,
            workspace,
            home,
            egress,
            token: token(source)?,
            agent: Identity {
                uid: Uid::from_raw(unprivileged(source, "AGENT_UID")?),
                gid: Gid::from_raw(unprivileged(source, "AGENT_GID")?),
            },
        })
    }
}

impl Config {
    /// What every command finds in its environment.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let mut environment = if self.egress.is_some() { egress::environment() } else { BTreeMap::new() };
        environment.insert("HOME".to_owned(), self.home.to_string_lossy().into_owned());
        environment
    }
}

fn absolute(name: &str, path: &Path) -> Result<(), ConfigError> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(ConfigError::invalid(name, path.to_string_lossy(), "give an absolute path"))
}

/// An id that is not root's, nor the reserved one, nor the one that means "leave it as it is" to the kernel.
fn unprivileged(source: &impl Source, name: &str) -> Result<u32, ConfigError> {
    match or_default(source, name, AGENT_ID_DEFAULT)? {
        id @ (0 | RUNNER_UID | u32::MAX) => {
            Err(ConfigError::invalid(name, id.to_string(), "commands never run as this id"))
        }
        id => Ok(id),
    }
}

/// The token; its text is kept out of the error.
fn token(source: &impl Source) -> Result<Option<Token>, ConfigError> {
    let text = source.get("SIDECAR_AUTH_TOKEN");
    text.map(|text| {
        Token::new(&text)
            .ok_or_else(|| ConfigError::invalid("SIDECAR_AUTH_TOKEN", "…", "give printable ASCII without spaces"))
    })
    .transpose()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let source: HashMap<_, _> = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Config::read(&source)
    }

    fn doors(pairs: &[(&str, &str)]) -> (Option<PathBuf>, Option<u16>) {
        let doors = read(pairs).unwrap().doors;
        (doors.socket, doors.port)
    }

    #[test]
    fn nothing_set_means_port_8080_and_the_workspace() {
        let config = read(&[]).unwrap();
        assert_eq!(config.environment(), BTreeMap::from([("HOME".to_owned(), "/home/agent".to_owned())]));
        assert_eq!((config.doors.socket, config.doors.port), (None, Some(8080)));
        assert_eq!(config.workspace, Path::new("/workspace"));
        assert_eq!((config.agent.uid.as_raw(), config.agent.gid.as_raw()), (1000, 1000));
        assert!(config.token.is_none());
    }

    #[test]
    fn commands_are_sent_to_the_door_out_where_there_is_one() {
        let environment =
            read(&[("SIDECAR_EGRESS_SOCKET", "/run/e.sock"), ("AGENT_HOME", "/h")]).unwrap().environment();
        for (name, value) in [
            ("http_proxy", "http://127.0.0.1:3128"),
            ("https_proxy", "http://127.0.0.1:3128"),
            ("HTTP_PROXY", "http://127.0.0.1:3128"),
            ("HTTPS_PROXY", "http://127.0.0.1:3128"),
            ("no_proxy", "localhost,127.0.0.1,::1"),
            ("NO_PROXY", "localhost,127.0.0.1,::1"),
            ("HOME", "/h"),
        ] {
            assert_eq!(environment[name], value, "{name}");
        }
        assert_eq!(environment.len(), 7);
    }

    #[test]
    fn a_socket_replaces_the_default_port_but_not_a_given_one() {
        let socket = ("SIDECAR_SOCKET", "/run/s.sock");
        assert_eq!(doors(&[socket]), (Some("/run/s.sock".into()), None));
        assert_eq!(doors(&[socket, ("SIDECAR_PORT", "9000")]), (Some("/run/s.sock".into()), Some(9000)));
    }

    #[test]
    fn a_bad_setting_stops_the_start() {
        for (name, text) in [
            ("SIDECAR_PORT", "0"),
            ("SIDECAR_PORT", "65536"),
            ("SIDECAR_SOCKET", "s.sock"),
            ("AGENT_WORKSPACE_ROOT", "work"),
            ("AGENT_HOME", "home"),
            ("SIDECAR_EGRESS_SOCKET", "egress.sock"),
            ("SIDECAR_CGROUP", "cgroup"),
            ("AGENT_UID", "0"),
            ("AGENT_GID", "0"),
            ("AGENT_UID", "4294967295"),
            ("AGENT_UID", "1001"),
            ("AGENT_GID", "1001"),
            ("AGENT_UID", "agent"),
            ("SIDECAR_AUTH_TOKEN", "two words"),
        ] {
            let error = read(&[(name, text)]).expect_err(name).to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }

    #[test]
    fn a_bad_token_is_not_repeated_in_the_error() {
        let error = read(&[("SIDECAR_AUTH_TOKEN", "sec ret")]).unwrap_err().to_string();
        assert!(!error.contains("sec"), "{error}");
    }

    #[test]
    fn settings_of_later_floors_are_accepted() {
        read(&[("AGENT_BACKEND", "opencode"), ("OPENCODE_MODEL_API_KEY", "k"), ("STORAGE_PATH", "/storage")]).unwrap();
    }
}
