//! Providers behind a forward proxy, as they are for everything inside a sandbox.

use sandbox_agent::model::{Answer, ModelError};
use sandbox_agent::provider::{HttpSettings, ProviderModel, ProviderSettings, http_client};
use sandbox_protocol::agent::ProviderKind;
use scripted_provider::{Provider, Script};

use super::proxy::{ForwardProxy, Manners};
use super::{KINDS, heard, settings, words};

async fn through(
    proxy: &ForwardProxy,
    is_loopback_direct: bool,
    settings: ProviderSettings,
) -> Result<Answer, ModelError> {
    let http = HttpSettings { proxy: Some(proxy.url().to_owned()), is_loopback_direct, ..HttpSettings::default() };
    let model = ProviderModel::new(settings, http_client(&http)?)?;
    heard(&model, &words("hello")).await.0
}

#[tokio::test]
async fn answers_come_through_a_proxy() {
    for kind in KINDS {
        let provider = Provider::start(Script::echo()).await.unwrap();
        let proxy = ForwardProxy::start(Manners::Serves).await.unwrap();
        let answer = through(&proxy, false, settings(kind, provider.url())).await.unwrap();
        assert_eq!((answer.text.as_str(), provider.calls()), ("hello", 1), "{kind:?}");
        assert!(proxy.asked()[0].starts_with(&format!("POST {}/", provider.url())), "{:?}", proxy.asked());
    }
}

#[tokio::test]
async fn this_machine_is_reached_without_the_proxy_where_that_is_wished() {
    let provider = Provider::start(Script::echo()).await.unwrap();
    let proxy = ForwardProxy::start(Manners::Serves).await.unwrap();
    through(&proxy, true, settings(ProviderKind::Openai, provider.url())).await.unwrap();
    assert_eq!((provider.calls(), proxy.asked().len()), (1, 0));
}

#[tokio::test]
async fn a_place_that_the_rules_forbid_is_forbidden_and_asked_for_once() {
    for word in ["http_request_denied", "destination_ip_prohibited"] {
        for url in ["http://llm.test", "https://llm.test"] {
            let proxy = ForwardProxy::start(Manners::Refuses(403, word)).await.unwrap();
            let told = through(&proxy, false, settings(ProviderKind::Openai, url)).await.unwrap_err();
            assert!(matches!(told, ModelError::Forbidden), "{url} {told:?}");
            let asked = proxy.asked();
            let sent = asked.iter().filter(|line| line.starts_with("POST") || line.starts_with("CONNECT")).count();
            assert_eq!(sent, 1, "{asked:?}");
        }
    }
}

#[tokio::test]
async fn a_place_that_the_proxy_does_not_reach_is_unreachable_and_tried_again() {
    for (url, lines) in [("http://llm.test", 4), ("https://llm.test", 8)] {
        let proxy = ForwardProxy::start(Manners::Refuses(502, "dns_error")).await.unwrap();
        let told = through(&proxy, false, settings(ProviderKind::Openai, url)).await.unwrap_err();
        assert!(matches!(told, ModelError::Unreachable(_)), "{url} {told:?}");
        assert_eq!(proxy.asked().len(), lines, "{:?}", proxy.asked());
    }
}

#[tokio::test]
async fn a_refusal_of_the_provider_is_not_taken_for_the_proxys() {
    let provider = Provider::start(Script::always(scripted_provider::Reply::status(403, "no"))).await.unwrap();
    let proxy = ForwardProxy::start(Manners::Serves).await.unwrap();
    let told = through(&proxy, false, settings(ProviderKind::Openai, provider.url())).await.unwrap_err();
    assert!(matches!(told, ModelError::Refused), "{told:?}");
}

#[test]
fn a_proxy_that_is_no_url_makes_no_client() {
    let wrong = HttpSettings { proxy: Some("not a proxy".to_owned()), ..HttpSettings::default() };
    assert!(matches!(http_client(&wrong), Err(ModelError::Settings(_))));
}
