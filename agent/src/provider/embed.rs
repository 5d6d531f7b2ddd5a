//! Vectors of texts, from a provider that makes them.

use async_trait::async_trait;
use genai::embed::{EmbedRequest, EmbedResponse};
use sandbox_protocol::agent::ProviderKind;
use tokio::time::timeout;

use super::answer::client;
use super::failure::Failure;
use super::request::{Wanted, target};
use super::retry::Attempts;
use super::settings::ProviderSettings;
use super::words::quietly;
use crate::limits::EMBED_TEXTS_MAX;
use crate::model::{Embedder, ModelError};

/// A model at a provider that makes vectors of texts.
#[derive(Debug)]
pub struct ProviderEmbedder {
    settings: ProviderSettings,
    model: String,
    client: genai::Client,
}

impl ProviderEmbedder {
    /// The embedding model of these settings, reached by this client.
    ///
    /// # Errors
    /// No embedding model is named, the provider makes no vectors, or the settings are not what
    /// [`resolve`](super::resolve) makes.
    pub fn new(settings: ProviderSettings, http: &reqwest::Client) -> Result<Self, ModelError> {
        if settings.kind == ProviderKind::Anthropic {
            return Err(ModelError::Settings("Anthropic makes no vectors"));
        }
        let model = settings.embedding_model.clone().ok_or(ModelError::Settings("no embedding model is named"))?;
        let client = client(&settings, http)?;
        Ok(Self { settings, model, client })
    }

    async fn batch(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut attempts = Attempts::new(&self.settings.limits);
        loop {
            match self.attempt(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(failure) => attempts.pause(failure).await?,
            }
        }
    }

    async fn attempt(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Failure> {
        let target = target(&self.settings, &self.model, Wanted::Vectors);
        let limit = self.settings.limits.first_max;
        let asked = quietly(self.client.exec_embed(target, EmbedRequest::new_batch(texts.to_vec()), None));
        let answered = timeout(limit, asked).await.map_err(|_| Failure::timed_out(limit))?;
        let response = answered.map_err(|error| Failure::of(error, self.settings.api_key.as_ref()))?;
        in_order(response, texts.len())
    }
}

#[async_trait]
impl Embedder for ProviderEmbedder {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(EMBED_TEXTS_MAX) {
            vectors.extend(self.batch(batch).await?);
        }
        Ok(vectors)
    }
}

/// One vector for each text, all of one length, of numbers that are such.
fn in_order(response: EmbedResponse, texts: usize) -> Result<Vec<Vec<f32>>, Failure> {
    let mut embeddings = response.embeddings;
    embeddings.sort_by_key(|embedding| embedding.index);
    let is_complete = embeddings.len() == texts && embeddings.iter().enumerate().all(|(at, one)| one.index == at);
    let length = embeddings.first().map_or(0, |one| one.vector.len());
    let are_alike = embeddings.iter().all(|one| {
        !one.vector.is_empty() && one.vector.len() == length && one.vector.iter().all(|part| part.is_finite())
    });
    if !is_complete || !are_alike {
        return Err(Failure::malformed("not one vector for each text"));
    }
    Ok(embeddings.into_iter().map(|one| one.vector).collect())
}
