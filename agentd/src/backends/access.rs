//! Where the model is, whose key is used, and what of both a program is given.

use std::collections::BTreeMap;

use sandbox_protocol::agent::{ProviderKind, RunFailure, Secret};

use super::limits::CONTEXT_TOKENS_DEFAULT;
use super::tally::Failure;
use crate::backend::Order;

/// Settings that hold a customer's key; of those that are there, the first is meant.
const KEYS: [&str; 4] = ["MODEL_API_KEY", "OPENCODE_MODEL_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"];
/// How the names of settings begin that programs take from their environment, and that are ours to say.
const OURS: [&str; 5] = ["OPENCODE_", "CLAUDE_", "ANTHROPIC_", "OPENAI_", "XDG_"];

/// A provider as a program is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) kind: ProviderKind,
    /// As [`Provider::base_url`](sandbox_protocol::agent::Provider::base_url), without a slash at its end.
    pub(super) base_url: String,
    /// The customer's key. An operator's is added outside the sandbox and never comes in.
    pub(super) key: Option<Secret>,
    pub(super) model: String,
    pub(super) context_tokens: u32,
}

impl Access {
    /// What the customer's context says, then the order's environment, then this process's own settings; of those, no key.
    pub(super) fn of(order: &Order, own: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let said = order.provider.clone().unwrap_or_default();
        let customers = |name: &str| order.env.get(name).filter(|text| !text.is_empty()).cloned();
        let setting = |name: &str| customers(name).or_else(|| own.get(name).filter(|text| !text.is_empty()).cloned());
        let kind = match said.kind {
            Some(kind) => kind,
            None => setting("MODEL_PROVIDER").map_or(Ok(guessed(&setting)), |name| named(&name))?,
        };
        let base_url = said.base_url.or_else(|| setting("MODEL_BASE_URL")).or_else(|| base_url(kind, &setting));
        let base_url = base_url.ok_or_else(|| bad("provider: no base_url is given"))?;
        if !base_url.starts_with("http://") && !base_url.starts_with("https://") {
            return Err(bad("provider: base_url is no http:// or https:// address"));
        }
        let model = [&order.model, &order.profile.model].into_iter().find(|name| !name.is_empty()).cloned();
        let model = model.or_else(|| setting("MODEL")).ok_or_else(|| bad("model: none is named"))?;
        let tokens = setting("MODEL_CONTEXT_TOKENS").and_then(|text| text.parse().ok());
        Ok(Self {
            kind,
            base_url: base_url.trim_end_matches('/').to_owned(),
            key: said.api_key.or_else(|| KEYS.iter().find_map(|name| customers(name)).map(Secret::new)),
            model,
            context_tokens: said.context_tokens.or(tokens).unwrap_or(CONTEXT_TOKENS_DEFAULT),
        })
    }

    /// What it means that the provider does not accept the key.
    pub(super) fn refused(&self) -> Failure {
        if self.key.is_some() {
            (RunFailure::ProviderRefused, "the provider does not accept the key".to_owned())
        } else {
            let words =
                "the provider wants a key, and none is given: an operator's key is added outside the sandbox only";
            (RunFailure::OperatorKeyRefused, words.to_owned())
        }
    }
}

/// The customer's environment, without what a program would take for its own settings or keys.
pub(super) fn environment(order: &Order) -> BTreeMap<String, String> {
    let is_ours = |name: &str| KEYS.contains(&name) || OURS.iter().any(|start| name.starts_with(start));
    order.env.iter().filter(|(name, _)| !is_ours(name)).map(|(name, text)| (name.clone(), text.clone())).collect()
}

fn guessed(setting: &dyn Fn(&str) -> Option<String>) -> ProviderKind {
    let has = |name: &str| setting(name).is_some();
    if has("ANTHROPIC_API_KEY") || has("ANTHROPIC_BASE_URL") {
        ProviderKind::Anthropic
    } else if has("OLLAMA_HOST") {
        ProviderKind::Ollama
    } else {
        ProviderKind::Openai
    }
}

fn named(name: &str) -> Result<ProviderKind, Failure> {
    match name {
        "openai" => Ok(ProviderKind::Openai),
        "anthropic" => Ok(ProviderKind::Anthropic),
        "ollama" => Ok(ProviderKind::Ollama),
        _ => Err(bad("MODEL_PROVIDER: give openai, anthropic or ollama")),
    }
}

fn base_url(kind: ProviderKind, setting: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    setting(match kind {
        ProviderKind::Openai => "OPENAI_BASE_URL",
        ProviderKind::Anthropic => "ANTHROPIC_BASE_URL",
        ProviderKind::Ollama => "OLLAMA_HOST",
    })
}

fn bad(words: &str) -> Failure {
    (RunFailure::BadRequest, words.to_owned())
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::agent::Provider;

    use super::*;
    use crate::backends::place::tests::order;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn the_customers_words_come_before_those_of_the_process() {
        let own =
            settings(&[("MODEL_BASE_URL", "http://own/v1"), ("MODEL", "theirs"), ("MODEL_PROVIDER", "anthropic")]);
        let mut order = order();
        let access = Access::of(&order, &own).unwrap();
        assert_eq!((access.kind, access.base_url.as_str()), (ProviderKind::Anthropic, "http://own/v1"));
        assert_eq!((access.model.as_str(), access.context_tokens), ("theirs", CONTEXT_TOKENS_DEFAULT));
        order.env = settings(&[("MODEL_BASE_URL", "http://env/v1/"), ("MODEL_API_KEY", "k")]);
        assert_eq!(Access::of(&order, &own).unwrap().base_url, "http://env/v1");
        let base_url = Some("https://said/v1".to_owned());
        order.provider = Some(Provider { base_url, kind: Some(ProviderKind::Openai), ..Provider::default() });
        order.model = "mine".to_owned();
        let access = Access::of(&order, &own).unwrap();
        assert_eq!((access.kind, access.base_url.as_str()), (ProviderKind::Openai, "https://said/v1"));
        assert_eq!((access.model.as_str(), access.key), ("mine", Some(Secret::new("k"))));
    }

    #[test]
    fn a_key_of_the_process_is_given_to_no_program() {
        let own = settings(&[("MODEL_BASE_URL", "http://own/v1"), ("MODEL", "m"), ("MODEL_API_KEY", "operators")]);
        let access = Access::of(&order(), &own).unwrap();
        assert_eq!((access.key.clone(), access.refused().0), (None, RunFailure::OperatorKeyRefused));
        let keyed = Access { key: Some(Secret::new("mine")), ..access };
        assert_eq!(keyed.refused().0, RunFailure::ProviderRefused);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (own, field) in [
            (settings(&[("MODEL", "m")]), "base_url"),
            (settings(&[("MODEL_BASE_URL", "http://own")]), "model"),
            (settings(&[("MODEL", "m"), ("MODEL_BASE_URL", "ftp://own")]), "base_url"),
            (settings(&[("MODEL_PROVIDER", "other")]), "MODEL_PROVIDER"),
        ] {
            let (failure, words) = Access::of(&order(), &own).unwrap_err();
            assert!(failure == RunFailure::BadRequest && words.contains(field), "{words}");
        }
    }

    #[test]
    fn a_programs_own_settings_are_not_the_customers_to_say() {
        let mut order = order();
        order.env =
            settings(&[("OPENCODE_PERMISSION", "{}"), ("MODEL_API_KEY", "k"), ("XDG_DATA_HOME", "/"), ("A", "b")]);
        assert_eq!(environment(&order), settings(&[("A", "b")]));
    }
}
