//! Vectors of texts.

use sandbox_agent::limits::EMBED_TEXTS_MAX;
use sandbox_agent::model::{Embedder as _, ModelError};
use sandbox_agent::provider::{HttpSettings, ProviderEmbedder, ProviderSettings, http_client};
use sandbox_protocol::agent::ProviderKind;
use scripted_provider::{Ending, Failure, Provider, Reply, Rule, Script, When};

use super::{KEY, settings};

const KINDS: [ProviderKind; 2] = [ProviderKind::Openai, ProviderKind::Ollama];

fn embedder(settings: ProviderSettings) -> Result<ProviderEmbedder, ModelError> {
    ProviderEmbedder::new(settings, &http_client(&HttpSettings::default())?)
}

fn failing(reply: Reply, times: u64) -> Script {
    Script::echo().rule(Rule { when: When { embeds: true, ..When::default() }, reply, times: Some(times) })
}

#[tokio::test]
async fn each_text_has_its_vector_in_order_also_beyond_one_batch() {
    let texts: Vec<String> = (0..=EMBED_TEXTS_MAX).map(|at| format!("text {at}")).collect();
    for kind in KINDS {
        let provider = Provider::start(Script::echo()).await.unwrap();
        let embedder = embedder(settings(kind, provider.url())).unwrap();
        let vectors = embedder.embed(&texts).await.unwrap();
        assert_eq!((vectors.len(), provider.calls()), (texts.len(), 2), "{kind:?}");
        let alone = embedder.embed(&texts[3..4]).await.unwrap();
        assert_eq!(vectors[3], alone[0], "{kind:?}");
        assert_eq!(provider.requests()[0].model, "vectors");
        assert_eq!(provider.requests()[0].key(), Some(KEY));
        assert_eq!(embedder.embed(&[]).await.unwrap().len(), 0);
    }
}

#[tokio::test]
async fn failures_are_the_same_as_those_of_answers() {
    let text = ["x".to_owned()];
    for kind in KINDS {
        let provider = Provider::start(failing(Reply::status(500, "oops"), 3)).await.unwrap();
        embedder(settings(kind, provider.url())).unwrap().embed(&text).await.unwrap();
        assert_eq!(provider.calls(), 4, "{kind:?}");
        let provider = Provider::start(failing(Reply::failure(Failure::Unauthorized), 1)).await.unwrap();
        let told = embedder(settings(kind, provider.url())).unwrap().embed(&text).await.unwrap_err();
        assert!(matches!(told, ModelError::Refused), "{kind:?} {told:?}");
        let provider =
            Provider::start(failing(Reply::default().ending(Ending::Malformed { after: 0 }), 4)).await.unwrap();
        let told = embedder(settings(kind, provider.url())).unwrap().embed(&text).await.unwrap_err();
        assert!(matches!(told, ModelError::Malformed(_)), "{kind:?} {told:?}");
        assert_eq!(provider.calls(), 4);
    }
}

#[tokio::test]
async fn vectors_that_do_not_fit_the_texts_are_refused() {
    for body in
        [r#"{"embeddings": []}"#, r#"{"embeddings": [[1.0], [2.0]]}"#, r#"{"embeddings": [[]]}"#, r#"{"error": "x"}"#]
    {
        let raw = Failure::Raw { status: 200, content_type: "application/json".to_owned(), body: body.to_owned() };
        let provider = Provider::start(failing(Reply::failure(raw), 4)).await.unwrap();
        let settings = settings(ProviderKind::Ollama, provider.url());
        let told = embedder(settings).unwrap().embed(&["x".to_owned()]).await.unwrap_err();
        assert!(matches!(told, ModelError::Malformed(_)), "{body} {told:?}");
    }
}

#[test]
fn who_makes_no_vectors_says_so_at_once() {
    let of = |kind| settings(kind, "http://llm.test");
    let none = ProviderSettings { embedding_model: None, ..of(ProviderKind::Openai) };
    for wrong in [none, of(ProviderKind::Anthropic)] {
        assert!(matches!(embedder(wrong), Err(ModelError::Settings(_))));
    }
}
