//! Calls and their answers, to the account that made them: by a token, or one by one by a signature over the very call.

mod follow;

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use sandbox_protocol::holdings::{CallEntry, CallsBody, CallsQuery};
use sandbox_protocol::http::{AnswerBody, CallBody, CallQuery, CallStatus, ErrorBody, response_json};
use sandbox_protocol::limits::WAIT_S_MAX;
use sandbox_protocol::session::Scope;
use sandbox_protocol::{CallKey, Job, Outcome};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::document::SessionErrors;
use super::extract::{InPath, InQuery};
use super::proof::{self, Asked};
use super::seats::{Seats, taken_up};
use super::session::Session;
use super::{ApiError, now, page};
use crate::limits::API_UNKNOWN_WAITS_MAX;
use crate::records::{Answer, CallPlace, CallRecord, Progress, Records};
use crate::stories::Stories;
use follow::{Follower, Told};

const TOO_MANY: &str = "too many wait for calls that are not known here yet";

/// What the route works with.
pub(super) struct Calls {
    records: Records,
    asked: Asked,
    /// Waits for calls that are not known yet, which anybody may do.
    unknown_waits: Semaphore,
    seats: Seats,
    stories: Stories,
    stop: CancellationToken,
}

/// Which call, for whom, and how far it is to be.
#[derive(Clone, Copy)]
struct Want {
    key: CallKey,
    caller: Address,
    until: CallStatus,
}

impl Calls {
    /// Calls of `records`, for those who prove to the one that is `asked` who they are.
    pub(super) fn new(
        (records, stories): (Records, Stories),
        asked: Asked,
        seats: Seats,
        stop: CancellationToken,
    ) -> Self {
        Self { records, asked, unknown_waits: Semaphore::const_new(API_UNKNOWN_WAITS_MAX), seats, stories, stop }
    }
}

/// The routes, as a value.
pub(super) fn routes() -> OpenApiRouter<Arc<Calls>> {
    OpenApiRouter::new().routes(routes!(show)).routes(routes!(list))
}

/// Shows a call of the caller's with its answer and the signed receipt, waiting for it if asked to. Who accepts
/// `text/event-stream` gets an event for each state that the call comes to (`queued`, `running`, `answered`, `settled`; data:
/// CallBody), up to `until`, and in between what a negotiation tells (`sandbox_round`, `sandbox_scored`, `sandbox_failed`,
/// `warning`, `layer_complete`) and a batch (`batch_item`); `wait` is then the time that a call may take to come in.
#[utoipa::path(
    get, path = "/v1/services/{service}/calls/{call}", operation_id = "call", tag = "calls",
    security(("token" = []), ("proof" = [])),
    params(
        ("service" = u64, Path, description = "Service id"), ("call" = u64, Path, description = "Call id"), CallQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that the reader of a stream has"),
    ),
    responses(
        (status = 200, description = "Where the call is", content(
            (CallBody = "application/json"), (String = "text/event-stream"),
        )),
        (status = 404, description = "The caller has no such call here; it may still come in", body = ErrorBody),
        SessionErrors,
    )
)]
async fn show(
    State(calls): State<Arc<Calls>>,
    InPath((service, call)): InPath<(u64, u64)>,
    InQuery(CallQuery { wait, until }): InQuery<CallQuery>,
    session: Result<Session, ApiError>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if wait > WAIT_S_MAX {
        return Err(ApiError::BadRequest(format!("wait is at most {WAIT_S_MAX} seconds")));
    }
    let key = CallKey { service, call };
    let (caller, session) = match session {
        Ok(session) => (session.may(Scope::CallsRead)?, Some(session)),
        Err(refused) if Session::is_shown(&headers) => return Err(refused),
        Err(_) => (proof::caller(&headers, key, now(), calls.asked)?, None),
    };
    let (want, wait) = (Want { key, caller, until }, Duration::from_secs(wait));
    if follow::is_asked(&headers) {
        let told = taken_up(&headers)?.map(Told::of_id).unwrap_or_default();
        let seat = calls.seats.take(caller)?;
        // Refused here, it is refused by its status.
        calls.far_enough(Want { until: CallStatus::Pending, ..want }, wait).await?;
        return Ok(Follower { calls, want, session, told, seat }.start().into_response());
    }
    let found = calls.far_enough(want, wait).await?;
    Ok(Json(body(&found)?).into_response())
}

