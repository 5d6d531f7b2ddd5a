//! What is in a sandbox, through its operator: executions, files, terminals, ports.

mod executions;
mod files;
mod runs;
mod terminal;
mod tunnel;

use http::header::{AUTHORIZATION, HOST};
use http::{Request, Uri};
use reqwest::{Method, RequestBuilder};
use sandbox_fsp::Web;
use sandbox_protocol::SandboxId;
use serde::Serialize;

use super::{ApiError, Session};

pub use self::executions::OpenError;
pub use self::files::Download;
pub use self::runs::RunEvents;
pub use self::terminal::{Terminal, Told};

/// A sandbox, as its owner sees it from within. A stopped one is started by the first thing that is asked of it.
#[derive(Debug, Clone)]
pub struct Inside {
    session: Session,
    id: SandboxId,
}

impl Session {
    /// The inside of a sandbox that this operator holds.
    pub fn inside(&self, id: SandboxId) -> Inside {
        Inside { session: self.clone(), id }
    }
}

impl Inside {
    /// A request for a route of its sidecar, with its query.
    fn request(&self, method: Method, target: &str) -> RequestBuilder {
        self.session.request(method, &self.path(target))
    }

    /// Path and query at the operator, which is to start the sandbox where it is stopped.
    fn path(&self, target: &str) -> String {
        let mark = if target.contains('?') { '&' } else { '?' };
        format!("/sandboxes/{}{target}{mark}resume=true", self.id)
    }

    /// The way to a route that is not spoken to by HTTP alone.
    fn web(&self, target: &str) -> Result<Web, ApiError> {
        let url = format!("{}{}", self.session.url.replacen("http", "ws", 1), self.path(target));
        let uri: Uri = url.parse().map_err(|_| self.session.garbled("a URL that is none"))?;
        Web::new(uri).map_err(ApiError::Tls)
    }

    /// The request by which a connection to such a route is upgraded.
    fn upgrade_request(&self, uri: &Uri) -> Result<Request<String>, ApiError> {
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let request = Request::get(target).header(HOST, host).header(AUTHORIZATION, self.bearer());
        request.body(String::new()).map_err(|error| self.broken(error))
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.session.token.token)
    }

    fn broken(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ApiError {
        ApiError::Broken { url: self.session.url.clone(), source: source.into() }
    }
}

/// Route and query.
fn target(route: &str, query: &impl Serialize) -> String {
    // Every query is names with texts and numbers, which are always written.
    let query = serde_urlencoded::to_string(query).unwrap_or_default();
    if query.is_empty() { route.to_owned() } else { format!("{route}?{query}") }
}
