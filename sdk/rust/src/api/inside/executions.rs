//! What runs in a sandbox and ran there.

use reqwest::Method;
use sandbox_fsp::{Connection, Endpoint, FspError, Token};
use sandbox_protocol::exec::{ExecSummary, ExecsBody, KillQuery};
use sandbox_protocol::fsp::{self, Extensions, Signal};

use super::{Inside, target};
use crate::api::{ApiError, body_of};

/// Why there is no connection for executions.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no way to the operator.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The way is there, and the protocol is not spoken on it.
    #[error(transparent)]
    Fsp(#[from] FspError),
}

impl Inside {
    /// A connection on which commands run, with all extensions of the protocol that the sandbox has.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn executions(&self) -> Result<Connection, OpenError> {
        let web = self.web(fsp::ROUTE)?;
        let token = Token::fixed(self.session.token.token.as_str());
        Ok(Connection::open(&Endpoint::new(web, token, Extensions::all())).await?)
    }

    /// Executions that the sandbox knows: the running, then those that have ended.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn list_executions(&self) -> Result<Vec<ExecSummary>, ApiError> {
        let body: ExecsBody = self.session.answer(self.request(Method::GET, "/exec")).await?;
        Ok(body.executions)
    }

    /// Ends an execution with all that it started, or sends its process group a signal.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn kill(&self, execution: &str, signal: Option<Signal>) -> Result<(), ApiError> {
        let route = target(&format!("/exec/{execution}"), &KillQuery { signal });
        let response = self.session.send(self.request(Method::DELETE, &route)).await?;
        body_of(&self.session.url, response).await.map(drop)
    }
}
