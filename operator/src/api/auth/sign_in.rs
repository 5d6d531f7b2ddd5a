//! What a sign-in message must say to this operator, and what it is given for it. Decided here, without a clock or a chain.

use alloy::primitives::Address;
use sandbox_protocol::limits::TOKEN_LIFE_S_MAX;
use sandbox_protocol::session::Scope;
use sandbox_protocol::siwe::{Message, NotAMessage};

use crate::limits::CLOCK_SKEW_S_MAX;

/// Where one signs in.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Authority of the operator's API.
    pub(super) domain: String,
    /// Its URL, without a closing slash.
    pub(super) uri: String,
    pub(super) chain_id: u64,
    /// Life of a token whose message names no end.
    pub(super) token_life_s: u64,
}

/// What a message is good for, once its signature is found to be its address's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) address: Address,
    pub(super) scopes: Vec<Scope>,
    pub(super) expires_at: u64,
    pub(super) nonce: String,
}

/// Why a message opens nothing here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    NotAMessage(#[from] NotAMessage),
    #[error("the message is for {found}, this is {here}")]
    Domain { found: String, here: String },
    #[error("the message's URI is {found}, it must be {here} or below it")]
    Uri { found: String, here: String },
    #[error("the message is for chain {found}, this operator is on chain {here}")]
    Chain { found: u64, here: u64 },
    #[error("the message was written later than now; is the clock right?")]
    NotYetIssued,
    #[error("the message is not valid yet")]
    NotYet,
    #[error("the message has expired")]
    Expired,
    #[error("the message's resource {0:?} is no scope of this operator's")]
    Resource(String),
    #[error("the message asks for no scope; its resources name them, {} say", Scope::CallsRead.urn())]
    NoScope,
}

impl Place {
    /// The place at this URL; `None` where it has no host.
    pub(super) fn at(url: &str, chain_id: u64, token_life_s: u64) -> Option<Self> {
        let parsed: alloy::transports::http::reqwest::Url = url.parse().ok()?;
        let host = parsed.host_str()?;
        let domain = parsed.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Some(Self { domain, uri: url.trim_end_matches('/').to_owned(), chain_id, token_life_s })
    }

    /// What `text` is good for at second `now`.
    pub(super) fn judge(&self, text: &str, now: u64) -> Result<Grant, Refusal> {
        let message: Message = text.parse()?;
        self.is_ours(&message)?;
        let expires_at = self.lifetime(&message, now)?;
        let mut scopes = Vec::new();
        for resource in &message.resources {
            let scope = Scope::of_urn(resource).map_err(|_| Refusal::Resource(resource.clone()))?;
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        if scopes.is_empty() {
            return Err(Refusal::NoScope);
        }
        Ok(Grant { address: message.address, scopes, expires_at, nonce: message.nonce })
    }

    fn is_ours(&self, message: &Message) -> Result<(), Refusal> {
        if !message.domain.eq_ignore_ascii_case(&self.domain) {
            return Err(Refusal::Domain { found: message.domain.clone(), here: self.domain.clone() });
        }
        let below = message.uri.strip_prefix(&self.uri);
        if !below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Err(Refusal::Uri { found: message.uri.clone(), here: self.uri.clone() });
        }
        if message.chain_id != self.chain_id {
            return Err(Refusal::Chain { found: message.chain_id, here: self.chain_id });
        }
        Ok(())
    }

    /// The last second of a token for this message.
    fn lifetime(&self, message: &Message, now: u64) -> Result<u64, Refusal> {
        let soon = now + CLOCK_SKEW_S_MAX;
        if second(message.issued_at) > soon {
            return Err(Refusal::NotYetIssued);
        }
        if message.not_before.is_some_and(|instant| second(instant) > soon) {
            return Err(Refusal::NotYet);
        }
        match message.expiration_time.map(second) {
            Some(end) if end <= now => Err(Refusal::Expired),
            Some(end) => Ok(end.min(now + TOKEN_LIFE_S_MAX)),
            None => Ok(now + self.token_life_s),
        }
    }
}

