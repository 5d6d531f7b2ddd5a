//! Who may use which route: the sidecar's own token all of them, a ticket those of its scopes.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use sandbox_protocol::exec::{BEARER, SidecarRefusal};
use sandbox_protocol::ticket::{self, SidecarScope, SidecarScopes, TicketFault};
use subtle::ConstantTimeEq as _;

use super::error::ApiError;
use crate::limits::TOKEN_BYTES_MAX;

/// Random bytes in a token that the sidecar makes itself.
const MADE_TOKEN_BYTES: usize = 32;

/// What a route demands of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// Any scope.
    Any,
    /// This one.
    Scope(SidecarScope),
}

/// What the routes below a path demand. Whatever is not named here demands the scope of administration.
pub const DEMANDS: [(&str, Demand); 11] = [
    ("/exec", Demand::Scope(SidecarScope::Exec)),
    ("/fsp", Demand::Scope(SidecarScope::Exec)),
    ("/tcp", Demand::Scope(SidecarScope::Exec)),
    ("/prompt", Demand::Scope(SidecarScope::Exec)),
    ("/task", Demand::Scope(SidecarScope::Exec)),
    ("/runs", Demand::Scope(SidecarScope::Exec)),
    ("/sessions", Demand::Scope(SidecarScope::Exec)),
    ("/files", Demand::Scope(SidecarScope::Files)),
    ("/pty", Demand::Scope(SidecarScope::Pty)),
    ("/ptys", Demand::Scope(SidecarScope::Pty)),
    ("/events", Demand::Any),
];

impl Demand {
    /// What a request to `path` demands.
    pub fn of(path: &str) -> Self {
        let below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let found = DEMANDS.into_iter().find(|(root, _)| below(root));
        found.map_or(Self::Scope(SidecarScope::Admin), |(_, demand)| demand)
    }

    fn is_met_by(self, scopes: SidecarScopes) -> bool {
        match self {
            Self::Any => !scopes.is_empty(),
            Self::Scope(scope) => scopes.cover(scope),
        }
    }
}

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

    /// What `header`, which shows this token or a ticket made from it, opens at the second `now_s`; how long that takes
    /// does not tell how much of it is right.
    fn scopes(&self, header: &[u8], now_s: u64) -> Result<SidecarScopes, TicketFault> {
        let (scheme, given) = header.split_at_checked(BEARER.len()).ok_or(TicketFault::Malformed)?;
        let given = given.strip_prefix(b" ").ok_or(TicketFault::Malformed)?;
        if !scheme.eq_ignore_ascii_case(BEARER.as_bytes()) {
            return Err(TicketFault::Malformed);
        }
        if bool::from(given.ct_eq(self.0.as_bytes())) {
            return Ok(SidecarScope::Admin.into());
        }
        let text = std::str::from_utf8(given).map_err(|_| TicketFault::Malformed)?;
        ticket::verify(self.0.as_bytes(), text, now_s)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Lets a request pass that shows the token, or a ticket for its route.
pub(super) async fn demand_token(
    State(token): State<Token>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let shown = request.headers().get(AUTHORIZATION).ok_or_else(|| unauthorized("give the sidecar's bearer token"))?;
    let scopes = token.scopes(shown.as_bytes(), now_s()).map_err(|fault| {
        unauthorized(match fault {
            TicketFault::Malformed | TicketFault::Forged => "give the sidecar's bearer token, or a ticket made from it",
            TicketFault::Expired => "the ticket has expired",
        })
    })?;
    if Demand::of(request.uri().path()).is_met_by(scopes) {
        return Ok(next.run(request).await);
    }
    Err(ApiError::new(SidecarRefusal::Forbidden, format!("a ticket of {scopes} does not open this")))
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(SidecarRefusal::Unauthorized, message)
}

/// The second that tickets are compared with.
fn now_s() -> u64 {
    // A clock before 1970 lets no ticket pass.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, expected: Result<SidecarScopes, TicketFault>) {
        let token = Token::new("secret").unwrap();
        assert_eq!(token.scopes(header.as_bytes(), 99), expected, "{header:?}");
    }

    #[test]
    fn only_the_whole_token_is_admitted() {
        check("Bearer secret", Ok(SidecarScope::Admin.into()));
        check("bearer secret", Ok(SidecarScope::Admin.into()));
        for header in [
            "",
            "Bearer",
            "Bearer ",
            "secret",
            "Bearersecret",
            "Basic secret",
            "Bearer secre",
            "Bearer secrets",
            "Bearer  secret",
        ] {
            check(header, Err(TicketFault::Malformed));
        }
    }

    #[test]
    fn a_ticket_of_the_token_opens_its_scopes_in_its_time() {
        let bearer = |token: &str, expiry| {
            format!("Bearer {}", ticket::mint(token.as_bytes(), SidecarScope::Pty.into(), expiry))
        };
        check(&bearer("secret", 100), Ok(SidecarScope::Pty.into()));
        check(&bearer("secret", 99), Err(TicketFault::Expired));
        check(&bearer("secrets", 100), Err(TicketFault::Forged));
    }

    #[test]
    fn a_path_demands_what_the_first_part_of_it_says_and_the_rest_administration() {
        for (root, demand) in DEMANDS {
            for path in [root.to_owned(), format!("{root}/"), format!("{root}/x/y")] {
                assert_eq!(Demand::of(&path), demand, "{path}");
            }
            for path in [format!("{root}x"), format!("/{root}"), root[1..].to_owned(), format!("/x{root}")] {
                let named = DEMANDS.iter().any(|(other, _)| *other == path);
                assert!(named || Demand::of(&path) == Demand::Scope(SidecarScope::Admin), "{path}");
            }
        }
        for path in ["/snapshot", "/", "", "/EXEC", "/%65xec", "/else"] {
            assert_eq!(Demand::of(path), Demand::Scope(SidecarScope::Admin), "{path}");
        }
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
