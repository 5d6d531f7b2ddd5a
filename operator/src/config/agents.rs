//! Settings of language-model work: what the operator offers of its own to the sandboxes. A key is none of them: it is added
//! outside the sandbox, by a header of a host service (`HOST_SERVICES_FILE`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use alloy::transports::http::reqwest::Url;
use sandbox_agent::profile::Profile;
use sandbox_process::source::{ConfigError, Source, optional};
use sandbox_protocol::agent::ProviderKind;
use serde_json::{Map, Value};

use crate::limits::{AGENT_PROFILES_BYTES_MAX, MODEL_CONTEXT_TOKENS_MIN, MODEL_SETTING_BYTES_MAX};

const PROVIDER: &str = "MODEL_PROVIDER";
const BASE_URL: &str = "MODEL_BASE_URL";
const MODEL: &str = "MODEL";
const EMBEDDING: &str = "MODEL_EMBEDDING";
const PRICES: &str = "MODEL_PRICES";
const CONTEXT_TOKENS: &str = "MODEL_CONTEXT_TOKENS";
const PROFILES: &str = "AGENT_PROFILES";
/// What sandboxes are given the profiles in.
const PROFILES_JSON: &str = "AGENT_PROFILES_JSON";

/// What the operator offers for language-model work.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentsConfig {
    /// Where its model is; without it customers bring their own.
    pub(crate) base_url: Option<Url>,
    /// What the provider there speaks.
    pub(crate) provider: Option<ProviderKind>,
    /// The model that is meant where none is named.
    pub(crate) model: Option<String>,
    /// Names of the profiles.
    pub(crate) profiles: BTreeSet<String>,
    /// What every new sandbox's sidecar is given, as `NAME=value`.
    pub(crate) settings: Vec<String>,
}

/// Reads what is offered.
pub(super) fn read_agents(source: &impl Source) -> Result<AgentsConfig, ConfigError> {
    let provider = optional::<String>(source, PROVIDER)?.map(provider).transpose()?;
    let base_url: Option<Url> = optional(source, BASE_URL)?;
    if let Some(url) = base_url.as_ref().filter(|url| !matches!(url.scheme(), "http" | "https")) {
        return Err(ConfigError::invalid(BASE_URL, url.to_string(), "give http://… or https://…"));
    }
    let model = text(source, MODEL)?;
    let profiles = optional::<PathBuf>(source, PROFILES)?.map(|path| profiles(&path)).transpose()?.unwrap_or_default();
    let given = [
        (PROVIDER, optional::<String>(source, PROVIDER)?),
        (BASE_URL, optional(source, BASE_URL)?),
        (MODEL, model.clone()),
        (EMBEDDING, text(source, EMBEDDING)?),
        (PRICES, prices(source)?),
        (CONTEXT_TOKENS, context_tokens(source)?),
        (
            PROFILES_JSON,
            (!profiles.is_empty()).then(|| serde_json::to_string(&profiles)).transpose().unwrap_or_default(),
        ),
    ];
    let settings = given.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect();
    let profiles = profiles.into_iter().map(|profile| profile.name).collect();
    Ok(AgentsConfig { base_url, provider, model, profiles, settings })
}

fn provider(word: String) -> Result<ProviderKind, ConfigError> {
    serde_json::from_value(Value::String(word.clone()))
        .map_err(|_| ConfigError::invalid(PROVIDER, word, "give openai, anthropic or ollama"))
}

fn text(source: &impl Source, name: &'static str) -> Result<Option<String>, ConfigError> {
    let Some(text) = optional::<String>(source, name)? else { return Ok(None) };
    if text.len() > MODEL_SETTING_BYTES_MAX || text.chars().any(char::is_control) {
        let reason = format!("at most {MODEL_SETTING_BYTES_MAX} bytes and no control characters");
        return Err(ConfigError::invalid(name, text, reason));
    }
    Ok(Some(text))
}

/// What models cost: what is in it is read where it is used.
fn prices(source: &impl Source) -> Result<Option<String>, ConfigError> {
    let Some(json) = text(source, PRICES)? else { return Ok(None) };
    match serde_json::from_str::<Map<String, Value>>(&json) {
        Ok(_) => Ok(Some(json)),
        Err(error) => Err(ConfigError::invalid(PRICES, json, format!("not a JSON object: {error}"))),
    }
}

