//! The node of the chain, with every question to it counted by how it ended.

use std::task::{Context, Poll};

use alloy::providers::{DynProvider, Provider as _, ProviderBuilder};
use alloy::rpc::client::ClientBuilder;
use alloy::transports::http::Http;
use alloy::transports::http::reqwest::{Client, Url};
use alloy::transports::{TransportError, TransportFut};
use alloy_json_rpc::{RequestPacket, ResponsePacket};
use prometheus::{IntCounterVec, Opts};
use sandbox_sdk::chain::AskAgain;
use sandbox_sdk::limits::RPC_TIMEOUT;
use tower::{Layer, Service};

/// How many questions were asked, by how they ended. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Questions(pub(crate) IntCounterVec);

/// A transport that counts.
#[derive(Clone)]
pub(crate) struct Counted<S> {
    inner: S,
    questions: Questions,
}

impl Questions {
    /// None yet.
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let opts = Opts::new("sandbox_rpc_requests_total", "Requests to the chain's node, by how they ended");
        let counter = IntCounterVec::new(opts, &["outcome"])?;
        for outcome in ["answered", "refused", "failed"] {
            counter.with_label_values(&[outcome]);
        }
        Ok(Self(counter))
    }

    fn count(&self, answer: &Result<ResponsePacket, TransportError>) {
        let outcome = match answer {
            Ok(packet) if packet.as_error().is_some() => "refused",
            Ok(_) => "answered",
            Err(_) => "failed",
        };
        self.0.with_label_values(&[outcome]).inc();
    }
}

/// A provider for a node. Every request has a bound: a node that accepts and stays silent is one that does not answer. A
/// question that it breaks off is asked again, and counted again.
pub(crate) fn provider(url: Url, questions: Questions) -> DynProvider {
    let client = Client::builder().timeout(RPC_TIMEOUT).build().unwrap_or_default();
    let local = alloy::transports::utils::guess_local_url(&url);
    let node = Http::with_client(client, url);
    let client = ClientBuilder::default().layer(AskAgain).layer(questions).transport(node, local);
    ProviderBuilder::default().connect_client(client).erased()
}

impl<S> Layer<S> for Questions {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, questions: self.clone() }
    }
}

impl<S> Service<RequestPacket> for Counted<S>
where
    S: Service<RequestPacket, Response = ResponsePacket, Error = TransportError, Future: Send + 'static>,
{
    type Response = ResponsePacket;
    type Error = TransportError;
    type Future = TransportFut<'static>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: RequestPacket) -> Self::Future {
        let (questions, answering) = (self.questions.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = answering.await;
            questions.count(&answer);
            answer
        })
    }
}
