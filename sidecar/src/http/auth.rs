//! The bearer token that every route but `/health` demands.

use std::fmt;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use sandbox_protocol::exec::{BEARER, SidecarRefusal};
use subtle::ConstantTimeEq as _;

use super::error::ApiError;
use crate::limits::TOKEN_BYTES_MAX;

/// Random bytes in a token that the sidecar makes itself.
const MADE_TOKEN_BYTES: usize = 32;

/// A secret that callers show. Its text is printed by nothing but [`Token::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token of this text, unless a header could not carry it.
    pub fn new(text: &str) -> Option<Self> {
        let usable = (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        usable.then(|| Self(text.to_owned()))
    }

    /// A token that nobody can guess.
    ///
    /// # Errors
    /// The kernel gives no randomness.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; MADE_TOKEN_BYTES];
        OsRng.try_fill_bytes(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The text, for the one who started the sidecar without a token.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `header` shows this token; how long that takes does not tell how much of it is right.
    fn admits(&self, header: &[u8]) -> bool {
        let Some((scheme, given)) = header.split_at_checked(BEARER.len()) else { return false };
        let Some(given) = given.strip_prefix(b" ") else { return false };
        scheme.eq_ignore_ascii_case(BEARER.as_bytes()) && bool::from(given.ct_eq(self.0.as_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Lets a request pass that shows the token.
pub(super) async fn demand_token(
    State(token): State<Token>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let shown = request.headers().get(AUTHORIZATION);
    if shown.is_some_and(|header| token.admits(header.as_bytes())) {
        return Ok(next.run(request).await);
    }
    Err(ApiError::new(SidecarRefusal::Unauthorized, "give the sidecar's bearer token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, admitted: bool) {
        let token = Token::new("secret").unwrap();
        assert_eq!(token.admits(header.as_bytes()), admitted, "{header:?}");
    }

    #[test]
    fn only_the_whole_token_is_admitted() {
        check("Bearer secret", true);
        check("bearer secret", true);
        for header in
            ["", "Bearer", "Bearer ", "secret", "Bearersecret", "Basic secret", "Bearer secre", "Bearer secrets"]
        {
            check(header, false);
        }
        check("Bearer  secret", false);
    }

    #[test]
    fn a_token_is_what_a_header_can_carry() {
        assert!(Token::new(&"t".repeat(TOKEN_BYTES_MAX)).is_some());
        for text in ["", "two words", "line\n", "naïve", &"t".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(Token::new(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_made_token_is_long_and_new_each_time() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.reveal().len(), 2 * MADE_TOKEN_BYTES);
        assert_ne!(one, other);
    }

    #[test]
    fn a_token_does_not_print_itself() {
        assert_eq!(format!("{:?}", Token::new("secret")), "Some(Token(…))");
    }
}
