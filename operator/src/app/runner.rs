//! The SDK's runner, between this node's queue and its outbox.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

use blueprint_producers_extra::cron::CronJob;
use blueprint_sdk::JobCall;
use blueprint_sdk::runner::BlueprintRunner;
use blueprint_sdk::runner::config::{BlueprintEnvironment, ProtocolSettings};
use blueprint_sdk::runner::error::RunnerError;
use blueprint_sdk::runner::tangle::config::TangleProtocolSettings;
use blueprint_sdk::tangle::extract::{CallId, ServiceId};
use futures::StreamExt as _;
use sandbox_sdk::Chain;

use crate::chain::outbox::Outbox;
use crate::config::Config;
use crate::jobs::{self, Desk, JobQueue, Ticket, WORKFLOW_TICK};

/// The stock runner between the queue and the outbox.
pub(crate) fn runner(
    env: BlueprintEnvironment,
    (queue, clock): (&JobQueue, CronJob),
    desk: Arc<Desk>,
    outbox: Outbox,
) -> impl Future<Output = Result<(), RunnerError>> + use<> {
    let calls = queue.stream().map(|ticket| Ok::<_, Infallible>(job_call(&ticket)));
    let runner = BlueprintRunner::builder(Unregistered, env).router(jobs::router(desk));
    runner.producer(Box::pin(calls)).producer(clock).consumer(outbox).run()
}

/// The clock by which workflows are fired.
///
/// # Errors
/// [`NoClock`]; the schedule itself was checked when it was read.
pub(crate) async fn clock(schedule: &str) -> Result<CronJob, NoClock> {
    CronJob::new(WORKFLOW_TICK, schedule).await.map_err(|error| NoClock(error.into()))
}

/// There is no clock.
#[derive(Debug, thiserror::Error)]
#[error("the clock of WORKFLOW_CRON_SCHEDULE cannot be started")]
pub(crate) struct NoClock(#[source] Box<dyn Error + Send + Sync>);

/// The runner neither registers nor exits after it: that is done before it starts.
struct Unregistered;

impl blueprint_sdk::runner::BlueprintConfig for Unregistered {
    async fn requires_registration(&self, _: &BlueprintEnvironment) -> Result<bool, RunnerError> {
        Ok(false)
    }

    fn should_exit_after_registration(&self) -> bool {
        false
    }
}

/// What the SDK's runner wants to know. Without the Blueprint Manager's socket it must not look for the manager, which is
/// what it calls test mode.
pub(super) fn environment(config: &Config, chain: &Chain) -> BlueprintEnvironment {
    let deployment = chain.deployment();
    let mut env = BlueprintEnvironment::default();
    env.http_rpc_endpoint = deployment.rpc_url.clone();
    env.keystore_uri = config.keystore.uri.clone();
    env.data_dir = config.data_dir.clone();
    env.bridge_socket_path = config.bridge_socket.clone();
    env.test_mode = config.bridge_socket.is_none();
    env.protocol_settings = ProtocolSettings::Tangle(TangleProtocolSettings {
        blueprint_id: deployment.blueprint_id,
        service_id: config.chain.service,
        tangle_contract: deployment.core,
        ..TangleProtocolSettings::default()
    });
    env
}

/// A recorded call in the SDK's form. The inputs stay in the record, which is what handlers read.
fn job_call(ticket: &Ticket) -> JobCall {
    let mut call = JobCall::new(ticket.job, bytes::Bytes::new());
    call.metadata_mut().insert(CallId::METADATA_KEY, ticket.key.call);
    call.metadata_mut().insert(ServiceId::METADATA_KEY, ticket.key.service);
    call
}
