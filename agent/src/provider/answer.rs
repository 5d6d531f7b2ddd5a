//! A model at a provider: asked, heard piece by piece, and believed once the provider says that it is done.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use genai::chat::{ChatStream, ChatStreamEvent, StreamEnd};
use reqwest::Url;
use sandbox_protocol::agent::{ProviderKind, Secret};
use tokio::time::timeout;

use super::calls::{Calls, finished};
use super::failure::{Failure, is_of_proxy, is_refused_tunnel};
use super::ledger::Ledger;
use super::request::{Wanted, chat, options, target};
use super::retry::Attempts;
use super::settings::ProviderSettings;
use super::words::quietly;
use crate::limits::{ANSWER_BYTES_MAX, PROVIDER_LINGER_MS_MAX};
use crate::model::{Answer, Ask, Heard, Model, ModelError, ToolCall, Usage};

type Hear<'a> = &'a mut (dyn FnMut(Heard<'_>) + Send);

/// A model at a provider.
#[derive(Debug)]
pub struct ProviderModel {
    settings: ProviderSettings,
    client: genai::Client,
    http: reqwest::Client,
    ledger: Arc<Ledger>,
}

/// An answer of which not all has come.
#[derive(Default)]
struct Coming {
    text: String,
    calls: Calls,
    bytes: usize,
}

impl ProviderModel {
    /// The model of these settings, reached by this client; see [`http_client`](super::http_client).
    ///
    /// # Errors
    /// The settings are not what [`resolve`](super::resolve) makes.
    pub fn new(settings: ProviderSettings, http: reqwest::Client) -> Result<Self, ModelError> {
        let client = client(&settings, &http)?;
        Ok(Self { settings, client, http, ledger: Arc::default() })
    }

    /// The same, with its calls in this account.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Arc<Ledger>) -> Self {
        self.ledger = ledger;
        self
    }

    /// What it was made of.
    pub fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// The account of its calls.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    async fn attempt(&self, ask: &Ask, hear: Hear<'_>) -> Result<Answer, Failure> {
        let settings = &self.settings;
        let (limits, key) = (&settings.limits, settings.api_key.as_ref());
        let target = target(settings, &settings.model, Wanted::Words);
        let options = options(settings, ask);
        let opened = quietly(self.client.exec_chat_stream(target, chat(settings.kind, ask), Some(&options))).await;
        let mut stream = opened.map_err(|error| Failure::of(error, key))?.stream;
        let heard = timeout(limits.answer_max, self.listen(&mut stream, hear)).await;
        match heard.unwrap_or_else(|_| Err(Failure::timed_out(limits.answer_max))) {
            Err(failure) if is_refused_tunnel(&failure.error) => Err(self.why_no_tunnel(failure).await),
            Ok(answer) => {
                linger(stream);
                Ok(answer)
            }
            failed @ Err(_) => failed,
        }
    }

    async fn listen(&self, stream: &mut ChatStream, hear: Hear<'_>) -> Result<Answer, Failure> {
        let key = self.settings.api_key.as_ref();
        let mut coming = Coming::default();
        let mut limit = self.settings.limits.first_max;
        loop {
            let next = timeout(limit, quietly(stream.next())).await.map_err(|_| Failure::timed_out(limit))?;
            let event = next.ok_or_else(Failure::cut)?.map_err(|error| Failure::of(error, key))?;
            match event {
                // It comes before anything was sent.
                ChatStreamEvent::Start => continue,
                ChatStreamEvent::End(end) => return self.whole(coming, end),
                piece => self.take(&mut coming, &piece, hear)?,
            }
            limit = self.settings.limits.piece_max;
        }
    }

    fn take(&self, coming: &mut Coming, piece: &ChatStreamEvent, hear: Hear<'_>) -> Result<(), Failure> {
        match piece {
            ChatStreamEvent::Chunk(piece) => {
                coming.count(&piece.content)?;
                coming.text.push_str(&piece.content);
                hear(Heard::Text(&piece.content));
            }
            ChatStreamEvent::ReasoningChunk(piece) => {
                coming.count(&piece.content)?;
                hear(Heard::Reasoning(&piece.content));
            }
            ChatStreamEvent::ToolCallChunk(piece) => {
                let call = &piece.tool_call;
                let arguments = call.fn_arguments.as_str().unwrap_or_default();
                if self.settings.kind == ProviderKind::Openai {
                    coming.count(arguments)?;
                    coming.calls.take(&call.call_id, &call.fn_name, arguments)?;
                } else if arguments.len() > ANSWER_BYTES_MAX {
                    // Here each piece holds all before it.
                    return Err(too_long());
                }
            }
            ChatStreamEvent::ThoughtSignatureChunk(_)
            | ChatStreamEvent::Heartbeat
            | ChatStreamEvent::Start
            | ChatStreamEvent::End(_) => {}
        }
        Ok(())
    }

    /// The answer, if the provider has said that this is its end.
    fn whole(&self, coming: Coming, end: StreamEnd) -> Result<Answer, Failure> {
        let counted = end.captured_usage.as_ref();
        // genai makes an end of its own where Ollama's stream has none; that one counts nothing.
        if self.settings.kind == ProviderKind::Ollama && counted.is_none() {
            return Err(Failure::cut());
        }
        let tokens = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default();
        let usage = Usage {
            input_tokens: tokens(counted.and_then(|usage| usage.prompt_tokens)),
            output_tokens: tokens(counted.and_then(|usage| usage.completion_tokens)),
        };
        let tool_calls =
            if self.settings.kind == ProviderKind::Openai { coming.calls.finish() } else { collected(end) };
        Ok(Answer { text: coming.text, tool_calls, usage, retries: 0 })
    }

    /// Why a proxy would not let a tunnel be dug. The client keeps the status to itself; asked for the same place without a
    /// tunnel, the operator's proxy says the same again, and aloud.
    async fn why_no_tunnel(&self, failure: Failure) -> Failure {
        let Some(place) = without_tunnel(&self.settings.base_url) else { return failure };
        match timeout(self.settings.limits.piece_max, self.http.head(place).send()).await {
            Ok(Ok(told)) if told.status().as_u16() == 403 && is_of_proxy(told.headers()) => {
                ModelError::Forbidden.into()
            }
            _ => failure,
        }
    }
}

