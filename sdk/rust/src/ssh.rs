//! Coming into a sandbox with the SSH programs that one has: what they must be told, and by which keys they know the host.
//!
//! A host is known by its operator, whatever its name, and by no key that was not announced: by the operator's API at the
//! URL that the chain has, or in the proven answer to a job 40. Keys that were announced before must be among those that
//! are announced now, or lead to them by a rotation that overlapped.

use std::fmt;
use std::path::Path;

use alloy::primitives::Address;
use sandbox_protocol::SandboxId;
use sandbox_protocol::holdings::SshBody;
use sandbox_protocol::ssh::PublicKey;

use crate::limits::SSH_HOST_NAME_BYTES_MAX;

/// Behind the user name, it has a stopped sandbox started.
const RESUME: &str = "+resume";

/// Where a sandbox is entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user name: the sandbox, and whether it is to be started.
    pub user: String,
    /// What the host is called where its keys are known.
    pub alias: String,
}

/// The keys of a host, as a file of `known_hosts` has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownHost {
    alias: String,
    keys: Vec<PublicKey>,
}

/// An option of the SSH programs: its name, and its value as it is written behind that.
pub type SshOption = (&'static str, String);

/// Why a sandbox cannot be entered by programs of one's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// The operator gave something that is no host, no port, or no key.
    #[error("the operator announces no usable SSH host: {0:?}")]
    NoHost(String),
    /// None of the keys that were known is announced any more.
    #[error(
        "none of the SSH host keys that are known of {alias} is announced any more: this may be somebody else; \
         if its operator says that it lost its keys, remove the file that knows them"
    )]
    Changed {
        /// What the host is called.
        alias: String,
    },
    /// The path cannot be written as an option of the SSH programs.
    #[error("the SSH programs take no path such as {0:?}")]
    Path(String),
}

impl Place {
    /// Where `sandbox` is entered, by what its operator announces; with `resume`, a stopped one is started.
    ///
    /// # Errors
    /// [`SshError::NoHost`].
    pub fn new(sandbox: SandboxId, operator: Address, announced: &SshBody, resume: bool) -> Result<Self, SshError> {
        let SshBody { host, port, host_keys } = announced;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-:_".contains(letter);
        let is_host = !host.is_empty() && host.len() <= SSH_HOST_NAME_BYTES_MAX && !host.starts_with('-');
        if !is_host || !host.chars().all(is_plain) || *port == 0 || host_keys.is_empty() {
            return Err(SshError::NoHost(format!("{host}:{port}")));
        }
        let user = format!("{sandbox}{}", if resume { RESUME } else { "" });
        Ok(Self { host: host.clone(), port: *port, user, alias: alias_of(operator) })
    }

    /// What the SSH programs must be told to come here and nowhere else, with the host's keys in the file `known` and the
    /// caller's in the file `identity`.
    ///
    /// # Errors
    /// [`SshError::Path`].
    pub fn options(&self, known: &Path, identity: &Path) -> Result<Vec<SshOption>, SshError> {
        Ok(vec![
            ("HostName", self.host.clone()),
            ("Port", self.port.to_string()),
            ("User", self.user.clone()),
            ("HostKeyAlias", self.alias.clone()),
            ("UserKnownHostsFile", quoted(known)?),
            ("GlobalKnownHostsFile", "/dev/null".to_owned()),
            ("StrictHostKeyChecking", "yes".to_owned()),
            ("UpdateHostKeys", "no".to_owned()),
            ("IdentityFile", quoted(identity)?),
            ("IdentitiesOnly", "yes".to_owned()),
        ])
    }
}

impl KnownHost {
    /// What the text of a file knows of `operator`'s host. Lines of others, and such as are none, are passed over.
    pub fn read(operator: Address, text: &str) -> Self {
        let alias = alias_of(operator);
        let keys = text.lines().filter_map(|line| line.strip_prefix(&alias)?.strip_prefix(' ')?.parse().ok()).collect();
        Self { alias, keys }
    }

    /// What is to be known from now on, when these keys are announced.
    ///
    /// # Errors
    /// [`SshError::Changed`]: some were known, and none of them is among these.
    pub fn follow(self, announced: &[PublicKey]) -> Result<Self, SshError> {
        if !self.keys.is_empty() && !self.keys.iter().any(|key| announced.contains(key)) {
            return Err(SshError::Changed { alias: self.alias });
        }
        Ok(Self { keys: announced.to_vec(), ..self })
    }

    /// What is to be known by a proven answer's `host_key`, whatever was known before.
    ///
    /// # Errors
    /// [`SshError::NoHost`].
    pub fn proven(operator: Address, host_key: &str) -> Result<Self, SshError> {
        let keys = host_key.lines().map(str::parse).collect::<Result<Vec<PublicKey>, _>>();
        let keys = keys.ok().filter(|keys| !keys.is_empty()).ok_or_else(|| SshError::NoHost(host_key.to_owned()))?;
        Ok(Self { alias: alias_of(operator), keys })
    }

    /// The keys.
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }
}

/// The lines of the file.
impl fmt::Display for KnownHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.iter().try_for_each(|key| writeln!(f, "{} {key}", self.alias))
    }
}

