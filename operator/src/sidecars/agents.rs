//! Prompts, tasks and moves: asked for over HTTP, and followed as server-sent events.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use sandbox_fleet::ports::{Agents, RunEvents, SidecarError, Turns};
use sandbox_fleet::sandbox::Instance;
use sandbox_process::link::{Driver, link};
use sandbox_protocol::agent::event::RunEvent;
use sandbox_protocol::agent::negotiation::NegotiateBody;
use sandbox_protocol::agent::{NEGOTIATE, PROMPT, RUNS, RunReply, RunSummary, TASK, TaskBody};
use sandbox_protocol::exec::BEARER;
use sandbox_protocol::files::{FilePath, FilesQuery as _, ReadQuery};
use sandbox_protocol::http::ErrorBody;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{CallError, SocketSidecars, call, refusal};
use crate::limits::{
    RUN_ANSWER_MAX, RUN_EVENT_BYTES_MAX, RUN_REPLY_BYTES_MAX, RUN_SILENCE_MAX, RUN_SLACK, SIDECAR_ERROR_BYTES_MAX,
};

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";
/// What ends an event.
const END: &[u8] = b"\n\n";

#[async_trait]
impl Agents for SocketSidecars {
    async fn run(&self, instance: &Instance, turns: Turns, body: TaskBody) -> Result<RunReply, SidecarError> {
        let path = match turns {
            Turns::One => PROMPT,
            Turns::Many => TASK,
        };
        let limit = Duration::from_millis(body.timeout_ms) + RUN_SLACK;
        read(&self.ask(instance, post(instance, path, JSON, &body)?, limit).await?)
    }

    async fn negotiate(&self, instance: &Instance, body: NegotiateBody) -> Result<Box<dyn RunEvents>, SidecarError> {
        let request = post(instance, NEGOTIATE, EVENT_STREAM, &body)?;
        let stream = self.dial(instance).await.map_err(|error| not_sent(CallError::Connect(error)))?;
        let asking = async {
            let (mut sender, driver) = link(stream).await.map_err(|error| not_sent(CallError::Exchange(error)))?;
            let response =
                sender.send_request(request).await.map_err(|error| unreachable(CallError::Exchange(error)))?;
            let status = response.status();
            if status == StatusCode::OK {
                return Ok(Following { body: response.into_body(), unread: Vec::new(), _driver: driver });
            }
            let told = Limited::new(response.into_body(), SIDECAR_ERROR_BYTES_MAX);
            let told = told.collect().await.map_err(|error| unreachable(CallError::Body(error)))?.to_bytes();
            Err(refusal(read(&told)?))
        };
        let asked: Result<Following, SidecarError> =
            timeout(RUN_ANSWER_MAX, asking).await.map_err(|_| unreachable(CallError::TimedOut))?;
        Ok(Box::new(asked?))
    }

    async fn summary(&self, instance: &Instance, run: &str) -> Result<RunSummary, SidecarError> {
        read(&self.ask(instance, get(instance, &format!("{RUNS}/{run}"))?, RUN_ANSWER_MAX).await?)
    }

    async fn cancel(&self, instance: &Instance, run: &str) -> Result<(), SidecarError> {
        let request = asked(instance, Method::POST, &format!("{RUNS}/{run}/cancel"), JSON, Bytes::new())?;
        self.ask(instance, request, RUN_ANSWER_MAX).await.map(drop)
    }

    async fn file(&self, instance: &Instance, path: &str) -> Result<Vec<u8>, SidecarError> {
        let query = ReadQuery { path: FilePath::from(path) };
        let (status, reply) = self.exchange(instance, get(instance, &query.target())?, RUN_ANSWER_MAX).await?;
        // Files have refusals of their own.
        let refused = |reply: &[u8]| read::<ErrorBody>(reply).map(|refused| SidecarError::Refused(refused.message));
        if status.is_success() { Ok(reply.to_vec()) } else { Err(refused(&reply)?) }
    }
}

impl SocketSidecars {
    /// Ends what is at this path.
    pub(super) async fn end(&self, instance: &Instance, path: &str) -> Result<(), SidecarError> {
        let request = asked(instance, Method::DELETE, path, JSON, Bytes::new())?;
        self.ask(instance, request, RUN_ANSWER_MAX).await.map(drop)
    }

