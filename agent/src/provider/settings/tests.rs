//! Which word holds, and that no word moves the operator's key to another place.

use proptest::prelude::*;

use super::*;

fn env<const N: usize>(pairs: [(&str, &str); N]) -> Env {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn shown(settings: &ProviderSettings) -> String {
    let ProviderSettings { kind, base_url, api_key, is_key_of_operator, model, .. } = settings;
    let key = api_key.as_ref().map_or("none", Secret::reveal);
    let whose = if *is_key_of_operator { "operator" } else { "customer" };
    format!("{kind:?} {base_url} {key} {whose} {model}")
}

#[track_caller]
fn check(context: Option<&Provider>, order: &Env, own: &Env, expected: &str) {
    let resolved = resolve(Layers { context, order, own }, "m");
    assert_eq!(resolved.as_ref().map(shown).unwrap_or_else(|error| error.to_string()), expected);
}

fn at(base_url: &str) -> Provider {
    Provider { base_url: Some(base_url.to_owned()), ..Provider::default() }
}

const NOWHERE: &str = "no model provider is configured: give context.provider, or MODEL_BASE_URL, or a key";

#[test]
fn a_key_alone_is_enough_for_the_providers_that_everybody_knows() {
    let none = env([]);
    check(None, &none, &env([("OPENAI_API_KEY", "k")]), "Openai https://api.openai.com/v1 k operator m");
    check(None, &none, &env([("MODEL_API_KEY", "k")]), "Openai https://api.openai.com/v1 k operator m");
    check(None, &none, &env([("OPENCODE_MODEL_API_KEY", "k")]), "Openai https://api.openai.com/v1 k operator m");
    check(None, &none, &env([("ANTHROPIC_API_KEY", "k")]), "Anthropic https://api.anthropic.com/v1 k operator m");
    check(None, &env([("ANTHROPIC_API_KEY", "k")]), &none, "Anthropic https://api.anthropic.com/v1 k customer m");
    check(None, &none, &none, NOWHERE);
}

#[test]
fn an_address_alone_is_enough_since_a_host_service_may_add_the_key() {
    let none = env([]);
    check(None, &none, &env([("MODEL_BASE_URL", "http://llm.host/v1/")]), "Openai http://llm.host/v1 none operator m");
    check(None, &none, &env([("OLLAMA_HOST", "gpu.host")]), "Ollama http://gpu.host:11434 none operator m");
    check(None, &none, &env([("OLLAMA_HOST", "10.0.0.1:80")]), "Ollama http://10.0.0.1 none operator m");
    check(None, &none, &env([("ANTHROPIC_BASE_URL", "https://a.test")]), "Anthropic https://a.test/v1 none operator m");
    check(None, &none, &env([("MODEL_PROVIDER", "ollama")]), NOWHERE);
    check(Some(&at("http://mine.test/v1")), &none, &none, "Openai http://mine.test/v1 none customer m");
}

#[test]
fn the_customer_is_heard_before_the_operator() {
    let own = env([("MODEL_BASE_URL", "https://op.test/v1"), ("MODEL_API_KEY", "theirs"), ("MODEL", "op-model")]);
    check(None, &env([]), &own, "Openai https://op.test/v1 theirs operator m");
    check(None, &env([("MODEL_API_KEY", "mine")]), &own, "Openai https://op.test/v1 mine customer m");
    let mine = Provider { api_key: Some(Secret::new("sealed")), ..Provider::default() };
    check(Some(&mine), &env([("MODEL_API_KEY", "mine")]), &own, "Openai https://op.test/v1 sealed customer m");
    let order = env([("MODEL", "my-model")]);
    let resolved = resolve(Layers { context: None, order: &order, own: &own }, "").unwrap();
    assert_eq!(resolved.model, "my-model");
    let resolved = resolve(Layers { context: None, order: &env([]), own: &own }, "").unwrap();
    assert_eq!(resolved.model, "op-model");
}

#[test]
fn the_operators_key_goes_only_where_the_operator_said() {
    let own = env([("MODEL_BASE_URL", "https://op.test/v1"), ("MODEL_API_KEY", "theirs"), ("ANTHROPIC_API_KEY", "a")]);
    check(Some(&at("https://evil.test/v1")), &env([]), &own, "Openai https://evil.test/v1 none customer m");
    check(None, &env([("MODEL_BASE_URL", "https://evil.test")]), &own, "Openai https://evil.test none customer m");
    check(None, &env([("OPENAI_BASE_URL", "https://evil.test")]), &own, "Openai https://evil.test none customer m");
    let anthropic = Provider { kind: Some(ProviderKind::Anthropic), ..Provider::default() };
    check(Some(&anthropic), &env([]), &own, "Anthropic https://api.anthropic.com/v1 a operator m");
    let ollama = Provider { kind: Some(ProviderKind::Ollama), ..Provider::default() };
    check(Some(&ollama), &env([]), &own, NOWHERE);
}

#[test]
fn what_a_kind_is_named_for_is_not_given_to_another() {
    let own = env([("MODEL_PROVIDER", "anthropic"), ("OPENAI_API_KEY", "o"), ("MODEL_API_KEY", "a")]);
    check(None, &env([]), &own, "Anthropic https://api.anthropic.com/v1 a operator m");
    let openai = Provider { kind: Some(ProviderKind::Openai), ..Provider::default() };
    check(Some(&openai), &env([]), &own, "Openai https://api.openai.com/v1 o operator m");
}

#[test]
fn what_is_wrong_is_named() {
    let none = env([]);
    let url = ": not an http or https URL of a host without credentials, query or fragment";
    for wrong in
        ["llm", "ftp://a/v1", "http://", "https://me:secret@a.test", "https://a.test/?x=1", "https://a.test/#x"]
    {
        check(None, &none, &env([("MODEL_BASE_URL", wrong)]), &format!("MODEL_BASE_URL{url}"));
        check(Some(&at(wrong)), &none, &none, &format!("context.provider.base_url{url}"));
    }
    check(None, &none, &env([("MODEL_API_KEY", "a b")]), "MODEL_API_KEY: a key is of visible letters without spaces");
    check(None, &none, &env([("MODEL_PROVIDER", "x")]), "MODEL_PROVIDER: openai, anthropic or ollama");
    let own = env([("MODEL_API_KEY", "k"), ("MODEL_CONTEXT_TOKENS", "many")]);
    check(None, &none, &own, "MODEL_CONTEXT_TOKENS: a number of tokens");
    let own = env([("MODEL_API_KEY", "k"), ("MODEL_PRICES", "3")]);
    assert!(matches!(
        resolve(Layers { context: None, order: &none, own: &own }, "m"),
        Err(SettingsError::Variable { name: "MODEL_PRICES", .. })
    ));
    let own = env([("MODEL_API_KEY", "k")]);
    assert_eq!(resolve(Layers { context: None, order: &none, own: &own }, ""), Err(SettingsError::NoModel));
}

#[test]
fn keys_are_not_printed() {
    let own = env([("MODEL_API_KEY", "hush")]);
    let settings = resolve(Layers { context: None, order: &env([]), own: &own }, "m").unwrap();
    assert!(!format!("{settings:?}").contains("hush"));
}

proptest! {
    /// Whatever the customer says, the operator's keys stay with the operator's and the providers' own addresses.
    #[test]
    fn no_word_of_the_customers_moves_the_operators_key(
        names in proptest::collection::btree_set(0..8_usize, 0..8), kind in 0..4_usize, has_url in any::<bool>(),
        own_names in proptest::collection::btree_set(0..8_usize, 0..8),
    ) {
        const NAMES: [&str; 8] = [
            "MODEL_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "OLLAMA_HOST", "MODEL_API_KEY",
            "OPENCODE_MODEL_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY",
        ];
        let value = |at: usize, who: &str| if at < 4 { format!("https://{who}.test/v1") } else { format!("{who}-key") };
        let of = |names: &std::collections::BTreeSet<usize>, who: &str| -> Env {
            names.iter().map(|at| (NAMES[*at].to_owned(), value(*at, who))).collect()
        };
        let (order, own) = (of(&names, "customer"), of(&own_names, "operator"));
        let kinds = [None, Some(ProviderKind::Openai), Some(ProviderKind::Anthropic), Some(ProviderKind::Ollama)];
        let context = Provider {
            kind: kinds[kind], base_url: has_url.then(|| "https://customer.test/v2".to_owned()), ..Provider::default()
        };
        if let Ok(settings) = resolve(Layers { context: Some(&context), order: &order, own: &own }, "m")
            && settings.api_key == Some(Secret::new("operator-key"))
        {
            prop_assert!(!settings.base_url.contains("customer"), "{:?}", settings);
            prop_assert!(settings.is_key_of_operator);
        }
    }
}
