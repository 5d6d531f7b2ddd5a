//! What this process is told at its start, by the sidecar.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sandbox_agent::profile::Profile;
use sandbox_process::source::{ConfigError, Source, optional, required};
use sandbox_protocol::agent::{DEFAULT_PROFILE, SETTINGS, Secret};

/// Profiles that an image brings, a JSON file each.
pub const PROFILES_DIR_DEFAULT: &str = "/usr/local/share/sandbox/agents";

/// Everything that it is told.
#[derive(Debug)]
pub struct Config {
    /// `AGENTD_SOCKET`: where it listens.
    pub socket: PathBuf,
    /// `AGENTD_SIDECAR_SOCKET`: where the sidecar serves it.
    pub sidecar: PathBuf,
    /// `AGENTD_SIDECAR_TOKEN`: with which it comes there.
    pub token: Secret,
    /// `STORAGE_PATH`: what it remembers.
    pub storage: PathBuf,
    /// `AGENT_WORKSPACE_ROOT`.
    pub workspace: PathBuf,
    /// `AGENT_HOME`.
    pub home: PathBuf,
    /// `AGENTD_PROXY`: the way out of the sandbox; without it, the network's own.
    pub proxy: Option<String>,
    /// `AGENT_BACKEND`: where neither task nor context name one.
    pub backend: String,
    /// `AGENT_IDENTIFIER`: where neither task nor context name one.
    pub profile: String,
    /// Of the images, of `AGENT_PROFILES_DIR`, and of `AGENT_PROFILES_JSON`, which wins; and an empty default.
    pub profiles: BTreeMap<String, Profile>,
    /// All [`SETTINGS`] that are set, by name: among them those of providers.
    pub providers: BTreeMap<String, String>,
}

/// Why it does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting.
    #[error(transparent)]
    Setting(#[from] ConfigError),
    /// The directory of profiles cannot be read.
    #[error("AGENT_PROFILES_DIR: {path}")]
    Profiles {
        /// What of it.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Config {
    /// Reads all settings.
    ///
    /// # Errors
    /// The first setting that is no value of its kind.
    pub fn read(source: &impl Source) -> Result<Self, StartError> {
        let providers = SETTINGS.into_iter().filter_map(|name| Some((name.to_owned(), source.get(name)?)));
        Ok(Self {
            socket: required(source, "AGENTD_SOCKET")?,
            sidecar: required(source, "AGENTD_SIDECAR_SOCKET")?,
            token: Secret::new(required::<String>(source, "AGENTD_SIDECAR_TOKEN")?),
            storage: required(source, "STORAGE_PATH")?,
            workspace: required(source, "AGENT_WORKSPACE_ROOT")?,
            home: required(source, "AGENT_HOME")?,
            proxy: optional(source, "AGENTD_PROXY")?,
            backend: source.get("AGENT_BACKEND").unwrap_or_default(),
            profile: source.get("AGENT_IDENTIFIER").unwrap_or_default(),
            profiles: profiles(source)?,
            providers: providers.collect(),
        })
    }
}

fn profiles(source: &impl Source) -> Result<BTreeMap<String, Profile>, StartError> {
    let given: Option<PathBuf> = optional(source, "AGENT_PROFILES_DIR")?;
    let mut profiles = BTreeMap::from([(DEFAULT_PROFILE.to_owned(), Profile::named(DEFAULT_PROFILE))]);
    let directory = given.clone().unwrap_or_else(|| PathBuf::from(PROFILES_DIR_DEFAULT));
    if given.is_some() || directory.is_dir() {
        for text in texts(&directory)? {
            let profile: Profile = parsed("AGENT_PROFILES_DIR", &text)?;
            profiles.insert(profile.name.clone(), profile);
        }
    }
    if let Some(text) = source.get("AGENT_PROFILES_JSON") {
        let more: Vec<Profile> = parsed("AGENT_PROFILES_JSON", &text)?;
        profiles.extend(more.into_iter().map(|profile| (profile.name.clone(), profile)));
    }
    Ok(profiles)
}

fn parsed<T: serde::de::DeserializeOwned>(setting: &str, text: &str) -> Result<T, ConfigError> {
    serde_json::from_str(text).map_err(|error| ConfigError::invalid(setting, "…", error))
}

/// The JSON files of a directory, in the order of their names.
fn texts(directory: &Path) -> Result<Vec<String>, StartError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StartError::Profiles { path, source }
    };
    let entries = fs::read_dir(directory).map_err(failed(directory))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<PathBuf>>>()
        .map_err(failed(directory))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.iter().map(|path| fs::read_to_string(path).map_err(failed(path))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(more: &[(&str, &str)]) -> Result<Config, StartError> {
        let base = [
            ("AGENTD_SOCKET", "/s/a"),
            ("AGENTD_SIDECAR_SOCKET", "/s/b"),
            ("AGENTD_SIDECAR_TOKEN", "s3cret"),
            ("STORAGE_PATH", "/s"),
            ("AGENT_WORKSPACE_ROOT", "/w"),
            ("AGENT_HOME", "/h"),
        ];
        let pairs = base.iter().chain(more).map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Config::read(&pairs.collect::<HashMap<_, _>>())
    }

    #[test]
    fn profiles_come_from_files_and_the_setting_wins() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("a.json", r#"{"name": "reviewer", "system_prompt": "from a file"}"#);
        write("b.json", r#"{"name": "tester", "approvals": {"default": "ask"}}"#);
        write("notes.txt", "no profile");
        let directory = ("AGENT_PROFILES_DIR", dir.path().to_str().unwrap());
        let own = ("AGENT_PROFILES_JSON", r#"[{"name": "reviewer", "system_prompt": "from the operator"}]"#);
        let profiles = read(&[directory, own]).unwrap().profiles;
        assert_eq!(profiles.keys().collect::<Vec<_>>(), ["default", "reviewer", "tester"]);
        assert_eq!(profiles["reviewer"].system_prompt, "from the operator");
    }

    #[test]
    fn a_profile_that_is_none_stops_the_start_and_is_not_shown() {
        let error = read(&[("AGENT_PROFILES_JSON", r#"[{"name": "a", "approval": "s3cret"}]"#)]).unwrap_err();
        let words = error.to_string();
        assert!(
            words.contains("AGENT_PROFILES_JSON") && words.contains("approval") && !words.contains("s3cret"),
            "{words}"
        );
        assert!(matches!(read(&[("AGENT_PROFILES_DIR", "/nowhere")]), Err(StartError::Profiles { .. })));
    }

    #[test]
    fn the_token_is_not_shown() {
        assert!(!format!("{:?}", read(&[]).unwrap()).contains("s3cret"));
    }
}