/// Lists the caller's calls to this operator, the newest first, as far back as they are kept.
#[utoipa::path(
    get, path = "/v1/calls", operation_id = "calls", tag = "calls", security(("token" = [])), params(CallsQuery),
    responses((status = 200, description = "A page of them", body = CallsBody), SessionErrors)
)]
async fn list(
    State(calls): State<Arc<Calls>>,
    session: Session,
    InQuery(query): InQuery<CallsQuery>,
) -> Result<Json<CallsBody>, ApiError> {
    let caller = session.may(Scope::CallsRead)?;
    let limit = page(query.limit)?;
    let wrong = || ApiError::BadRequest("cursor: not one that this operator gave".into());
    let cursor = query.cursor.map(|text| CallPlace::parse(&text).ok_or_else(wrong)).transpose()?;
    let found = calls.records.calls_of(caller, cursor, limit + 1)?;
    let next = found.get(limit).and_then(|_| Some(CallPlace::from(found.get(limit - 1)?).to_string()));
    let calls = found.iter().take(limit).filter_map(entry).collect();
    Ok(Json(CallsBody { calls, next }))
}

impl Calls {
    /// The call, as soon as it is far enough or the time is over.
    async fn far_enough(&self, want: Want, wait: Duration) -> Result<CallRecord, ApiError> {
        if !wait.is_zero() {
            tokio::select! {
                found = self.wait_for(want) => return found,
                () = tokio::time::sleep(wait) => {}
                () = self.stop.cancelled() => {}
            }
        }
        self.look(want).await?.ok_or(ApiError::NoCall)
    }

    /// The call, once it is far enough. One that is not known yet may still come in; another's is refused when it is
    /// known, so that nobody learns how far it is.
    async fn wait_for(&self, want: Want) -> Result<CallRecord, ApiError> {
        let mut changes = self.records.watch(want.key);
        let mut unknown_wait = None;
        loop {
            match self.look(want).await? {
                Some(call) if status(&call).is_some_and(|status| status >= want.until) => return Ok(call),
                Some(_) => unknown_wait = None,
                None if unknown_wait.is_some() => {}
                None => unknown_wait = Some(self.unknown_waits.try_acquire().map_err(|_| ApiError::Busy(TOO_MANY))?),
            }
            changes.changed().await.map_err(|_| ApiError::NotReady)?;
        }
    }

    /// The call as it is, if it is known here.
    async fn look(&self, want: Want) -> Result<Option<CallRecord>, ApiError> {
        let found = self.records.call_on_disk(want.key).await;
        match found? {
            Some(call) if call.caller != want.caller || status(&call).is_none() => Err(ApiError::NoCall),
            found => Ok(found),
        }
    }
}

/// How far a call is; `None` for one that was never answered here: whoever did has the answer.
const fn status(call: &CallRecord) -> Option<CallStatus> {
    match &call.progress {
        Progress::Seen | Progress::Begun { .. } => Some(CallStatus::Pending),
        Progress::Answered(_) | Progress::Refused { .. } => Some(CallStatus::Answered),
        Progress::Settled { .. } => Some(CallStatus::Settled),
        Progress::Dropped { .. } => None,
    }
}

/// A call in a list; none that was never answered here.
fn entry(call: &CallRecord) -> Option<CallEntry> {
    let outcome = call.answer().and_then(|answer| Outcome::from_id(answer.receipt.receipt.outcome));
    let CallKey { service, call: number } = call.key;
    Some(CallEntry { service, call: number, job: call.job, block: call.block, status: status(call)?, outcome })
}

fn body(call: &CallRecord) -> Result<CallBody, ApiError> {
    let status = status(call).ok_or(ApiError::NoCall)?;
    let transaction = match &call.progress {
        Progress::Settled { transaction, .. } => *transaction,
        Progress::Seen
        | Progress::Begun { .. }
        | Progress::Answered(_)
        | Progress::Refused { .. }
        | Progress::Dropped { .. } => None,
    };
    let answer = call.answer().map(|answer| answer_body(call.job, answer, transaction)).transpose()?;
    let has_run = matches!(Job::from_id(call.job), Some(Job::Prompt | Job::Task));
    let run = has_run.then(|| call.execution());
    Ok(CallBody { service: call.key.service, call: call.key.call, job: call.job, status, run, answer })
}