    /// What is answered to a request, unless it is refused.
    async fn ask(
        &self,
        instance: &Instance,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Bytes, SidecarError> {
        let (status, reply) = self.exchange(instance, request, limit).await?;
        if status.is_success() { Ok(reply) } else { Err(refusal(read(&reply)?)) }
    }

    async fn exchange(
        &self,
        instance: &Instance,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<(StatusCode, Bytes), SidecarError> {
        let exchanged = call(&self.places.socket(&instance.vessel), request, (limit, RUN_REPLY_BYTES_MAX)).await;
        exchanged.map_err(|error| match error {
            CallError::Connect(_) => not_sent(error),
            CallError::Request(_)
            | CallError::Exchange(_)
            | CallError::Body(_)
            | CallError::TimedOut
            | CallError::Json(_) => unreachable(error),
        })
    }
}

/// A run that is followed.
struct Following {
    body: Incoming,
    unread: Vec<u8>,
    _driver: Driver,
}

#[async_trait]
impl RunEvents for Following {
    async fn next(&mut self) -> Result<Option<RunEvent>, SidecarError> {
        loop {
            if let Some(event) = taken(&mut self.unread) {
                // A sign of life has no data, and what a later release tells besides is passed over.
                if let Some(event) = data(&event).and_then(|data| serde_json::from_slice(&data).ok()) {
                    return Ok(Some(event));
                }
                continue;
            }
            if self.unread.len() > RUN_EVENT_BYTES_MAX {
                return Err(SidecarError::Unreachable("an event without end".into()));
            }
            let frame = timeout(RUN_SILENCE_MAX, self.body.frame()).await;
            match frame.map_err(|_| unreachable(CallError::TimedOut))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(unreachable(CallError::Exchange(error))),
                Some(Ok(frame)) => self.unread.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            }
        }
    }
}

/// The first whole event, taken out.
fn taken(unread: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = unread.windows(END.len()).position(|pair| pair == END)?;
    Some(unread.drain(..end + END.len()).collect())
}

/// The data of an event, its lines joined; `None` where it has none.
fn data(event: &[u8]) -> Option<Vec<u8>> {
    let lines = event.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    let lines: Vec<&[u8]> = lines.map(|line| line.strip_prefix(b" ").unwrap_or(line)).collect();
    (!lines.is_empty()).then(|| lines.join(&b'\n'))
}

fn post(
    instance: &Instance,
    path: &str,
    accept: &str,
    body: &impl Serialize,
) -> Result<Request<Full<Bytes>>, SidecarError> {
    let json = serde_json::to_vec(body).map_err(|error| not_sent(CallError::Json(error)))?;
    asked(instance, Method::POST, path, accept, json.into())
}

fn get(instance: &Instance, target: &str) -> Result<Request<Full<Bytes>>, SidecarError> {
    asked(instance, Method::GET, target, JSON, Bytes::new())
}

fn asked(
    instance: &Instance,
    method: Method,
    target: &str,
    accept: &str,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, SidecarError> {
    let request = Request::builder().method(method).uri(target).header(HOST, "sidecar").header(ACCEPT, accept);
    let request = request.header(AUTHORIZATION, format!("{BEARER} {}", instance.token.reveal()));
    let request = if body.is_empty() { request } else { request.header(CONTENT_TYPE, JSON) };
    request.body(Full::from(body)).map_err(|error| not_sent(CallError::Request(error)))
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, SidecarError> {
    serde_json::from_slice(bytes).map_err(|error| unreachable(CallError::Json(error)))
}

fn not_sent(error: CallError) -> SidecarError {
    SidecarError::NotSent(error.into())
}

fn unreachable(error: CallError) -> SidecarError {
    SidecarError::Unreachable(error.into())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use alloy::primitives::Address;
    use hyper::Response;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use sandbox_protocol::agent::event::Told;
    use sandbox_protocol::agent::negotiation::Move;
    use tempfile::TempDir;
    use tokio::net::UnixListener;

    use super::*;
    use crate::places::Places;

    const VESSEL: &str = "sbx-1-2-0-tag";
    const EVENTS: &str = concat!(
        ": here\n\n",
        "id: 1\nevent: sandbox_round\ndata: {\"seq\":1,\"time_ms\":2,\"type\":\"sandbox_round\",\"move\":\"m1\",\n",
        "data:\"round\":1,\"status\":\"dm_responded\"}\n\n",
        "event: later\ndata: {}\n\n",
        "data: {\"seq\":2,\"time_ms\":3,\"type\":\"move_done\",\"move\":\"m1\"}\n\n",
        "data: {\"se",
    );

    /// A sidecar that answers every request alike, and with what it was asked where that is to be seen.
    fn sidecar(status: u16, answer: &'static str) -> (SocketSidecars, Instance, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::new(dir.path(), Address::ZERO, 1).unwrap();
        std::fs::create_dir(places.socket_dir(VESSEL)).unwrap();
        let listener = UnixListener::bind(places.socket(VESSEL)).unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(move |request: Request<Incoming>| async move {
                    let asked = format!("{} {}", request.method(), request.uri());
                    let body = if answer == "asked" { asked } else { answer.to_owned() };
                    Ok::<_, Infallible>(Response::builder().status(status).body(Full::new(Bytes::from(body))).unwrap())
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        (SocketSidecars::new(places), Instance { vessel: VESSEL.into(), ..Instance::default() }, dir)
    }

    fn refused(code: &'static str) -> &'static str {
        match code {
            "not_found" => r#"{"code":"not_found","message":"no such route","retryable":false}"#,
            "unknown_run" => r#"{"code":"unknown_run","message":"no such run","retryable":false}"#,
            _ => r#"{"code":"unknown_profile","message":"no such profile","retryable":false}"#,
        }
    }

    fn a_move() -> NegotiateBody {
        NegotiateBody {
            id: "r1".into(),
            ticker: "ABC".into(),
            one: Move { move_id: "m1".into(), content: "buy".into() },
            max_rounds: 1,
            personas: Default::default(),
            provider: None,
            model: String::new(),
            env: Default::default(),
            timeout_ms: 1_000,
            attach_only: false,
        }
    }

    #[tokio::test]
    async fn a_move_is_followed_to_the_end_of_its_stream_and_what_is_no_event_passed_over() {
        let (sidecars, instance, _dir) = sidecar(200, EVENTS);
        let mut events = sidecars.negotiate(&instance, a_move()).await.unwrap();
        let first = events.next().await.unwrap().unwrap();
        assert!(matches!(first.told, Told::SandboxRound { round: 1, .. }), "{first:?}");
        let second = events.next().await.unwrap().unwrap();
        assert!((second.seq, second.told.is_last()) == (2, true));
        assert_eq!(events.next().await.unwrap(), None, "half an event is none");
    }

    #[tokio::test]
    async fn runs_and_files_are_asked_for_by_their_paths() {
        let (sidecars, instance, _dir) = sidecar(200, "asked");
        let asked = sidecars.file(&instance, "logs/i1.json").await.unwrap();
        assert_eq!(String::from_utf8(asked).unwrap(), "GET /files/content?path=logs/i1.json");
        sidecars.cancel(&instance, "r1").await.unwrap();
    }

    #[tokio::test]
    async fn a_refusal_is_known_by_its_code() {
        let (old, instance, _dir) = sidecar(404, refused("not_found"));
        let run = |sidecars: SocketSidecars, instance: Instance| async move {
            sidecars.run(&instance, Turns::Many, TaskBody::default()).await.unwrap_err()
        };
        assert!(matches!(old.negotiate(&instance, a_move()).await.err(), Some(SidecarError::Outdated)));
        assert!(matches!(run(old, instance).await, SidecarError::Outdated));
        let (forgetful, instance, _dir) = sidecar(404, refused("unknown_run"));
        assert!(matches!(run(forgetful, instance).await, SidecarError::Lost));
        let (strict, instance, _dir) = sidecar(400, refused("unknown_profile"));
        let SidecarError::NotOffered(failure) = run(strict, instance).await else { panic!("not refused") };
        assert_eq!(failure.to_string(), "unknown_profile: no such profile");
    }

    #[tokio::test]
    async fn one_that_is_not_there_was_sent_nothing() {
        let (sidecars, instance, dir) = sidecar(200, "asked");
        drop(dir);
        let gone = Instance { vessel: "sbx-9-9-9-tag".into(), ..instance };
        let error = sidecars.run(&gone, Turns::One, TaskBody::default()).await.unwrap_err();
        assert!(matches!(error, SidecarError::NotSent(_)), "{error}");
    }
}
