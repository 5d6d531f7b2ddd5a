//! One request to one operator: signed, bounded in time and size, its answer sorted into now, not now and never.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alloy::primitives::Address;
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{Eip712Domain, SolStruct as _};
use reqwest::header::{ACCEPT, AUTHORIZATION};
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, Url};
use sandbox_protocol::CallKey;
use sandbox_protocol::http::{CallBody, CallQuery, CallStatus, CallerProof, ErrorBody};
use sandbox_protocol::limits::WAIT_S_MAX;
use sandbox_protocol::receipt::{ReadCall, domain};

use super::AnswerError;
use crate::api::sse::{Bounds, Frames};
use crate::chain::Account;
use crate::limits::{ANSWER_BODY_BYTES_MAX, ANSWER_GRACE, CONNECT_WITHIN, EVENT_SILENCE, PROOF_LIFETIME_S};

/// What one request brought.
pub(super) enum Look {
    /// Where the call is.
    Body(Box<CallBody>),
    /// Nothing now; another attempt may help.
    NotNow(AnswerError),
}

/// An operator's API, asked by one account.
pub(super) struct Operator<'a> {
    http: &'a reqwest::Client,
    account: &'a Account,
    operator: Address,
    url: String,
}

/// A client that follows no redirect: a proof is for the operator that was asked.
pub(crate) fn http() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().redirect(Policy::none()).connect_timeout(CONNECT_WITHIN).build()
}

/// Where an operator's API is, without a closing slash; `None` where that is nowhere in HTTP.
pub(crate) fn base_url(registered: &str) -> Option<String> {
    let parsed: Url = registered.parse().ok()?;
    let usable = matches!(parsed.scheme(), "http" | "https") && parsed.has_host();
    usable.then(|| registered.trim_end_matches('/').to_owned())
}

/// Whether a status may be another in a moment. An operator does not know a call before it has seen its block.
pub(crate) const fn is_transient(status: u16) -> bool {
    matches!(status, 404 | 408 | 425 | 429) || status >= 500
}

impl<'a> Operator<'a> {
    /// `operator` at `url`; `None` where that is not one of HTTP.
    pub(super) fn new(
        http: &'a reqwest::Client,
        account: &'a Account,
        (operator, url): (Address, String),
    ) -> Option<Self> {
        base_url(&url).map(|url| Self { http, account, operator, url })
    }

    pub(super) const fn address(&self) -> Address {
        self.operator
    }

    /// Asks for a call; the operator holds its answer back until the call is as far as `until`, at most `wait`.
    pub(super) async fn look(&self, key: CallKey, wait: Duration, until: CallStatus) -> Result<Look, AnswerError> {
        let wait_s = wait.as_secs().min(WAIT_S_MAX);
        let request = self.request(key, CallQuery { wait: wait_s, until })?;
        match request.timeout(Duration::from_secs(wait_s) + ANSWER_GRACE).send().await {
            Ok(response) => self.sort(key, response).await,
            Err(source) => Ok(Look::NotNow(self.unreachable(source))),
        }
    }

