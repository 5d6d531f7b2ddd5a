//! The operator's side of a sidecar: HTTP over the Unix socket in the sandbox's own directory.

mod agents;
mod exec;
mod snapshot;

use std::io;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use sandbox_fleet::ports::{Pipe, PortError, SidecarError, Sidecars};
use sandbox_fleet::sandbox::Instance;
use sandbox_protocol::exec::{BEARER, ExecBody, ExecReply, SidecarRefusal};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::limits::EXEC_TIMEOUT_MS_MAX;
use sandbox_protocol::{Failure, FailureCode};
use tokio::net::UnixStream;

use crate::limits::{SIDECAR_REPLY_BYTES_MAX, SIDECAR_SLACK, SIDECAR_START_PAUSE, SIDECAR_START_TIMEOUT};
use crate::places::Places;
use exec::Pools;
pub(crate) use snapshot::SnapshotError;

/// The sidecars of this host.
pub(crate) struct SocketSidecars {
    places: Places,
    pools: Pools,
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    #[error("the request cannot be made")]
    Request(#[source] hyper::http::Error),
    #[error("the exchange failed")]
    Exchange(#[source] hyper::Error),
    #[error("the body failed")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("no answer in time")]
    TimedOut,
    #[error("not the JSON expected")]
    Json(#[source] serde_json::Error),
}

impl SocketSidecars {
    /// Sidecars at these places.
    pub(crate) fn new(places: Places) -> Self {
        Self { places, pools: Pools::default() }
    }

    /// A new connection to the sidecar.
    async fn dial(&self, instance: &Instance) -> io::Result<UnixStream> {
        UnixStream::connect(self.places.socket(&instance.vessel)).await
    }

    async fn healthy(&self, instance: &Instance) -> Result<(), CallError> {
        let request = Request::builder().method(Method::GET).uri("/health").header(HOST, "sidecar");
        let request = request.body(Full::default()).map_err(CallError::Request)?;
        let bounds = (SIDECAR_START_TIMEOUT, SIDECAR_REPLY_BYTES_MAX);
        let (status, _) = call(&self.places.socket(&instance.vessel), request, bounds).await?;
        if status == StatusCode::OK { Ok(()) } else { Err(CallError::TimedOut) }
    }
}

#[async_trait]
impl Sidecars for SocketSidecars {
    async fn ready(&self, instance: &Instance) -> Result<(), PortError> {
        let asking = async {
            while self.healthy(instance).await.is_err() {
                tokio::time::sleep(SIDECAR_START_PAUSE).await;
            }
        };
        tokio::time::timeout(SIDECAR_START_TIMEOUT, asking)
            .await
            .map_err(|elapsed| PortError::new(FailureCode::Engine, "the sandbox did not start in time", elapsed))
    }

    async fn exec(&self, instance: &Instance, body: ExecBody) -> Result<ExecReply, SidecarError> {
        match exec::exec(&self.pools, &self.places, instance, &body).await? {
            Some(reply) => Ok(reply),
            None => self.exec_over_http(instance, body).await,
        }
    }

    async fn kill(&self, instance: &Instance, execution: &str) -> Result<(), SidecarError> {
        self.end(instance, &format!("/exec/{execution}")).await
    }

    async fn connect(&self, instance: &Instance) -> Result<Box<dyn Pipe>, SidecarError> {
        match self.dial(instance).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(SidecarError::NotSent(CallError::Connect(error).into())),
        }
    }
}

impl SocketSidecars {
    /// As sandboxes of before are asked, which do not speak the execution protocol.
    async fn exec_over_http(&self, instance: &Instance, body: ExecBody) -> Result<ExecReply, SidecarError> {
        let unreachable = |error: CallError| SidecarError::Unreachable(error.into());
        let limit = Duration::from_millis(body.timeout_ms.min(EXEC_TIMEOUT_MS_MAX)) + SIDECAR_SLACK;
        let bounds = (limit, SIDECAR_REPLY_BYTES_MAX);
        let json = serde_json::to_vec(&body).map_err(|error| unreachable(CallError::Json(error)))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri("/exec")
            .header(HOST, "sidecar")
            .header(AUTHORIZATION, format!("{BEARER} {}", instance.token.reveal()))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(json))
            .map_err(|error| unreachable(CallError::Request(error)))?;
        let (status, reply) = match call(&self.places.socket(&instance.vessel), request, bounds).await {
            Ok(answer) => answer,
            Err(error @ CallError::Connect(_)) => return Err(SidecarError::NotSent(error.into())),
            Err(error) => return Err(unreachable(error)),
        };
        if status == StatusCode::OK {
            return serde_json::from_slice(&reply).map_err(|error| unreachable(CallError::Json(error)));
        }
        let refused: ErrorBody = serde_json::from_slice(&reply).map_err(|error| unreachable(CallError::Json(error)))?;
        Err(refusal(refused))
    }
}

/// What a customer is told whose sandbox was made by an older release, and asks for what that does not know.
pub(crate) fn outdated() -> Failure {
    let message = "the sandbox was made by an older release, which cannot do this; a new sandbox can";
    Failure::new(FailureCode::Unsupported, message)
}

/// What a sidecar's refusal means to whoever asked.
fn refusal(refused: ErrorBody) -> SidecarError {
    match SidecarRefusal::from_code(&refused.code) {
        Some(SidecarRefusal::UnknownExecution | SidecarRefusal::UnknownRun | SidecarRefusal::Interrupted) => {
            SidecarError::Lost
        }
        Some(SidecarRefusal::Busy) => SidecarError::Busy,
        Some(SidecarRefusal::BadRequest | SidecarRefusal::TooLarge) => SidecarError::Refused(refused.message),
        Some(SidecarRefusal::UnknownBackend) => not_offered(FailureCode::UnknownBackend, refused),
        Some(SidecarRefusal::UnknownProfile) => not_offered(FailureCode::UnknownProfile, refused),
        Some(SidecarRefusal::NotFound | SidecarRefusal::MethodNotAllowed) => SidecarError::Outdated,
        Some(
            SidecarRefusal::Unauthorized
            | SidecarRefusal::Forbidden
            | SidecarRefusal::Conflict
            | SidecarRefusal::UnknownTerminal
            | SidecarRefusal::UnknownSession
            | SidecarRefusal::UpgradeRequired
            | SidecarRefusal::PortReserved
            | SidecarRefusal::PortClosed
            | SidecarRefusal::OutputLimit
            | SidecarRefusal::Internal,
        )
        | None => SidecarError::Unreachable(refused.into()),
    }
}

fn not_offered(code: FailureCode, refused: ErrorBody) -> SidecarError {
    SidecarError::NotOffered(Failure::new(code, refused.message))
}

/// One request on a connection of its own: a fifth of a millisecond, and nothing to keep.
async fn call(
    socket: &Path,
    request: Request<Full<Bytes>>,
    (limit, reply_bytes_max): (Duration, usize),
) -> Result<(StatusCode, Bytes), CallError> {
    let exchange = async {
        let stream = UnixStream::connect(socket).await.map_err(CallError::Connect)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(CallError::Exchange)?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(CallError::Exchange)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), reply_bytes_max);
            let body = body.collect().await.map_err(CallError::Body)?.to_bytes();
            Ok((status, body))
        };
        tokio::pin!(answered);
        tokio::select! {
            answer = &mut answered => answer,
            driven = connection => {
                driven.map_err(CallError::Exchange)?;
                answered.await
            }
        }
    };
    tokio::time::timeout(limit, exchange).await.map_err(|_| CallError::TimedOut)?
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use alloy::primitives::Address;
    use hyper::Response;
    use hyper::service::service_fn;
    use sandbox_protocol::exec::ByteText;
    use sandbox_protocol::snapshot::ExportQuery;
    use tempfile::TempDir;
    use tokio::net::UnixListener;

    use super::*;

    const VESSEL: &str = "sbx-1-2-0-tag";

    /// A sidecar that knows no route.
    fn old_sidecar() -> (SocketSidecars, Instance, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::new(dir.path(), Address::ZERO, 1).unwrap();
        std::fs::create_dir(places.socket_dir(VESSEL)).unwrap();
        let listener = UnixListener::bind(places.socket(VESSEL)).unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(|_| async {
                    let body = r#"{"code":"not_found","message":"no such route","retryable":false}"#;
                    Ok::<_, Infallible>(
                        Response::builder().status(404).body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap(),
                    )
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        (SocketSidecars::new(places), Instance { vessel: VESSEL.into(), ..Instance::default() }, dir)
    }

    #[tokio::test]
    async fn a_sidecar_of_an_older_release_is_known_by_what_it_does_not_know() {
        let (sidecars, instance, _dir) = old_sidecar();
        let body = ExecBody {
            id: None,
            command: "true".into(),
            cwd: String::new(),
            env: Default::default(),
            stdin: ByteText(Vec::new()),
            timeout_ms: 1_000,
            attach_only: false,
            detach: false,
        };
        assert!(matches!(sidecars.exec(&instance, body).await, Err(SidecarError::Outdated)));
        let whole = ExportQuery { workspace: true, state: true };
        assert!(matches!(sidecars.export(&instance, whole).await, Err(SnapshotError::Outdated)));
    }
}
