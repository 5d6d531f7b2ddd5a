//! Tickets: narrow, short-lived keys to one sidecar, made from its token without asking it.
//!
//! `sbt1.<scopes joined by +>.<expiry in unix seconds>.<hex HMAC-SHA256 over all before the last dot>`, keyed with the
//! sidecar's own token, which itself opens everything. Who holds the token mints; the sidecar verifies; nothing is
//! stored. Time is an argument.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::hex;
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::limits::TICKET_BYTES_MAX;

/// First part of every ticket; another version has another.
const VERSION: &str = "sbt1";

/// What a ticket opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SidecarScope {
    /// Commands, executions, and the ports of programs inside.
    Exec,
    /// Files of the workspace and the home.
    Files,
    /// Terminals.
    Pty,
    /// Everything.
    Admin,
}

impl SidecarScope {
    /// All of them, in the order in which a ticket names them.
    pub const ALL: [Self; 4] = [Self::Exec, Self::Files, Self::Pty, Self::Admin];

    /// Its word in a ticket.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Files => "files",
            Self::Pty => "pty",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for SidecarScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Some scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SidecarScopes(u8);

impl SidecarScopes {
    /// Whether these scopes open what `scope` names.
    pub const fn cover(self, scope: SidecarScope) -> bool {
        self.0 & (scope.bit() | SidecarScope::Admin.bit()) != 0
    }

    /// Whether they open nothing.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = SidecarScope> {
        SidecarScope::ALL.into_iter().filter(move |scope| self.0 & scope.bit() != 0)
    }
}

impl From<SidecarScope> for SidecarScopes {
    fn from(scope: SidecarScope) -> Self {
        Self(scope.bit())
    }
}

impl FromIterator<SidecarScope> for SidecarScopes {
    fn from_iter<I: IntoIterator<Item = SidecarScope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Display for SidecarScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, scope) in self.iter().enumerate() {
            if index > 0 {
                f.write_str("+")?;
            }
            f.write_str(scope.word())?;
        }
        Ok(())
    }
}

impl FromStr for SidecarScopes {
    type Err = TicketFault;

    fn from_str(text: &str) -> Result<Self, TicketFault> {
        let scope = |word| SidecarScope::ALL.into_iter().find(|scope| scope.word() == word);
        text.split('+').map(|word| scope(word).ok_or(TicketFault::Malformed)).collect()
    }
}

/// Why a text opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketFault {
    /// It is no ticket of this version.
    #[error("no ticket")]
    Malformed,
    /// It was minted with another token, or changed.
    #[error("a ticket of another token")]
    Forged,
    /// Its time is over.
    #[error("an expired ticket")]
    Expired,
}

/// A ticket that opens `scopes` of the sidecar whose token is `token`, until the second `expires_at_s`.
pub fn mint(token: &[u8], scopes: SidecarScopes, expires_at_s: u64) -> String {
    let head = format!("{VERSION}.{scopes}.{expires_at_s}");
    let seal = keyed(token, &head).finalize().into_bytes();
    format!("{head}.{}", hex::encode(seal))
}

/// What the ticket `text` opens of the sidecar whose token is `token`. How long that takes tells nothing of the right
/// seal.
///
/// # Errors
/// [`TicketFault`]; time is looked at last, so that only who had a ticket learns that it expired.
pub fn verify(token: &[u8], text: &str, now_s: u64) -> Result<SidecarScopes, TicketFault> {
    if text.len() > TICKET_BYTES_MAX {
        return Err(TicketFault::Malformed);
    }
    let (head, seal) = text.rsplit_once('.').ok_or(TicketFault::Malformed)?;
    let mut parts = head.split('.');
    let (Some(VERSION), Some(scopes), Some(expiry), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TicketFault::Malformed);
    };
    let (scopes, expires_at_s) = (scopes.parse()?, expiry.parse::<u64>().map_err(|_| TicketFault::Malformed)?);
    // One ticket has one text: the digits of its seal are lower-case.
    if seal.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(TicketFault::Malformed);
    }
    let seal: [u8; 32] = hex::decode_to_array(seal).map_err(|_| TicketFault::Malformed)?;
    keyed(token, head).verify_slice(&seal).map_err(|_| TicketFault::Forged)?;
    if now_s >= expires_at_s { Err(TicketFault::Expired) } else { Ok(scopes) }
}

