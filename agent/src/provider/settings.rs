//! Which provider, with whose key: from what the customer says of a task, the order's environment and the sandbox's own.
//!
//! The one rule that must not break: a key of the operator's goes nowhere but where the operator said, or where its provider
//! has always been. A customer who names another address has to bring a key.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Url;
use sandbox_protocol::agent::{Provider, ProviderKind, Secret};

use super::ledger::Prices;
use crate::limits::{
    PROVIDER_ANSWER_MS_MAX, PROVIDER_ATTEMPTS_MAX, PROVIDER_BACKOFF_MS, PROVIDER_BACKOFF_MS_MAX, PROVIDER_FIRST_MS_MAX,
    PROVIDER_PIECE_MS_MAX, PROVIDER_RETRY_AFTER_MS_MAX, PROVIDER_SHUT_IN_MS_MAX,
};

type Env = BTreeMap<String, String>;

/// All that is to know of a provider before it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSettings {
    /// What it speaks.
    pub kind: ProviderKind,
    /// Where it is; of OpenAI and Anthropic with the version; without a slash at its end.
    pub base_url: String,
    /// The key; a host service adds it outside, or none is needed, where `None`.
    pub api_key: Option<Secret>,
    /// Whether it is the operator's matter if the key is not accepted.
    pub is_key_of_operator: bool,
    /// The model.
    pub model: String,
    /// Tokens that the model takes at once, where somebody said so.
    pub context_tokens: Option<u32>,
    /// What models cost.
    pub prices: Prices,
    /// The model that makes vectors, where one is wished for.
    pub embedding_model: Option<String>,
    /// How long is waited, and how often tried.
    pub limits: ProviderLimits,
}

/// How long is waited for a provider, and how often it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderLimits {
    /// Time for the first piece of an answer.
    pub first_max: Duration,
    /// Time for each further one.
    pub piece_max: Duration,
    /// Time for a whole answer.
    pub answer_max: Duration,
    /// Attempts of a call, the first one included.
    pub attempts_max: u32,
    /// Widest pause before the second attempt.
    pub backoff_base: Duration,
    /// Widest pause before any.
    pub backoff_max: Duration,
    /// Longest time that a provider may ask to be left alone.
    pub retry_after_max: Duration,
    /// Time for which is waited until something gets out of the sandbox again, besides all attempts.
    pub shut_in_max: Duration,
}

impl ProviderLimits {
    /// As they are unless somebody says otherwise.
    pub const DEFAULT: Self = Self {
        first_max: Duration::from_millis(PROVIDER_FIRST_MS_MAX),
        piece_max: Duration::from_millis(PROVIDER_PIECE_MS_MAX),
        answer_max: Duration::from_millis(PROVIDER_ANSWER_MS_MAX),
        attempts_max: PROVIDER_ATTEMPTS_MAX,
        backoff_base: Duration::from_millis(PROVIDER_BACKOFF_MS),
        backoff_max: Duration::from_millis(PROVIDER_BACKOFF_MS_MAX),
        retry_after_max: Duration::from_millis(PROVIDER_RETRY_AFTER_MS_MAX),
        shut_in_max: Duration::from_millis(PROVIDER_SHUT_IN_MS_MAX),
    };
}

impl Default for ProviderLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Who says what of a provider, the first one first.
#[derive(Debug, Clone, Copy)]
pub struct Layers<'a> {
    /// The customer's `context_json`.
    pub context: Option<&'a Provider>,
    /// The customer's environment of this order.
    pub order: &'a Env,
    /// The sandbox's own environment: the operator's word.
    pub own: &'a Env,
}

/// Settings that are no provider's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Nobody said where a model is.
    #[error("no model provider is configured: give context.provider, or MODEL_BASE_URL, or a key")]
    Nowhere,
    /// Nobody said which model.
    #[error("no model is named: give a model, or MODEL")]
    NoModel,
    /// The address is none.
    #[error("{name}: not an http or https URL of a host without credentials, query or fragment")]
    Url {
        /// Of the variable or field.
        name: String,
    },
    /// A variable says nothing.
    #[error("{name}: {expected}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A key that no header can hold.
    #[error("{name}: a key is of visible letters without spaces")]
    Key {
        /// Of the variable or field.
        name: String,
    },
}

