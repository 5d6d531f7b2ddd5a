//! A request to run a command, checked once: past this file nothing is empty, too long or doubtful.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use sandbox_protocol::exec::ExecBody;
use sandbox_protocol::limits::{
    ENV_VAR_BYTES_MAX, ENV_VARS_MAX, EXEC_COMMAND_BYTES_MAX, EXEC_CWD_BYTES_MAX, EXEC_ID_BYTES_MAX,
    EXEC_TIMEOUT_MS_DEFAULT, EXEC_TIMEOUT_MS_MAX,
};

/// What a request asks the registry for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Start, or attach where the id is known.
    Start,
    /// Attach, never start.
    AttachOnly,
}

/// A checked request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// For `/bin/sh -c`.
    pub command: String,
    /// Where it runs: absolute.
    pub directory: PathBuf,
    /// Added to the clean environment.
    pub env: BTreeMap<String, String>,
    /// Written to stdin.
    pub stdin: Vec<u8>,
    /// Time until its process tree is killed.
    pub timeout: Duration,
}

/// A checked request with the name it goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The caller's id, or `None` to have one made.
    pub id: Option<String>,
    /// Start or attach.
    pub mode: Mode,
    /// What to run.
    pub request: Request,
}

/// Why a request is refused as it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The id is not usable.
    #[error("id: give 1 to {EXEC_ID_BYTES_MAX} printable ASCII characters without spaces")]
    Id,
    /// Attaching needs an id.
    #[error("attach_only: give the id to attach to")]
    AttachWithoutId,
    /// The command is empty.
    #[error("command: must not be empty")]
    NoCommand,
    /// A text is longer than its bound.
    #[error("{field}: {bytes} bytes, at most {bytes_max}")]
    TooLong {
        /// Which text.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// Its bound.
        bytes_max: usize,
    },
    /// A text holds a NUL character, which no process can be given.
    #[error("{field}: must not hold NUL")]
    Nul {
        /// Which text.
        field: &'static str,
    },
    /// An environment variable's name is empty or holds `=`.
    #[error("env: {name:?} is no variable name")]
    EnvName {
        /// The name.
        name: String,
    },
    /// There are more environment variables than may be.
    #[error("env: {count} variables, at most {ENV_VARS_MAX}")]
    EnvCount {
        /// How many.
        count: usize,
    },
    /// The working directory leads out of the workspace, or into the kernel's file systems.
    #[error("cwd: give a path beneath the workspace, or an absolute one outside /proc and /sys and without ..")]
    Directory,
    /// The timeout is longer than may be asked for.
    #[error("timeout_ms: {timeout_ms}, at most {EXEC_TIMEOUT_MS_MAX}")]
    Timeout {
        /// What was asked for.
        timeout_ms: u64,
    },
}

impl Named {
    /// Checks `body`; relative directories start at `workspace`.
    ///
    /// # Errors
    /// The first field that is not what its description demands.
    pub fn parse(body: ExecBody, workspace: &Path) -> Result<Self, Invalid> {
        let id = body.id.map(checked_id).transpose()?;
        let mode = if body.attach_only { Mode::AttachOnly } else { Mode::Start };
        if mode == Mode::AttachOnly && id.is_none() {
            return Err(Invalid::AttachWithoutId);
        }
        if body.command.trim().is_empty() {
            return Err(Invalid::NoCommand);
        }
        let request = Request {
            command: checked_text("command", body.command, EXEC_COMMAND_BYTES_MAX)?,
            directory: checked_directory(&checked_text("cwd", body.cwd, EXEC_CWD_BYTES_MAX)?, workspace)?,
            env: checked_env(body.env)?,
            stdin: body.stdin.0,
            timeout: timeout(body.timeout_ms)?,
        };
        Ok(Self { id, mode, request })
    }
}

impl Request {
    /// A number that is the same for the same request and, but for chance, for no other.
    pub fn fingerprint(&self, hasher: &impl BuildHasher) -> u64 {
        hasher.hash_one(self)
    }
}

