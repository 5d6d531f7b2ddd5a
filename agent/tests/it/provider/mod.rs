//! Providers over real HTTP: all three protocols, and everything that can go wrong with them.

mod answers;
mod embeddings;
mod failures;
mod proxies;
mod proxy;
mod retries;

use std::time::Duration;

use sandbox_agent::model::{Answer, Ask, Heard, Message, Model as _, ModelError, Role};
use sandbox_agent::provider::{HttpSettings, Prices, ProviderLimits, ProviderModel, ProviderSettings, http_client};
use sandbox_protocol::agent::{ProviderKind, Secret};
use scripted_provider::Provider;

pub(crate) const KINDS: [ProviderKind; 3] = [ProviderKind::Openai, ProviderKind::Anthropic, ProviderKind::Ollama];
/// A key that has not the shape of one, so that nothing but knowing it keeps it out of errors.
pub(crate) const KEY: &str = "correct-horse-battery-staple";

/// Short enough for tests that wait for one to pass, long enough for those that do not.
pub(crate) const LIMITS: ProviderLimits = ProviderLimits {
    first_max: Duration::from_secs(20),
    piece_max: Duration::from_secs(20),
    answer_max: Duration::from_secs(20),
    backoff_base: Duration::from_millis(4),
    backoff_max: Duration::from_millis(20),
    ..ProviderLimits::DEFAULT
};

pub(crate) fn settings(kind: ProviderKind, url: &str) -> ProviderSettings {
    let version = if kind == ProviderKind::Ollama { "" } else { "/v1" };
    ProviderSettings {
        kind,
        base_url: format!("{url}{version}"),
        api_key: Some(Secret::new(KEY)),
        is_key_of_operator: false,
        model: "test-max".to_owned(),
        context_tokens: None,
        prices: Prices::default(),
        embedding_model: Some("vectors".to_owned()),
        limits: LIMITS,
    }
}

pub(crate) fn model(settings: ProviderSettings) -> Result<ProviderModel, ModelError> {
    ProviderModel::new(settings, http_client(&HttpSettings::default())?)
}

pub(crate) fn words(words: &str) -> Ask {
    Ask { messages: vec![Message::new(Role::User, words)], ..Ask::default() }
}

/// What was heard, as text: reasoning in parentheses, a new beginning as `|`.
pub(crate) async fn heard(model: &ProviderModel, ask: &Ask) -> (Result<Answer, ModelError>, Vec<String>) {
    let mut heard = Vec::new();
    let mut hear = |piece: Heard<'_>| {
        heard.push(match piece {
            Heard::Again => "|".to_owned(),
            Heard::Text(text) => text.to_owned(),
            Heard::Reasoning(text) => format!("({text})"),
        });
    };
    let answer = model.answer(ask, &mut hear).await;
    (answer, heard)
}

/// What comes of one call of a model at this provider.
pub(crate) async fn asked(kind: ProviderKind, provider: &Provider) -> (Result<Answer, ModelError>, Vec<String>) {
    match model(settings(kind, provider.url())) {
        Ok(model) => heard(&model, &words("hello")).await,
        Err(error) => (Err(error), Vec::new()),
    }
}