/// What one of them says.
#[derive(Debug, Default)]
struct Layer {
    kind: Option<ProviderKind>,
    /// Address for a kind, or for whatever kind holds, with the name that it was given by.
    urls: Vec<(Option<ProviderKind>, String, &'static str)>,
    keys: Vec<(Option<ProviderKind>, String, &'static str)>,
}

/// Who chose an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chooser {
    Customer,
    Operator,
    Nobody,
}

/// What holds, for this model; where it is empty, for the one that `MODEL` names.
///
/// # Errors
/// What is missing or wrong, by its name.
pub fn resolve(layers: Layers<'_>, model: &str) -> Result<ProviderSettings, SettingsError> {
    let Layers { context, order, own } = layers;
    let said = [of_context(context), of_env(order)?, of_env(own)?];
    let kind = said.iter().find_map(|layer| layer.kind).unwrap_or(ProviderKind::Openai);
    let (base_url, chosen) = address(&said, kind)?;
    let (api_key, is_key_of_operator) = key(&said, kind, chosen)?;
    if chosen == Chooser::Nobody && api_key.is_none() {
        return Err(SettingsError::Nowhere);
    }
    let either = |name: &str| [order, own].into_iter().find_map(|env| given(env, name));
    let model = Some(model).filter(|model| !model.is_empty()).or_else(|| either("MODEL"));
    let wanted = context.and_then(|context| context.context_tokens);
    let tokens = match (wanted, either("MODEL_CONTEXT_TOKENS")) {
        (Some(tokens), _) => Some(tokens),
        (None, text) => text.map(tokens).transpose()?,
    };
    Ok(ProviderSettings {
        kind,
        base_url,
        api_key,
        is_key_of_operator,
        model: model.ok_or(SettingsError::NoModel)?.to_owned(),
        context_tokens: tokens.filter(|tokens| *tokens > 0),
        prices: either("MODEL_PRICES").map(prices).transpose()?.unwrap_or_default(),
        embedding_model: either("MODEL_EMBEDDING").map(str::to_owned),
        limits: ProviderLimits::DEFAULT,
    })
}

fn of_context(context: Option<&Provider>) -> Layer {
    let Some(Provider { kind, base_url, api_key, .. }) = context else { return Layer::default() };
    let key = api_key.iter().map(|key| (None, key.reveal().to_owned(), "context.provider.api_key"));
    let url = base_url.iter().map(|url| (None, url.clone(), "context.provider.base_url"));
    Layer { kind: *kind, urls: url.collect(), keys: key.collect() }
}

fn of_env(env: &Env) -> Result<Layer, SettingsError> {
    const OPENAI: Option<ProviderKind> = Some(ProviderKind::Openai);
    const ANTHROPIC: Option<ProviderKind> = Some(ProviderKind::Anthropic);
    const OLLAMA: Option<ProviderKind> = Some(ProviderKind::Ollama);
    let of = |names: &[(Option<ProviderKind>, &'static str)]| -> Vec<_> {
        names.iter().filter_map(|(kind, name)| Some((*kind, given(env, name)?.to_owned(), *name))).collect()
    };
    let mut urls = of(&[
        (None, "MODEL_BASE_URL"),
        (OPENAI, "OPENAI_BASE_URL"),
        (ANTHROPIC, "ANTHROPIC_BASE_URL"),
        (OLLAMA, "OLLAMA_HOST"),
    ]);
    for (_, url, name) in &mut urls {
        *url = as_written_for(name, url);
    }
    let keys = of(&[
        (None, "MODEL_API_KEY"),
        (None, "OPENCODE_MODEL_API_KEY"),
        (OPENAI, "OPENAI_API_KEY"),
        (ANTHROPIC, "ANTHROPIC_API_KEY"),
    ]);
    let named = given(env, "MODEL_PROVIDER").map(kind).transpose()?;
    // What has a kind in its name says it, unless something that has none leaves that to others.
    let kinds = || keys.iter().chain(&urls).filter_map(|(kind, ..)| *kind);
    let is_general = keys.iter().chain(&urls).any(|(kind, ..)| kind.is_none());
    let kind = named.or_else(|| if is_general { None } else { kinds().next() });
    Ok(Layer { kind, urls, keys })
}

/// The address as its own users write it: Anthropic's without the version, Ollama's without a scheme.
fn as_written_for(name: &str, url: &str) -> String {
    let url = url.trim_end_matches('/');
    match name {
        "ANTHROPIC_BASE_URL" if !url.ends_with("/v1") => format!("{url}/v1"),
        "OLLAMA_HOST" if !url.contains("://") && !url.contains(':') => format!("http://{url}:11434"),
        "OLLAMA_HOST" if !url.contains("://") => format!("http://{url}"),
        _ => url.to_owned(),
    }
}

/// Whether what this layer says in general is meant for this kind: of the operator, what names no kind is OpenAI's.
fn is_for(layer: &Layer, is_own: bool, kind: ProviderKind) -> bool {
    layer.kind.or(is_own.then_some(ProviderKind::Openai)).is_none_or(|said| said == kind)
}

fn found(
    layer: &Layer,
    is_own: bool,
    list: &[(Option<ProviderKind>, String, &'static str)],
    kind: ProviderKind,
) -> Option<(String, &'static str)> {
    let means = |meant: Option<ProviderKind>| meant.map_or_else(|| is_for(layer, is_own, kind), |meant| meant == kind);
    list.iter().find(|(meant, ..)| means(*meant)).map(|(_, text, name)| (text.clone(), *name))
}

fn address(said: &[Layer; 3], kind: ProviderKind) -> Result<(String, Chooser), SettingsError> {
    for (layer, chosen) in said.iter().zip([Chooser::Customer, Chooser::Customer, Chooser::Operator]) {
        if let Some((url, name)) = found(layer, chosen == Chooser::Operator, &layer.urls, kind) {
            return Ok((checked(&url, name)?, chosen));
        }
    }
    match kind {
        ProviderKind::Openai => Ok(("https://api.openai.com/v1".to_owned(), Chooser::Nobody)),
        ProviderKind::Anthropic => Ok(("https://api.anthropic.com/v1".to_owned(), Chooser::Nobody)),
        ProviderKind::Ollama => Err(SettingsError::Nowhere),
    }
}

fn checked(url: &str, name: &str) -> Result<String, SettingsError> {
    let refused = || SettingsError::Url { name: name.to_owned() };
    let parsed = Url::parse(url).map_err(|_| refused())?;
    let is_plain = parsed.username().is_empty() && parsed.password().is_none();
    let is_whole = parsed.query().is_none() && parsed.fragment().is_none() && parsed.has_host();
    if !matches!(parsed.scheme(), "http" | "https") || !is_plain || !is_whole {
        return Err(refused());
    }
    Ok(parsed.as_str().trim_end_matches('/').to_owned())
}

/// The key, and whether the operator answers for it.
fn key(said: &[Layer; 3], kind: ProviderKind, chosen: Chooser) -> Result<(Option<Secret>, bool), SettingsError> {
    for (at, layer) in said.iter().enumerate() {
        let is_own = at == 2;
        if is_own && chosen == Chooser::Customer {
            break;
        }
        if let Some((key, name)) = found(layer, is_own, &layer.keys, kind) {
            let is_visible = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
            return if is_visible {
                Ok((Some(Secret::new(key)), is_own))
            } else {
                Err(SettingsError::Key { name: name.to_owned() })
            };
        }
    }
    Ok((None, chosen != Chooser::Customer))
}

fn given<'a>(env: &'a Env, name: &str) -> Option<&'a str> {
    env.get(name).map(|text| text.trim()).filter(|text| !text.is_empty())
}

fn kind(text: &str) -> Result<ProviderKind, SettingsError> {
    match text.to_ascii_lowercase().as_str() {
        "openai" => Ok(ProviderKind::Openai),
        "anthropic" => Ok(ProviderKind::Anthropic),
        "ollama" => Ok(ProviderKind::Ollama),
        _ => Err(SettingsError::Variable { name: "MODEL_PROVIDER", expected: "openai, anthropic or ollama" }),
    }
}

fn tokens(text: &str) -> Result<u32, SettingsError> {
    let refused = SettingsError::Variable { name: "MODEL_CONTEXT_TOKENS", expected: "a number of tokens" };
    text.parse().map_err(|_| refused)
}

fn prices(text: &str) -> Result<Prices, SettingsError> {
    let expected = r#"JSON: {"model": {"input": 3, "output": 15}}, US dollars for a million tokens"#;
    Prices::parse(text).ok_or(SettingsError::Variable { name: "MODEL_PRICES", expected })
}

#[cfg(test)]
mod tests;