fn context_tokens(source: &impl Source) -> Result<Option<String>, ConfigError> {
    match optional::<u32>(source, CONTEXT_TOKENS)? {
        Some(tokens) if tokens < MODEL_CONTEXT_TOKENS_MIN => {
            let reason = format!("a model takes at least {MODEL_CONTEXT_TOKENS_MIN}");
            Err(ConfigError::invalid(CONTEXT_TOKENS, tokens.to_string(), reason))
        }
        tokens => Ok(tokens.map(|tokens| tokens.to_string())),
    }
}

/// The profiles of a file: a JSON list of them, each with a name of its own.
fn profiles(path: &Path) -> Result<Vec<Profile>, ConfigError> {
    let wrong = |reason: String| ConfigError::invalid(PROFILES, path.display().to_string(), reason);
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    if text.len() > AGENT_PROFILES_BYTES_MAX {
        return Err(wrong(format!("at most {AGENT_PROFILES_BYTES_MAX} bytes")));
    }
    let profiles: Vec<Profile> =
        serde_json::from_str(&text).map_err(|error| wrong(format!("not a list of profiles: {error}")))?;
    let mut names = BTreeSet::new();
    match profiles.iter().find(|profile| profile.name.is_empty() || !names.insert(&profile.name)) {
        Some(profile) => Err(wrong(format!("{:?} names no profile, or two", profile.name))),
        None => Ok(profiles),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<AgentsConfig, String> {
        let settings: HashMap<String, String> =
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        read_agents(&settings).map_err(|error| error.to_string())
    }

    fn read_profiles(json: &str) -> Result<AgentsConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("profiles.json");
        std::fs::write(&path, json).unwrap();
        read(&[(PROFILES, path.to_str().unwrap())])
    }

    #[test]
    fn what_is_set_is_given_to_sandboxes_and_nothing_else() {
        assert!(read(&[]).unwrap().settings.is_empty());
        let set = [
            (PROVIDER, "openai"),
            (BASE_URL, "http://model.internal/v1"),
            (MODEL, "m-1"),
            (EMBEDDING, "e-1"),
            (PRICES, r#"{"m-1":{"input":1}}"#),
            (CONTEXT_TOKENS, "1024"),
            ("MODEL_API_KEY", "a secret"),
        ];
        let config = read(&set).unwrap();
        let expected: Vec<_> = set[..6].iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(config.settings, expected);
        assert_eq!((config.provider, config.model.as_deref()), (Some(ProviderKind::Openai), Some("m-1")));
    }

    #[test]
    fn profiles_are_given_as_one_text_and_known_by_name() {
        let config = read_profiles(r#"[{"name": "reviewer", "tools": []}, {"name": "default"}]"#).unwrap();
        assert_eq!(config.profiles, ["default", "reviewer"].map(String::from).into());
        let [given] = config.settings.as_slice() else { panic!("{:?}", config.settings) };
        let profiles: Vec<Profile> = serde_json::from_str(given.strip_prefix("AGENT_PROFILES_JSON=").unwrap()).unwrap();
        assert_eq!((profiles[0].name.as_str(), profiles[0].tools.as_deref()), ("reviewer", Some(&[][..])));
        let long = |bytes: usize| {
            let json = r#"[{"name":"a"}]"#;
            format!("{json}{}", " ".repeat(bytes - json.len()))
        };
        assert!(read_profiles(&long(AGENT_PROFILES_BYTES_MAX)).is_ok());
        for bad in [
            long(AGENT_PROFILES_BYTES_MAX + 1),
            r#"[{"name":""}]"#.into(),
            r#"[{"name":"a"},{"name":"a"}]"#.into(),
            r#"[{"name":"a","prompt":1}]"#.into(),
            "{}".into(),
        ] {
            assert!(read_profiles(&bad).unwrap_err().starts_with("AGENT_PROFILES="), "{bad:.40}");
        }
    }

    #[test]
    fn a_bad_value_is_named() {
        for (name, text) in [
            (PROVIDER, "OpenAI"),
            (BASE_URL, "model.internal"),
            (BASE_URL, "ftp://model.internal"),
            (MODEL, "a\nb"),
            (PRICES, "[]"),
            (CONTEXT_TOKENS, "1023"),
            (CONTEXT_TOKENS, "many"),
            (PROFILES, "/nowhere/at/all.json"),
        ] {
            let refused = read(&[(name, text)]).unwrap_err();
            assert!(refused.starts_with(&format!("{name}=")), "{refused}");
        }
        assert!(read(&[(MODEL, &"m".repeat(MODEL_SETTING_BYTES_MAX))]).is_ok());
        assert!(read(&[(MODEL, &"m".repeat(MODEL_SETTING_BYTES_MAX + 1))]).is_err());
    }
}
