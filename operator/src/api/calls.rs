//! `GET /v1/services/{service}/calls/{call}`: the answer of a call, to the account that made it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use sandbox_protocol::http::{AnswerBody, CallBody, CallQuery, CallStatus, response_json};
use sandbox_protocol::limits::WAIT_S_MAX;
use sandbox_protocol::{CallKey, Job, Outcome};

use super::{Api, ApiError, now, proof};
use crate::records::{Answer, CallRecord, Progress};

/// Shows a call, waiting for its answer if asked to.
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    path: Result<Path<(u64, u64)>, PathRejection>,
    query: Result<Query<CallQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Json<CallBody>, ApiError> {
    let Path((service, call)) = path.map_err(|rejection| ApiError::BadRequest(rejection.body_text()))?;
    let Query(CallQuery { wait, until }) = query.map_err(|rejection| ApiError::BadRequest(rejection.body_text()))?;
    if wait > WAIT_S_MAX {
        return Err(ApiError::BadRequest(format!("wait is at most {WAIT_S_MAX} seconds")));
    }
    let key = CallKey { service, call };
    let deployment = api.chain.deployment();
    let caller = proof::caller(&headers, key, now(), (deployment.chain_id, deployment.core))?;
    let found = waited_for(&api, key, (Duration::from_secs(wait), until)).await?;
    match found {
        Some(found) if found.caller == caller => Ok(Json(body(&found)?)),
        Some(_) | None => Err(ApiError::NoCall),
    }
}

/// The call, as soon as it is far enough or the time is over. One that is not known yet may still come in.
async fn waited_for(
    api: &Api,
    key: CallKey,
    (wait, until): (Duration, CallStatus),
) -> Result<Option<CallRecord>, ApiError> {
    let read = || api.records.call(key).map_err(|error| ApiError::Internal(Box::new(error)));
    let mut changes = api.records.changes();
    let answered = async {
        loop {
            let found = read()?;
            if found.as_ref().is_some_and(|call| status(call).is_none_or(|status| status >= until)) {
                return Ok(found);
            }
            if changes.changed().await.is_err() {
                return Ok(found);
            }
        }
    };
    tokio::select! {
        found = answered => found,
        () = tokio::time::sleep(wait) => read(),
        () = api.stop.cancelled() => read(),
    }
}

/// How far a call is; `None` for one that was never answered here: whoever did has the answer.
const fn status(call: &CallRecord) -> Option<CallStatus> {
    match &call.progress {
        Progress::Seen | Progress::Begun { .. } => Some(CallStatus::Pending),
        Progress::Answered(_) => Some(CallStatus::Answered),
        Progress::Settled { .. } => Some(CallStatus::Settled),
        Progress::Dropped { .. } => None,
    }
}

fn body(call: &CallRecord) -> Result<CallBody, ApiError> {
    let status = status(call).ok_or(ApiError::NoCall)?;
    let transaction = match &call.progress {
        Progress::Settled { transaction, .. } => *transaction,
        Progress::Seen | Progress::Begun { .. } | Progress::Answered(_) | Progress::Dropped { .. } => None,
    };
    let answer = call.answer().map(|answer| answer_body(call.job, answer, transaction)).transpose()?;
    Ok(CallBody { service: call.key.service, call: call.key.call, job: call.job, status, answer })
}

fn answer_body(job: u8, answer: &Answer, transaction: Option<alloy::primitives::B256>) -> Result<AnswerBody, ApiError> {
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
