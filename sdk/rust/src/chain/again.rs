//! Questions to a node that are asked again at once where it breaks off.
//!
//! One answer out of many that a node drops would otherwise cost all the work that asked. Only what changes nothing is asked
//! again, and only where the node gave no answer; a refusal is one.

use std::future::poll_fn;
use std::task::{Context, Poll};

use alloy::transports::{RpcError, TransportError, TransportErrorKind, TransportFut};
use alloy_json_rpc::{RequestPacket, ResponsePacket};
use reqwest::StatusCode;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::limits::{ASK_AGAIN_WITHIN, ASK_PAUSE_MIN, ASK_TRIES_MAX};

/// Puts [`AskingAgain`] around a transport.
#[derive(Debug, Clone, Copy)]
pub struct AskAgain;

/// A transport that asks a few times.
#[derive(Debug, Clone)]
pub struct AskingAgain<S>(S);

impl<S> Layer<S> for AskAgain {
    type Service = AskingAgain<S>;

    fn layer(&self, inner: S) -> AskingAgain<S> {
        AskingAgain(inner)
    }
}

impl<S> Service<RequestPacket> for AskingAgain<S>
where
    S: Service<RequestPacket, Response = ResponsePacket, Error = TransportError, Future: Send> + Clone + Send + 'static,
{
    type Response = ResponsePacket;
    type Error = TransportError;
    type Future = TransportFut<'static>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: RequestPacket) -> Self::Future {
        // The one that is ready goes; its clone has yet to become so.
        let clone = self.0.clone();
        Box::pin(ask(std::mem::replace(&mut self.0, clone), request))
    }
}

async fn ask<S>(mut node: S, request: RequestPacket) -> Result<ResponsePacket, TransportError>
where
    S: Service<RequestPacket, Response = ResponsePacket, Error = TransportError>,
{
    let tries = if request.method_names().all(is_question) { ASK_TRIES_MAX } else { 1 };
    let (begun, mut pause) = (Instant::now(), ASK_PAUSE_MIN);
    for _ in 1..tries {
        match node.call(request.clone()).await {
            Err(error) if is_passing(&error) && begun.elapsed() < ASK_AGAIN_WITHIN => {
                tracing::debug!(%error, "the node broke off; asking again");
            }
            settled => return settled,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
        poll_fn(|context| node.poll_ready(context)).await?;
    }
    node.call(request).await
}

/// Whether a method changes nothing, neither on chain nor at the node.
fn is_question(method: &str) -> bool {
    let is_read = |name: &str| (name.starts_with("get") && name != "getFilterChanges") || READS.contains(&name);
    method.strip_prefix("eth_").is_some_and(is_read)
}

/// Those whose names do not say so.
const READS: [&str; 7] =
    ["blockNumber", "call", "chainId", "estimateGas", "feeHistory", "gasPrice", "maxPriorityFeePerGas"];

/// Whether the node gave no answer, and may the next time.
fn is_passing(error: &TransportError) -> bool {
    match error {
        RpcError::Transport(TransportErrorKind::Custom(_)) => true,
        RpcError::Transport(TransportErrorKind::HttpError(answer)) => StatusCode::from_u16(answer.status)
            .is_ok_and(|status| status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use alloy_json_rpc::{Id, Request};
    use tower::service_fn;

    use super::*;

    /// How often a node that fails by `failure` is asked by `method`.
    async fn check(method: &'static str, failure: fn() -> TransportError, expected: usize) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let node = service_fn(move |_: RequestPacket| {
            counter.fetch_add(1, Ordering::Relaxed);
            async move { Err::<ResponsePacket, _>(failure()) }
        });
        let request = Request::new(method, Id::Number(1), ()).serialize().unwrap();
        assert!(AskAgain.layer(node).call(request.into()).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), expected, "{method}");
    }

    fn broken_off() -> TransportError {
        TransportErrorKind::custom_str("the connection was reset")
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_again_where_the_node_breaks_off_and_a_transaction_is_not_sent_again() {
        for question in ["eth_call", "eth_blockNumber", "eth_getLogs", "eth_getTransactionReceipt"] {
            check(question, broken_off, ASK_TRIES_MAX).await;
            check(question, || TransportErrorKind::http_error(502, String::new()), ASK_TRIES_MAX).await;
        }
        for deed in ["eth_sendRawTransaction", "eth_getFilterChanges", "evm_mine", "anvil_setBalance"] {
            check(deed, broken_off, 1).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_taken_though_it_is_a_refusal() {
        check("eth_call", || TransportErrorKind::http_error(401, String::new()), 1).await;
        check("eth_call", TransportErrorKind::pubsub_unavailable, 1).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_lets_questions_wait_is_not_asked_again() {
        let node = service_fn(|_: RequestPacket| async {
            tokio::time::advance(ASK_AGAIN_WITHIN).await;
            Err::<ResponsePacket, _>(broken_off())
        });
        let (begun, request) = (Instant::now(), Request::new("eth_call", Id::Number(1), ()).serialize().unwrap());
        assert!(AskAgain.layer(node).call(request.into()).await.is_err());
        assert_eq!(begun.elapsed(), ASK_AGAIN_WITHIN);
    }
}
