//! The road of a job inside the node: from the router to an answer that is fixed, signed and on disk.
//!
//! Handlers translate and never decide. Whatever they return, a panic included, becomes an answer; nothing here ends the
//! process, and nothing is answered twice.

mod desk;
mod exec;
mod sandbox;

use std::sync::Arc;

use blueprint_sdk::extract::Context;
use blueprint_sdk::tangle::TangleLayer;
use blueprint_sdk::tangle::extract::{CallId, ServiceId, TangleResult};
use blueprint_sdk::{Job as _, Router};
use sandbox_protocol::abi::JobReceipt;
use sandbox_protocol::{CallKey, Job};

pub(crate) use desk::{Desk, DeskParts, JobCall, Work};

/// Every job of this version, by its id on chain.
pub(crate) fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route(Job::SandboxCreate.id(), create.layer(TangleLayer))
        .route(Job::SandboxDelete.id(), delete.layer(TangleLayer))
        .route(Job::Exec.id(), exec.layer(TangleLayer))
        .with_context(desk)
}

type Receipt = Option<TangleResult<JobReceipt>>;

async fn create(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, sandbox::create).await.map(TangleResult)
}

async fn delete(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, sandbox::delete).await.map(TangleResult)
}

async fn exec(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, exec::exec).await.map(TangleResult)
}
