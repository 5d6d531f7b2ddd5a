//! The road of a job inside the node: from the router to an answer that is fixed, signed and on disk.
//!
//! Handlers translate and never decide. Whatever they return, a panic included, becomes an answer; nothing here ends the
//! process, and nothing is answered twice. Calls come out of a queue by turns and are worked on so many at a time; an effect
//! begins only on a fresh sight of the chain and ends, one way or the other, within the time that the contract gives.

mod batch;
mod desk;
mod exec;
mod executor;
mod fair;
mod fence;
mod negotiation;
mod provision;
mod queue;
mod sandbox;
mod sealed;
mod ssh;
mod task;
mod terms;
mod workflow;

use std::sync::Arc;

use blueprint_sdk::extract::Context;
use blueprint_sdk::tangle::TangleLayer;
use blueprint_sdk::tangle::extract::{CallId, ServiceId, TangleResult};
use blueprint_sdk::{Job as _, Router};
use sandbox_protocol::abi::JobReceipt;
use sandbox_protocol::{CallKey, Job};

pub(crate) use batch::{CollectError, Collector, Wanted};
pub(crate) use desk::{Desk, DeskParts, JobCall, Work};
pub(crate) use executor::{Errand, Executor};
pub(crate) use fair::Ticket;
pub(crate) use fence::Fence;
#[cfg(test)]
pub(crate) use negotiation::NotHere;
pub(crate) use negotiation::{Conductor, InProcess, NegotiationOrder};
pub(crate) use queue::JobQueue;
pub(crate) use sealed::{open_fields, refused as not_opened};

/// The internal job of the clock: no job on chain can have this id.
pub(crate) const WORKFLOW_TICK: u8 = 255;

/// Every job of the contract, by its id on chain.
pub(crate) fn router(desk: Arc<Desk>) -> Router {
    let router = Job::ALL.into_iter().fold(Router::new(), |router, job| match job {
        Job::SandboxCreate => router.route(job.id(), create.layer(TangleLayer)),
        Job::SandboxStop => router.route(job.id(), stop.layer(TangleLayer)),
        Job::SandboxResume => router.route(job.id(), resume.layer(TangleLayer)),
        Job::SandboxSnapshot => router.route(job.id(), snapshot.layer(TangleLayer)),
        Job::SandboxDelete => router.route(job.id(), delete.layer(TangleLayer)),
        Job::Exec => router.route(job.id(), exec.layer(TangleLayer)),
        Job::Prompt => router.route(job.id(), prompt.layer(TangleLayer)),
        Job::Task => router.route(job.id(), task.layer(TangleLayer)),
        Job::BatchCreate => router.route(job.id(), batch_create.layer(TangleLayer)),
        Job::BatchTask => router.route(job.id(), batch_task.layer(TangleLayer)),
        Job::BatchExec => router.route(job.id(), batch_exec.layer(TangleLayer)),
        Job::BatchCollect => router.route(job.id(), batch_collect.layer(TangleLayer)),
        Job::SshProvision => router.route(job.id(), ssh_provision.layer(TangleLayer)),
        Job::SshRevoke => router.route(job.id(), ssh_revoke.layer(TangleLayer)),
        Job::WorkflowCreate => router.route(job.id(), workflow_create.layer(TangleLayer)),
        Job::WorkflowTrigger => router.route(job.id(), workflow_trigger.layer(TangleLayer)),
        Job::WorkflowCancel => router.route(job.id(), workflow_cancel.layer(TangleLayer)),
    });
    // Without the layer: a tick is nobody's call.
    router.route(WORKFLOW_TICK, workflow::tick).with_context(desk)
}

type Receipt = Option<TangleResult<JobReceipt>>;

async fn create(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, sandbox::create).await.map(TangleResult)
}

async fn stop(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, sandbox::stop).await.map(TangleResult)
}

async fn resume(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, sandbox::resume).await.map(TangleResult)
}

async fn snapshot(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, sandbox::snapshot).await.map(TangleResult)
}

async fn delete(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, sandbox::delete).await.map(TangleResult)
}

async fn exec(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, exec::exec).await.map(TangleResult)
}

async fn prompt(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, task::prompt).await.map(TangleResult)
}

async fn task(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, task::task).await.map(TangleResult)
}

async fn batch_create(
    Context(desk): Context<Arc<Desk>>,
    ServiceId(service): ServiceId,
    CallId(call): CallId,
) -> Receipt {
    desk.answer(CallKey { service, call }, batch::create).await.map(TangleResult)
}

async fn batch_task(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, batch::task).await.map(TangleResult)
}

async fn batch_exec(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, batch::exec).await.map(TangleResult)
}

async fn batch_collect(
    Context(desk): Context<Arc<Desk>>,
    ServiceId(service): ServiceId,
    CallId(call): CallId,
) -> Receipt {
    desk.answer(CallKey { service, call }, batch::collect).await.map(TangleResult)
}

async fn ssh_provision(
    Context(desk): Context<Arc<Desk>>,
    ServiceId(service): ServiceId,
    CallId(call): CallId,
) -> Receipt {
    desk.answer(CallKey { service, call }, ssh::provision).await.map(TangleResult)
}

async fn ssh_revoke(Context(desk): Context<Arc<Desk>>, ServiceId(service): ServiceId, CallId(call): CallId) -> Receipt {
    desk.answer(CallKey { service, call }, ssh::revoke).await.map(TangleResult)
}

async fn workflow_create(
    Context(desk): Context<Arc<Desk>>,
    ServiceId(service): ServiceId,
    CallId(call): CallId,
) -> Receipt {
    desk.answer(CallKey { service, call }, workflow::create).await.map(TangleResult)
}

async fn workflow_trigger(
    Context(desk): Context<Arc<Desk>>,
    ServiceId(service): ServiceId,
    CallId(call): CallId,
) -> Receipt {
    desk.answer(CallKey { service, call }, workflow::trigger).await.map(TangleResult)
}

async fn workflow_cancel(
    Context(desk): Context<Arc<Desk>>,
    ServiceId(service): ServiceId,
    CallId(call): CallId,
) -> Receipt {
    desk.answer(CallKey { service, call }, workflow::cancel).await.map(TangleResult)
}
