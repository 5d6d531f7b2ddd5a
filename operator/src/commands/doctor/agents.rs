//! Checks of the operator's own model: whether sandboxes could use what is set.

use super::Finding;
use crate::config::Config;

const CHECK: &str = "model";

/// What there is for customers who bring no model of their own.
pub(super) fn model(config: &Config) -> Finding {
    let agents = &config.agents;
    let profiles = match agents.profiles.len() {
        0 => String::new(),
        some => format!("; {some} profiles"),
    };
    let Some(url) = &agents.base_url else {
        let said = format!("none: customers bring their own{profiles}");
        return match (agents.provider, &agents.model) {
            (None, None) => Finding::ok(CHECK, said),
            (_, _) => Finding::warning(CHECK, said, "name where it is by MODEL_BASE_URL"),
        };
    };
    let said = format!("{} at {url}{profiles}", agents.model.as_deref().unwrap_or("no model"));
    if agents.provider.is_none() {
        return Finding::warning(
            CHECK,
            said,
            "say by MODEL_PROVIDER what is spoken there: openai, anthropic or ollama",
        );
    }
    if agents.model.is_none() {
        return Finding::warning(CHECK, said, "name one by MODEL: tasks that name none have none");
    }
    let host = url.host_str().unwrap_or_default();
    let has_service = config.outside.has_service(host);
    match (has_service, url.scheme()) {
        (true, "http") => Finding::ok(CHECK, said),
        (true, _) => Finding::failure(CHECK, said, format!("a host service is asked over http: http://{host}/…")),
        (false, _) => Finding::warning(
            CHECK,
            said,
            format!(
                "{host} is no service of HOST_SERVICES_FILE: sandboxes reach it only by their own rules, without your key"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::Verdict;
    use super::*;

    fn check(pairs: &[(&str, &str)]) -> Verdict {
        let dir = tempfile::tempdir().unwrap();
        let services = dir.path().join("services.json");
        std::fs::write(&services, r#"[{"name": "model.internal", "url": "https://upstream.example"}]"#).unwrap();
        let needed = [
            ("DATA_DIR", "/tmp/x"),
            ("BLUEPRINT_ID", "1"),
            ("TANGLE_CONTRACT", "0x0165878A594ca255338adfa4d48449f69242Eb8F"),
            ("HOST_SERVICES_FILE", services.to_str().unwrap()),
        ];
        let settings: HashMap<_, _> =
            needed.iter().chain(pairs).map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        model(&Config::read(&settings).unwrap()).verdict
    }

    #[test]
    fn a_model_is_whole_and_within_reach_or_something_is_said() {
        let (provider, model) = (("MODEL_PROVIDER", "openai"), ("MODEL", "m"));
        let url = |url| ("MODEL_BASE_URL", url);
        let inside = url("http://model.internal/v1");
        assert_eq!(check(&[]), Verdict::Ok);
        assert_eq!(check(&[provider, model, inside]), Verdict::Ok);
        assert_eq!(check(&[provider, model]), Verdict::Warning);
        assert_eq!(check(&[model, inside]), Verdict::Warning);
        assert_eq!(check(&[provider, inside]), Verdict::Warning);
        assert_eq!(check(&[provider, model, url("https://api.example/v1")]), Verdict::Warning);
        assert_eq!(check(&[provider, model, url("https://model.internal/v1")]), Verdict::Failure);
    }
}