fn answer_body(job: u8, answer: &Answer, transaction: Option<B256>) -> Result<AnswerBody, ApiError> {
    let defect = |what: &str| ApiError::Internal(what.into());
    let job = Job::from_id(job).ok_or_else(|| defect("an answered call of a reserved job"))?;
    let readable = response_json(job, answer.failure, &answer.response);
    Ok(AnswerBody {
        outcome: Outcome::from_id(answer.receipt.receipt.outcome).ok_or_else(|| defect("an unknown outcome"))?,
        failure: answer.failure,
        response: answer.response.clone(),
        response_json: readable.map_err(|error| ApiError::Internal(Box::new(error)))?,
        receipt: answer.receipt.clone(),
        transaction,
    })
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Bytes, Signature, U256, keccak256};
    use alloy::signers::local::PrivateKeySigner;
    use alloy::sol_types::SolValue as _;
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use axum::http::StatusCode;
    use axum::http::header::{ACCEPT, AUTHORIZATION};
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use sandbox_protocol::abi::JobError;
    use sandbox_protocol::agent::event::Told as RunTold;
    use sandbox_protocol::http::ErrorBody;
    use sandbox_protocol::receipt::{SandboxReceipt, SignedReceipt};
    use sandbox_protocol::{Failure, FailureCode};
    use tempfile::TempDir;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::api::seats::STREAMS;
    use crate::records::RecordsGuard;

    const KEY: CallKey = CallKey { service: 1, call: 2 };
    const ASKED: Asked = Asked { operator: Address::repeat_byte(2), chain_id: 31_337, core: Address::repeat_byte(3) };
    const ALL_WAITS: u32 = API_UNKNOWN_WAITS_MAX as u32;
    /// Longer than anything here takes on a busy machine, shorter than the longest wait.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// The route over records of its own, and who asks.
    struct Desk {
        records: Records,
        stop: CancellationToken,
        route: TowerToHyperService<Router>,
        calls: Arc<Calls>,
        caller: PrivateKeySigner,
        _kept: (RecordsGuard, TempDir),
    }

    impl Desk {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (records, guard) = Records::open(dir.path()).unwrap();
            let stop = CancellationToken::new();
            let parts = (records.clone(), Stories::default());
            let calls = Arc::new(Calls::new(parts, ASKED, Seats::new(STREAMS), stop.clone()));
            let route = TowerToHyperService::new(Router::from(routes().with_state(calls.clone())));
            Self { records, stop, route, calls, caller: PrivateKeySigner::random(), _kept: (guard, dir) }
        }

        fn call(&self, progress: Progress) -> CallRecord {
            let seen = CallRecord::seen(KEY, 0, self.caller.address(), vec![1].into(), 5);
            CallRecord { progress, ..seen }
        }

        /// The status of the call, or the code of the refusal, as the caller sees it.
        async fn ask(&self, query: &str) -> Result<CallStatus, (u16, String)> {
            self.ask_as(&self.caller, query).await
        }

        async fn ask_as(&self, caller: &PrivateKeySigner, query: &str) -> Result<CallStatus, (u16, String)> {
            let proof = proof::tests::proof(caller, KEY, now() + 100, ASKED);
            let request =
                Request::get(format!("/v1/services/1/calls/2?{query}")).header(AUTHORIZATION, proof.to_string());
            let answered = timeout(PATIENCE, self.route.call(request.body(Body::empty()).unwrap()));
            let response = answered.await.expect("no answer").unwrap();
            let status = response.status();
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            if status.is_success() {
                return Ok(serde_json::from_slice::<CallBody>(&body).unwrap().status);
            }
            Err((status.as_u16(), serde_json::from_slice::<ErrorBody>(&body).unwrap().code))
        }

        /// Asks, and does something once the question waits.
        async fn meanwhile(&self, query: &str, act: impl Future<Output = ()>) -> Result<CallStatus, (u16, String)> {
            let mut asking = std::pin::pin!(self.ask(query));
            assert!(futures::poll!(asking.as_mut()).is_pending());
            tokio::join!(asking, act).0
        }
    }

    fn refusal(status: u16, code: &str) -> Result<CallStatus, (u16, String)> {
        Err((status, code.to_owned()))
    }

    #[tokio::test]
    async fn a_wait_for_another_ones_call_is_refused_at_once() {
        let desk = Desk::new();
        desk.records.put_call(&desk.call(Progress::Seen)).await.unwrap();
        let stranger = PrivateKeySigner::random();
        assert_eq!(desk.ask_as(&stranger, "wait=60").await, refusal(404, "no_call"));
        assert_eq!(desk.ask_as(&stranger, "").await, refusal(404, "no_call"));
        assert_eq!(desk.ask("").await, Ok(CallStatus::Pending));
    }

    #[tokio::test]
    async fn a_wait_ends_when_the_call_turns_out_to_be_another_ones() {
        let desk = Desk::new();
        let foreign = CallRecord { caller: Address::repeat_byte(9), ..desk.call(Progress::Seen) };
        let taken_in = async { desk.records.take_in(&[foreign], 9).await.unwrap() };
        assert_eq!(desk.meanwhile("wait=60", taken_in).await, refusal(404, "no_call"));
    }

    #[tokio::test]
    async fn a_call_that_is_not_known_yet_is_waited_for() {
        let desk = Desk::new();
        let taken_in = async { desk.records.take_in(&[desk.call(Progress::Seen)], 9).await.unwrap() };
        assert_eq!(desk.meanwhile("wait=60&until=pending", taken_in).await, Ok(CallStatus::Pending));
    }

    #[tokio::test]
    async fn no_more_wait_for_calls_that_are_not_known_yet_than_may() {
        let desk = Desk::new();
        let all = desk.calls.unknown_waits.try_acquire_many(ALL_WAITS).unwrap();
        assert_eq!(desk.ask("wait=60").await, refusal(429, "busy"));
        assert_eq!(desk.ask("").await, refusal(404, "no_call"), "who does not wait is answered");
        drop(all);

        let known = async {
            assert_eq!(desk.calls.unknown_waits.available_permits(), API_UNKNOWN_WAITS_MAX - 1);
            desk.records.put_call(&desk.call(Progress::Seen)).await.unwrap();
            drop(desk.calls.unknown_waits.acquire_many(ALL_WAITS).await.unwrap());
            desk.stop.cancel();
        };
        assert_eq!(desk.meanwhile("wait=60", known).await, Ok(CallStatus::Pending));
    }

    #[tokio::test]
    async fn a_dropped_call_is_not_waited_for() {
        let desk = Desk::new();
        let dropped = async {
            let dropped = Progress::Dropped { reason: "late".into() };
            desk.records.put_call(&desk.call(dropped)).await.unwrap();
        };
        assert_eq!(desk.meanwhile("wait=60", dropped).await, refusal(404, "no_call"));
        assert_eq!(desk.ask("wait=60").await, refusal(404, "no_call"));
    }

    /// The answer to a call that was not done.
    fn answer() -> Answer {
        let failure = Failure::new(FailureCode::BadRequest, "no");
        let response: Bytes = JobError::from(&failure).abi_encode().into();
        let receipt = SandboxReceipt {
            service: KEY.service,
            call: KEY.call,
            job: 0,
            operator: ASKED.operator,
            caller: Address::ZERO,
            inputs_hash: B256::ZERO,
            response_hash: keccak256(&response),
            outcome: Outcome::Caller.id(),
            detail: U256::ZERO,
            failure: failure.code.to_string(),
            runtime: String::new(),
            image_digest: String::new(),
            started_block: 1,
            ended_block: 2,
            duration_ms: 3,
        };
        let signature = Signature::test_signature();
        let receipt = SignedReceipt { chain_id: ASKED.chain_id, core: ASKED.core, receipt, signature };
        Answer { response, failure: Some(failure.code), receipt }
    }

    /// What a stream says, event by event and id by id; it ends by itself.
    async fn told(desk: &Desk, query: &str, last: Option<u64>) -> Result<String, StatusCode> {
        let proof = proof::tests::proof(&desk.caller, KEY, now() + 100, ASKED);
        let request = Request::get(format!("/v1/services/1/calls/2?{query}"))
            .header(AUTHORIZATION, proof.to_string())
            .header(ACCEPT, "text/event-stream");
        let request = last.into_iter().fold(request, |request, id| request.header("last-event-id", id));
        let response = desk.route.call(request.body(Body::empty()).unwrap()).await.unwrap();
        if !response.status().is_success() {
            return Err(response.status());
        }
        let body = timeout(PATIENCE, to_bytes(response.into_body(), usize::MAX)).await.expect("no end").unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("event: ").or_else(|| line.strip_prefix("id: ")));
        Ok(lines.collect::<Vec<_>>().join(" "))
    }

    #[tokio::test]
    async fn a_stream_tells_each_state_and_ends_with_the_answer() {
        let desk = Desk::new();
        desk.records.put_call(&desk.call(Progress::Seen)).await.unwrap();
        let mut following = std::pin::pin!(told(&desk, "", None));
        assert!(futures::poll!(following.as_mut()).is_pending());
        assert_eq!(desk.calls.seats.taken(), 1);
        let (stream, ()) = tokio::join!(following, async {
            desk.records.put_call(&desk.call(Progress::Begun { block: 6 })).await.unwrap();
            desk.records
                .put_call(&desk.call(Progress::Refused { answer: answer(), reason: "x".into() }))
                .await
                .unwrap();
        });
        let stream = stream.unwrap();
        assert!(stream.ends_with("answered 3") && !stream.contains("settled"), "{stream}");
        assert_eq!(told(&desk, "until=settled", None).await, Ok("answered 3".into()), "it comes no further");
        assert_eq!(told(&desk, "", Some(3)).await, Ok(String::new()), "told already");
        assert_eq!(told(&desk, "until=pending", Some(1)).await, Ok("answered 3".into()));
    }

    #[tokio::test]
    async fn a_stream_tells_what_is_told_of_the_work_before_the_answer_and_goes_on_behind_what_is_known() {
        let desk = Desk::new();
        let scored = |number: u64| RunTold::SandboxScored {
            move_id: format!("m{number}"),
            score: 12,
            breakdown: Default::default(),
        };
        let stories = &desk.calls.stories;
        desk.records.put_call(&desk.call(Progress::Begun { block: 6 })).await.unwrap();
        stories.begin(KEY, 1, 1);
        stories.tell(KEY, scored(1), 1);
        let mut following = std::pin::pin!(told(&desk, "", None));
        assert!(futures::poll!(following.as_mut()).is_pending());
        let (stream, ()) = tokio::join!(following, async {
            stories.tell(KEY, scored(2), 1);
            let refused = Progress::Refused { answer: answer(), reason: "x".into() };
            desk.records.put_call(&desk.call(refused)).await.unwrap();
        });
        let stream = stream.unwrap();
        let names: Vec<&str> = stream.split(' ').step_by(2).filter(|name| *name != "running").collect();
        assert_eq!(names, ["sandbox_scored", "sandbox_scored", "answered"], "{stream}");
        assert_eq!(told(&desk, "", Some(10)).await, Ok("sandbox_scored 18 answered 19".into()));
        assert_eq!(told(&desk, "", Some(19)).await, Ok(String::new()));
    }

    #[tokio::test]
    async fn a_call_says_what_its_run_is_called() {
        let desk = Desk::new();
        let call = CallRecord { job: Job::Task.id(), ..desk.call(Progress::Seen) };
        assert_eq!(body(&call).unwrap().run, Some(call.execution()));
        assert_eq!(body(&desk.call(Progress::Seen)).unwrap().run, None);
    }

    #[tokio::test]
    async fn a_stream_of_a_call_that_is_not_the_readers_is_refused_before_it_begins() {
        let desk = Desk::new();
        assert_eq!(told(&desk, "", None).await, Err(StatusCode::NOT_FOUND));
        let foreign = CallRecord { caller: Address::repeat_byte(9), ..desk.call(Progress::Seen) };
        desk.records.put_call(&foreign).await.unwrap();
        assert_eq!(told(&desk, "", None).await, Err(StatusCode::NOT_FOUND));
        assert_eq!(desk.calls.seats.taken(), 0, "nor does it keep a seat");
    }

    #[tokio::test]
    async fn so_many_streams_of_one_address_are_open_at_a_time() {
        let desk = Desk::new();
        desk.records.put_call(&desk.call(Progress::Seen)).await.unwrap();
        let address = desk.caller.address();
        let seats: Vec<_> = std::iter::from_fn(|| desk.calls.seats.take(address).ok()).collect();
        assert_eq!(told(&desk, "", None).await, Err(StatusCode::TOO_MANY_REQUESTS));
        drop(seats);
        desk.stop.cancel();
        assert!(told(&desk, "", None).await.is_ok(), "it ends with the process");
    }

    #[tokio::test]
    async fn a_wait_ends_with_its_time_and_with_the_process() {
        let desk = Desk::new();
        desk.records.put_call(&desk.call(Progress::Seen)).await.unwrap();
        let begun = Instant::now();
        assert_eq!(desk.ask("wait=1").await, Ok(CallStatus::Pending));
        assert!(begun.elapsed() >= Duration::from_secs(1));
        assert_eq!(desk.meanwhile("wait=60", async { desk.stop.cancel() }).await, Ok(CallStatus::Pending));
        assert_eq!(desk.ask("wait=61").await, refusal(400, "bad_request"));
    }
}