fn checked_id(id: String) -> Result<String, Invalid> {
    let usable = (1..=EXEC_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    if usable { Ok(id) } else { Err(Invalid::Id) }
}

/// A text that a process can be given.
pub(crate) fn checked_text(field: &'static str, text: String, bytes_max: usize) -> Result<String, Invalid> {
    if text.len() > bytes_max {
        return Err(Invalid::TooLong { field, bytes: text.len(), bytes_max });
    }
    if text.contains('\0') {
        return Err(Invalid::Nul { field });
    }
    Ok(text)
}

/// An environment that a process can be given.
pub(crate) fn checked_env(env: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Invalid> {
    if env.len() > ENV_VARS_MAX {
        return Err(Invalid::EnvCount { count: env.len() });
    }
    for (name, value) in &env {
        if name.is_empty() || name.contains('=') {
            return Err(Invalid::EnvName { name: name.clone() });
        }
        if name.contains('\0') || value.contains('\0') {
            return Err(Invalid::Nul { field: "env" });
        }
        let bytes = name.len() + value.len();
        if bytes > ENV_VAR_BYTES_MAX {
            return Err(Invalid::TooLong { field: "env", bytes, bytes_max: ENV_VAR_BYTES_MAX });
        }
    }
    Ok(env)
}

/// A directory to start in; relative ones start at `workspace`. Links on the way are the file system's to resolve, as the user that commands run as (see `leader`).
pub(crate) fn checked_directory(cwd: &str, workspace: &Path) -> Result<PathBuf, Invalid> {
    let given = Path::new(cwd);
    let climbs = given.components().any(|part| part == Component::ParentDir);
    let directory: PathBuf = workspace.join(given).components().collect();
    let of_the_kernel = ["/proc", "/sys", "/dev"].iter().any(|root| directory.starts_with(root));
    if climbs || of_the_kernel { Err(Invalid::Directory) } else { Ok(directory) }
}

fn timeout(timeout_ms: u64) -> Result<Duration, Invalid> {
    match timeout_ms {
        0 => Ok(Duration::from_millis(EXEC_TIMEOUT_MS_DEFAULT)),
        1..=EXEC_TIMEOUT_MS_MAX => Ok(Duration::from_millis(timeout_ms)),
        _ => Err(Invalid::Timeout { timeout_ms }),
    }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::exec::ByteText;

    use super::*;

    fn body() -> ExecBody {
        ExecBody {
            id: None,
            command: "true".to_owned(),
            cwd: String::new(),
            env: BTreeMap::new(),
            stdin: ByteText::default(),
            timeout_ms: 0,
            attach_only: false,
        }
    }

    fn parse(change: impl FnOnce(&mut ExecBody)) -> Result<Named, Invalid> {
        let mut body = body();
        change(&mut body);
        Named::parse(body, Path::new("/workspace"))
    }

    /// `fits` is accepted, `exceeds` is not.
    fn check_bound(fits: impl FnOnce(&mut ExecBody), exceeds: impl FnOnce(&mut ExecBody)) {
        parse(fits).unwrap();
        parse(exceeds).unwrap_err();
    }

    fn variables(count: usize) -> BTreeMap<String, String> {
        (0..count).map(|index| (format!("V{index}"), String::new())).collect()
    }

    #[test]
    fn every_bound_holds_on_both_sides() {
        check_bound(
            |body| body.id = Some("i".repeat(EXEC_ID_BYTES_MAX)),
            |body| body.id = Some("i".repeat(EXEC_ID_BYTES_MAX + 1)),
        );
        check_bound(
            |body| body.command = "c".repeat(EXEC_COMMAND_BYTES_MAX),
            |body| body.command = "c".repeat(EXEC_COMMAND_BYTES_MAX + 1),
        );
        check_bound(
            |body| body.cwd = "d".repeat(EXEC_CWD_BYTES_MAX),
            |body| body.cwd = "d".repeat(EXEC_CWD_BYTES_MAX + 1),
        );
        check_bound(|body| body.env = variables(ENV_VARS_MAX), |body| body.env = variables(ENV_VARS_MAX + 1));
        check_bound(
            |body| drop(body.env.insert("A".into(), "v".repeat(ENV_VAR_BYTES_MAX - 1))),
            |body| drop(body.env.insert("A".into(), "v".repeat(ENV_VAR_BYTES_MAX))),
        );
        check_bound(|body| body.timeout_ms = EXEC_TIMEOUT_MS_MAX, |body| body.timeout_ms = EXEC_TIMEOUT_MS_MAX + 1);
    }

    #[test]
    fn a_timeout_of_zero_is_the_default() {
        let named = parse(|_| {}).unwrap();
        assert_eq!(named.request.timeout, Duration::from_millis(EXEC_TIMEOUT_MS_DEFAULT));
    }

    #[test]
    fn an_id_is_printable_and_not_empty() {
        for id in ["", "two words", "line\n", "naïve", "nul\0"] {
            assert_eq!(parse(|body| body.id = Some(id.to_owned())), Err(Invalid::Id), "{id:?}");
        }
        parse(|body| body.id = Some("exec/1/2".to_owned())).unwrap();
    }

    #[test]
    fn attaching_needs_an_id() {
        assert_eq!(parse(|body| body.attach_only = true), Err(Invalid::AttachWithoutId));
    }

    #[test]
    fn nul_and_emptiness_are_refused() {
        assert_eq!(parse(|body| body.command = " \n".into()), Err(Invalid::NoCommand));
        assert_eq!(parse(|body| body.command = "a\0b".into()), Err(Invalid::Nul { field: "command" }));
        assert_eq!(parse(|body| body.cwd = "a\0b".into()), Err(Invalid::Nul { field: "cwd" }));
        for (name, value) in [("A\0", ""), ("A", "\0")] {
            let result = parse(|body| drop(body.env.insert(name.into(), value.into())));
            assert_eq!(result, Err(Invalid::Nul { field: "env" }));
        }
        for name in ["", "A=B"] {
            let result = parse(|body| drop(body.env.insert(name.into(), "v".into())));
            assert_eq!(result, Err(Invalid::EnvName { name: name.into() }));
        }
    }

    #[test]
    fn a_directory_is_taken_from_the_workspace() {
        for (cwd, expected) in [
            ("", "/workspace"),
            (".", "/workspace"),
            ("a/b", "/workspace/a/b"),
            ("./a//b/", "/workspace/a/b"),
            ("/tmp", "/tmp"),
            ("/", "/"),
            ("proc", "/workspace/proc"),
            ("/process", "/process"),
        ] {
            assert_eq!(parse(|body| body.cwd = cwd.into()).unwrap().request.directory, Path::new(expected), "{cwd:?}");
        }
    }

    #[test]
    fn a_directory_that_climbs_or_belongs_to_the_kernel_is_refused() {
        for cwd in [
            "..",
            "a/../..",
            "/tmp/..",
            "/proc",
            "/proc/self/fd/7",
            "//proc/1/root",
            "/./proc/self/cwd",
            "/sys",
            "/dev/fd/3",
        ] {
            assert_eq!(parse(|body| body.cwd = cwd.into()), Err(Invalid::Directory), "{cwd:?}");
        }
    }

    #[test]
    fn a_fingerprint_tells_requests_apart_and_not_their_ids() {
        let hasher = std::hash::RandomState::new();
        let of = |named: Named| named.request.fingerprint(&hasher);
        let plain = of(parse(|_| {}).unwrap());
        assert_eq!(plain, of(parse(|body| body.id = Some("other".into())).unwrap()));
        for named in [
            parse(|body| body.command = "false".into()),
            parse(|body| body.cwd = "a".into()),
            parse(|body| body.stdin = ByteText(vec![0])),
            parse(|body| body.timeout_ms = 1),
            parse(|body| drop(body.env.insert("A".into(), String::new()))),
        ] {
            assert_ne!(plain, of(named.unwrap()));
        }
    }
}
