//! Signing in with Ethereum. Only what is good at the asked operator alone is signed, whatever it answers.

use alloy::primitives::Address;
use alloy::signers::SignerSync as _;
use reqwest::Url;
use sandbox_protocol::session::{NonceBody, Scope, TokenRequest};
use sandbox_protocol::siwe::Message;
use time::OffsetDateTime;

use super::{ApiError, Session, answer, url_of};
use crate::answers::client::http;
use crate::chain::Account;
use crate::limits::API_WITHIN;

/// What a signer reads, whatever the operator would have it state.
const STATEMENT: &str = "Sign in to this operator of agent sandboxes.";

/// Opens a session with `operator`, at the URL it has registered, for these scopes.
///
/// # Errors
/// [`ApiError`]; with [`ApiError::Elsewhere`] nothing was signed.
pub async fn sign_in(
    account: &Account,
    (operator, registered): (Address, &str),
    scopes: &[Scope],
) -> Result<Session, ApiError> {
    let (http, url) = (http().map_err(ApiError::Client)?, url_of(operator, registered)?);
    let asked = http.post(format!("{url}/v1/auth/nonce")).timeout(API_WITHIN);
    let nonce: NonceBody = answer(&url, asked).await?;
    let message = message(account, &url, nonce, scopes)?.to_string();
    let signature = account.key().sign_message_sync(message.as_bytes()).map_err(ApiError::Sign)?;
    let request = TokenRequest { message, signature: signature.as_bytes().to_vec().into() };
    let token = answer(&url, http.post(format!("{url}/v1/auth/token")).json(&request).timeout(API_WITHIN)).await?;
    Ok(Session { http, url, token })
}

fn message(account: &Account, url: &str, nonce: NonceBody, scopes: &[Scope]) -> Result<Message, ApiError> {
    let chain_id = account.deployment().chain_id;
    let domain = authority(url).unwrap_or_default();
    if nonce.domain != domain || nonce.uri != url || nonce.chain_id != chain_id {
        let wanted = format!("{} at {} on chain {}", nonce.domain, nonce.uri, nonce.chain_id);
        return Err(ApiError::Elsewhere { url: url.to_owned(), wanted });
    }
    let message = Message {
        scheme: None,
        domain,
        address: account.address(),
        statement: Some(STATEMENT.to_owned()),
        uri: nonce.uri,
        chain_id,
        nonce: nonce.nonce,
        issued_at: OffsetDateTime::now_utc().replace_nanosecond(0).unwrap_or(OffsetDateTime::UNIX_EPOCH),
        expiration_time: None,
        not_before: None,
        request_id: None,
        resources: scopes.iter().map(|scope| scope.urn()).collect(),
    };
    // What an operator slips into its nonce could be more lines of the message.
    let reads_alike = message.to_string().parse().is_ok_and(|read: Message| read == message);
    let wanted = || ApiError::Garbled { url: url.to_owned(), why: "a nonce that is none".into() };
    reads_alike.then_some(message).ok_or_else(wanted)
}

/// Host of a URL, and its port where it is not the scheme's own.
fn authority(url: &str) -> Option<String> {
    let url: Url = url.parse().ok()?;
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}