    /// The call's states as the operator knows them, and what is told of its work, behind the event of this id.
    pub(super) async fn follow(&self, key: CallKey, last: Option<&str>) -> Result<Frames, AnswerError> {
        let query = CallQuery { wait: WAIT_S_MAX, until: CallStatus::Answered };
        let request = self.request(key, query)?.header(ACCEPT, "text/event-stream");
        let request = last.into_iter().fold(request, |request, last| request.header("last-event-id", last));
        // No bound on the whole: silence has its own, and the wait for the call is part of it.
        let response = request.timeout(Duration::MAX).send().await.map_err(|source| self.unreachable(source))?;
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let error = ErrorBody { code: "no_stream".into(), message: "no stream".into(), retryable: false };
            return Err(AnswerError::Refused { status, error });
        }
        let bounds = Bounds { frame_bytes_max: ANSWER_BODY_BYTES_MAX, silence: EVENT_SILENCE };
        Ok(Frames::new(self.url.clone(), response, bounds))
    }

    fn request(&self, key: CallKey, query: CallQuery) -> Result<RequestBuilder, AnswerError> {
        let CallKey { service, call } = key;
        let url = format!("{}/v1/services/{service}/calls/{call}", self.url);
        let document = ReadCall { operator: self.operator, service, call, expires: now_s() + PROOF_LIFETIME_S };
        let domain = domain(self.account.deployment().chain_id, self.account.deployment().core);
        let proof = sign(self.account.key(), &domain, &document).map_err(AnswerError::Sign)?;
        Ok(self.http.get(url).query(&query).header(AUTHORIZATION, proof.to_string()))
    }

    async fn sort(&self, key: CallKey, mut response: reqwest::Response) -> Result<Look, AnswerError> {
        let status = response.status();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(source) => return Ok(Look::NotNow(self.unreachable(source))),
            }
            if body.len() > ANSWER_BODY_BYTES_MAX {
                return Err(self.garbled(format!("more than {ANSWER_BODY_BYTES_MAX} bytes")));
            }
        }
        if status.is_success() {
            self.call_body(key, &body).map(|body| Look::Body(Box::new(body)))
        } else {
            refused(status.as_u16(), &body)
        }
    }

    fn call_body(&self, key: CallKey, body: &[u8]) -> Result<CallBody, AnswerError> {
        let body: CallBody = serde_json::from_slice(body).map_err(|error| self.garbled(error.to_string()))?;
        let found = CallKey { service: body.service, call: body.call };
        if found != key {
            return Err(self.garbled(format!("it is about call {found}")));
        }
        if body.answer.is_none() == (body.status == CallStatus::Pending) {
            Ok(body)
        } else {
            Err(self.garbled("its status does not fit its answer".into()))
        }
    }

    fn unreachable(&self, source: reqwest::Error) -> AnswerError {
        AnswerError::Unreachable { url: self.url.clone(), source: source.without_url() }
    }

    fn garbled(&self, why: String) -> AnswerError {
        AnswerError::Garbled { url: self.url.clone(), why }
    }
}

fn refused(status: u16, body: &[u8]) -> Result<Look, AnswerError> {
    let unsaid = || ErrorBody { code: "unknown".into(), message: "without a reason".into(), retryable: false };
    let error: ErrorBody = serde_json::from_slice(body).unwrap_or_else(|_| unsaid());
    let refusal = AnswerError::Refused { status, error };
    if refusal.retryable() { Ok(Look::NotNow(refusal)) } else { Err(refusal) }
}

fn sign(
    signer: &PrivateKeySigner,
    domain: &Eip712Domain,
    document: &ReadCall,
) -> Result<CallerProof, alloy::signers::Error> {
    let signature = signer.sign_hash_sync(&document.eip712_signing_hash(domain))?;
    Ok(CallerProof { address: signer.address(), expires: document.expires, signature })
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::receipt::recover;

    use super::*;

    #[test]
    fn a_proof_tells_its_reader_who_asks_for_what() {
        let (signer, core) = (PrivateKeySigner::random(), Address::repeat_byte(1));
        let asked = ReadCall { operator: Address::repeat_byte(2), service: 3, call: 4, expires: 1_700_000_000 };
        let header = sign(&signer, &domain(31_337, core), &asked).unwrap().to_string();

        let read: CallerProof = header.parse().unwrap();
        assert_eq!((read.address, read.expires), (signer.address(), asked.expires));
        assert_eq!(recover(&asked, 31_337, core, &read.signature), Some(signer.address()));
        let other_call = ReadCall { call: 5, ..asked.clone() };
        let other_operator = ReadCall { operator: Address::repeat_byte(3), ..asked };
        for other in [other_call, other_operator] {
            assert_ne!(recover(&other, 31_337, core, &read.signature), Some(signer.address()));
        }
    }

    #[test]
    fn only_what_may_change_by_itself_is_asked_again() {
        for status in [404, 429, 500, 502, 503] {
            assert!(is_transient(status), "{status}");
        }
        for status in [301, 400, 401, 403, 410] {
            assert!(!is_transient(status), "{status}");
        }
    }
}