#[async_trait]
impl Model for ProviderModel {
    async fn answer(&self, ask: &Ask, hear: &mut (dyn for<'h> FnMut(Heard<'h>) + Send)) -> Result<Answer, ModelError> {
        let mut attempts = Attempts::new(&self.settings.limits);
        loop {
            match self.attempt(ask, hear).await {
                Ok(answer) => {
                    self.ledger.count(answer.usage, self.settings.prices.of(&self.settings.model));
                    return Ok(Answer { retries: attempts.failed(), ..answer });
                }
                Err(failure) => attempts.pause(failure).await?,
            }
            hear(Heard::Again);
        }
    }
}

impl Coming {
    fn count(&mut self, piece: &str) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > ANSWER_BYTES_MAX { Err(too_long()) } else { Ok(()) }
    }
}

/// Holds on to an answer that is whole until its body has ended: genai reads to the last word and no further, and a body that
/// is dropped before its end takes its connection with it.
fn linger(stream: ChatStream) {
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(PROVIDER_LINGER_MS_MAX)).await;
        drop(stream);
    });
}

fn too_long() -> Failure {
    Failure::malformed("an answer is longer than any may be")
}

fn collected(end: StreamEnd) -> Vec<ToolCall> {
    let calls = end.captured_into_tool_calls().unwrap_or_default();
    finished(calls.into_iter().map(|call| (call.call_id, call.fn_name, call.fn_arguments)))
}

/// The same host and port by plain HTTP; `None` where that is how it is reached anyway.
fn without_tunnel(base_url: &str) -> Option<Url> {
    let url = Url::parse(base_url).ok().filter(|url| url.scheme() == "https")?;
    Url::parse(&format!("http://{}:{}/", url.host_str()?, url.port_or_known_default()?)).ok()
}

/// genai's client over ours, if the settings can be sent at all.
pub(super) fn client(settings: &ProviderSettings, http: &reqwest::Client) -> Result<genai::Client, ModelError> {
    let is_url = Url::parse(&settings.base_url).is_ok_and(|url| url.has_host());
    if !is_url || settings.base_url.ends_with('/') {
        return Err(ModelError::Settings("the base URL is none"));
    }
    let key = settings.api_key.as_ref().map(Secret::reveal);
    if key.is_some_and(|key| key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(ModelError::Settings("the key is none"));
    }
    if settings.model.is_empty() {
        return Err(ModelError::Settings("no model is named"));
    }
    let client = genai::Client::builder().with_reqwest(http.clone()).build();
    client.map_err(|_| ModelError::Settings("no client can be made of this"))
}
