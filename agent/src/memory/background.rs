//! What is done for a session while nobody waits: summaries and vectors. Each has at most one that makes it.
//!
//! A task holds the session only for moments, never while it waits for a model: dropping the last handle ends the task and
//! lets the session go.

use std::iter;
use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::Inner;
use super::retrieval::{BadVector, Vectors};
use super::store::Stored;
use super::summary::{Digests, Kept, Summary, SummaryError};
use crate::model::ModelError;

/// Counts a task for as long as it lives.
struct Busy(watch::Sender<usize>);

impl Busy {
    fn of(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|tasks| *tasks += 1);
        Self(count.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|tasks| *tasks -= 1);
    }
}

impl Inner {
    /// Begins what is due and not under way.
    pub(super) fn tend(self: &Arc<Self>) {
        self.tend_summary();
        self.tend_vectors();
    }

    fn tend_summary(self: &Arc<Self>) {
        {
            let mut session = self.session_mut();
            if session.is_summarising || session.to_summarise(self.budget).is_none() {
                return;
            }
            session.is_summarising = true;
        }
        let (busy, stop, weak) = (Busy::of(&self.busy), self.stop.clone(), Arc::downgrade(self));
        tokio::spawn(async move {
            let _busy = busy;
            stop.run_until_cancelled(summaries(weak)).await
        });
    }

    fn tend_vectors(self: &Arc<Self>) {
        {
            let mut session = self.session_mut();
            if self.embedder.is_none() || session.is_embedding || session.to_embed().is_empty() {
                return;
            }
            session.is_embedding = true;
        }
        let (busy, stop, weak) = (Busy::of(&self.busy), self.stop.clone(), Arc::downgrade(self));
        tokio::spawn(async move {
            let _busy = busy;
            stop.run_until_cancelled(vectors(weak)).await
        });
    }

    /// What to summarise next; with nothing to do, nobody does it any more.
    fn next_summary(&self) -> Option<Vec<Arc<Stored>>> {
        let mut session = self.session_mut();
        let next = session.to_summarise(self.budget);
        session.is_summarising = next.is_some();
        next
    }

    /// Keeps what came of it, the digests in any case.
    async fn keep(&self, made: Result<Summary, SummaryError>, digests: &Digests) {
        let summary = {
            let mut session = self.session_mut();
            match made {
                Ok(summary) => session.summarised(summary),
                Err(error) => {
                    tracing::warn!(session = self.id, error = chain(&error), "the summary stays as it was");
                    session.not_summarised();
                }
            }
            session.summary.clone()
        };
        let (place, kept) = (self.place.clone(), Kept { summary, digests: digests.clone() });
        let written = spawn_blocking(move || place.write_summary(&serde_json::to_vec(&kept)?)).await;
        if let Err(error) = written.map_err(std::io::Error::other).flatten() {
            tracing::warn!(session = self.id, %error, "the summary cannot be stored, and will be made again");
        }
    }

    fn next_texts(&self) -> Vec<(usize, String)> {
        let mut session = self.session_mut();
        let next = session.to_embed();
        session.is_embedding = !next.is_empty();
        next
    }

    /// Keeps vectors of the messages at these places; `false` if there are none.
    fn keep_vectors(&self, places: Vec<usize>, made: Result<Vec<Vec<f32>>, ModelError>) -> bool {
        let mut session = self.session_mut();
        let Err(error) = kept(&mut session.vectors, places, made) else { return true };
        tracing::warn!(session = self.id, error = chain(&error), "messages stay without vectors");
        session.is_embedding = false;
        false
    }
}

/// Why messages have no vectors.
#[derive(Debug, thiserror::Error)]
enum NoVectors {
    #[error("the embedder made none")]
    Embedder(#[source] ModelError),
    #[error("the embedder made {0} of {1}")]
    Number(usize, usize),
    #[error("one is not taken")]
    Bad(#[source] BadVector),
}

fn kept(vectors: &mut Vectors, places: Vec<usize>, made: Result<Vec<Vec<f32>>, ModelError>) -> Result<(), NoVectors> {
    let made = made.map_err(NoVectors::Embedder)?;
    if made.len() != places.len() {
        return Err(NoVectors::Number(made.len(), places.len()));
    }
    let added = vectors.add(places.into_iter().zip(made));
    if matches!(added, Err(BadVector::Length(..))) {
        vectors.forget();
    }
    added.map_err(NoVectors::Bad)
}

/// An error with what is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |words, source| format!("{words}: {source}"))
}

/// Makes summaries until none is due.
async fn summaries(inner: Weak<Inner>) {
    let Some(summariser) = inner.upgrade().map(|inner| inner.summariser.clone()) else { return };
    let Some(digests) = inner.upgrade().map(|inner| inner.digests.clone()) else { return };
    let mut digests = digests.lock().await;
    while let Some(messages) = inner.upgrade().and_then(|inner| inner.next_summary()) {
        let made = summariser.summarise(messages, &mut digests).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.keep(made, &digests).await;
    }
}

/// Makes vectors until each message has one, or whoever makes them fails; then the next message is the occasion to go on.
async fn vectors(inner: Weak<Inner>) {
    let Some(embedder) = inner.upgrade().and_then(|inner| inner.embedder.clone()) else { return };
    while let Some(inner_now) = inner.upgrade() {
        let (places, texts): (Vec<usize>, Vec<String>) = inner_now.next_texts().into_iter().unzip();
        drop(inner_now);
        if texts.is_empty() {
            return;
        }
        let made = embedder.embed(&texts).await;
        if !inner.upgrade().is_some_and(|inner| inner.keep_vectors(places, made)) {
            return;
        }
    }
}