fn second(instant: time::OffsetDateTime) -> u64 {
    u64::try_from(instant.unix_timestamp()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    const NOW: u64 = 1_700_000_000;
    const LIFE_S: u64 = 3_600;

    fn at(second: u64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(second as i64).unwrap()
    }

    fn place() -> Place {
        Place::at("https://op.example:8443/api/", 31_337, LIFE_S).unwrap()
    }

    fn judge(change: impl FnOnce(&mut Message)) -> Result<Grant, Refusal> {
        let mut message = Message {
            scheme: None,
            domain: "op.example:8443".into(),
            address: Address::repeat_byte(7),
            statement: Some("Sign in.".into()),
            uri: "https://op.example:8443/api".into(),
            chain_id: 31_337,
            nonce: "12345678".into(),
            issued_at: at(NOW),
            expiration_time: None,
            not_before: None,
            request_id: None,
            resources: vec![Scope::CallsRead.urn(), Scope::EventsRead.urn(), Scope::CallsRead.urn()],
        };
        change(&mut message);
        place().judge(&message.to_string(), NOW)
    }

    #[test]
    fn a_message_for_this_place_is_good_for_its_scopes_and_for_the_usual_time() {
        let grant = judge(|_| {}).unwrap();
        let scopes = vec![Scope::CallsRead, Scope::EventsRead];
        let address = Address::repeat_byte(7);
        assert_eq!(grant, Grant { address, scopes, expires_at: NOW + LIFE_S, nonce: "12345678".into() });
        assert!(judge(|message| message.uri.push_str("/v1/auth/token")).is_ok());
        assert!(judge(|message| message.domain = "OP.example:8443".into()).is_ok());
    }

    #[test]
    fn a_message_for_another_place_is_good_for_nothing() {
        let domain = |domain: &str| judge(|message| message.domain = domain.into()).unwrap_err();
        for other in ["op.example", "evil.example:8443", "op.example:8443.evil.example"] {
            assert!(matches!(domain(other), Refusal::Domain { .. }), "{other}");
        }
        for other in ["https://op.example:8443", "http://op.example:8443/api", "https://op.example:8443/apiary"] {
            let refused = judge(|message| message.uri = other.into()).unwrap_err();
            assert!(matches!(refused, Refusal::Uri { .. }), "{other}");
        }
        let chain = judge(|message| message.chain_id = 1).unwrap_err();
        assert_eq!(chain, Refusal::Chain { found: 1, here: 31_337 });
    }

    #[test]
    fn a_message_is_good_in_its_own_time() {
        let end = |end| judge(|message| message.expiration_time = Some(at(end))).map(|grant| grant.expires_at);
        assert_eq!((end(NOW), end(NOW + 1)), (Err(Refusal::Expired), Ok(NOW + 1)));
        assert_eq!(end(NOW + TOKEN_LIFE_S_MAX + 9), Ok(NOW + TOKEN_LIFE_S_MAX));
        let begin = |begin| judge(|message| message.not_before = Some(at(begin))).err();
        let soon = NOW + CLOCK_SKEW_S_MAX;
        assert_eq!((begin(soon), begin(soon + 1)), (None, Some(Refusal::NotYet)));
        let issued = |issued| judge(|message| message.issued_at = at(issued)).err();
        assert_eq!((issued(soon), issued(soon + 1)), (None, Some(Refusal::NotYetIssued)));
    }

    #[test]
    fn what_is_asked_for_must_be_to_be_had() {
        assert_eq!(judge(|message| message.resources.clear()), Err(Refusal::NoScope));
        let other = "urn:sandbox:scope:everything".to_owned();
        assert_eq!(judge(|message| message.resources.push(other.clone())), Err(Refusal::Resource(other)));
    }
}