fn keyed(token: &[u8], head: &str) -> Hmac<Sha256> {
    // A key of any length is one: `new_from_slice` has no other outcome, so an empty one stands in for the impossible.
    let mut mac = Hmac::new_from_slice(token).unwrap_or_else(|_| Hmac::new(&Default::default()));
    mac.update(head.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &[u8] = b"secret";

    fn scopes() -> impl Strategy<Value = SidecarScopes> {
        (1_u8..16).prop_map(SidecarScopes)
    }

    #[test]
    fn a_ticket_has_this_text() {
        let text = mint(TOKEN, SidecarScopes::from_iter([SidecarScope::Pty, SidecarScope::Exec]), 1_700_000_000);
        assert_eq!(text, "sbt1.exec+pty.1700000000.91d2230c101028e09b33a27e11f5ca806bdb5a097b0354163c92fee1a051aa99");
    }

    #[test]
    fn admin_covers_all_and_every_other_scope_itself_alone() {
        for scope in SidecarScope::ALL {
            assert!(SidecarScopes::from(SidecarScope::Admin).cover(scope));
            let covered = SidecarScope::ALL.into_iter().filter(|other| SidecarScopes::from(scope).cover(*other));
            assert!(scope == SidecarScope::Admin || covered.eq([scope]), "{scope}");
            assert!(!SidecarScopes::default().cover(scope));
        }
    }

    #[test]
    fn a_ticket_opens_until_its_second_and_not_in_it() {
        let text = mint(TOKEN, SidecarScope::Files.into(), 100);
        assert_eq!(verify(TOKEN, &text, 99), Ok(SidecarScope::Files.into()));
        assert_eq!(verify(TOKEN, &text, 100), Err(TicketFault::Expired));
        assert_eq!(verify(TOKEN, &text, u64::MAX), Err(TicketFault::Expired));
    }

    #[test]
    fn the_longest_ticket_is_within_the_bound_and_a_longer_text_is_not_looked_at() {
        let longest = mint(TOKEN, SidecarScopes::from_iter(SidecarScope::ALL), u64::MAX);
        assert!(longest.len() <= TICKET_BYTES_MAX, "{}", longest.len());
        assert!(verify(TOKEN, &longest, 0).is_ok());
        assert_eq!(verify(TOKEN, &"x".repeat(TICKET_BYTES_MAX + 1), 0), Err(TicketFault::Malformed));
    }

    #[test]
    fn what_is_no_ticket_is_told_from_a_forged_one() {
        let seal = "0".repeat(64);
        for text in ["", ".", "secret", "sbt1", "sbt1.exec.1", "sbt2.exec.1.00", "sbt1.exec.1.00"] {
            assert_eq!(verify(TOKEN, text, 0), Err(TicketFault::Malformed), "{text}");
        }
        for head in
            ["sbt2.exec.9", "sbt1..9", "sbt1.exec+.9", "sbt1.root.9", "sbt1.exec.-9", "sbt1.exec.9.9", "sbt1.exec"]
        {
            assert_eq!(verify(TOKEN, &format!("{head}.{seal}"), 0), Err(TicketFault::Malformed), "{head}");
        }
        assert_eq!(verify(TOKEN, &format!("sbt1.exec.9.{seal}"), 0), Err(TicketFault::Forged));
    }

    proptest! {
        #[test]
        fn what_is_minted_verifies_before_its_expiry_and_for_its_token_only(
            token in proptest::collection::vec(any::<u8>(), 1..100),
            scopes in scopes(),
            expiry in 1_u64..,
            ago in 1_u64..,
        ) {
            let text = mint(&token, scopes, expiry);
            let now = expiry.saturating_sub(ago);
            prop_assert_eq!(verify(&token, &text, now), Ok(scopes));
            prop_assert_eq!(verify(&[&token[..], b"x"].concat(), &text, now), Err(TicketFault::Forged));
            prop_assert_eq!(text[5..].split('.').next().unwrap().parse(), Ok(scopes));
        }

        #[test]
        fn a_ticket_with_a_changed_byte_never_verifies(
            scopes in scopes(),
            expiry in any::<u64>(),
            at in any::<proptest::sample::Index>(),
            to in 0_u8..128,
        ) {
            let mut bytes = mint(TOKEN, scopes, expiry).into_bytes();
            let at = at.index(bytes.len());
            prop_assume!(bytes[at] != to);
            bytes[at] = to;
            let changed = String::from_utf8(bytes).unwrap();
            prop_assert!(verify(TOKEN, &changed, 0).is_err(), "{}", changed);
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>(), now in any::<u64>()) {
            prop_assert!(verify(TOKEN, &text, now).is_err());
        }
    }
}
