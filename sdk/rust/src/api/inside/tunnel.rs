//! Connections to ports inside a sandbox.

use http::Response;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use sandbox_fsp::Dial as _;
use sandbox_process::link::link;
use sandbox_process::upgrade::{Stream, UpgradeError, upgrade};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::tunnel::{PROTOCOL, ROUTE};
use tokio::time::timeout;

use super::Inside;
use crate::api::ApiError;
use crate::limits::{API_BODY_BYTES_MAX, OPEN_WITHIN};

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
            match upgrade(&mut sender, request, PROTOCOL).await {
                Ok(stream) => Ok(stream),
                Err(UpgradeError::Broken(error)) => Err(self.broken(error)),
                Err(UpgradeError::Refused(response)) => Err(refusal(*response).await),
            }
        };
        timeout(OPEN_WITHIN, opened).await.unwrap_or_else(|late| Err(self.broken(late)))
    }
}

async fn refusal(response: Response<Incoming>) -> ApiError {
    let status = response.status();
    let body = Limited::new(response.into_body(), API_BODY_BYTES_MAX).collect().await;
    let said = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
    let unsaid = || ErrorBody { code: "unknown".into(), message: "without a reason".into(), retryable: false };
    ApiError::Refused { status: status.as_u16(), error: said.unwrap_or_else(unsaid) }
}
