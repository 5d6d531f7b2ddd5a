//! Connections to ports inside a sandbox.

use sandbox_fsp::Dial as _;
use sandbox_process::link::link;
use sandbox_process::upgrade::{Stream, UpgradeError, upgrade};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::tunnel::{PROTOCOL, ROUTE};
use tokio::time::timeout;

use super::Inside;
use crate::api::ApiError;
use crate::limits::OPEN_WITHIN;

impl Inside {
    /// A connection to a port of a program inside, as bytes both ways. Either side may end its own.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn connect(&self, port: u16) -> Result<Stream, ApiError> {
        let web = self.web(&format!("{ROUTE}/{port}"))?;
        let request = self.upgrade_request(&web.uri())?;
        let opened = async {
            let stream = web.open().await.map_err(|error| self.broken(error))?;
            let (mut sender, _driver) = link(stream).await.map_err(|error| self.broken(error))?;
            upgrade(&mut sender, request, PROTOCOL).await.map_err(|error| self.not_upgraded(error))
        };
        timeout(OPEN_WITHIN, opened).await.unwrap_or_else(|late| Err(self.broken(late)))
    }

    fn not_upgraded(&self, error: UpgradeError) -> ApiError {
        match error {
            UpgradeError::Broken(error) => self.broken(error),
            UpgradeError::Refused(response) => {
                let status = response.status();
                let message = status.canonical_reason().unwrap_or("without a reason").to_owned();
                let error = ErrorBody { code: "refused".into(), message, retryable: status.is_server_error() };
                ApiError::Refused { status: status.as_u16(), error }
            }
        }
    }
}
