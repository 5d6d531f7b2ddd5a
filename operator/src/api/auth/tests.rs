//! Signing in, over real records and wallets that agree, disagree or hang.

use std::time::Duration;

use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::{Router, middleware};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use sandbox_protocol::session::Scope;
use sandbox_protocol::siwe::Message;
use sandbox_sdk::chain::ReadError;
use tempfile::TempDir;
use time::OffsetDateTime;

use super::*;
use crate::api::gate::{self, Gate};
use crate::api::rate::Rates;
use crate::records::RecordsGuard;

const URL: &str = "https://op.example";
const CHAIN_ID: u64 = 31_337;

/// What every contract says.
#[derive(Clone, Copy)]
enum Contracts {
    Agree,
    Disagree,
    Hang,
}

#[async_trait]
impl Wallets for Contracts {
    async fn takes(&self, _: Address, _: B256, _: &Bytes) -> Result<bool, ReadError> {
        match self {
            Self::Agree => Ok(true),
            Self::Disagree => Ok(false),
            Self::Hang => std::future::pending().await,
        }
    }
}

struct Desk {
    route: TowerToHyperService<Router>,
    records: Records,
    _kept: (RecordsGuard, TempDir),
}

impl Desk {
    fn new(contracts: Contracts) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (records, guard) = Records::open(dir.path()).unwrap();
        let place = Place::at(URL, CHAIN_ID, 3_600).unwrap();
        let auth = Auth {
            chain_timeout: Duration::from_millis(50),
            ..Auth::with(place, records.clone(), Box::new(contracts))
        };
        let gate = Arc::new(Gate { records: records.clone(), rates: Rates::new(), trusted: Vec::new() });
        let router = Router::from(routes().with_state(Arc::new(auth)));
        let router = router.layer(middleware::from_fn_with_state(gate, gate::pass));
        Self { route: TowerToHyperService::new(router), records, _kept: (guard, dir) }
    }

    async fn send(&self, request: Request<Body>) -> Result<Vec<u8>, (u16, String)> {
        let response = self.route.call(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        if status.is_success() {
            return Ok(body.into());
        }
        Err((status.as_u16(), serde_json::from_slice::<ErrorBody>(&body).unwrap().code))
    }

    /// A message that is good here, but for its signature.
    async fn message(&self, address: Address) -> Message {
        let asked = self.send(Request::post("/v1/auth/nonce").body(Body::empty()).unwrap()).await.unwrap();
        let nonce: NonceBody = serde_json::from_slice(&asked).unwrap();
        Message {
            scheme: None,
            domain: nonce.domain,
            address,
            statement: Some(nonce.statement),
            uri: nonce.uri,
            chain_id: nonce.chain_id,
            nonce: nonce.nonce,
            issued_at: OffsetDateTime::from_unix_timestamp(now() as i64).unwrap(),
            expiration_time: None,
            not_before: None,
            request_id: None,
            resources: vec![Scope::CallsRead.urn()],
        }
    }

    async fn redeem(&self, message: &Message, signature: Bytes) -> Result<TokenBody, (u16, String)> {
        let request = TokenRequest { message: message.to_string(), signature };
        let body = serde_json::to_vec(&request).unwrap();
        let answer = self.send(Request::post("/v1/auth/token").body(body.into()).unwrap()).await?;
        Ok(serde_json::from_slice(&answer).unwrap())
    }

    async fn sign_in(&self, key: &PrivateKeySigner) -> Result<TokenBody, (u16, String)> {
        let message = self.message(key.address()).await;
        self.redeem(&message, signed(key, &message)).await
    }

    async fn with_token(&self, method: &str, path: &str, token: &str) -> Result<Vec<u8>, (u16, String)> {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    async fn tokens(&self, token: &str) -> Result<Vec<TokenInfo>, (u16, String)> {
        let body = self.with_token("GET", "/v1/auth/tokens", token).await?;
        Ok(serde_json::from_slice::<TokensBody>(&body).unwrap().tokens)
    }
}

fn signed(key: &PrivateKeySigner, message: &Message) -> Bytes {
    key.sign_message_sync(message.to_string().as_bytes()).unwrap().as_bytes().to_vec().into()
}

fn refusal<T>(status: u16, code: &str) -> Result<T, (u16, String)> {
    Err((status, code.to_owned()))
}

#[tokio::test]
async fn who_signs_gets_a_token_for_its_address_and_scopes_and_only_its_hash_is_kept() {
    let desk = Desk::new(Contracts::Disagree);
    let key = PrivateKeySigner::random();
    let token = desk.sign_in(&key).await.unwrap();
    assert_eq!((token.address, token.scopes.as_slice()), (key.address(), [Scope::CallsRead].as_slice()));
    assert!((now() + 3_500..=now() + 3_600).contains(&token.expires_at));
    let kept = desk.records.tokens_of(key.address()).unwrap();
    let secret = token.token.strip_prefix("sbt_").unwrap();
    assert_eq!(kept[0].0, keccak256(hex::decode(secret).unwrap()));
    assert_eq!(desk.tokens(&token.token).await.unwrap()[0].id, token.id);
}

#[tokio::test]
async fn a_message_is_good_once_and_only_as_it_was_signed() {
    let desk = Desk::new(Contracts::Disagree);
    let (key, other) = (PrivateKeySigner::random(), PrivateKeySigner::random());
    let message = desk.message(key.address()).await;
    let signature = signed(&key, &message);
    assert_eq!(desk.redeem(&message, signed(&other, &message)).await, refusal(401, "unauthorized"));
    let more = Message { resources: vec![Scope::SandboxesWrite.urn()], ..message.clone() };
    assert_eq!(desk.redeem(&more, signature.clone()).await, refusal(401, "unauthorized"));
    assert!(desk.redeem(&message, signature.clone()).await.is_ok(), "a wrong signature uses no nonce up");
    assert_eq!(desk.redeem(&message, signature).await, refusal(401, "unauthorized"));
    let own = Message { nonce: "0123456789abcdef".into(), ..message };
    assert_eq!(desk.redeem(&own, signed(&key, &own)).await, refusal(401, "unauthorized"));
}

#[tokio::test]
async fn a_contract_wallet_signs_in_by_its_own_word_and_none_is_waited_for_without_end() {
    let wallet = Address::repeat_byte(7);
    let signature = Bytes::from_static(b"whatever the contract takes");
    let desk = Desk::new(Contracts::Agree);
    let token = desk.redeem(&desk.message(wallet).await, signature.clone()).await.unwrap();
    assert_eq!(token.address, wallet);
    let long = Bytes::from(vec![1; WALLET_SIGNATURE_BYTES_MAX + 1]);
    assert_eq!(desk.redeem(&desk.message(wallet).await, long).await, refusal(400, "bad_request"));
    let longest = Bytes::from(vec![1; WALLET_SIGNATURE_BYTES_MAX]);
    assert!(desk.redeem(&desk.message(wallet).await, longest).await.is_ok());
    let desk = Desk::new(Contracts::Disagree);
    assert_eq!(desk.redeem(&desk.message(wallet).await, signature.clone()).await, refusal(401, "unauthorized"));
    let desk = Desk::new(Contracts::Hang);
    assert_eq!(desk.redeem(&desk.message(wallet).await, signature).await, refusal(503, "too_slow"));
}

#[tokio::test]
async fn a_revoked_token_opens_nothing_from_then_on_and_nobody_revokes_anothers() {
    let desk = Desk::new(Contracts::Disagree);
    let (key, other) = (PrivateKeySigner::random(), PrivateKeySigner::random());
    let (first, second) = (desk.sign_in(&key).await.unwrap(), desk.sign_in(&key).await.unwrap());
    let foreign = desk.sign_in(&other).await.unwrap();
    let path = format!("/v1/auth/tokens/{}", first.id);
    assert_eq!(desk.with_token("DELETE", &path, &foreign.token).await, refusal(404, "no_token"));
    assert_eq!(desk.tokens(&second.token).await.unwrap().len(), 2);
    desk.with_token("DELETE", &path, &second.token).await.unwrap();
    assert_eq!(desk.tokens(&first.token).await, refusal(401, "unauthorized"));
    assert_eq!(desk.tokens(&second.token).await.unwrap().len(), 1);
    assert_eq!(desk.with_token("DELETE", &path, &second.token).await, refusal(404, "no_token"));
}

#[tokio::test]
async fn one_address_has_so_many_tokens_and_no_more() {
    let desk = Desk::new(Contracts::Disagree);
    let key = PrivateKeySigner::random();
    for _ in 0..TOKENS_EACH_MAX {
        desk.sign_in(&key).await.unwrap();
    }
    assert_eq!(desk.sign_in(&key).await, refusal(429, "busy"));
    assert!(desk.sign_in(&PrivateKeySigner::random()).await.is_ok());
}
