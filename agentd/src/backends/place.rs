//! Where a program's files are: a directory of the agent's for each session.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use futures::future::try_join_all;
use sha2::{Digest as _, Sha256};

use super::limits::CHORE_MAX;
use super::programs::{Launch, ProgramError, Programs, run_to_end};
use crate::backend::Order;

/// Letters of the names that digests make.
const NAME_LETTERS: usize = 32;
/// Writes its stdin to a file of nobody else's, in a directory of nobody else's.
const WRITE: &str = r#"umask 077 && mkdir -p "$1" && cat > "$1/$2.new" && mv "$1/$2.new" "$1/$2""#;

/// What a backend goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name or path of the program, as the sandbox finds it.
    pub program: String,
    /// The agent's home, where the program keeps its conversations.
    pub home: PathBuf,
    /// Where the program works.
    pub workspace: PathBuf,
    /// Where this process keeps which conversation is which session; it must be there.
    pub storage: PathBuf,
    /// This process's own settings of a provider: `MODEL_PROVIDER`, `MODEL_BASE_URL`, `MODEL`, `MODEL_CONTEXT_TOKENS`. Keys in
    /// it are not used.
    pub own: BTreeMap<String, String>,
}

impl Settings {
    /// The directory of a session, whatever letters its id has.
    pub(super) fn directory(&self, backend: &str, session: &str) -> PathBuf {
        self.home.join(".local/state/sandbox-agents").join(backend).join(digest(&[session]))
    }

    /// The file of a backend's sessions.
    pub(super) fn sessions(&self, backend: &str) -> PathBuf {
        self.storage.join(format!("{backend}-sessions.json"))
    }
}

/// By which the program of a run is ended.
pub(super) fn launch_id(backend: &str, order: &Order) -> String {
    format!("{backend}-{}", digest(&[&order.id]))
}

/// The time that is left until the order's deadline, and a while more: it is watched elsewhere.
pub(super) fn time_max(order: &Order) -> std::time::Duration {
    order.deadline.saturating_duration_since(Instant::now()) + CHORE_MAX
}

/// Writes files that only the agent's user reads, all at a time.
pub(super) async fn write(
    programs: &dyn Programs,
    files: impl IntoIterator<Item = (PathBuf, String)>,
) -> Result<(), ProgramError> {
    let write = |(path, content): (PathBuf, String)| async move {
        let part = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let (directory, name) = (part(path.parent().map(Path::as_os_str)), part(path.file_name()));
        let argv = ["sh", "-c", WRITE, "sh", &directory, &name].map(str::to_owned).to_vec();
        run_to_end(programs, chore("write", &path, argv), Bytes::from(content)).await
    };
    try_join_all(files.into_iter().map(write)).await.map(drop)
}

/// Removes a directory with all that is in it.
pub(super) async fn remove(programs: &dyn Programs, path: &Path) -> Result<(), ProgramError> {
    let argv = ["rm", "-rf", "--", &path.to_string_lossy()].map(str::to_owned).to_vec();
    run_to_end(programs, chore("remove", path, argv), Bytes::new()).await
}

fn chore(what: &str, path: &Path, argv: Vec<String>) -> Launch {
    // Two of the same at a time are two, so chance is part of the name.
    let id = format!("{what}-{}", digest(&[&path.to_string_lossy(), &rand::random::<u64>().to_string()]));
    Launch { id, argv, env: BTreeMap::new(), cwd: "/".into(), time_max: CHORE_MAX }
}

fn digest(parts: &[&str]) -> String {
    let mut name = String::new();
    for byte in Sha256::digest(parts.join("\n")) {
        // A string takes all that is written.
        write!(name, "{byte:02x}").unwrap_or_default();
    }
    name.truncate(NAME_LETTERS);
    name
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use sandbox_agent::profile::Profile;

    use super::*;

    /// An order that says as little as may be.
    pub(in crate::backends) fn order() -> Order {
        Order {
            id: "run".to_owned(),
            is_prompt: false,
            prompt: "Do it.".to_owned(),
            context: serde_json::Map::new(),
            session: "s".to_owned(),
            continues: false,
            resumed: false,
            profile: Profile::named("default"),
            model: String::new(),
            provider: None,
            env: BTreeMap::new(),
            max_turns: 10,
            deadline: Instant::now() + Duration::from_secs(60),
            cancel: tokio_util::sync::CancellationToken::new(),
        }
    }

    #[test]
    fn every_session_has_a_directory_of_its_own_that_no_id_leads_out_of() {
        let settings = Settings {
            program: "p".into(),
            home: "/h".into(),
            workspace: "/w".into(),
            storage: "/s".into(),
            own: BTreeMap::new(),
        };
        let base = Path::new("/h/.local/state/sandbox-agents/opencode");
        let (one, other) = (settings.directory("opencode", "../../x"), settings.directory("opencode", "y"));
        assert!(one != other && one.parent() == Some(base) && other.parent() == Some(base), "{one:?}");
    }
}