/// A block of `~/.ssh/config`, after which plain `ssh <sandbox>` and whatever is built on it come into the sandbox.
pub fn config_block(sandbox: SandboxId, options: &[SshOption]) -> String {
    let lines = options.iter().map(|(name, value)| format!("    {name} {value}\n"));
    format!(
        "Host {sandbox}\n{}    # One connection for all that follow, kept for ten minutes:\n    \
         #ControlMaster auto\n    #ControlPath ~/.ssh/sandbox-%C\n    #ControlPersist 10m\n",
        lines.collect::<String>()
    )
}

fn alias_of(operator: Address) -> String {
    format!("sandbox-operator-{operator:#x}")
}

/// A path as the SSH programs read one: quoted, with nothing in it that they would replace.
fn quoted(path: &Path) -> Result<String, SshError> {
    let refused = || SshError::Path(path.display().to_string());
    let text = path.to_str().filter(|text| !text.contains(['"', '\\', '\n', '\r', '\0']) && !text.contains("${"));
    Ok(format!("\"{}\"", text.ok_or_else(refused)?.replace('%', "%%")))
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::CallKey;

    use super::*;

    const SANDBOX: SandboxId = SandboxId { origin: CallKey { service: 1, call: 9 }, slot: 0 };
    const OPERATOR: Address = Address::repeat_byte(0x11);

    fn key(number: u8) -> PublicKey {
        let part = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
        PublicKey::from_wire(&[part(b"ssh-ed25519"), part(&[number; 32])].concat()).unwrap()
    }

    fn announced(host: &str, port: u16) -> SshBody {
        SshBody { host: host.into(), port, host_keys: vec![key(1)] }
    }

    #[test]
    fn a_block_of_configuration_is_whole_and_trusts_the_announced_keys_alone() {
        let place = Place::new(SANDBOX, OPERATOR, &announced("op.example", 2222), true).unwrap();
        let options = place.options(Path::new("/k h/50%"), Path::new("/id")).unwrap();
        assert_eq!(
            config_block(SANDBOX, &options),
            "Host sbx-1-9-0\n    HostName op.example\n    Port 2222\n    User sbx-1-9-0+resume\n    \
             HostKeyAlias sandbox-operator-0x1111111111111111111111111111111111111111\n    \
             UserKnownHostsFile \"/k h/50%%\"\n    GlobalKnownHostsFile /dev/null\n    StrictHostKeyChecking yes\n    \
             UpdateHostKeys no\n    IdentityFile \"/id\"\n    IdentitiesOnly yes\n    \
             # One connection for all that follow, kept for ten minutes:\n    #ControlMaster auto\n    \
             #ControlPath ~/.ssh/sandbox-%C\n    #ControlPersist 10m\n"
        );
        for path in ["/a\"b", "/a\nb", "/${HOME}"] {
            assert!(place.options(Path::new(path), Path::new("/id")).is_err(), "{path}");
        }
    }

    #[test]
    fn what_an_operator_announces_is_no_option_of_the_programs() {
        let place = |host: &str, port| Place::new(SANDBOX, OPERATOR, &announced(host, port), false);
        assert_eq!(place("2001:db8::1", 22).unwrap().user, "sbx-1-9-0");
        let long = "h".repeat(SSH_HOST_NAME_BYTES_MAX);
        assert!(place(&long, 22).is_ok());
        let longer = format!("{long}h");
        for (host, port) in
            [("", 22), ("-oProxyCommand=id", 22), ("a b", 22), ("a\nProxyCommand id", 22), ("h", 0), (&longer, 22)]
        {
            assert!(place(host, port).is_err(), "{host}:{port}");
        }
        assert!(
            Place::new(SANDBOX, OPERATOR, &SshBody { host_keys: Vec::new(), ..announced("h", 22) }, false).is_err()
        );
    }

    #[test]
    fn a_host_is_known_by_keys_that_lead_to_each_other() {
        let fresh = KnownHost::read(OPERATOR, "").follow(&[key(1)]).unwrap();
        let file = fresh.to_string();
        assert_eq!(file, format!("sandbox-operator-{OPERATOR:#x} {}\n", key(1)));
        let rotating = KnownHost::read(OPERATOR, &file).follow(&[key(1), key(2)]).unwrap();
        let rotated = KnownHost::read(OPERATOR, &rotating.to_string()).follow(&[key(2)]).unwrap();
        assert_eq!(rotated.keys(), [key(2)]);
        let changed = KnownHost::read(OPERATOR, &rotated.to_string()).follow(&[key(1)]);
        assert!(matches!(changed, Err(SshError::Changed { .. })));
        assert_eq!(KnownHost::read(Address::ZERO, &file).keys(), [], "another operator's");
    }

    #[test]
    fn a_proven_answer_is_believed_whatever_was_known() {
        let proven = KnownHost::proven(OPERATOR, &format!("{}\n{}", key(3), key(4))).unwrap();
        assert_eq!(proven.keys(), [key(3), key(4)]);
        assert!(KnownHost::proven(OPERATOR, "").is_err());
        assert!(KnownHost::proven(OPERATOR, "ssh-rsa AAAA").is_err());
    }
}
